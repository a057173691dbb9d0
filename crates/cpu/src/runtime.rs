//! The device handle: memory, copies, and capture, which on a CPU runs the body at once.

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
    algorithm: Option<&'static str>,
}

/// A builder of a [`Cpu`]: see [`Cpu::builder`].
#[derive(Clone, Debug, Default)]
pub struct CpuBuilder {
    exact_convolutions: bool,
    memory_limit: Option<usize>,
    pub(crate) algorithm: Option<&'static str>,
}

impl CpuBuilder {
    /// Limits the memory of tensors and of what ops compute on the way to this many bytes: beyond it an allocation is
    /// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory) with the bytes requested and free, from which a program recovers, instead of
    /// an end by the system. By default (`None`) the system's limit counts alone.
    pub fn memory_limit(mut self, bytes: Option<usize>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Selects whether convolutions are always computed as direct sums of products. By default (`false`), 3×3 windows of stride
    /// 1 use Winograd's algorithm where that is faster; its f32 results are within 4e-6 of the exact ones, relative to their
    /// root mean square. In both cases a NaN or infinity in an image reaches only the windows that contain it. PyTorch leaves
    /// this choice to `torch.backends.mkldnn` and cuDNN.
    pub fn exact_convolutions(mut self, exact: bool) -> Self {
        self.exact_convolutions = exact;
        self
    }

    /// Creates the [`Cpu`], with an allocator of its own.
    pub fn build(self) -> Cpu {
        Cpu {
            pool: Arc::new(Pool::limited(self.memory_limit)),
            exact_convolutions: self.exact_convolutions,
            algorithm: self.algorithm,
            ..Cpu::default()
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        // Records the process, so that a fork can be detected.
        first_process();
        Cpu {
            pool: Arc::default(),
            poison: false,
            exact_convolutions: false,
            algorithm: None,
        }
    }
}

impl Cpu {
    /// Creates a CPU with an allocator of its own. Its threads are those of rayon's current pool.
    ///
    /// A thread outside the pool sleeps while the pool runs an op, which costs more than the work of a small op. A program is
    /// fastest if the thread that trains is one of the pool's (`rayon::ThreadPoolBuilder::use_current_thread`) or runs inside
    /// `rayon::ThreadPool::install`.
    pub fn new() -> Self {
        Cpu::default()
    }

    /// Returns a builder for a CPU with other options than those of [`Cpu::new`].
    pub fn builder() -> CpuBuilder {
        CpuBuilder::default()
    }

    /// The algorithm that [`CpuBuilder::algorithm`] asks for.
    pub(crate) fn preferred_algorithm(&self) -> Option<&'static str> {
        self.algorithm
    }

    /// True if convolutions are always computed as direct sums of products.
    pub(crate) fn convolves_exactly(&self) -> bool {
        self.exact_convolutions
    }

    /// Creates a CPU whose new buffers are filled with NaN (all bits set), for tests: it exposes ops that leave an element
    /// unwritten or read one before writing it.
    pub fn poisoned() -> Self {
        Cpu {
            poison: true,
            ..Cpu::default()
        }
    }

    /// Allocates scratch memory for an op, from the same allocator.
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

    fn supports(&self, _: Op, _: DType) -> bool {
        true
    }

    fn supports_dtype(&self, _: DType) -> bool {
        true
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CpuBuffer> {
        // Every op allocates its output, so this is a point of interruption between ops.
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
