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

/// What an event was recorded in last.
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
