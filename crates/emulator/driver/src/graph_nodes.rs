//! Nodes that a program adds to a graph itself, and their parameters.

use std::ffi::c_void;
use std::sync::Arc;

use crate::error::{Code, Outcome};
use crate::launch::Request;
use crate::memcpy_2d_3d::{Memcpy3D, Side3D};
use crate::objects::work::{Copy, Fill, HostCall, Kernel, Place, Work};
use crate::state::{State, driver};
use crate::types::{CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUkernel, In, Out};

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelParams {
    /// The kernel.
    pub function: CUfunction,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Pointers to the parameters.
    pub params: In<*const c_void>,
    /// All parameters in one buffer, instead of `params`.
    pub extra: In<*const c_void>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelParams2 {
    /// The parameters of the first version.
    pub old: KernelParams,
    /// A library's kernel, where `old` has none.
    pub kernel: CUkernel,
    /// The kernel's context.
    pub context: CUcontext,
}

impl KernelParams {
    /// These parameters with a function of the current context.
    fn resolve(self) -> Outcome<Self> {
        let driver = driver()?;
        let function = driver.resolve(&mut driver.lock(), self.function)?;
        Ok(Self { function, ..self })
    }
}

impl KernelParams2 {
    fn resolve(self) -> Outcome<KernelParams> {
        let function = match self.old.function {
            CUfunction(0) => CUfunction(self.kernel.0),
            function => function,
        };
        KernelParams { function, ..self.old }.resolve()
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemsetParams {
    /// The destination.
    pub dst: u64,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// The value.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostParams {
    /// The function.
    pub function: CUhostFn,
    /// Its argument.
    pub data: *mut c_void,
}

fn kernel(state: &State, params: &KernelParams, context: CUcontext) -> Outcome<Work> {
    let KernelParams {
        function,
        grid,
        block,
        shared,
        params,
        extra,
    } = *params;
    let request = Request {
        function,
        grid,
        block,
        shared,
        params,
        extra,
        cooperative: false,
    };
    Ok(Work::Kernel(state.kernel(driver()?, &request, context)?.into()))
}

fn describe(kernel: &Kernel) -> KernelParams {
    KernelParams {
        function: kernel.handle,
        grid: kernel.grid,
        block: kernel.block,
        shared: kernel.shared,
        params: In::from_raw(kernel.pointers.as_ptr().cast()),
        extra: In::NULL,
    }
}

fn memset(params: &MemsetParams) -> Outcome<Work> {
    let MemsetParams {
        dst,
        pitch,
        value,
        element,
        width,
        height,
    } = *params;
    let (element, pitch) = (u64::from(element), pitch as u64);
    let fill = Fill {
        dst,
        value,
        element,
        width: width as u64,
        height: height as u64,
        pitch,
    };
    if !matches!(element, 1 | 2 | 4) || !fill.aligned() {
        return Err(Code::INVALID_VALUE);
    }
    driver()?.place(dst, fill.span().ok_or(Code::INVALID_VALUE)?, crate::copy::Side::Device)?;
    Ok(Work::Fill(fill))
}

fn host(params: HostParams) -> Outcome<Work> {
    params.function.ok_or(Code::INVALID_VALUE)?;
    Ok(Work::Host(HostCall::Func(params.function, params.data as usize)))
}

fn describe_copy(copy: &Copy) -> Memcpy3D {
    let side = |place: &Place, pitch: [u64; 2]| {
        let (memory, host, device) = match place {
            Place::Known(at) => (4, 0, *at),
            Place::Pageable(at) => (1, *at as usize, 0),
            Place::Staged(bytes) => (1, bytes.as_ptr() as usize, 0),
        };
        let height = pitch[1].checked_div(pitch[0]).unwrap_or(0) as usize;
        Side3D {
            memory,
            host,
            device,
            pitch: pitch[0] as usize,
            height,
            ..Side3D::default()
        }
    };
    Memcpy3D {
        src: side(&copy.src, copy.src_pitch),
        dst: side(&copy.dst, copy.dst_pitch),
        width: copy.width as usize,
        height: copy.height as usize,
        depth: copy.depth as usize,
    }
}

/// Adds a node after a list of others.
fn add(
    out: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    make: impl FnOnce(&mut State, CUcontext) -> Outcome<Work>,
) -> Outcome {
    let mut state = driver()?.lock();
    let context = state.graph(graph)?.context;
    let work = make(&mut state, context)?;
    out.put(state.add_node(graph, after.list(count)?, work)?)
}

/// Reads from a node's work.
fn read<T>(node: CUgraphNode, what: impl FnOnce(&Work) -> Option<T>) -> Outcome<T> {
    let mut state = driver()?.lock();
    what(&state.graph_of(node)?.node(node)?.work).ok_or(Code::INVALID_VALUE)
}

/// Gives a node other work of the same type.
fn set(node: CUgraphNode, make: impl FnOnce(&State, CUcontext) -> Outcome<Work>) -> Outcome {
    let mut state = driver()?.lock();
    let context = state.graph_of(node)?.context;
    let mut work = make(&state, context)?;
    let graph = state.graph_of(node)?;
    let found = graph
        .nodes
        .iter_mut()
        .find(|n| n.handle == node)
        .ok_or(Code::INVALID_VALUE)?;
    if found.work.node_type() != work.node_type() {
        return Err(Code::INVALID_VALUE);
    }
    stay_cooperative(&found.work, &mut work)?;
    found.work = work;
    Ok(())
}

/// A node that launches cooperatively does so with other parameters too.
fn stay_cooperative(old: &Work, new: &mut Work) -> Outcome {
    let (Work::Kernel(old), Work::Kernel(new)) = (old, new) else {
        return Ok(());
    };
    if let Some(new) = Arc::get_mut(new).filter(|_| old.cooperative) {
        new.cooperative = true;
        if new.blocks() > new.resident {
            return Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// Gives the step that was made of a node other work of the same type; launches that are pending keep theirs.
fn set_step(exec: CUgraphExec, node: CUgraphNode, make: impl FnOnce(&State, CUcontext) -> Outcome<Work>) -> Outcome {
    let mut state = driver()?.lock();
    let context = state.execs.get(&exec).ok_or(Code::INVALID_VALUE)?.context;
    let mut work = make(&state, context)?;
    let exec = state.execs.get_mut(&exec).ok_or(Code::INVALID_VALUE)?;
    let mut steps = exec.steps.to_vec();
    let step = steps.iter_mut().find(|s| s.node == node).ok_or(Code::INVALID_VALUE)?;
    let same = match (&step.work, &work) {
        (Work::Kernel(old), Work::Kernel(new)) => old.handle == new.handle,
        (old, new) => old.node_type() == new.node_type(),
    };
    if !same {
        return Err(Code::INVALID_VALUE);
    }
    stay_cooperative(&step.work, &mut work)?;
    step.work = work;
    exec.steps = steps.into();
    Ok(())
}

fn kernel_of(work: &Work) -> Option<KernelParams> {
    match work {
        Work::Kernel(kernel) => Some(describe(kernel)),
        _ => None,
    }
}

export! {
    fn cuGraphAddKernelNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<KernelParams>,
    ) {
        let params = params.get()?.resolve()?;
        add(node, graph, after, count, |state, context| kernel(state, &params, context))
    }

    fn cuGraphAddKernelNode_v2(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<KernelParams2>,
    ) {
        let params = params.get()?.resolve()?;
        add(node, graph, after, count, |state, context| kernel(state, &params, context))
    }

    fn cuGraphKernelNodeGetParams(node: CUgraphNode, params: Out<KernelParams>) {
        params.put(read(node, kernel_of)?)
    }

    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: Out<KernelParams2>) {
        let old = read(node, kernel_of)?;
        params.put(KernelParams2 { old, kernel: CUkernel::default(), context: CUcontext::default() })
    }

    fn cuGraphKernelNodeSetParams(node: CUgraphNode, params: In<KernelParams>) {
        let params = params.get()?.resolve()?;
        set(node, |state, context| kernel(state, &params, context))
    }

    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: In<KernelParams2>) {
        let params = params.get()?.resolve()?;
        set(node, |state, context| kernel(state, &params, context))
    }

    fn cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<KernelParams>) {
        let params = params.get()?.resolve()?;
        set_step(exec, node, |state, context| kernel(state, &params, context))
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: In<KernelParams2>) {
        let params = params.get()?.resolve()?;
        set_step(exec, node, |state, context| kernel(state, &params, context))
    }

    fn cuGraphAddMemcpyNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<Memcpy3D>,
        _context: CUcontext,
    ) {
        let params = params.get()?;
        add(node, graph, after, count, |_, _| Ok(Work::Copy(params.resolve()?)))
    }

    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: Out<Memcpy3D>) {
        params.put(read(node, |work| match work {
            Work::Copy(copy) => Some(describe_copy(copy)),
            _ => None,
        })?)
    }

    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: In<Memcpy3D>) {
        let params = params.get()?;
        set(node, |_, _| Ok(Work::Copy(params.resolve()?)))
    }

    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: In<Memcpy3D>, _context: CUcontext,
    ) {
        let params = params.get()?;
        set_step(exec, node, |_, _| Ok(Work::Copy(params.resolve()?)))
    }

    fn cuGraphAddMemsetNode(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        after: In<CUgraphNode>,
        count: usize,
        params: In<MemsetParams>,
        _context: CUcontext,
    ) {
        let params = params.get()?;
        add(node, graph, after, count, |_, _| memset(&params))
    }

    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, params: Out<MemsetParams>) {
        params.put(read(node, |work| match work {
            Work::Fill(f) => Some(MemsetParams {
                dst: f.dst,
                pitch: f.pitch as usize,
                value: f.value,
                element: f.element as u32,
                width: f.width as usize,
                height: f.height as usize,
            }),
            _ => None,
        })?)
    }

    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: In<MemsetParams>) {
        let params = params.get()?;
        set(node, |_, _| memset(&params))
    }

    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: In<MemsetParams>, _context: CUcontext,
    ) {
        let params = params.get()?;
        set_step(exec, node, |_, _| memset(&params))
    }

    fn cuGraphAddHostNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, params: In<HostParams>,
    ) {
        let params = params.get()?;
        add(node, graph, after, count, |_, _| host(params))
    }

    fn cuGraphHostNodeGetParams(node: CUgraphNode, params: Out<HostParams>) {
        params.put(read(node, |work| match work {
            Work::Host(HostCall::Func(function, data)) => {
                Some(HostParams { function: *function, data: *data as *mut c_void })
            }
            _ => None,
        })?)
    }

    fn cuGraphHostNodeSetParams(node: CUgraphNode, params: In<HostParams>) {
        let params = params.get()?;
        set(node, |_, _| host(params))
    }

    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: In<HostParams>) {
        let params = params.get()?;
        set_step(exec, node, |_, _| host(params))
    }

    fn cuGraphAddEmptyNode(node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize) {
        add(node, graph, after, count, |_, _| Ok(Work::Empty))
    }

    fn cuGraphAddChildGraphNode(
        node: Out<CUgraphNode>, graph: CUgraph, after: In<CUgraphNode>, count: usize, child: CUgraph,
    ) {
        if child == graph {
            return Err(Code::INVALID_VALUE);
        }
        add(node, graph, after, count, |state, _| {
            Ok(Work::Graph(state.graph(child)?.steps().ok_or(Code::INVALID_VALUE)?.into()))
        })
    }
}
