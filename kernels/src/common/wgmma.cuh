// Tensor-core products of a warp group (sm_90a alone): `wgmma`, whose operands both lie in shared memory.
//
// The 128 threads of four neighbouring warps multiply 64 rows of A by N columns of B, 16 elements of 16 bits along k, together and
// asynchronously: a thread issues products, closes a group of them, and later waits until at most some of its newest groups are under way.
// Until then it neither reads nor writes their sums. Warp w of the group has rows 16·w to 16·w + 15, in fragments of 16×8 as those of C in
// mma.cuh: sums[j] are columns 8·j to 8·j + 7.
//
//   wgmma_fence();                 before the first product, and after sums were written otherwise
//   Wgmma<T, N, …>::run(…) …       they add to the same sums in their order
//   wgmma_commit();
//   wgmma_wait<0>();
//
// Products read shared memory by another way than threads do, the asynchronous proxy. What threads (and cp.async) have written is seen there
// only after `fence_async_proxy` of those who wrote it, and a barrier.
//
// An operand is given by a descriptor: an address, two distances and the swizzle. That of 128 bytes is the one used here: rows of 128 bytes
// (64 elements), eight of them a block of 1024 bytes from a multiple of 1024 on, in which chunk c of 16 bytes of row r lies at c ^ r.
//
//   rows along k:    a row holds 64 elements along k of one row of A or column of B. STRIDE is the distance from eight rows to the next eight.
//                    Of 64 elements along k a product takes 16: its address is 32 bytes further for each such step.
//   rows across:     a row holds 64 rows of A, or columns of B, of one k. STRIDE is the distance from eight k to the next eight, LEADING that
//                    from 64 rows or columns to the next 64.
#pragma once

#include "mma.cuh"

__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// The descriptor of an operand at `address`, swizzled by 128 bytes. Addresses and distances are in units of 16 bytes.
template <int LEADING, int STRIDE> __device__ __forceinline__ u64 wgmma_operand(u32 address) {
    static_assert(LEADING % 16 == 0 && STRIDE % 16 == 0, "multiples of 16 bytes");
    constexpr u64 SWIZZLE_128 = 1ull << 62;
    return (u64)((address & 0x3ffff) >> 4) | (u64)(LEADING >> 4) << 16 | (u64)(STRIDE >> 4) << 32 | SWIZZLE_128;
}

// sums += A·B of 64×N×16. ACROSS_A, ACROSS_B: the rows of the operand in memory run across (1), not along k (0).
template <typename T, int N, int ACROSS_A, int ACROSS_B> struct Wgmma;

#define WGMMA_SUMS_1(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define WGMMA_SUMS_8(d, j)                                                                                             \
    WGMMA_SUMS_1(d, j), WGMMA_SUMS_1(d, j + 1), WGMMA_SUMS_1(d, j + 2), WGMMA_SUMS_1(d, j + 3),                        \
        WGMMA_SUMS_1(d, j + 4), WGMMA_SUMS_1(d, j + 5), WGMMA_SUMS_1(d, j + 6), WGMMA_SUMS_1(d, j + 7)
#define WGMMA_SUMS_16(d, j) WGMMA_SUMS_8(d, j), WGMMA_SUMS_8(d, j + 8)
#define WGMMA_SUMS_32(d, j) WGMMA_SUMS_16(d, j), WGMMA_SUMS_16(d, j + 16)
#define WGMMA_NAMES_8 "%0, %1, %2, %3"
#define WGMMA_NAMES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_128 \
    WGMMA_NAMES_64 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_256 \
    WGMMA_NAMES_128 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// `a`, `b`, `ta`, `tb`: the numbers of the operands behind the sums. The predicate says that the sums are added to.
#define WGMMA(T, type, n, fragments, a, b, ta, tb)                                                                     \
    template <int ACROSS_A, int ACROSS_B> struct Wgmma<T, n, ACROSS_A, ACROSS_B> {                                     \
        static __device__ __forceinline__ void run(float (&sums)[n / 8][4], u64 left, u64 right) {                     \
            asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\t"                                            \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" WGMMA_NAMES_##n "}, "    \
                         a ", " b ", p, 1, 1, " ta ", " tb ";\n\t}"                                                    \
                         : WGMMA_SUMS_##fragments(sums, 0)                                                             \
                         : "l"(left), "l"(right), "n"(ACROSS_A), "n"(ACROSS_B));                                       \
        }                                                                                                              \
    };
#define WGMMAS(T, type)                                                                                                \
    WGMMA(T, type, 8, 1, "%4", "%5", "%6", "%7")                                                                       \
    WGMMA(T, type, 64, 8, "%32", "%33", "%34", "%35")                                                                  \
    WGMMA(T, type, 128, 16, "%64", "%65", "%66", "%67")                                                                \
    WGMMA(T, type, 256, 32, "%128", "%129", "%130", "%131")
WGMMAS(bf16, "bf16")
WGMMAS(f16, "f16")
#undef WGMMAS
#undef WGMMA
