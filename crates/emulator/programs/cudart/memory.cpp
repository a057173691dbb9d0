// Memory: allocations, copies, fills, variables, pools.

#include "cudart.hpp"

namespace {

int copy(void *to, const void *from, size_t n, cudaMemcpyKind kind) {
    if (n == 0) return 0;
    switch (kind) {
    case cudaMemcpyHostToDevice: return cuMemcpyHtoD(at(to), from, n);
    case cudaMemcpyDeviceToHost: return cuMemcpyDtoH(to, at(from), n);
    case cudaMemcpyDeviceToDevice: return cuMemcpyDtoD(at(to), at(from), n);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return cuMemcpy(at(to), at(from), n);
    }
    return cudaErrorInvalidMemcpyDirection;
}

int copy(void *to, const void *from, size_t n, cudaMemcpyKind kind, CUstream stream) {
    if (n == 0) return 0;
    switch (kind) {
    case cudaMemcpyHostToDevice: return cuMemcpyHtoDAsync(at(to), from, n, stream);
    case cudaMemcpyDeviceToHost: return cuMemcpyDtoHAsync(to, at(from), n, stream);
    case cudaMemcpyDeviceToDevice: return cuMemcpyDtoDAsync(at(to), at(from), n, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return cuMemcpyAsync(at(to), at(from), n, stream);
    }
    return cudaErrorInvalidMemcpyDirection;
}

// Calls `f` with the address `offset` bytes into a variable, which has to have `n` bytes from there on.
template <class F> int with(const void *symbol, size_t offset, size_t n, F f) {
    CUdeviceptr base;
    size_t size;
    if (int error = variable(symbol, &base, &size)) return error;
    if (offset > size || n > size - offset) return cudaErrorInvalidValue;
    return f(reinterpret_cast<void *>(base + offset));
}

CUmemorytype side(cudaMemcpyKind kind, bool source) {
    if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
    bool host = kind == cudaMemcpyHostToHost || kind == (source ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// Both sides of a copy in two or three dimensions; the type says which of the pointers counts.
template <class Copy> Copy sides(void *to, size_t to_pitch, const void *from, size_t from_pitch, cudaMemcpyKind kind) {
    Copy c{};
    c.dstMemoryType = side(kind, false), c.dstHost = to, c.dstDevice = at(to), c.dstPitch = to_pitch;
    c.srcMemoryType = side(kind, true), c.srcHost = from, c.srcDevice = at(from), c.srcPitch = from_pitch;
    return c;
}

CUDA_MEMCPY2D rows(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width, size_t height,
                   cudaMemcpyKind kind) {
    auto c = sides<CUDA_MEMCPY2D>(to, to_pitch, from, pitch, kind);
    c.WidthInBytes = width, c.Height = height;
    return c;
}

CUmemLocation place(cudaMemLocation to) {
    CUmemLocation location{};
    location.type = static_cast<CUmemLocationType>(to.type), location.id = to.id;
    return location;
}

} // namespace

int planes(const cudaMemcpy3DParms &p, CUDA_MEMCPY3D *out) {
    if (p.srcArray || p.dstArray) return unsupported("a copy of arrays");
    auto c = sides<CUDA_MEMCPY3D>(p.dstPtr.ptr, p.dstPtr.pitch, p.srcPtr.ptr, p.srcPtr.pitch, p.kind);
    c.dstHeight = p.dstPtr.ysize, c.dstXInBytes = p.dstPos.x, c.dstY = p.dstPos.y, c.dstZ = p.dstPos.z;
    c.srcHeight = p.srcPtr.ysize, c.srcXInBytes = p.srcPos.x, c.srcY = p.srcPos.y, c.srcZ = p.srcPos.z;
    c.WidthInBytes = p.extent.width, c.Height = p.extent.height, c.Depth = p.extent.depth;
    *out = c;
    return 0;
}

extern "C" cudaError_t cudaMalloc(void **p, size_t n) {
    *p = nullptr;
    return call([&] { return n ? cuMemAlloc(out(p), n) : CUDA_SUCCESS; });
}

RUNTIME(cudaFree, (void *p), p ? cuMemFree(at(p)) : CUDA_SUCCESS)
RUNTIME(cudaMallocPitch, (void **p, size_t *pitch, size_t width, size_t height),
        cuMemAllocPitch(out(p), pitch, width, height, 16))
RUNTIME(cudaMallocManaged, (void **p, size_t n, unsigned flags), cuMemAllocManaged(out(p), n, flags))
RUNTIME(cudaMallocHost, (void **p, size_t n), cuMemAllocHost(p, n))
RUNTIME(cudaHostAlloc, (void **p, size_t n, unsigned flags), cuMemHostAlloc(p, n, flags))
RUNTIME(cudaFreeHost, (void *p), p ? cuMemFreeHost(p) : CUDA_SUCCESS)
RUNTIME(cudaHostRegister, (void *p, size_t n, unsigned flags), cuMemHostRegister(p, n, flags))
RUNTIME(cudaHostUnregister, (void *p), cuMemHostUnregister(p))
RUNTIME(cudaHostGetDevicePointer, (void **d, void *p, unsigned flags), cuMemHostGetDevicePointer(out(d), p, flags))
RUNTIME(cudaHostGetFlags, (unsigned *flags, void *p), cuMemHostGetFlags(flags, p))
RUNTIME(cudaMemGetInfo, (size_t *unused, size_t *total), cuMemGetInfo(unused, total))
RUNTIME(cudaMemPrefetchAsync, (const void *p, size_t n, cudaMemLocation to, unsigned flags, cudaStream_t s),
        cuMemPrefetchAsync(at(p), n, place(to), flags, s))
RUNTIME(cudaMemAdvise, (const void *p, size_t n, cudaMemoryAdvise advice, cudaMemLocation to),
        cuMemAdvise(at(p), n, static_cast<CUmem_advise>(advice), place(to)))

RUNTIME(cudaMallocAsync, (void **p, size_t n, cudaStream_t s), cuMemAllocAsync(out(p), n, s))
RUNTIME(cudaMallocFromPoolAsync, (void **p, size_t n, cudaMemPool_t pool, cudaStream_t s),
        cuMemAllocFromPoolAsync(out(p), n, pool, s))
RUNTIME(cudaFreeAsync, (void *p, cudaStream_t s), p ? cuMemFreeAsync(at(p), s) : CUDA_SUCCESS)
RUNTIME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t *pool, int device), cuDeviceGetDefaultMemPool(pool, device))
RUNTIME(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr which, void *value),
        cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(which), value))
RUNTIME(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr which, void *value),
        cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(which), value))
RUNTIME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), cuMemPoolTrimTo(pool, keep))

RUNTIME(cudaMemcpy, (void *to, const void *from, size_t n, cudaMemcpyKind kind), copy(to, from, n, kind))
RUNTIME(cudaMemcpyAsync, (void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t s),
        copy(to, from, n, kind, s))

extern "C" cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
                                    size_t height, cudaMemcpyKind kind) {
    auto c = rows(to, to_pitch, from, pitch, width, height, kind);
    return call([&] { return cuMemcpy2DUnaligned(&c); });
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t pitch, size_t width,
                                         size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    auto c = rows(to, to_pitch, from, pitch, width, height, kind);
    return call([&] { return cuMemcpy2DAsync(&c, s); });
}

extern "C" cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *p) {
    CUDA_MEMCPY3D c;
    if (int error = planes(*p, &c)) return record(error);
    return call([&] { return cuMemcpy3D(&c); });
}

extern "C" cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *p, cudaStream_t s) {
    CUDA_MEMCPY3D c;
    if (int error = planes(*p, &c)) return record(error);
    return call([&] { return cuMemcpy3DAsync(&c, s); });
}

RUNTIME(cudaMemset, (void *p, int value, size_t n), n ? cuMemsetD8(at(p), value, n) : CUDA_SUCCESS)
RUNTIME(cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t s),
        n ? cuMemsetD8Async(at(p), value, n, s) : CUDA_SUCCESS)
RUNTIME(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
        cuMemsetD2D8(at(p), pitch, value, width, height))

RUNTIME(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t n, size_t offset, cudaMemcpyKind kind),
        with(symbol, offset, n, [&](void *to) { return copy(to, from, n, kind); }))
RUNTIME(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t n, size_t offset, cudaMemcpyKind kind),
        with(symbol, offset, n, [&](void *from) { return copy(to, from, n, kind); }))
RUNTIME(cudaMemcpyToSymbolAsync,
        (const void *symbol, const void *from, size_t n, size_t offset, cudaMemcpyKind kind, cudaStream_t s),
        with(symbol, offset, n, [&](void *to) { return copy(to, from, n, kind, s); }))
RUNTIME(cudaMemcpyFromSymbolAsync,
        (void *to, const void *symbol, size_t n, size_t offset, cudaMemcpyKind kind, cudaStream_t s),
        with(symbol, offset, n, [&](void *from) { return copy(to, from, n, kind, s); }))
RUNTIME(cudaGetSymbolAddress, (void **p, const void *symbol), with(symbol, 0, 0, [&](void *found) {
            *p = found;
            return 0;
        }))

extern "C" cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol) {
    CUdeviceptr base;
    return call([&] { return variable(symbol, &base, size); });
}

extern "C" cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *to, const void *p) {
    return call([&] {
        auto pointer = const_cast<void *>(p);
        unsigned type = 0, managed = 0;
        *to = {cudaMemoryTypeUnregistered, -1, nullptr, pointer, {}};
        if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(p))) return CUDA_SUCCESS;
        int error = cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at(p));
        if (!error) error = cuPointerGetAttribute(&to->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at(p));
        to->type = managed ? cudaMemoryTypeManaged : static_cast<cudaMemoryType>(type);
        to->devicePointer = pointer;
        to->hostPointer = to->type == cudaMemoryTypeDevice ? nullptr : pointer;
        return static_cast<CUresult>(error);
    });
}
