//! Host accesses that race a stream: page-locked memory that a copy still reads or writes.
//!
//! In checker mode the pages of an asynchronous copy's page-locked side are guarded from its issue until the host waits
//! for something that implies the copy is done. While work runs nothing is guarded, because copies, kernels and the
//! program's own callbacks use the same pages.

use kiln_simulator::memory::Kind;

use crate::error::Code;
use crate::objects::host_access::Pending;
use crate::objects::work::{Copy, Place, Work};
use crate::page_guard::{self, Pages};
use crate::state::{Driver, State};
use crate::types::CUstream;

impl Driver {
    /// The page-locked sides of a piece of work: start, bytes, and true if the device writes them.
    fn page_locked(&self, work: &Work, found: &mut Vec<(u64, u64, bool)>) {
        match work {
            Work::Copy(copy) => {
                let Copy {
                    dst,
                    src,
                    dst_pitch,
                    src_pitch,
                    ..
                } = copy;
                for (place, pitch, writes) in [(src, *src_pitch, false), (dst, *dst_pitch, true)] {
                    if let (Place::Known(at), Some(span)) = (place, copy.span(pitch)) {
                        // Rows with gaps between them leave the gaps to the host.
                        let whole = span == copy.width * copy.height * copy.depth;
                        found.extend(whole.then_some((*at, span, writes)));
                    }
                }
            }
            Work::Graph(steps) => steps.iter().for_each(|step| self.page_locked(&step.work, found)),
            _ => {}
        }
    }

    /// True if the host may learn from a piece of work, without a wait, that the work before it is done: a callback, or a
    /// kernel that can write to page-locked memory.
    pub(crate) fn signals_host(&self, work: &Work) -> bool {
        match work {
            Work::Host(_) => true,
            Work::Kernel(kernel) => {
                let words = kernel
                    .params
                    .chunks_exact(8)
                    .filter_map(|b| Some(u64::from_le_bytes(b.try_into().ok()?)));
                words
                    .into_iter()
                    .any(|at| self.memory.find(at).is_some_and(|r| r.kind.host()))
            }
            Work::Graph(steps) => steps.iter().any(|step| self.signals_host(&step.work)),
            _ => false,
        }
    }

    /// Work was issued to a stream; the host goes on.
    pub(crate) fn issued(&self, state: &mut State, stream: CUstream, seq: u64, work: &Work) {
        if !self.config.check {
            return;
        }
        self.tell_host_accesses(state);
        let mut sides = Vec::new();
        self.page_locked(work, &mut sides);
        let context = state.streams.get(&stream).map(|s| s.context).unwrap_or_default();
        let pending = sides.into_iter().filter_map(|(start, span, writes)| {
            let range = self.memory.find(start).filter(|r| r.kind == Kind::Pinned)?;
            let pages = Pages::of(start, start + span, (range.base, range.len), !writes)?;
            let name = format!("page-locked allocation #{} ({} bytes)", range.id, range.len);
            let end = start + span;
            Some(Pending {
                stream,
                context,
                seq,
                pages,
                start,
                end,
                name,
            })
        });
        let pending: Vec<Pending> = pending.collect();
        if !pending.is_empty() {
            self.host_access().change(|all| all.extend(pending));
        }
    }

    /// The host has waited for something: it may touch the memory of all copies that are done by now.
    pub(crate) fn host_waited(&self, state: &mut State) {
        if !self.config.check {
            return;
        }
        self.tell_host_accesses(state);
        let late = |p: &Pending| state.pending(p.stream, p.seq);
        let mut host = self.host_access();
        if host.pending.iter().any(|p| !late(p)) {
            host.change(|pending| pending.retain(late));
        }
    }

    /// Reports the accesses that were noted since the last call into the driver.
    pub(crate) fn tell_host_accesses(&self, state: &mut State) {
        for touch in page_guard::touches() {
            let mut host = self.host_access();
            let Some(pending) = host.pending.iter().find(|p| p.seq == touch.id) else {
                continue;
            };
            let (verb, may) = if touch.write {
                ("writes", "use")
            } else {
                ("reads", "write")
            };
            let message = format!(
                "race, nothing orders the copy of {} bytes in stream {:#x}, which may still {may} them, and the host, which {verb} \
                 at byte {} of {}",
                pending.end - pending.start,
                pending.stream.0,
                touch.address.saturating_sub(pending.start),
                pending.name
            );
            let context = pending.context;
            host.change(|pending| pending.retain(|p| p.seq != touch.id));
            drop(host);
            self.report(message);
            if !self.config.go_on {
                state.fail(context, Code::LAUNCH_FAILED);
            }
        }
    }
}
