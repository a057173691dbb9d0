// How a kernel reports an error that only it can see: an index outside its range. The block lies in host memory that the
// device can write; the host reads it at its next synchronisation and turns it into a typed error.
#pragma once

#include "types.cuh"

struct Fault {
    u32 code; // 0: none; otherwise a FaultOp, the first one reported
    u32 pad;
    i64 index;    // the index found
    u64 position; // where it stood
    u64 size;     // the number of valid indices
};
static_assert(sizeof(Fault) == 32, "cuda::fault::Fault");

// Codes of the ops that check indices: cuda/src/fault.rs has their names.
enum FaultOp : u32 {
    FAULT_NONE,
    FAULT_GATHER,
    FAULT_SCATTER_ADD,
    FAULT_INDEX_SELECT,
    FAULT_INDEX_ADD,
    FAULT_ONE_HOT,
    FAULT_CROSS_ENTROPY,
    FAULT_INTEGER_SCATTER,
    FAULT_CROP_IMAGES,
    FAULT_CTC_INPUT_LENGTH,
    FAULT_CTC_TARGET_LENGTH,
    FAULT_CTC_LABEL,
    FAULT_CTC_BLANK,
};

// Records the first fault; the caller then writes zeros where the element would have gone.
__device__ __forceinline__ void report(Fault *fault, FaultOp code, i64 index, u64 position, u64 size) {
    if (atomicCAS(&fault->code, 0u, (u32)code) == 0u) {
        fault->index = index;
        fault->position = position;
        fault->size = size;
        __threadfence_system();
    }
}
