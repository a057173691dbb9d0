//! Events.

use std::sync::Arc;

use super::work::Record;
use crate::types::{CUcontext, CUgraphNode};

/// One event.
pub(crate) struct Event {
    pub(crate) context: CUcontext,
    pub(crate) timing: bool,
    pub(crate) last: Last,
}

/// The last recording of an event.
#[derive(Clone, Debug)]
pub(crate) enum Last {
    Never,
    Recorded(Arc<Record>),
    /// In a capture, after these nodes.
    Captured {
        capture: u64,
        nodes: Vec<CUgraphNode>,
    },
}
