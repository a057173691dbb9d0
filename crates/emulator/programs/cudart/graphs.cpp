// Graphs, captured or built.

#include "cudart.hpp"

int planes(const cudaMemcpy3DParms &p, CUDA_MEMCPY3D *out);

namespace {

CUcontext current() {
    CUcontext context = nullptr;
    cuCtxGetCurrent(&context);
    return context;
}

// Calls `f` with the driver's parameters of a kernel node.
template <class F> int with(const cudaKernelNodeParams *p, F f) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.gridDimX = p->gridDim.x, node.gridDimY = p->gridDim.y, node.gridDimZ = p->gridDim.z;
    node.blockDimX = p->blockDim.x, node.blockDimY = p->blockDim.y, node.blockDimZ = p->blockDim.z;
    node.sharedMemBytes = p->sharedMemBytes, node.kernelParams = p->kernelParams, node.extra = p->extra;
    int error = function(p->func, &node.func);
    return error ? error : static_cast<int>(f(&node));
}

int copy(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const cudaMemcpy3DParms &p) {
    CUDA_MEMCPY3D c;
    int error = planes(p, &c);
    return error ? error : static_cast<int>(cuGraphAddMemcpyNode(node, g, after, n, &c, current()));
}

} // namespace

RUNTIME(cudaStreamBeginCapture, (cudaStream_t s, cudaStreamCaptureMode mode),
        cuStreamBeginCapture(s, static_cast<CUstreamCaptureMode>(mode)))
RUNTIME(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *g), cuStreamEndCapture(s, g))
RUNTIME(cudaStreamIsCapturing, (cudaStream_t s, cudaStreamCaptureStatus *status),
        cuStreamIsCapturing(s, reinterpret_cast<CUstreamCaptureStatus *>(status)))
RUNTIME(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode),
        cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode *>(mode)))

RUNTIME(cudaGraphCreate, (cudaGraph_t *g, unsigned flags), cuGraphCreate(g, flags))
RUNTIME(cudaGraphDestroy, (cudaGraph_t g), cuGraphDestroy(g))
RUNTIME(cudaGraphClone, (cudaGraph_t *to, cudaGraph_t g), cuGraphClone(to, g))
RUNTIME(cudaGraphGetNodes, (cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n), cuGraphGetNodes(g, nodes, n))
RUNTIME(cudaGraphGetRootNodes, (cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n), cuGraphGetRootNodes(g, nodes, n))
RUNTIME(cudaGraphNodeGetType, (cudaGraphNode_t node, cudaGraphNodeType *type),
        cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType *>(type)))
RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags),
        cuGraphInstantiateWithFlags(exec, g, flags))
RUNTIME(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags),
        cuGraphInstantiateWithFlags(exec, g, flags))
RUNTIME(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t s), cuGraphUpload(exec, s))
RUNTIME(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t s), cuGraphLaunch(exec, s))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy(exec))
RUNTIME(cudaGraphExecUpdate, (cudaGraphExec_t exec, cudaGraph_t g, cudaGraphExecUpdateResultInfo *info),
        cuGraphExecUpdate(exec, g, reinterpret_cast<CUgraphExecUpdateResultInfo *>(info)))

RUNTIME(cudaGraphAddEmptyNode, (cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n),
        cuGraphAddEmptyNode(node, g, after, n))
RUNTIME(cudaGraphAddKernelNode,
        (cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const cudaKernelNodeParams *p),
        with(p, [&](auto params) { return cuGraphAddKernelNode(node, g, after, n, params); }))
RUNTIME(cudaGraphExecKernelNodeSetParams, (cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams *p),
        with(p, [&](auto params) { return cuGraphExecKernelNodeSetParams(exec, node, params); }))
RUNTIME(cudaGraphAddHostNode,
        (cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const cudaHostNodeParams *p),
        [&] {
            CUDA_HOST_NODE_PARAMS params{};
            params.fn = p->fn, params.userData = p->userData;
            return cuGraphAddHostNode(node, g, after, n, &params);
        }())
RUNTIME(cudaGraphAddMemsetNode,
        (cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const cudaMemsetParams *p),
        [&] {
            CUDA_MEMSET_NODE_PARAMS params{at(p->dst), p->pitch, p->value, p->elementSize, p->width, p->height};
            return cuGraphAddMemsetNode(node, g, after, n, &params, current());
        }())
RUNTIME(cudaGraphAddMemcpyNode,
        (cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after, size_t n, const cudaMemcpy3DParms *p),
        copy(node, g, after, n, *p))

extern "C" cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *after,
                                                size_t n, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    cudaMemcpy3DParms p{};
    p.dstPtr = {to, bytes, bytes, 1};
    p.srcPtr = {const_cast<void *>(from), bytes, bytes, 1};
    p.extent = {bytes, 1, 1};
    p.kind = kind;
    return call([&] { return copy(node, g, after, n, p); });
}
