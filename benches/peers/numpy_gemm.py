#!/usr/bin/env python3
"""NumPy's matrix products, which are OpenBLAS's in its wheels, as a worker of `cargo xtask bench` (see worker.py). It
has no nets. The bench sets OPENBLAS_NUM_THREADS.

    OPENBLAS_NUM_THREADS=2 python benches/peers/numpy_gemm.py --threads 2
"""

import argparse

import numpy as np
import worker


class NumPy:
    settings, infer_settings = [], []

    def __init__(self):
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        self.name = f"numpy {np.__version__} ({blas['name']} {blas['version']})"

    def gemm(self, m, k, n):
        random = np.random.default_rng(0)
        a, b = random.random((m, k), np.float32), random.random((k, n), np.float32)
        c = np.empty((m, n), np.float32)
        return lambda: np.matmul(a, b, out=c)

    def forget(self):
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.parse_args()
    worker.serve(NumPy())
