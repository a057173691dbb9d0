//! Captures of streams.

use super::graph::Graph;
use crate::error::{Code, Outcome};
use crate::types::{CUcontext, CUgraph, CUgraphNode, CUstream};

/// The mode of a capture: the calls that it forbids; and of a thread: the captures that may forbid it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// One capture.
pub(crate) struct Capture {
    pub(crate) mode: Mode,
    pub(crate) thread: u64,
    pub(crate) origin: CUstream,
    pub(crate) graph: Graph,
    /// The graph's handle, which may be asked for before the capture ends.
    pub(crate) handle: CUgraph,
    pub(crate) invalid: bool,
}

/// A stream's part in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) capture: u64,
    /// The nodes that the stream's next node comes after.
    pub(crate) after: Vec<CUgraphNode>,
}

impl Capture {
    pub(crate) fn context(&self) -> CUcontext {
        self.graph.context
    }
}

impl TryFrom<i32> for Mode {
    type Error = Code;

    fn try_from(mode: i32) -> Outcome<Self> {
        match mode {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
