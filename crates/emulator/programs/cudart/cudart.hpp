// A CUDA runtime (libcudart.so.13) over the public functions of the driver API, for programs built with
// `nvcc -cudart shared`. NVIDIA's own runtime asks its driver for undocumented tables, which the emulated driver does not
// have.
//
// The numbers of the runtime's errors, attributes, limits and flags are the driver's where both have them. A function that
// is not here is missing when a program is linked; a request that a function here cannot serve is refused with a message.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

// Keeps an error for cudaGetLastError.
cudaError_t record(int error);

// Makes the primary context of a device current on this thread.
int use(int device);

// The device whose context a thread gets when it first needs one.
int &chosen();

// Prints the name of a refused feature, and returns its error.
int unsupported(const char *what);

// The function of a kernel that the program names by the host's address of it.
int function(const void *host, CUfunction *out);

// The variable that the program names by the host's address of it.
int variable(const void *host, CUdeviceptr *address, size_t *size);

// The beginning and the end of every call that needs a context; `f` gives an error of the driver's or of the runtime's.
template <class F> cudaError_t call(F f) {
    CUcontext context = nullptr;
    int error = cuCtxGetCurrent(&context);
    if (error || !context) error = use(chosen());
    if (!error) error = f();
    return record(error);
}

// A function of the runtime, with its parameters as in cuda_runtime_api.h, that is one expression.
#define RUNTIME(name, params, ...)                         \
    extern "C" cudaError_t CUDARTAPI name params {         \
        return call([&]() -> int { return __VA_ARGS__; }); \
    }

inline CUdeviceptr at(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

inline CUdeviceptr *out(void **pointer) { return reinterpret_cast<CUdeviceptr *>(pointer); }
