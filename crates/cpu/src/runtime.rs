//! The device handle: memory, copies, and capture (which on a CPU means: run it now).

use crate::fork::first_process;
use crate::parallel::{copy_bytes, try_each};
use crate::pool::Pool;
use crate::{CpuBuffer, interrupt};
use kiln_core::{Buffer, DType, Error, Interrupt, MemoryStats, Result, Runtime};
use std::convert::Infallible;
use std::sync::Arc;

/// The CPU as a device. Clones share one allocator.
#[derive(Clone)]
pub struct Cpu {
    pool: Arc<Pool>,
    poison: bool,
}

impl Default for Cpu {
    fn default() -> Self {
        // From here on a fork is told.
        first_process();
        Cpu {
            pool: Arc::default(),
            poison: false,
        }
    }
}

impl Cpu {
    /// The CPU with an allocator of its own. Threads are rayon's current pool.
    ///
    /// A thread outside of the pool waits, asleep, for every op that the pool shares out, which costs small ops more than
    /// their work. A program is quickest when the thread that trains is one of the pool's
    /// (`rayon::ThreadPoolBuilder::use_current_thread`), or trains within `rayon::ThreadPool::install`.
    pub fn new() -> Self {
        Cpu::default()
    }

    /// A CPU whose fresh buffers are filled with NaN (all bits set): an op that leaves an element unwritten, or reads
    /// one before writing it, shows.
    pub fn poisoned() -> Self {
        Cpu {
            poison: true,
            ..Cpu::default()
        }
    }

    /// Scratch memory for the inside of an op, from the same allocator.
    pub(crate) fn scratch(&self, dtype: DType, len: usize) -> Result<CpuBuffer> {
        let mut buffer = CpuBuffer::new(&self.pool, dtype, len)?;
        if self.poison {
            buffer.bytes_mut().fill(0xff);
        }
        Ok(buffer)
    }
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cpu")
    }
}

impl Runtime for Cpu {
    type Buffer = CpuBuffer;
    type Graph = Infallible;

    fn name(&self) -> String {
        "cpu".into()
    }

    fn supports(&self, _: DType) -> bool {
        true
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CpuBuffer> {
        // Every op has an output: between two of them is a place to give up.
        interrupt::check()?;
        self.scratch(dtype, len)
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut CpuBuffer) -> Result<()> {
        copy_bytes(src, dst.bytes_mut());
        Ok(())
    }

    fn upload_part(&self, src: &[u8], dst: &mut CpuBuffer, offset: usize) -> Result<()> {
        let held = dst.bytes().len();
        let end = offset.checked_add(src.len()).filter(|&end| end <= held);
        let end = end.ok_or_else(|| {
            let expected = format!("room for {} bytes in {held}", src.len());
            Error::invalid("upload_part", "offset", offset, expected)
        })?;
        copy_bytes(src, &mut dst.bytes_mut()[offset..end]);
        Ok(())
    }

    fn download_bytes(&self, src: &CpuBuffer, dst: &mut [u8]) -> Result<()> {
        copy_bytes(src.bytes(), dst);
        Ok(())
    }

    fn copy(&self, src: &CpuBuffer, dst: &mut CpuBuffer) -> Result<()> {
        debug_assert_eq!((src.dtype(), src.len()), (dst.dtype(), dst.len()));
        copy_bytes(src.bytes(), dst.bytes_mut());
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    const CAPTURES: bool = false;

    fn capture(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<Option<Infallible>> {
        body()?;
        Ok(None)
    }

    fn replay(&self, graph: &mut Infallible) -> Result<()> {
        match *graph {}
    }

    fn launches(&self, graph: &Infallible) -> usize {
        match *graph {}
    }

    fn interruptible(&self, interrupt: &Interrupt, body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        interrupt::with(interrupt, body)
    }

    fn each(&self, n: usize, f: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
        try_each(n, f)
    }

    fn memory(&self) -> MemoryStats {
        self.pool.stats()
    }
}
