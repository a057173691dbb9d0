//! Captured work, and executable graphs that replay it.

use crate::capture::Kept;
use crate::context::Context;
use crate::error::{Error, Result, check};
use crate::ffi::{self, call};
use crate::stream::Stream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Captured work. [`instantiate`](Self::instantiate) makes it ready to run.
///
/// A graph keeps alive what its work uses: the blocks that copies and fills name, those that a launch was given as
/// [`Arg::block`](crate::Arg::block), private pools that any of them lie in, and the kernels. The memory is released when the
/// last of the graph, its executable graphs and the blocks is dropped.
#[derive(Debug)]
pub struct Graph {
    raw: ffi::CUgraph,
    /// The driver asks that no two threads use a graph at once, not even to read it.
    turn: Mutex<()>,
    kept: Arc<Kept>,
    context: Context,
}

// SAFETY: the driver takes calls with a graph from any thread, one at a time: `turn` is held around each. The pointer is
// never dereferenced here.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

fn take(turn: &Mutex<()>) -> MutexGuard<'_, ()> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Graph {
    /// The graph of a capture that has ended; `raw` is null if the capture was invalidated.
    pub(crate) fn of_capture(raw: ffi::CUgraph, context: &Context, kept: Arc<Kept>) -> Result<Self> {
        if raw.is_null() {
            return Err(Error::Capture {
                call: "end_capture",
                code: None,
                reason: "the capture was invalidated".to_string(),
            });
        }
        Ok(Self {
            raw,
            turn: Mutex::new(()),
            kept,
            context: context.clone(),
        })
    }

    /// The number of nodes: kernels, copies, fills, and joins.
    ///
    /// # Errors
    /// The driver's.
    pub fn nodes(&self) -> Result<usize> {
        let _turn = take(&self.turn);
        self.context.bind()?;
        let mut count = 0;
        // SAFETY: the graph is alive as long as `self`; without a list the function only writes the count.
        unsafe { call!(cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count))? };
        Ok(count)
    }

    /// The number of kernel launches.
    ///
    /// # Errors
    /// The driver's.
    pub fn kernel_nodes(&self) -> Result<usize> {
        let mut count = self.nodes()?;
        let _turn = take(&self.turn);
        let mut nodes: Vec<ffi::CUgraphNode> = vec![std::ptr::null_mut(); count];
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the list has room for `count` handles, which is what the function writes at most.
        unsafe { call!(cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count))? };
        nodes.truncate(count);
        let mut kernels = 0;
        for node in nodes {
            let mut kind = -1;
            // SAFETY: the node is of this graph, which nothing changes; `kind` is a place for what the function writes.
            unsafe { call!(cuGraphNodeGetType(node, &mut kind))? };
            kernels += usize::from(kind == ffi::GRAPH_NODE_KERNEL);
        }
        Ok(kernels)
    }

    /// Makes the graph ready to run.
    ///
    /// # Errors
    /// The driver's.
    pub fn instantiate(&self) -> Result<GraphExec> {
        let _turn = take(&self.turn);
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is alive as long as `self`; `raw` is a place for the handle that the function writes.
        unsafe { call!(cuGraphInstantiateWithFlags(&mut raw, self.raw, 0))? };
        Ok(GraphExec {
            raw,
            turn: Mutex::new(()),
            kept: self.kept.clone(),
            context: self.context.clone(),
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: this was the only handle; executable graphs made from it do not need it. The result does not matter:
        // it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuGraphDestroy(self.raw) };
    }
}

/// A graph that is ready to run, as often as wished.
#[derive(Debug)]
pub struct GraphExec {
    raw: ffi::CUgraphExec,
    /// Held around each use, as in `Graph`.
    turn: Mutex<()>,
    kept: Arc<Kept>,
    context: Context,
}

// SAFETY: the driver takes calls with an executable graph from any thread, one at a time: `turn` is held around a launch,
// and `update` has the only reference. The pointer is never dereferenced here.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Runs the graph after the work that the stream has now. Two runs of one graph never overlap.
    ///
    /// Launches of the capture run again with the same arguments: see the contract of
    /// [`Stream::launch`].
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        stream.context().expect("launch", &self.context)?;
        let _turn = take(&self.turn);
        self.context.bind()?;
        // SAFETY: graph and stream are borrowed, so alive. What copies and fills read and write, and the kernels, `kept` keeps;
        // the other captured arguments are good by the promise of each `Stream::launch` in the capture.
        unsafe { call!(cuGraphLaunch(self.raw, stream.handle())) }
    }

    /// Takes over the parameters of `graph`, which costs less than instantiating it. False if the graphs differ in more than
    /// parameters: then nothing has changed, and `graph` has to be instantiated.
    ///
    /// # Errors
    /// The driver's.
    pub fn update(&mut self, graph: &Graph) -> Result<bool> {
        let _turn = take(&graph.turn);
        self.context.bind()?;
        let (mut node, mut result) = (std::ptr::null_mut(), 0);
        // SAFETY: both graphs are borrowed, so alive; the others are places for what the function writes.
        match unsafe { ffi::cuGraphExecUpdate(self.raw, graph.raw, &mut node, &mut result) } {
            ffi::GRAPH_EXEC_UPDATE_FAILURE => Ok(false),
            code => {
                check("cuGraphExecUpdate", code)?;
                self.kept = graph.kept.clone();
                Ok(true)
            }
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: this was the only handle. The driver keeps what still runs until it has run. The result does not
        // matter: it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuGraphExecDestroy(self.raw) };
    }
}
