//! Uploads beside the computation.
//!
//! The next batch is copied while the step before still runs: the host writes it into pinned memory and goes on, a separate
//! stream copies it to the device, and the compute stream then copies it to its destination, in stream order. The host waits
//! only when it is [`SLOTS`] uploads ahead.

use kiln_device::{Block, Context, Event, Pinned, Pool, Priority, Result, Stream};

/// The most uploads under way at a time.
const SLOTS: usize = 4;
/// Uploads up to this many bytes are staged by the compute stream itself, which is no slower.
const SMALLEST: usize = 64 << 10;
/// Uploads beyond this many bytes are rare (weights, whole datasets), and not worth as much pinned memory.
const LARGEST: usize = 64 << 20;

/// Memory that one upload passes through.
#[derive(Debug)]
struct Slot {
    host: Pinned,
    device: Block,
    /// Recorded when the bytes have arrived on the device.
    arrived: Event,
    /// Recorded when the bytes were copied to their destination.
    used: Event,
}

/// The stream and the slots that large uploads pass through.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    stream: Option<Stream>,
    slots: Vec<Slot>,
    next: usize,
}

impl Transfers {
    /// True if an upload of `bytes` goes through a slot.
    pub(crate) fn takes(bytes: usize) -> bool {
        bytes > SMALLEST && bytes <= LARGEST
    }

    /// Copies `src` to the beginning of `to`, in the order of `compute`; returns once `src` has been read.
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
            // All of them or none: memory may run out in between.
            let mut slots = Vec::with_capacity(SLOTS);
            for _ in 0..SLOTS {
                slots.push(Slot {
                    host: Pinned::new(context, src.len())?,
                    device: pool.alloc(src.len())?,
                    arrived: Event::new(context)?,
                    used: Event::new(context)?,
                });
            }
            // A block from the pool may have been freed while work that uses it is still queued on the compute stream.
            compute.synchronize()?;
            self.slots = slots;
        }
        let stream = match &mut self.stream {
            Some(stream) => &*stream,
            none => none.insert(Stream::new(context, Priority::High)?),
        };
        let slot = &mut self.slots[self.next % SLOTS];
        self.next = (self.next + 1) % SLOTS;
        // Wait until the device has read the previous upload of this slot.
        slot.host[..src.len()].copy_from_slice(src);
        stream.wait(&slot.used)?;
        stream.upload_pinned(&slot.host, &mut slot.device, 0)?;
        stream.record(&slot.arrived)?;
        compute.wait(&slot.arrived)?;
        compute.copy(&slot.device, 0, to, 0, src.len())?;
        compute.record(&slot.used)
    }
}
