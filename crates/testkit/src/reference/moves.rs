//! Ops that move elements: views, and picking by indices.

use super::{Reference, ReferenceBuffer};
use kiln_core::ops::{IndexOps, IndexParams, ViewParams};
use kiln_core::{Error, Result, checks};

/// The offsets of a view's elements, in order.
fn view(p: &ViewParams) -> impl Iterator<Item = usize> {
    let rank = p.rank as usize;
    (0..p.n).map(move |i| {
        let (mut rest, mut at) = (i, p.offset as i64);
        for (&size, &stride) in p.shape[..rank].iter().zip(&p.strides).rev() {
            at += (rest % size) as i64 * stride;
            rest /= size;
        }
        at as usize
    })
}

/// For each element of `[outer, count, inner]` the offset in `[outer, size, inner]` that `index` names.
pub(super) fn places(op: &'static str, p: &IndexParams, index: &ReferenceBuffer) -> Result<Vec<usize>> {
    let [size, inner, count] = [p.size, p.inner, p.count].map(|d| d as usize);
    let place = |(i, index): (usize, i64)| {
        let at = usize::try_from(index).ok().filter(|&at| at < size);
        let at = at.ok_or(Error::IndexOutOfRange {
            op,
            index,
            position: i,
            size,
        })?;
        let outer = i / (count * inner);
        Ok((outer * size + at) * inner + i % inner)
    };
    index.indices().enumerate().map(place).collect()
}

impl IndexOps for Reference {
    fn view_read(&self, p: &ViewParams, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::view_read(self, p, x, y)?;
        for (y, at) in y.data.iter_mut().zip(view(p)) {
            *y = x.data[at];
        }
        Ok(())
    }

    fn view_write(&self, p: &ViewParams, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::view_write(self, p, x, y)?;
        for (x, at) in x.data.iter().zip(view(p)) {
            y.data[at] = *x;
        }
        Ok(())
    }

    fn gather(
        &self,
        p: &IndexParams,
        x: &ReferenceBuffer,
        index: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::gather(self, p, x, index, y)?;
        for (y, at) in y.data.iter_mut().zip(places("gather", p, index)?) {
            *y = x.data[at];
        }
        Ok(())
    }

    fn scatter_add(
        &self,
        p: &IndexParams,
        x: &ReferenceBuffer,
        index: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::scatter_add(self, p, x, index, y)?;
        for (x, at) in x.data.iter().zip(places("scatter_add", p, index)?) {
            y.data[at] += *x;
        }
        Ok(())
    }
}
