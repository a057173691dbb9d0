//! The device handle: memory, copies, and capture (which on a CPU means: run it now).

use crate::fork::first_process;
use crate::memory::Pool;
use crate::parallel::{copy_bytes, try_each};
use crate::{CpuBuffer, interrupt};
use kiln_core::ops::Op;
use kiln_core::{Buffer, DType, Interrupt, MemoryStats, Result, Runtime, checks};
use std::convert::Infallible;
use std::sync::Arc;

/// The CPU as a device. Clones share one allocator.
#[derive(Clone)]
pub struct Cpu {
    pool: Arc<Pool>,
    poison: bool,
    exact_convolutions: bool,
}

/// A [`Cpu`] to be, with its options: see [`Cpu::builder`].
#[derive(Clone, Debug, Default)]
pub struct CpuBuilder {
    exact_convolutions: bool,
}

impl CpuBuilder {
    /// Whether convolutions are sums of products alone, as their definition reads. `false` unless set: 3×3 windows of stride 1 then
    /// take Winograd's algorithm where that is faster, whose f32 results are within 4e-6 of the exact ones, relative to the root of
    /// the mean of their squares. A NaN or infinity in an image reaches the windows that see it and no others either way. In
    /// PyTorch `torch.backends.mkldnn` and cuDNN make this choice on their own.
    pub fn exact_convolutions(mut self, exact: bool) -> Self {
        self.exact_convolutions = exact;
        self
    }

    /// The CPU, with an allocator of its own.
    pub fn build(self) -> Cpu {
        Cpu {
            exact_convolutions: self.exact_convolutions,
            ..Cpu::default()
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        // From here on a fork is told.
        first_process();
        Cpu {
            pool: Arc::default(),
            poison: false,
            exact_convolutions: false,
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

    /// The CPU with other options than [`Cpu::new`]'s.
    pub fn builder() -> CpuBuilder {
        CpuBuilder::default()
    }

    /// Whether convolutions are to be sums of products alone.
    pub(crate) fn convolves_exactly(&self) -> bool {
        self.exact_convolutions
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

    fn supports(&self, op: Op, dtype: DType) -> bool {
        // Between a convolution and a pooling halves are rounded: the two ops do that.
        op != Op::ConvMaxPool || matches!(dtype, DType::F32 | DType::F64)
    }

    fn supports_dtype(&self, _: DType) -> bool {
        true
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CpuBuffer> {
        // Every op has an output: between two of them is a place to give up.
        interrupt::check()?;
        self.scratch(dtype, len)
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut CpuBuffer) -> Result<()> {
        checks::upload_bytes(self, src, dst)?;
        copy_bytes(src, dst.bytes_mut());
        Ok(())
    }

    fn upload_part(&self, src: &[u8], dst: &mut CpuBuffer, offset: usize) -> Result<()> {
        checks::upload_part(self, src, dst, offset)?;
        copy_bytes(src, &mut dst.bytes_mut()[offset..][..src.len()]);
        Ok(())
    }

    fn download_bytes(&self, src: &CpuBuffer, dst: &mut [u8]) -> Result<()> {
        checks::download_bytes(self, src, dst)?;
        copy_bytes(src.bytes(), dst);
        Ok(())
    }

    fn copy(&self, src: &CpuBuffer, dst: &mut CpuBuffer) -> Result<()> {
        checks::copy(self, src, dst)?;
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
