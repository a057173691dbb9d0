//! The driver's functions, with plain integers for results, attributes and flags: a Rust enum must not hold the codes of a
//! driver newer than itself.

use std::ffi::{c_char, c_void};

pub(crate) use crate::codes::OUT_OF_MEMORY;
pub(crate) use cust::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUstream,
};

pub(crate) const STUB_LIBRARY: i32 = 34;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: i32 = 910;

pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
pub(crate) const EVENT_DEFAULT: u32 = 0;
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
pub(crate) const HOST_ALLOC_PORTABLE: u32 = 1;
pub(crate) const GRAPH_NODE_KERNEL: i32 = 0;

pub(crate) const FUNC_MAX_THREADS: i32 = 0;
pub(crate) const FUNC_SHARED_BYTES: i32 = 1;
pub(crate) const FUNC_LOCAL_BYTES: i32 = 3;
pub(crate) const FUNC_REGISTERS: i32 = 4;
pub(crate) const FUNC_MAX_DYNAMIC_SHARED: i32 = 8;

pub(crate) const JIT_ERROR_LOG_BUFFER: i32 = 5;
pub(crate) const JIT_ERROR_LOG_BYTES: i32 = 6;

unsafe extern "C" {
    pub(crate) fn cuInit(flags: u32) -> i32;
    pub(crate) fn cuDriverGetVersion(version: *mut i32) -> i32;
    pub(crate) fn cuDeviceGetUuid_v2(id: *mut [u8; 16], device: CUdevice) -> i32;
    pub(crate) fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: CUdevice) -> i32;
    pub(crate) fn cuDeviceCanAccessPeer(can: *mut i32, device: CUdevice, peer: CUdevice) -> i32;
    pub(crate) fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> i32;
    pub(crate) fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> i32;
    pub(crate) fn cuCtxSetCurrent(context: CUcontext) -> i32;
    pub(crate) fn cuCtxSynchronize() -> i32;
    pub(crate) fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> i32;
    pub(crate) fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) -> i32;

    pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32;
    pub(crate) fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> i32;
    pub(crate) fn cuMemFree_v2(address: CUdeviceptr) -> i32;
    pub(crate) fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32) -> i32;
    pub(crate) fn cuMemFreeHost(address: *mut c_void) -> i32;
    pub(crate) fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> i32;
    pub(crate) fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> i32;
    pub(crate) fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> i32;
    pub(crate) fn cuMemcpyPeerAsync(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) -> i32;
    pub(crate) fn cuMemsetD8Async(address: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream) -> i32;

    pub(crate) fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32) -> i32;
    pub(crate) fn cuStreamDestroy_v2(stream: CUstream) -> i32;
    pub(crate) fn cuStreamSynchronize(stream: CUstream) -> i32;
    pub(crate) fn cuStreamQuery(stream: CUstream) -> i32;
    pub(crate) fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32) -> i32;
    pub(crate) fn cuStreamBeginCapture_v2(stream: CUstream, mode: i32) -> i32;
    pub(crate) fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> i32;
    pub(crate) fn cuStreamIsCapturing(stream: CUstream, status: *mut i32) -> i32;
    pub(crate) fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) -> i32;

    pub(crate) fn cuEventCreate(event: *mut CUevent, flags: u32) -> i32;
    pub(crate) fn cuEventDestroy_v2(event: CUevent) -> i32;
    pub(crate) fn cuEventRecord(event: CUevent, stream: CUstream) -> i32;
    pub(crate) fn cuEventSynchronize(event: CUevent) -> i32;
    pub(crate) fn cuEventQuery(event: CUevent) -> i32;
    pub(crate) fn cuEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent) -> i32;

    pub(crate) fn cuGraphDestroy(graph: CUgraph) -> i32;
    pub(crate) fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> i32;
    pub(crate) fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut i32) -> i32;
    pub(crate) fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> i32;
    pub(crate) fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut i32)
    -> i32;
    pub(crate) fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> i32;
    pub(crate) fn cuGraphExecDestroy(exec: CUgraphExec) -> i32;

    pub(crate) fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        options: u32,
        names: *mut i32,
        values: *mut *mut c_void,
    ) -> i32;
    pub(crate) fn cuModuleUnload(module: CUmodule) -> i32;
    pub(crate) fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> i32;
    pub(crate) fn cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) -> i32;
    pub(crate) fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: CUfunction) -> i32;
    pub(crate) fn cuFuncSetAttribute(function: CUfunction, attribute: i32, value: i32) -> i32;
    pub(crate) fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) -> i32;
    pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32,
        function: CUfunction,
        threads: i32,
        shared: usize,
    ) -> i32;
    pub(crate) fn cuLaunchKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> i32;
}

/// Calls a driver function and turns its code into a `Result`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::error::check(stringify!($name), $crate::ffi::$name($($argument),*))
    };
}
pub(crate) use call;
