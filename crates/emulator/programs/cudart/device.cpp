// Devices, streams, events and errors.

#include "cudart.hpp"

#include <cstdio>

namespace {

thread_local int last = cudaSuccess;

// Errors after which a context answers nothing else.
bool sticky(int error) {
    return error == cudaErrorIllegalAddress || error == cudaErrorLaunchTimeout || error == cudaErrorAssert ||
           (error >= cudaErrorHardwareStackError && error <= cudaErrorLaunchFailure);
}

// Names and texts of errors for which the driver has no code.
const struct {
    cudaError_t code;
    const char *name, *text;
} ERRORS[] = {
#define ERROR(code, ...) {code, #code, __VA_ARGS__}
#define NAME(code) {code, #code, nullptr}
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAME(cudaSuccess), NAME(cudaErrorInvalidValue), NAME(cudaErrorMemoryAllocation), NAME(cudaErrorInitializationError),
    NAME(cudaErrorNoDevice), NAME(cudaErrorInvalidDevice), NAME(cudaErrorInvalidKernelImage),
    NAME(cudaErrorDeviceUninitialized), NAME(cudaErrorNoKernelImageForDevice), NAME(cudaErrorUnsupportedLimit),
    NAME(cudaErrorPeerAccessUnsupported), NAME(cudaErrorInvalidPtx), NAME(cudaErrorUnsupportedPtxVersion),
    NAME(cudaErrorInvalidResourceHandle), NAME(cudaErrorIllegalState), NAME(cudaErrorSymbolNotFound),
    NAME(cudaErrorNotReady), NAME(cudaErrorIllegalAddress), NAME(cudaErrorLaunchOutOfResources),
    NAME(cudaErrorLaunchTimeout), NAME(cudaErrorPeerAccessAlreadyEnabled), NAME(cudaErrorPeerAccessNotEnabled),
    NAME(cudaErrorContextIsDestroyed), NAME(cudaErrorAssert), NAME(cudaErrorHostMemoryAlreadyRegistered),
    NAME(cudaErrorHostMemoryNotRegistered), NAME(cudaErrorHardwareStackError), NAME(cudaErrorIllegalInstruction),
    NAME(cudaErrorMisalignedAddress), NAME(cudaErrorInvalidAddressSpace), NAME(cudaErrorInvalidPc),
    NAME(cudaErrorLaunchFailure), NAME(cudaErrorCooperativeLaunchTooLarge), NAME(cudaErrorNotPermitted),
    NAME(cudaErrorNotSupported), NAME(cudaErrorStreamCaptureUnsupported), NAME(cudaErrorStreamCaptureInvalidated),
    NAME(cudaErrorStreamCaptureMerge), NAME(cudaErrorStreamCaptureUnmatched), NAME(cudaErrorStreamCaptureUnjoined),
    NAME(cudaErrorStreamCaptureIsolation), NAME(cudaErrorStreamCaptureImplicit), NAME(cudaErrorCapturedEvent),
    NAME(cudaErrorStreamCaptureWrongThread), NAME(cudaErrorGraphExecUpdateFailure), NAME(cudaErrorUnknown),
};

} // namespace

// "Not ready" is not remembered as an error (CUDA C++ Programming Guide, error checking).
cudaError_t record(int error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last = error;
    return static_cast<cudaError_t>(error);
}

int unsupported(const char *what) {
    fprintf(stderr, "cudart: %s is not implemented\n", what);
    return cudaErrorNotSupported;
}

int &chosen() {
    thread_local int device = 0;
    return device;
}

int use(int device) {
    static const int ready = cuInit(0);
    CUcontext context;
    int error = ready;
    if (!error) error = cuDevicePrimaryCtxRetain(&context, device);
    if (!error) error = cuCtxSetCurrent(context);
    if (!error) chosen() = device;
    return error;
}

extern "C" {

cudaError_t cudaGetLastError() {
    auto error = static_cast<cudaError_t>(last);
    if (!sticky(error)) last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(last); }

const char *cudaGetErrorName(cudaError_t code) {
    for (const auto &error : ERRORS)
        if (error.code == code) return error.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code) {
    for (const auto &error : ERRORS)
        if (error.code == code && error.text) return error.text;
    const char *text = nullptr;
    cuGetErrorString(static_cast<CUresult>(code), &text);
    return text ? text : "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version) { return record(cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    static const int ready = cuInit(0);
    *count = 0;
    return record(ready ? ready : static_cast<int>(cuDeviceGetCount(count)));
}

cudaError_t cudaSetDevice(int device) { return record(use(device)); }

cudaError_t cudaDeviceReset() {
    return call([] {
        int error = cuDevicePrimaryCtxReset(chosen());
        if (!error) error = cuCtxSetCurrent(nullptr);
        if (!error) last = cudaSuccess;
        return error;
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    return call([&] {
        *p = {};
        int error = cuDeviceGetName(p->name, sizeof p->name, device);
        if (!error) error = cuDeviceGetUuid(&p->uuid, device);
        if (!error) error = cuDeviceTotalMem(&p->totalGlobalMem, device);
        auto get = [&](auto &field, CUdevice_attribute which) {
            int value = 0;
            if (!error) error = cuDeviceGetAttribute(&value, which, device);
            field = value;
        };
#define GET(field, which) get(p->field, CU_DEVICE_ATTRIBUTE_##which)
        GET(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
        GET(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
        GET(warpSize, WARP_SIZE);
        GET(memPitch, MAX_PITCH);
        GET(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
        GET(maxThreadsDim[0], MAX_BLOCK_DIM_X);
        GET(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
        GET(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
        GET(maxGridSize[0], MAX_GRID_DIM_X);
        GET(maxGridSize[1], MAX_GRID_DIM_Y);
        GET(maxGridSize[2], MAX_GRID_DIM_Z);
        GET(totalConstMem, TOTAL_CONSTANT_MEMORY);
        GET(major, COMPUTE_CAPABILITY_MAJOR);
        GET(minor, COMPUTE_CAPABILITY_MINOR);
        GET(textureAlignment, TEXTURE_ALIGNMENT);
        GET(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
        GET(multiProcessorCount, MULTIPROCESSOR_COUNT);
        GET(integrated, INTEGRATED);
        GET(canMapHostMemory, CAN_MAP_HOST_MEMORY);
        GET(concurrentKernels, CONCURRENT_KERNELS);
        GET(ECCEnabled, ECC_ENABLED);
        GET(pciBusID, PCI_BUS_ID);
        GET(pciDeviceID, PCI_DEVICE_ID);
        GET(pciDomainID, PCI_DOMAIN_ID);
        GET(asyncEngineCount, ASYNC_ENGINE_COUNT);
        GET(unifiedAddressing, UNIFIED_ADDRESSING);
        GET(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
        GET(l2CacheSize, L2_CACHE_SIZE);
        GET(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE);
        GET(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
        GET(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
        GET(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
        GET(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
        GET(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        GET(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
        GET(managedMemory, MANAGED_MEMORY);
        GET(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED);
        GET(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS);
        GET(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
        GET(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
        GET(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
        GET(cooperativeLaunch, COOPERATIVE_LAUNCH);
        GET(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        GET(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
        GET(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
        GET(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE);
        GET(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
        GET(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
        GET(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
        GET(clusterLaunch, CLUSTER_LAUNCH);
        return error;
    });
}

} // extern "C"

// Fields of properties about textures, surfaces and other devices are zero: none of those is here.

RUNTIME(cudaGetDevice, (int *device), cuCtxGetDevice(device))
RUNTIME(cudaDeviceGetAttribute, (int *value, cudaDeviceAttr which, int device),
        cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device))
RUNTIME(cudaDeviceGetPCIBusId, (char *text, int size, int device), cuDeviceGetPCIBusId(text, size, device))
RUNTIME(cudaDeviceSynchronize, (), cuCtxSynchronize())
RUNTIME(cudaDeviceSetLimit, (cudaLimit which, size_t n), cuCtxSetLimit(static_cast<CUlimit>(which), n))
RUNTIME(cudaDeviceGetLimit, (size_t *n, cudaLimit which), cuCtxGetLimit(n, static_cast<CUlimit>(which)))
RUNTIME(cudaDeviceSetCacheConfig, (cudaFuncCache config), cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config)))
RUNTIME(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), cuCtxGetStreamPriorityRange(least, greatest))
RUNTIME(cudaSetDeviceFlags, (unsigned flags), cuCtxSetFlags(flags))
RUNTIME(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer(can, device, peer))

RUNTIME(cudaStreamCreate, (cudaStream_t *s), cuStreamCreate(s, 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t *s, unsigned flags), cuStreamCreate(s, flags))
RUNTIME(cudaStreamCreateWithPriority, (cudaStream_t *s, unsigned flags, int priority),
        cuStreamCreateWithPriority(s, flags, priority))
RUNTIME(cudaStreamGetPriority, (cudaStream_t s, int *priority), cuStreamGetPriority(s, priority))
RUNTIME(cudaStreamGetFlags, (cudaStream_t s, unsigned *flags), cuStreamGetFlags(s, flags))
RUNTIME(cudaStreamDestroy, (cudaStream_t s), cuStreamDestroy(s))
RUNTIME(cudaStreamQuery, (cudaStream_t s), cuStreamQuery(s))
RUNTIME(cudaStreamSynchronize, (cudaStream_t s), cuStreamSynchronize(s))
RUNTIME(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), cuStreamWaitEvent(s, e, flags))
RUNTIME(cudaStreamAttachMemAsync, (cudaStream_t s, void *p, size_t n, unsigned flags),
        cuStreamAttachMemAsync(s, at(p), n, flags))
RUNTIME(cudaStreamAddCallback, (cudaStream_t s, cudaStreamCallback_t f, void *data, unsigned flags),
        cuStreamAddCallback(s, reinterpret_cast<CUstreamCallback>(f), data, flags))
RUNTIME(cudaLaunchHostFunc, (cudaStream_t s, cudaHostFn_t f, void *data), cuLaunchHostFunc(s, f, data))

RUNTIME(cudaEventCreate, (cudaEvent_t *e), cuEventCreate(e, 0))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t *e, unsigned flags), cuEventCreate(e, flags))
RUNTIME(cudaEventDestroy, (cudaEvent_t e), cuEventDestroy(e))
RUNTIME(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), cuEventRecord(e, s))
RUNTIME(cudaEventRecordWithFlags, (cudaEvent_t e, cudaStream_t s, unsigned flags), cuEventRecordWithFlags(e, s, flags))
RUNTIME(cudaEventQuery, (cudaEvent_t e), cuEventQuery(e))
RUNTIME(cudaEventSynchronize, (cudaEvent_t e), cuEventSynchronize(e))
RUNTIME(cudaEventElapsedTime, (float *ms, cudaEvent_t from, cudaEvent_t to), cuEventElapsedTime(ms, from, to))
