//! The execution of a piece of work.

use std::ffi::c_void;
use std::time::Instant;

use kiln_simulator::memory::{self, Range, Snapshot};

use crate::error::{Code, Outcome};
use crate::objects::work::{Copy, Fill, HostCall, Place, Work};
use crate::state::Driver;
use crate::types::CUcontext;

impl Copy {
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
        let (to_host, from_host) = (on_host(driver, &self.dst), on_host(driver, &self.src));
        let bytes = self.width * self.height * self.depth;
        driver.trace.copy(to_host, from_host, bytes);
        for (z, y) in self.rows().filter(|_| driver.config.execute || to_host) {
            let to = dst + z * self.dst_pitch[1] + y * self.dst_pitch[0];
            let from = src + z * self.src_pitch[1] + y * self.src_pitch[0];
            // SAFETY: known memory was looked up just now and is not freed while work runs (`alloc` waits for all);
            // staged bytes are owned; the program promises that pageable memory stays valid.
            unsafe {
                if driver.config.execute {
                    memory::copy(&driver.memory, to, from, self.width);
                } else {
                    std::ptr::write_bytes(to as *mut u8, 0, self.width as usize);
                }
            }
        }
        Ok(())
    }
}

/// True if one side of a copy is memory of the host.
fn on_host(driver: &Driver, place: &Place) -> bool {
    match place {
        Place::Known(at) => driver.memory.find(*at).is_some_and(|range| range.kind.host()),
        Place::Pageable(_) | Place::Staged(_) => true,
    }
}

impl Fill {
    fn run(&self, driver: &Driver) -> Outcome {
        let span = self.span().ok_or(Code::INVALID_VALUE)?;
        known(driver, self.dst, span).inspect_err(|_| {
            let about = driver.memory.snapshot().describe(self.dst);
            driver.report(format_args!(
                "a fill of {span} bytes at {:#x}, which is {about}",
                self.dst
            ));
        })?;
        driver.trace.fill(self.width * self.element * self.height);
        if !driver.config.execute {
            return Ok(());
        }
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
    /// Does this piece of work for `context`, a kernel with the memory of `view` if there is one. The driver's lock is not held meanwhile.
    pub(crate) fn run(&self, driver: &Driver, context: CUcontext, view: Option<Snapshot>) -> Outcome {
        match self {
            Self::Empty | Self::Wait(_) => Ok(()),
            Self::Copy(copy) => copy.run(driver),
            Self::Fill(fill) => fill.run(driver),
            Self::Kernel(kernel) => kernel.run(driver, view),
            Self::Host(call) => {
                call.run();
                Ok(())
            }
            Self::Record(record) => {
                record.done.get_or_init(Instant::now);
                Ok(())
            }
            Self::Free(base) => driver.release(*base, context),
            Self::Graph(steps) => {
                driver.trace.graph("begin");
                let done = steps.iter().try_for_each(|step| step.work.run(driver, context, None));
                driver.trace.graph("end");
                done
            }
        }
    }
}
