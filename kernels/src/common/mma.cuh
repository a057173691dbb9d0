// Tensor-core products of a warp (sm_80 and later): `mma.sync` and the loads of its operands from shared memory.
//
// All 32 lanes take part, together. With g = lane / 4 and t = lane % 4, a lane holds of each fragment (rows and columns
// count from 0; two 16-bit elements to a register, the first in the low half):
//
//   16-bit, m16n8k16                               tf32, m16n8k8 (one element a register)
//     A 16×16  a[0]  row g,    k 2t, 2t+1            A 16×8  a[0]  row g,    k t
//              a[1]  row g+8,  k 2t, 2t+1                    a[1]  row g+8,  k t
//              a[2]  row g,    k 2t+8, 2t+9                  a[2]  row g,    k t+4
//              a[3]  row g+8,  k 2t+8, 2t+9                  a[3]  row g+8,  k t+4
//     B 16×8   b[0]  k 2t, 2t+1,    column g         B 8×8   b[0]  k t,    column g
//              b[1]  k 2t+8, 2t+9,  column g                 b[1]  k t+4,  column g
//
//   C 16×8, both, in f32:  c[0], c[1]  row g,   columns 2t, 2t+1
//                          c[2], c[3]  row g+8, columns 2t, 2t+1
//
// `ldmatrix` fetches four 8×8 matrices of 16-bit elements. Lanes 8i .. 8i+7 name the eight 16-byte rows of matrix i
// (16-byte aligned, anywhere in shared memory), and every lane receives in r[i] elements (g, 2t) and (g, 2t+1) of it;
// `ldmatrix_trans` gives (2t, g) and (2t+1, g). So, with 16-bit elements:
//
//   A from rows of k  ([m][k] in shared memory):  ldmatrix,        row lane % 16,                     k 8·(lane / 16)
//   A from rows of m  ([k][m]):                   ldmatrix_trans,  k lane % 8 + 8·(lane / 16),        m 8·(lane / 8 % 2)
//   two B, columns n and n+8, from [n][k]:        ldmatrix,        n lane % 8 + 8·(lane / 16),        k 8·(lane / 8 % 2)
//   two B, columns n and n+8, from [k][n]:        ldmatrix_trans,  k lane % 16,                       n 8·(lane / 16)
//
// (each line: which row of the tile a lane names, and the first of its 8 elements; of the two B, r[0], r[1] are the
// first and r[2], r[3] the second). Eight rows are read without bank conflicts when their 16-byte addresses differ
// modulo 128: the users swizzle for that. A row of 16 bytes is also 4 elements of 32 bits, of which a lane receives
// (g, t): `ldmatrix` without transposition serves tf32 as well.
#pragma once

#include "types.cuh"

// The address of shared memory as instructions take it.
__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Four matrices; `row` is the shared address of this lane's row.
__device__ __forceinline__ void ldmatrix(u32 (&r)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// Four matrices, each transposed.
__device__ __forceinline__ void ldmatrix_trans(u32 (&r)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// C += A·B of one m16n8k16 step; T is bf16 or f16.
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]);

template <> __device__ __forceinline__ void mma<bf16>(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <> __device__ __forceinline__ void mma<f16>(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// C += A·B of one m16n8k8 step of tf32, whose operands `tf32_pair` has rounded.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Rounds two f32, given by their bits, to the 10 bits of fraction that tf32 keeps (to nearest, ties away from zero), as cvt.rna.tf32 does, if
// both are numbers. Else it leaves them: what is multiplied by one of them has to be NaN for the other as well. The rest of the fraction is
// anything, since the tensor core cuts it off. One test for two where the instruction makes one for each.
__device__ __forceinline__ void tf32_pair(u32 &a, u32 &b) {
    asm("{\n\t.reg .pred p;\n\tsetp.num.f32 p, %2, %3;\n\t@p add.u32 %0, %0, 4096;\n\t@p add.u32 %1, %1, 4096;\n\t}"
        : "+r"(a), "+r"(b)
        : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
}
