//! Pieces of work, which a stream holds and a graph's nodes do.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use kiln_simulator::System;

use super::module::Function;
use crate::types::{CUfunction, CUgraphNode, CUhostFn, CUstream, CUstreamCallback};

/// One piece of work.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing, for a node that only joins others.
    Empty,
    Copy(Copy),
    Fill(Fill),
    Kernel(Arc<Kernel>),
    Host(HostCall),
    /// An event is recorded.
    Record(Arc<Record>),
    /// Waits for a record.
    Wait(Arc<Record>),
    /// Frees stream-ordered memory.
    Free(u64),
    /// A graph, by its steps in an order that its edges allow.
    Graph(Arc<[Step]>),
}

/// One recording of an event.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) stream: CUstream,
    pub(crate) seq: u64,
    pub(crate) done: OnceLock<Instant>,
}

/// A function of the program that a stream calls.
#[derive(Clone, Copy)]
pub(crate) enum HostCall {
    Func(CUhostFn, usize),
    Callback(CUstreamCallback, CUstream, usize),
}

/// The source or the destination of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Memory that the driver knows; looked up again when the copy runs.
    Known(u64),
    /// Pageable host memory, which the program promises to keep.
    Pageable(u64),
    /// The bytes of pageable memory at the time when the copy was issued, one row after the other.
    Staged(Arc<[u8]>),
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) dst: Place,
    pub(crate) src: Place,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    /// Bytes from a row to the next, and from a slice to the next.
    pub(crate) dst_pitch: [u64; 2],
    pub(crate) src_pitch: [u64; 2],
}

/// A fill of `height` rows of `width` elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    pub(crate) dst: u64,
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) pitch: u64,
}

impl Copy {
    /// A copy of one run of bytes.
    pub(crate) fn linear(dst: Place, src: Place, len: u64) -> Self {
        Self {
            dst,
            src,
            width: len,
            height: 1,
            depth: 1,
            dst_pitch: [len; 2],
            src_pitch: [len; 2],
        }
    }

    /// The bytes from the first to the last that one side covers.
    pub(crate) fn span(&self, pitch: [u64; 2]) -> Option<u64> {
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return Some(0);
        }
        let rows = (self.height - 1).checked_mul(pitch[0])?;
        let slices = (self.depth - 1).checked_mul(pitch[1])?;
        self.width.checked_add(rows)?.checked_add(slices)
    }

    /// Reads a pageable source now.
    pub(crate) fn stage(&mut self) {
        let Place::Pageable(src) = self.src else { return };
        let mut bytes = Vec::with_capacity((self.width * self.height * self.depth) as usize);
        for (z, y) in self.rows() {
            let row = (src + z * self.src_pitch[1] + y * self.src_pitch[0]) as *const u8;
            // SAFETY: the program promises in the call that issues the copy that its rows can be read.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(row, self.width as usize) });
        }
        self.src = Place::Staged(bytes.into());
        self.src_pitch = [self.width, self.width * self.height];
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (height, depth) = (if self.width == 0 { 0 } else { self.height }, self.depth);
        (0..depth).flat_map(move |z| (0..height).map(move |y| (z, y)))
    }
}

impl Fill {
    /// True if each row begins at a multiple of the element's size.
    pub(crate) fn aligned(&self) -> bool {
        self.dst.is_multiple_of(self.element) && (self.height <= 1 || self.pitch.is_multiple_of(self.element))
    }

    /// The bytes from the first to the last.
    pub(crate) fn span(&self) -> Option<u64> {
        if self.width == 0 || self.height == 0 {
            return Some(0);
        }
        self.width
            .checked_mul(self.element)?
            .checked_add((self.height - 1).checked_mul(self.pitch)?)
    }
}

/// A kernel with everything that a launch gives it.
pub(crate) struct Kernel {
    pub(crate) handle: CUfunction,
    pub(crate) function: Function,
    pub(crate) device: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) system: Arc<System>,
    /// Bytes of the heap, if it needs one.
    pub(crate) heap: u64,
    pub(crate) params: Box<[u8]>,
    /// Blocks that the device holds at one time.
    pub(crate) resident: u64,
    pub(crate) cooperative: bool,
    /// The offset of each parameter in `params`, for a graph's node that is asked for them.
    pub(crate) pointers: Box<[usize]>,
}

/// One node of a graph that can be launched.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node it was made from.
    pub(crate) node: CUgraphNode,
    pub(crate) work: Work,
    /// The steps it comes after, all earlier in the list.
    pub(crate) after: Vec<usize>,
}

impl Work {
    /// The number that the API has for such a node.
    pub(crate) fn node_type(&self) -> i32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Graph(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Free(_) => 11,
        }
    }
}
