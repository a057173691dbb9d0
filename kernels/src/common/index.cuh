// Indexing along one axis: the source is [outer, size, inner], the result [outer, count, inner].
#pragma once

#include "fault.cuh"
#include "types.cuh"

struct IndexParams {
    u64 outer, size, inner, count;
};
static_assert(sizeof(IndexParams) == 32, "core::ops::IndexParams");

__device__ __forceinline__ bool inside(const IndexParams &p, i32 index) { return index >= 0 && (u64)index < p.size; }
