//! The one place that launches kernels.

use crate::{Cuda, CudaBuffer};
use kiln_core::{Error, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::Kernel;

/// Threads of a block of the elementwise kernels.
pub(crate) const THREADS: u32 = 256;

/// A grid of one dimension with `threads` a block, at least one thread for each of `n` items up to `max_blocks`; the
/// kernel strides over the rest.
pub(crate) fn linear(n: u64, threads: u32, max_blocks: u32) -> Geometry {
    let blocks = n.div_ceil(u64::from(threads)).min(u64::from(max_blocks)) as u32;
    Geometry {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared: 0,
    }
}

/// A grid of `blocks` blocks of [`THREADS`], each with work of its own: the kernel does not stride.
///
/// # Errors
/// [`Error::TooLarge`] beyond the blocks that a grid can have.
pub(crate) fn blocks(op: &'static str, blocks: u64) -> Result<Geometry> {
    if blocks > i32::MAX as u64 {
        return Err(Error::TooLarge {
            op,
            dims: vec![blocks as usize, THREADS as usize],
        });
    }
    Ok(Geometry {
        grid: [blocks as u32, 1, 1],
        block: [THREADS, 1, 1],
        shared: 0,
    })
}

impl Cuda {
    /// Keeps a buffer whose address a kernel finds within its arguments, where the launch is recorded.
    pub(crate) fn keep(&self, buffer: &CudaBuffer) -> Result<()> {
        match self.capturing() {
            true => self.check(self.stream().keep(&buffer.block)),
            false => Ok(()),
        }
    }

    /// Queues `kernel` on the compute stream. A grid with no blocks is no launch.
    ///
    /// The kernel's contract (in its file) is the caller's: pointers of the dtype and length that the parameters speak
    /// of, which every op compares first (`kiln_core::checks`).
    pub(crate) fn launch(&self, kernel: &'static Kernel, geometry: Geometry, args: &[Arg<'_>]) -> Result<()> {
        if geometry.grid.contains(&0) {
            return Ok(());
        }
        debug_assert!(
            geometry.block.iter().product::<u32>() <= kernel.max_threads,
            "{}: {geometry:?}",
            kernel.name
        );
        let sizes = args.iter().map(|a| a.size() as u32);
        if !sizes.eq(kernel.params.iter().copied()) {
            return Err(Error::Device {
                device: self.device_name(),
                call: "launch",
                code: -1,
                meaning: format!(
                    "{} takes parameters of {:?} bytes, not {:?}",
                    kernel.name,
                    kernel.params,
                    args.iter().map(Arg::size).collect::<Vec<_>>()
                ),
            });
        }
        let function = self.function(kernel)?;
        if geometry.shared > 48 * 1024 {
            self.check(function.set_dynamic_shared(geometry.shared))?;
        }
        // SAFETY: the arguments' number and sizes are those of the kernel's own PTX, compared above; pointers are live
        // blocks of this handle's own pool (`Runtime::owns`), borrowed by the calling op, freed in stream order
        // (kiln_device::Block) and kept by a graph that repeats the launch (`Arg::block`, `Cuda::keep`); that they are as long
        // as the parameters say is what `kiln_core::checks` found at the op's entry. Kernels of the caller's own
        // (`Cuda::launch_kernel`) find the length in their arguments.
        self.check(unsafe { self.stream().launch(&function, geometry, args) })?;
        if self.options().blocking && !self.capturing() {
            self.wait()?;
        }
        Ok(())
    }
}
