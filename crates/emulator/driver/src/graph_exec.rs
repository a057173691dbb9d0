//! Graphs made ready to launch: instantiation, launch, update.

use std::ffi::c_char;
use std::sync::Arc;

use crate::config::Order;
use crate::error::{Code, Outcome};
use crate::objects::graph::{Graph, GraphExec};
use crate::objects::work::{Step, Work};
use crate::state::{State, driver};
use crate::types::{CUgraph, CUgraphExec, CUgraphNode, CUstream, Out};

/// `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct UpdateInfo {
    /// A `CUgraphExecUpdateResult`.
    pub result: i32,
    /// The node that cannot be updated, if it is one.
    pub node: CUgraphNode,
    /// The first node of the edge that differs, if it is one.
    pub from: CUgraphNode,
}

const UPDATED: i32 = 0;
const TOPOLOGY: i32 = 2;
const NODE_TYPE: i32 = 3;
const FUNCTION: i32 = 4;
const PARAMETERS: i32 = 5;

/// Launch flags that change nothing here: auto-free, upload, priorities of nodes.
const FLAGS: u64 = 1 | 2 | 8;

impl State {
    fn instantiate(&mut self, graph: CUgraph, flags: u64) -> Outcome<CUgraphExec> {
        if flags & !FLAGS != 0 {
            return Err(crate::unsupported::unsupported(
                "graph instantiation with device launch",
            ));
        }
        let graph = self.graph(graph)?;
        let context = graph.context;
        let steps = graph.steps().ok_or(Code::INVALID_VALUE)?.into();
        let handle = CUgraphExec(self.handle());
        self.execs.insert(handle, GraphExec { context, steps });
        Ok(handle)
    }

    /// The steps in an order that a seed chooses, or as they are.
    fn shuffled(&mut self, steps: &Arc<[Step]>, order: Order) -> Arc<[Step]> {
        if !matches!(order, Order::Random(_)) {
            return steps.clone();
        }
        let mut done = vec![false; steps.len()];
        let mut out = Vec::with_capacity(steps.len());
        while out.len() < steps.len() {
            let free = |at: &usize| !done[*at] && steps[*at].after.iter().all(|a| done[*a]);
            let ready: Vec<usize> = (0..steps.len()).filter(free).collect();
            let at = ready[self.draw(ready.len())];
            done[at] = true;
            let mut step = steps[at].clone();
            if let Work::Graph(inner) = &step.work {
                step.work = Work::Graph(self.shuffled(inner, order));
            }
            out.push(step);
        }
        out.into()
    }
}

/// The steps of a graph that an instantiated one can be updated to, or the first difference that forbids it.
fn compare(old: &[Step], graph: &Graph) -> Result<Vec<Step>, UpdateInfo> {
    let differs = |result, node| UpdateInfo {
        result,
        node,
        from: CUgraphNode::default(),
    };
    let new = graph.steps().ok_or(differs(TOPOLOGY, CUgraphNode::default()))?;
    if old.len() != new.len() {
        return Err(differs(TOPOLOGY, CUgraphNode::default()));
    }
    for (a, b) in old.iter().zip(&new) {
        let wrong = if a.after != b.after {
            TOPOLOGY
        } else if a.work.node_type() != b.work.node_type() {
            NODE_TYPE
        } else {
            match (&a.work, &b.work) {
                (Work::Kernel(a), Work::Kernel(b)) if a.handle != b.handle => FUNCTION,
                (Work::Graph(a), Work::Graph(b)) if a.len() != b.len() => TOPOLOGY,
                (Work::Fill(a), Work::Fill(b)) if (a.height > 1) != (b.height > 1) => PARAMETERS,
                _ => continue,
            }
        };
        return Err(differs(wrong, b.node));
    }
    Ok(new)
}

fn update(exec: CUgraphExec, graph: CUgraph) -> Outcome<UpdateInfo> {
    let mut state = driver()?.lock();
    let old = state.execs.get(&exec).ok_or(Code::INVALID_VALUE)?.steps.clone();
    let compared = compare(&old, state.graph(graph)?);
    Ok(match compared {
        Err(info) => info,
        Ok(new) => {
            // Calls that set parameters still name nodes of the first graph.
            let steps = old.iter().zip(new).map(|(a, b)| Step { node: a.node, ..b });
            state.execs.get_mut(&exec).ok_or(Code::INVALID_VALUE)?.steps = steps.collect();
            UpdateInfo {
                result: UPDATED,
                ..UpdateInfo::default()
            }
        }
    })
}

export! {
    fn cuGraphInstantiate(
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        error_node: Out<CUgraphNode>,
        _log: *mut c_char,
        _size: usize,
    ) {
        error_node.put_if(CUgraphNode::default());
        exec.put(driver()?.lock().instantiate(graph, 0)?)
    }

    fn cuGraphInstantiate_v2(
        exec: Out<CUgraphExec>,
        graph: CUgraph,
        error_node: Out<CUgraphNode>,
        log: *mut c_char,
        size: usize,
    ) {
        error_node.put_if(CUgraphNode::default());
        let made = driver()?.lock().instantiate(graph, 0)?;
        if !log.is_null() && size > 0 {
            crate::types::put_text("", log, size)?;
        }
        exec.put(made)
    }

    fn cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64) {
        exec.put(driver()?.lock().instantiate(graph, flags)?)
    }

    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) {
        let mut state = driver()?.lock();
        let stream = state.stream(stream)?;
        state.refuse_captured(stream)?;
        state.execs.get(&exec).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) {
        let driver = driver()?;
        let mut state = driver.lock();
        let stream = state.stream(stream)?;
        let found = state.execs.get(&exec).ok_or(Code::INVALID_VALUE)?;
        let (context, steps) = (found.context, found.steps.clone());
        if context != state.streams[&stream].context {
            return Err(Code::INVALID_CONTEXT);
        }
        let steps = state.shuffled(&steps, driver.config.order);
        driver.run_or_capture(state, stream, Work::Graph(steps))
    }

    fn cuGraphExecDestroy(exec: CUgraphExec) {
        driver()?.lock().execs.remove(&exec).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, error_node: Out<CUgraphNode>, result: Out<i32>) {
        let info = update(exec, graph)?;
        error_node.put_if(info.node);
        result.put(info.result)?;
        if info.result == UPDATED { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: Out<UpdateInfo>) {
        let info = update(exec, graph)?;
        result.put(info)?;
        if info.result == UPDATED { Ok(()) } else { Err(Code::GRAPH_EXEC_UPDATE_FAILURE) }
    }

    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: Out<u64>) {
        driver()?.lock().execs.get(&exec).ok_or(Code::INVALID_VALUE)?;
        flags.put(0)
    }
}
