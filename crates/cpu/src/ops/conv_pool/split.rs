//! Splits a batch into parts whose results stay in cache; the forward pass of a part.

use crate::Cpu;
use crate::conv::Geometry;
use crate::conv::plan::{Algorithm, choose};
use crate::gemm::{BLOCK_WORK, SERIAL_THRESHOLD};
use crate::parallel::try_chunks_mut;
use crate::scalar::Stored;
use crate::simd::upcast::{Upcast, write_upcast_to};
use kiln_core::host::room;
use kiln_core::ops::ConvPass as Pass;
use kiln_core::ops::{Activation, ConvPoolParams};
use kiln_core::{DType, Result};

/// True for no activation and for ReLU.
pub(super) fn has_relu_or_none(p: &ConvPoolParams) -> bool {
    matches!(p.conv.activation(), Activation::None | Activation::Relu)
}

/// True if the convolution alone would use Winograd's algorithm in f32.
pub(super) fn takes_winograd(cpu: &Cpu, conv: &Geometry) -> bool {
    let exact = cpu.convolves_exactly();
    !conv.empty()
        && matches!(
            choose::<f32>(Pass::Forward, conv, DType::F32, exact, None),
            Algorithm::Winograd(_)
        )
}

/// The largest number of elements of the convolution's result in a part: half of an L2 cache.
const PART: usize = 1 << 17;
/// The largest number of elements of all partial gradients of a weight together.
const SUMS: usize = 1 << 20;

/// A batch of images, split into parts.
#[derive(Clone, Copy)]
pub(super) struct BatchSplit {
    pub(super) conv: Geometry,
    pub(super) pool: Geometry,
    /// The number of images in a part.
    pub(super) images: usize,
    pub(super) relu_masked: bool,
}

impl BatchSplit {
    pub(super) fn new(p: &ConvPoolParams) -> Self {
        let (conv, pool) = (Geometry::new(&p.conv), Geometry::pooling(&p.pool));
        BatchSplit {
            images: (PART / (conv.out_positions() * conv.outputs).max(1)).max(1),
            relu_masked: p.conv.activation() == Activation::Relu,
            conv,
            pool,
        }
    }

    /// True if splitting the batch makes the op faster: not if the result of one image is larger than a part, or if the
    /// convolution needs many images at once.
    pub(super) fn is_profitable(&self, cpu: &Cpu) -> bool {
        let conv = &self.conv;
        let weights = conv.outputs * conv.depth();
        let fits = conv.out_positions() * conv.outputs <= PART && 4 * weights <= PART;
        fits && conv.batch > 0 && self.bounds_sums(weights) && !takes_winograd(cpu, conv)
    }

    /// True if the partial gradients of all parts, of this many weights each, take little memory.
    pub(super) fn bounds_sums(&self, weights: usize) -> bool {
        self.count() * weights <= SUMS
    }

    pub(super) fn count(&self) -> usize {
        self.conv.batch.div_ceil(self.images)
    }

    /// Parts of equal work, at most 32 of them.
    pub(super) fn by_work(&self) -> Self {
        let (batch, work) = (self.conv.batch.max(1), self.conv.work().max(1));
        let images = match work <= SERIAL_THRESHOLD {
            true => batch,
            false => (BLOCK_WORK * batch / work).max(batch.div_ceil(32)),
        };
        BatchSplit { images, ..*self }
    }

    /// The geometries of the convolution and the pooling for `batch` images.
    pub(super) fn sized(&self, batch: usize) -> (Geometry, Geometry) {
        let of = |g: &Geometry| Geometry { batch, ..*g };
        (of(&self.conv), of(&self.pool))
    }

    /// The numbers of elements of an image, of its convolution, and of its pooled result.
    pub(super) fn sizes(&self) -> [usize; 3] {
        let (conv, pool) = (&self.conv, &self.pool);
        [
            conv.in_positions() * conv.channels,
            conv.out_positions() * conv.outputs,
            pool.out_positions() * pool.channels,
        ]
    }

    /// Runs `f(images, (results, indices))` for each part. Halves are widened, and rounded, while a part is in cache.
    pub(super) fn each<T: Stored>(
        &self,
        cpu: &Cpu,
        x: &[T],
        (y, index): (&mut [T], &mut [i32]),
        f: impl Fn(&[T::Acc], (&mut [T::Acc], &mut [i32])) -> Result<()> + Sync,
    ) -> Result<()> {
        let [image, _, of_image] = self.sizes();
        let size = (self.images * of_image).max(1);
        let mut parts = room(y.len().div_ceil(size))?;
        parts.extend(y.chunks_mut(size).zip(index.chunks_mut(size)));
        try_chunks_mut(&mut parts, 1, true, |i, part| {
            let (y, index) = &mut part[0];
            let x = Upcast::of(cpu, &x[i * self.images * image..][..y.len() / of_image * image])?;
            write_upcast_to::<T>(cpu, y, |y| f(x.slice(), (y, index)))
        })
    }
}
