#!/usr/bin/env python3
"""Writes the arrays of every dtype and order that kiln-npy reads, with NumPy.

    python crates/npy/tests/golden/arrays.py
"""

import os

import numpy as np

here = os.path.dirname(__file__)
x = (np.arange(24).reshape(2, 3, 4) / 4 - 1).astype(np.float64)
i = np.arange(6).reshape(2, 3)
arrays = {kind: x.astype(kind) for kind in ("f2", "f4", "f8")}
arrays |= {"big": x.astype(">f4"), "fortran": np.asfortranarray(x)}
arrays |= {kind: i.astype(kind) for kind in ("i1", "i2", "i4", "i8", "u2", "u4", "u8")}
arrays |= {"big_i8": i.astype(">i8"), "fortran_i4": np.asfortranarray(i.astype("i4"))}
arrays |= {"u1": np.array([1, 0, 1], "u1"), "b1": np.array([True, False, True])}
arrays |= {"scalar": np.array(2.5), "empty": np.zeros((0, 3))}
np.savez(os.path.join(here, "plain.npz"), **arrays)
np.savez_compressed(os.path.join(here, "packed.npz"), **arrays)
np.save(os.path.join(here, "x.npy"), np.array([1, 2, 3], np.float32))
