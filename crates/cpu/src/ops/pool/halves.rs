//! Pooling of halves by 2×2 windows of stride 2: some images at a time are widened, pooled and rounded while they are in cache.

use super::paired;
use crate::Cpu;
use crate::conv::geometry::Geometry;
use crate::parallel::try_chunks_mut;
use crate::scalar::Stored;
use crate::simd::lanes::{from_acc, to_acc};
use kiln_core::host::room;
use kiln_core::{Element, Result};

/// The approximate number of elements of the images that are widened at once: half of an L2 cache.
const PART: usize = 1 << 16;

/// The images of a part, and the numbers of elements of an image and of its result.
fn parts(g: &Geometry) -> [usize; 3] {
    let [image, result] = [g.in_positions(), g.out_positions()].map(|n| n * g.channels);
    [(PART / image.max(1)).max(1), image, result]
}

/// As [`paired::max_pool`].
pub(super) fn max_pool<T: Stored>(cpu: &Cpu, g: &Geometry, x: &[T], y: &mut [T], index: &mut [i32]) -> Result<()> {
    let [images, image, result] = parts(g);
    if y.is_empty() {
        return Ok(());
    }
    let mut parts = room(g.batch.div_ceil(images))?;
    parts.extend(y.chunks_mut(images * result).zip(index.chunks_mut(images * result)));
    try_chunks_mut(&mut parts, 1, true, |i, part| {
        let (y, index) = &mut part[0];
        let batch = y.len() / result;
        let mut memory = cpu.scratch(T::Acc::DTYPE, batch * (image + result))?;
        let (wide, pooled) = memory.as_mut_slice::<T::Acc>().split_at_mut(batch * image);
        to_acc(&x[i * images * image..][..batch * image], wide);
        paired::max_pool(&Geometry { batch, ..*g }, wide, pooled, index);
        from_acc(pooled, y);
        Ok(())
    })
}

/// As [`paired::max_pool_grad`].
pub(super) fn max_pool_grad<T: Stored>(cpu: &Cpu, p: &Geometry, g: &[T], index: &[i32], dx: &mut [T]) -> Result<()> {
    let [images, image, result] = parts(p);
    try_chunks_mut(dx, images * image, true, |at, dx| {
        let (first, batch) = (at / image, dx.len() / image);
        let of = first * result..(first + batch) * result;
        let mut memory = cpu.scratch(T::Acc::DTYPE, batch * (image + result))?;
        let (wide, gradient) = memory.as_mut_slice::<T::Acc>().split_at_mut(batch * image);
        to_acc(&g[of.clone()], gradient);
        paired::max_pool_grad(&Geometry { batch, ..*p }, gradient, &index[of], wide);
        from_acc(wide, dx);
        Ok(())
    })
}
