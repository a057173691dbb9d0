// Registration of a program's kernels and variables, and launches.

#include "cudart.hpp"

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

// A fat binary of the program, loaded when one of its symbols is first used.
struct Binary {
    const void *image;
    CUlibrary library = nullptr;
    std::vector<const void *> managed = {};
};

// A kernel or a variable, by the host's address of it.
struct Symbol {
    Binary *binary;
    std::string name;
    CUkernel kernel = nullptr;
    void **managed = nullptr;
};

struct Configuration {
    dim3 grid, block;
    size_t shared;
    CUstream stream;
};

std::recursive_mutex lock;
std::map<const void *, Symbol> symbols;
thread_local std::vector<Configuration> configurations;

int load(Binary &binary) {
    if (binary.library) return 0;
    return cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

int kernel(const void *host, CUkernel *out) {
    std::lock_guard guard(lock);
    auto found = symbols.find(host);
    if (found == symbols.end()) return cudaErrorInvalidDeviceFunction;
    Symbol &symbol = found->second;
    if (!symbol.kernel) {
        if (int error = load(*symbol.binary)) return error;
        int error = cuLibraryGetKernel(&symbol.kernel, symbol.binary->library, symbol.name.c_str());
        if (error == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
        if (error) return error;
    }
    *out = symbol.kernel;
    return 0;
}

// Calls `f` with the function of a kernel.
template <class F> int with(const void *host, F f) {
    CUfunction found;
    int error = function(host, &found);
    return error ? error : static_cast<int>(f(found));
}

// The driver calls every wrong number of a launch an invalid value; the runtime has a code for those of the configuration.
int launched(int error, dim3 grid, dim3 block) {
    CUdevice device;
    if (error != CUDA_ERROR_INVALID_VALUE || cuCtxGetDevice(&device)) return error;
    auto most = [&](int which) {
        int value = 0;
        cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device);
        return static_cast<unsigned>(value);
    };
    bool fits = 1ull * block.x * block.y * block.z <= most(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    const unsigned sizes[] = {block.x, block.y, block.z, grid.x, grid.y, grid.z};
    for (int i = 0; i < 6; i++) fits &= sizes[i] > 0 && sizes[i] <= most(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
    return fits ? error : static_cast<int>(cudaErrorInvalidConfiguration);
}

int launch(const void *host, dim3 g, dim3 b, void **args, size_t shared, CUstream s, bool cooperative = false) {
    return with(host, [&](CUfunction f) {
        auto bytes = static_cast<unsigned>(shared);
        int error = cooperative ? cuLaunchCooperativeKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, bytes, s, args)
                                : cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, bytes, s, args, nullptr);
        return launched(error, g, b);
    });
}

} // namespace

int function(const void *host, CUfunction *out) {
    CUkernel found;
    int error = kernel(host, &found);
    return error ? error : static_cast<int>(cuKernelGetFunction(out, found));
}

int variable(const void *host, CUdeviceptr *address, size_t *size) {
    std::lock_guard guard(lock);
    auto found = symbols.find(host);
    if (found == symbols.end()) return cudaErrorInvalidSymbol;
    Symbol &symbol = found->second;
    if (int error = load(*symbol.binary)) return error;
    auto get = symbol.managed ? cuLibraryGetManaged : cuLibraryGetGlobal;
    int error = get(address, size, symbol.binary->library, symbol.name.c_str());
    return error == CUDA_ERROR_NOT_FOUND ? static_cast<int>(cudaErrorInvalidSymbol) : error;
}

extern "C" {

void **__cudaRegisterFatBinary(void *image) { return reinterpret_cast<void **>(new Binary{image}); }
void __cudaRegisterFatBinaryEnd(void **) {}

void __cudaUnregisterFatBinary(void **handle) {
    std::lock_guard guard(lock);
    auto binary = reinterpret_cast<Binary *>(handle);
    std::erase_if(symbols, [&](const auto &entry) { return entry.second.binary == binary; });
    if (binary->library) cuLibraryUnload(binary->library);
    delete binary;
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
    std::lock_guard guard(lock);
    symbols[host] = {reinterpret_cast<Binary *>(handle), name};
}

void __cudaRegisterVar(void **handle, char *host, char *, const char *name, int, size_t, int, int) {
    std::lock_guard guard(lock);
    symbols[host] = {reinterpret_cast<Binary *>(handle), name};
}

void __cudaRegisterManagedVar(void **handle, void **host, char *, const char *name, int, size_t, int, int) {
    std::lock_guard guard(lock);
    auto binary = reinterpret_cast<Binary *>(handle);
    symbols[host] = {binary, name, nullptr, host};
    binary->managed.push_back(host);
}

// Gives the managed variables of the host their addresses.
char __cudaInitModule(void **handle) {
    auto status = call([&] {
        for (const void *host : reinterpret_cast<Binary *>(handle)->managed) {
            CUdeviceptr address;
            size_t size;
            if (int error = variable(host, &address, &size)) return error;
            *symbols[host].managed = reinterpret_cast<void *>(address);
        }
        return 0;
    });
    return status == cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st *stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (configurations.empty()) return record(cudaErrorMissingConfiguration);
    auto [g, b, bytes, s] = configurations.back();
    configurations.pop_back();
    *grid = g, *block = b, *shared = bytes, *static_cast<CUstream *>(stream) = s;
    return cudaSuccess;
}

// The handle is the host's address of the kernel: a program asks for it once, and must get its errors at each launch.
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host) {
    *out = static_cast<cudaKernel_t>(const_cast<void *>(host));
    return cudaSuccess;
}

} // extern "C"

RUNTIME(__cudaLaunchKernel, (cudaKernel_t f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s),
        launch(f, g, b, args, shared, s))
RUNTIME(cudaLaunchKernel, (const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s),
        launch(f, g, b, args, shared, s))
RUNTIME(cudaLaunchCooperativeKernel, (const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s),
        launch(f, g, b, args, shared, s, true))

extern "C" cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *host, void **args) {
    static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
    dim3 g = c->gridDim, b = c->blockDim;
    auto attributes = reinterpret_cast<CUlaunchAttribute *>(c->attrs);
    auto bytes = static_cast<unsigned>(c->dynamicSmemBytes);
    CUlaunchConfig config{g.x, g.y, g.z, b.x, b.y, b.z, bytes, c->stream, attributes, c->numAttrs};
    return call([&] {
        return with(host, [&](CUfunction f) { return launched(cuLaunchKernelEx(&config, f, args, nullptr), g, b); });
    });
}

RUNTIME(cudaGetFuncBySymbol, (cudaFunction_t *out, const void *host), function(host, out))
RUNTIME(cudaGetKernel, (cudaKernel_t *out, const void *host), kernel(host, out))
RUNTIME(cudaFuncSetAttribute, (const void *host, cudaFuncAttribute which, int value), with(host, [&](CUfunction f) {
            return cuFuncSetAttribute(f, static_cast<CUfunction_attribute>(which), value);
        }))
RUNTIME(cudaFuncSetCacheConfig, (const void *host, cudaFuncCache config), with(host, [&](CUfunction f) {
            return cuFuncSetCacheConfig(f, static_cast<CUfunc_cache>(config));
        }))
RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *host, int threads, size_t shared),
        with(host, [&](CUfunction f) { return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared); }))
RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *blocks, const void *host, int threads, size_t shared, unsigned flags), with(host, [&](CUfunction f) {
            return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, flags);
        }))
RUNTIME(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *bytes, const void *host, int blocks, int threads),
        with(host, [&](CUfunction f) { return cuOccupancyAvailableDynamicSMemPerBlock(bytes, f, blocks, threads); }))

RUNTIME(cudaFuncGetAttributes, (cudaFuncAttributes *to, const void *host), with(host, [&](CUfunction f) {
            int error = 0;
            auto get = [&](CUfunction_attribute which) {
                int value = 0;
                if (!error) error = cuFuncGetAttribute(&value, which, f);
                return value;
            };
            *to = {};
            to->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
            to->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
            to->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
            to->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
            to->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
            to->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
            to->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
            to->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
            to->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
            to->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
            return error;
        }))
