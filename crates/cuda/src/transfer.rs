//! Uploads beside the computation.
//!
//! The next batch is copied while the step before still runs: the host writes into pinned memory and goes on, a stream of
//! its own takes it to the device, and the computing stream copies it over its destination in turn. The host waits only
//! when it is [`SLOTS`] uploads ahead.

use kiln_device::{Block, Context, Event, Pinned, Pool, Priority, Result, Stream};

/// Uploads under way at a time.
const SLOTS: usize = 4;
/// Smaller ones are staged by the computing stream itself, which is no slower.
const SMALLEST: usize = 64 << 10;
/// Larger ones are rare (weights, whole datasets), and not worth as much pinned memory.
const LARGEST: usize = 64 << 20;

/// Memory that one upload passes through.
#[derive(Debug)]
struct Slot {
    host: Pinned,
    device: Block,
    /// The device has its bytes.
    arrived: Event,
    /// They were copied to where they belong.
    used: Event,
}

/// The way of large uploads.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    stream: Option<Stream>,
    slots: Vec<Slot>,
    next: usize,
}

impl Transfers {
    /// Whether an upload of `bytes` goes this way.
    pub(crate) fn takes(bytes: usize) -> bool {
        bytes > SMALLEST && bytes <= LARGEST
    }

    /// Copies `src` to the beginning of `to`, in the order of `compute`; returns once `src` was read.
    pub(crate) fn upload(
        &mut self,
        context: &Context,
        pool: &Pool,
        compute: &Stream,
        src: &[u8],
        to: &mut Block,
    ) -> Result<()> {
        if self.slots.first().is_none_or(|s| s.host.len() < src.len()) {
            self.slots.clear();
            for _ in 0..SLOTS {
                self.slots.push(Slot {
                    host: Pinned::new(context, src.len())?,
                    device: pool.alloc(src.len())?,
                    arrived: Event::new(context)?,
                    used: Event::new(context)?,
                });
            }
            // A block may have been freed while work that uses it still waits on the computing stream.
            compute.synchronize()?;
        }
        let stream = match &mut self.stream {
            Some(stream) => &*stream,
            none => none.insert(Stream::new(context, Priority::High)?),
        };
        let slot = &mut self.slots[self.next % SLOTS];
        self.next = (self.next + 1) % SLOTS;
        // Waits until the device has read what was here.
        slot.host[..src.len()].copy_from_slice(src);
        stream.wait(&slot.used)?;
        stream.upload_pinned(&slot.host, &mut slot.device, 0)?;
        stream.record(&slot.arrived)?;
        compute.wait(&slot.arrived)?;
        compute.copy(&slot.device, 0, to, 0, src.len())?;
        compute.record(&slot.used)
    }
}
