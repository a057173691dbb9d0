//! Pieces of work: what a stream holds, and what a graph's nodes do.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use kiln_simulator::memory::{self, Range};

use crate::graph_exec::Step;
use crate::launch::Kernel;
use crate::state::Driver;
use crate::types::{CUcontext, CUhostFn, CUstream, CUstreamCallback};
use crate::{Code, Outcome};

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
    /// Gives stream-ordered memory back.
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

/// A function of the program's that a stream calls.
#[derive(Clone, Copy)]
pub(crate) enum HostCall {
    Func(CUhostFn, usize),
    Callback(CUstreamCallback, CUstream, usize),
}

/// Where bytes are copied from or to.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Memory that the driver knows; looked up again when the copy runs.
    Known(u64),
    /// Pageable host memory, which the program promises to keep.
    Pageable(u64),
    /// What pageable memory held when the copy was issued, one row after the other.
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

    fn rows(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (height, depth) = (if self.width == 0 { 0 } else { self.height }, self.depth);
        (0..depth).flat_map(move |z| (0..height).map(move |y| (z, y)))
    }

    fn run(&self, driver: &Driver) -> Outcome {
        let resolve = |place: &Place, pitch, what| match place {
            Place::Known(at) => {
                let span = self.span(pitch).ok_or(Code::INVALID_VALUE)?;
                known(driver, *at, span).inspect_err(|_| {
                    let about = driver.memory.snapshot().describe(*at);
                    driver.report(format_args!("a copy of {span} bytes {what} {at:#x}, which is {about}"));
                })?;
                Ok(*at)
            }
            Place::Pageable(at) => Ok(*at),
            Place::Staged(bytes) => Ok(bytes.as_ptr() as u64),
        };
        let (dst, src) = (
            resolve(&self.dst, self.dst_pitch, "to")?,
            resolve(&self.src, self.src_pitch, "from")?,
        );
        for (z, y) in self.rows() {
            let to = dst + z * self.dst_pitch[1] + y * self.dst_pitch[0];
            let from = src + z * self.src_pitch[1] + y * self.src_pitch[0];
            // SAFETY: known memory was looked up just now and is not freed while work runs (`alloc` waits for all);
            // staged bytes are owned; the program answers for pageable memory.
            unsafe { memory::copy(&driver.memory, to, from, self.width) };
        }
        Ok(())
    }
}

impl Fill {
    /// Whether each row begins at a multiple of the element's size.
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

    fn run(&self, driver: &Driver) -> Outcome {
        let span = self.span().ok_or(Code::INVALID_VALUE)?;
        known(driver, self.dst, span).inspect_err(|_| {
            let about = driver.memory.snapshot().describe(self.dst);
            driver.report(format_args!(
                "a fill of {span} bytes at {:#x}, which is {about}",
                self.dst
            ));
        })?;
        for y in 0..if span == 0 { 0 } else { self.height } {
            let row = self.dst + y * self.pitch;
            // SAFETY: the span was looked up just now and is not freed while work runs; `copy` checked the alignment
            // when the fill was issued.
            unsafe { memory::fill(&driver.memory, row, self.value, self.element, self.width) };
        }
        Ok(())
    }
}

impl HostCall {
    fn run(self) {
        // SAFETY: the program promises that its function may be called with its data until the stream has done so.
        unsafe {
            match self {
                Self::Func(Some(f), data) => f(data as *mut c_void),
                Self::Callback(Some(f), stream, data) => f(stream, Code::SUCCESS, data as *mut c_void),
                Self::Func(None, _) | Self::Callback(None, ..) => {}
            }
        }
    }
}

/// The live allocation that holds `span` bytes from `at` on.
pub(crate) fn known(driver: &Driver, at: u64, span: u64) -> Outcome<Range> {
    let range = driver.memory.find(at).ok_or(Code::ILLEGAL_ADDRESS)?;
    let inside = at.checked_add(span).is_some_and(|end| end <= range.base + range.len);
    if inside { Ok(range) } else { Err(Code::ILLEGAL_ADDRESS) }
}

impl Work {
    /// Does it, on behalf of `context`. Runs without the driver's lock.
    pub(crate) fn run(&self, driver: &Driver, context: CUcontext) -> Outcome {
        match self {
            Self::Empty | Self::Wait(_) => Ok(()),
            Self::Copy(copy) => copy.run(driver),
            Self::Fill(fill) => fill.run(driver),
            Self::Kernel(kernel) => kernel.run(driver),
            Self::Host(call) => {
                call.run();
                Ok(())
            }
            Self::Record(record) => {
                record.done.get_or_init(Instant::now);
                Ok(())
            }
            Self::Free(base) => driver.release(*base, context),
            Self::Graph(steps) => steps.iter().try_for_each(|step| step.work.run(driver, context)),
        }
    }
}
