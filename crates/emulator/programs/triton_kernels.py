"""The softmax and the matrix product of Triton's tutorials, without torch, on the emulated driver.

Triton passes machine code to the driver, which the emulator does not run: this program passes the PTX instead.
"""

import ctypes
import sys

import numpy as np
import triton
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend

CUDABackend.make_cubin = lambda self, src, metadata, *rest: src.encode() + b"\0"

cuda = ctypes.CDLL("libcuda.so.1")


def check(code):
    assert code == 0, f"a call of the driver gives {code}"


class Array:
    """Device memory with the attributes that Triton needs of a tensor."""

    def __init__(self, values):
        self.values, self.dtype = values, str(values.dtype)
        address = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(values.nbytes)))
        self.address = address.value
        source = values.ctypes.data_as(ctypes.c_void_p)
        check(cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(self.address), source, ctypes.c_size_t(values.nbytes)))

    def data_ptr(self):
        return self.address

    def numpy(self):
        out = np.empty_like(self.values)
        check(cuda.cuMemcpyDtoH_v2(out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(self.address),
                                   ctypes.c_size_t(out.nbytes)))
        return out


@triton.jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * stride + at, value / tl.sum(value, axis=0), mask=at < columns)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m[:, None] * K + start + k[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(b + (start + k[:, None]) * N + n[None, :], mask=n[None, :] < N, other=0.0)
        sum = tl.dot(left, right, sum)
    tl.store(c + m[:, None] * N + n[None, :], sum.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def main():
    triton.runtime.driver.active.get_current_device()
    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    random = np.random.default_rng(0)

    x = random.standard_normal((7, 130), dtype=np.float32)
    source, out = Array(x), Array(np.zeros_like(x))
    softmax[(7,)](out, source, 130, 130, BLOCK=256)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    print("softmax: passed")

    a = random.standard_normal((70, 64)).astype(np.float16)
    b = random.standard_normal((64, 50)).astype(np.float16)
    out = Array(np.zeros((70, 50), dtype=np.float16))
    matmul[(3, 2)](Array(a), Array(b), out, 70, 50, 64, BM=32, BN=32, BK=32)
    np.testing.assert_allclose(out.numpy(), a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)
    print("matmul: passed")


if __name__ == "__main__":
    sys.exit(main())
