//! Pooling: loops over windows whose inner dimension is the channels. Gradients gather too (each input position asks
//! the windows that cover it), so any chunk of any output can be computed by itself, in a fixed order.

mod halves;
mod paired;
#[cfg(test)]
mod tests;

use crate::conv::geometry::{Geometry, positions, start, taps_within};
use crate::parallel::{THREADS, pair_chunks_mut, try_chunks_mut};
use crate::scalar::Scalar;
use crate::simd::isa::vectorized;
use crate::simd::lanes::exact;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::{Cpu, CpuBuffer};
use bytemuck::{cast_slice, cast_slice_mut};
use kiln_core::ops::{AdaptivePoolParams, ElementwiseOps, PoolOps, PoolParams, Unary, UnaryParams};
use kiln_core::{Buffer, Float, Result, checks};
pub(super) use paired::is_2x2_stride2;
use std::ops::Range;

impl PoolOps for Cpu {
    fn max_pool(&self, p: &PoolParams, x: &CpuBuffer, y: &mut CpuBuffer, index: &mut CpuBuffer) -> Result<()> {
        checks::max_pool(self, p, x, y, index)?;
        let g = Geometry::pooling(p);
        crate::dispatch::float!(y.dtype(), T => {
            let (x, y, index) = (x.as_slice::<T>(), y.as_mut_slice::<T>(), index.as_mut_slice());
            if exact::<T>() {
                max_pool_wide::<<T as Float>::Acc>(&g, cast_slice(x), cast_slice_mut(y), index);
            } else if is_2x2_stride2(&g) {
                return halves::max_pool::<T>(self, &g, x, y, index);
            } else {
                max_pool::<T>(&g, x, y, index);
            }
        });
        Ok(())
    }

    fn max_pool_grad(
        &self,
        p: &PoolParams,
        g: &CpuBuffer,
        relu: Option<&CpuBuffer>,
        index: &CpuBuffer,
        dx: &mut CpuBuffer,
    ) -> Result<()> {
        checks::max_pool_grad(self, p, g, relu, index, dx)?;
        if let Some(y) = relu {
            let mut masked = self.scratch(g.dtype(), g.len())?;
            let relu = UnaryParams::new(Unary::Relu, g.len(), 0.0, 0.0);
            self.unary_grad(&relu, y, y, g, &mut masked)?;
            return self.max_pool_grad(p, &masked, None, index, dx);
        }
        let windows = Geometry::pooling(p);
        crate::dispatch::float!(dx.dtype(), T => {
            if !exact::<T>() && is_2x2_stride2(&windows) {
                return halves::max_pool_grad::<T>(self, &windows, g.as_slice(), index.as_slice(), dx.as_mut_slice());
            }
            let g = Upcast::new::<T>(self, g)?;
            let (g, index) = (g.slice(), index.as_slice());
            write_upcast::<T>(self, dx, |dx| max_pool_grad_wide(&windows, g, index, dx))
        })
    }

    fn max_pool_gather(&self, p: &PoolParams, x: &CpuBuffer, index: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::max_pool_gather(self, p, x, index, y)?;
        let g = Geometry::pooling(p);
        crate::dispatch::float!(y.dtype(), T => {
            max_pool_gather::<T>(&g, x.as_slice(), index.as_slice(), y.as_mut_slice())
        })
    }

    fn avg_pool(&self, p: &PoolParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::avg_pool(self, p, x, y)?;
        let g = Geometry::pooling(p);
        if !is_2x2_stride2(&g) {
            return average(self, &Boxes::windows(p), x, y);
        }
        crate::dispatch::float!(y.dtype(), T => {
            let x = Upcast::new::<T>(self, x)?;
            write_upcast::<T>(self, y, |y| {
                paired::average(&g, x.slice(), y);
                Ok(())
            })
        })
    }

    fn avg_pool_grad(&self, p: &PoolParams, g: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::avg_pool_grad(self, p, g, dx)?;
        let windows = Geometry::pooling(p);
        if !is_2x2_stride2(&windows) {
            return average_grad(self, &Boxes::windows(p), g, dx);
        }
        crate::dispatch::float!(dx.dtype(), T => {
            let g = Upcast::new::<T>(self, g)?;
            write_upcast::<T>(self, dx, |dx| {
                paired::average_grad(&windows, g.slice(), dx);
                Ok(())
            })
        })
    }

    fn adaptive_avg_pool(&self, p: &AdaptivePoolParams, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        checks::adaptive_avg_pool(self, p, x, y)?;
        average(self, &Boxes::adaptive(p), x, y)
    }

    fn adaptive_avg_pool_grad(&self, p: &AdaptivePoolParams, g: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::adaptive_avg_pool_grad(self, p, g, dx)?;
        average_grad(self, &Boxes::adaptive(p), g, dx)
    }
}

/// Elements of a chunk: whole positions, about half of [`THREADS`] operations when each position takes `cost` per
/// channel.
fn chunk(channels: usize, cost: usize) -> usize {
    (THREADS / 2 / channels.saturating_mul(cost).max(1)).max(1) * channels
}

/// Max pooling of values of their accumulating type.
pub(super) fn max_pool_wide<A: Scalar>(g: &Geometry, x: &[A], y: &mut [A], index: &mut [i32]) {
    if is_2x2_stride2(g) {
        paired::max_pool(g, x, y, index);
    } else {
        max_pool(g, x, y, index);
    }
}

/// Its gradient.
pub(super) fn max_pool_grad_wide<A: Scalar>(p: &Geometry, g: &[A], index: &[i32], dx: &mut [A]) -> Result<()> {
    if !is_2x2_stride2(p) {
        return max_pool_grad(p, g, index, dx);
    }
    paired::max_pool_grad(p, g, index, dx);
    Ok(())
}

// x ≠ x says NaN in a form that vectorizes.
#[allow(clippy::eq_op)]
fn max_pool<T: Float>(g: &Geometry, x: &[T], y: &mut [T], index: &mut [i32]) {
    let c = g.channels;
    pair_chunks_mut(y, index, chunk(c, g.taps()), |at, y, index| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                positions(
                    g.output,
                    first..first + y.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w]| {
                        let range = (r - first) * c..(r - first + 1) * c;
                        let (y, index) = (&mut y[range.clone()], &mut index[range]);
                        let o = [g.first(0, d), g.first(1, h), g.first(2, w)];
                        let mut seen = false;
                        taps_within(
                            g,
                            [g.inside(0, o[0]), g.inside(1, o[1]), g.inside(2, o[2])],
                            #[inline(always)]
                            |i, k| g.tap(i, o[i], k),
                            #[inline(always)]
                            |_, input| {
                                let from = start(g.input, image, input, c);
                                let position = start(g.input, 0, input, 1) as i32;
                                let x = &x[from..from + c];
                                if seen {
                                    for ((y, index), &x) in y.iter_mut().zip(index.iter_mut()).zip(x) {
                                        // A NaN wins, and the first one keeps its place.
                                        let (new, best) = (x.to_acc(), y.to_acc());
                                        let wins = (new > best) | ((new != new) & (best == best));
                                        *y = if wins { x } else { *y };
                                        *index = if wins { position } else { *index };
                                    }
                                } else {
                                    seen = true;
                                    y.copy_from_slice(x);
                                    index.fill(position);
                                }
                            },
                        );
                        // A dilated window can step over a small input altogether.
                        if !seen {
                            y.fill(T::of(f64::NEG_INFINITY));
                            index.fill(-1);
                        }
                    },
                );
            },
        );
    });
}

fn max_pool_grad<A: Scalar>(p: &Geometry, g: &[A], index: &[i32], dx: &mut [A]) -> Result<()> {
    let c = p.channels;
    try_chunks_mut(dx, chunk(c, p.taps()), true, |at, dx| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                dx.fill(A::default());
                positions(
                    p.input,
                    first..first + dx.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w]| {
                        let dx = &mut dx[(r - first) * c..][..c];
                        let at = [d, h, w];
                        let position = start(p.input, 0, at, 1) as i32;
                        taps_within(
                            p,
                            [p.reading(0, d), p.reading(1, h), p.reading(2, w)],
                            #[inline(always)]
                            |i, k| p.reader(i, at[i], k),
                            #[inline(always)]
                            |_, output| {
                                let from = start(p.output, image, output, c);
                                let (g, index) = (&g[from..from + c], &index[from..from + c]);
                                for ((dx, &g), &i) in dx.iter_mut().zip(g).zip(index) {
                                    *dx += if i == position { g } else { A::default() };
                                }
                            },
                        );
                    },
                );
            },
        );
        Ok(())
    })
}

fn max_pool_gather<T: Float>(p: &Geometry, x: &[T], index: &[i32], y: &mut [T]) -> Result<()> {
    let (c, size) = (p.channels, p.in_positions());
    let per_image = p.out_positions() * c;
    try_chunks_mut(y, chunk(c, 4), true, |at, y| {
        for (i, (y, &position)) in y.iter_mut().zip(&index[at..]).enumerate() {
            let (image, channel) = ((at + i) / per_image, (at + i) % c);
            // Windows that saw no element carry -1.
            let inside = usize::try_from(position).ok().filter(|&q| q < size);
            *y = inside.map_or(T::of(0.0), |q| x[(image * size + q) * c + channel]);
        }
        Ok(())
    })
}

/// The boxes that an average pooling averages: windows on a grid, or cells of an even division.
struct Boxes {
    channels: usize,
    input: [usize; 3],
    output: [usize; 3],
    /// Kernel, stride and padding; `None` for adaptive pooling.
    window: Option<([usize; 3], [usize; 3], [usize; 3])>,
    count_padding: bool,
}

impl Boxes {
    fn windows(p: &PoolParams) -> Self {
        let g = Geometry::pooling(p);
        Boxes {
            channels: g.channels,
            input: g.input,
            output: g.output,
            window: Some((g.kernel, g.stride, g.padding)),
            count_padding: p.count_include_pad == 1,
        }
    }

    fn adaptive(p: &AdaptivePoolParams) -> Self {
        Boxes {
            channels: p.channels as usize,
            input: p.input.map(|v| v as usize),
            output: p.output.map(|v| v as usize),
            window: None,
            count_padding: false,
        }
    }

    /// The inputs of box `o` in dimension `i`, and how many the divisor counts.
    #[inline(always)]
    fn span(&self, i: usize, o: usize) -> (Range<usize>, usize) {
        let size = self.input[i];
        match &self.window {
            Some((kernel, stride, padding)) => {
                let from = o * stride[i];
                let to = (from + kernel[i]).min(size + 2 * padding[i]);
                let inside = from.saturating_sub(padding[i])..to.saturating_sub(padding[i]).min(size);
                let count = if self.count_padding {
                    to.saturating_sub(from)
                } else {
                    inside.len()
                };
                (inside, count)
            }
            None => {
                let out = self.output[i];
                let span = o * size / out..((o + 1) * size).div_ceil(out);
                let count = span.len();
                (span, count)
            }
        }
    }

    /// The boxes that contain input `at` of dimension `i`.
    #[inline(always)]
    fn owners(&self, i: usize, at: usize) -> Range<usize> {
        let out = self.output[i];
        match &self.window {
            Some((kernel, stride, padding)) => {
                let at = at + padding[i];
                let from = (at + 1).saturating_sub(kernel[i]).div_ceil(stride[i]);
                from..(at / stride[i] + 1).min(out)
            }
            None => at * out / self.input[i]..((at + 1) * out).div_ceil(self.input[i]),
        }
    }

    /// Elements of the largest box, about.
    fn volume(&self) -> usize {
        match &self.window {
            Some((kernel, ..)) => kernel.iter().product(),
            None => (0..3).map(|i| self.input[i].div_ceil(self.output[i])).product(),
        }
    }
}

fn average(cpu: &Cpu, boxes: &Boxes, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
    crate::dispatch::float!(y.dtype(), T => {
        let x = Upcast::new::<T>(cpu, x)?;
        write_upcast::<T>(cpu, y, |y| average_wide(boxes, x.slice(), y))
    })
}

fn average_wide<A: Scalar>(boxes: &Boxes, x: &[A], y: &mut [A]) -> Result<()> {
    let c = boxes.channels;
    try_chunks_mut(y, chunk(c, boxes.volume()), true, |at, y| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                y.fill(A::default());
                positions(
                    boxes.output,
                    first..first + y.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w]| {
                        let y = &mut y[(r - first) * c..][..c];
                        let ((ds, dn), (hs, hn), (ws, wn)) = (boxes.span(0, d), boxes.span(1, h), boxes.span(2, w));
                        for d in ds {
                            for h in hs.clone() {
                                for w in ws.clone() {
                                    let from = start(boxes.input, image, [d, h, w], c);
                                    for (y, &x) in y.iter_mut().zip(&x[from..from + c]) {
                                        *y += x;
                                    }
                                }
                            }
                        }
                        let count = A::of((dn * hn * wn).max(1) as f64);
                        y.iter_mut().for_each(|y| *y = *y / count);
                    },
                );
            },
        );
        Ok(())
    })
}

fn average_grad(cpu: &Cpu, boxes: &Boxes, g: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
    crate::dispatch::float!(dx.dtype(), T => {
        let g = Upcast::new::<T>(cpu, g)?;
        write_upcast::<T>(cpu, dx, |dx| average_grad_wide(boxes, g.slice(), dx))
    })
}

fn average_grad_wide<A: Scalar>(boxes: &Boxes, g: &[A], dx: &mut [A]) -> Result<()> {
    let c = boxes.channels;
    try_chunks_mut(dx, chunk(c, boxes.volume()), true, |at, dx| {
        let first = at / c;
        vectorized(
            #[inline(always)]
            || {
                dx.fill(A::default());
                positions(
                    boxes.input,
                    first..first + dx.len() / c,
                    #[inline(always)]
                    |r, [image, d, h, w]| {
                        let dx = &mut dx[(r - first) * c..][..c];
                        for d in boxes.owners(0, d) {
                            let (_, dn) = boxes.span(0, d);
                            for h in boxes.owners(1, h) {
                                let (_, hn) = boxes.span(1, h);
                                for w in boxes.owners(2, w) {
                                    let (_, wn) = boxes.span(2, w);
                                    let scale = A::of(1.0) / A::of((dn * hn * wn).max(1) as f64);
                                    let from = start(boxes.output, image, [d, h, w], c);
                                    for (dx, &g) in dx.iter_mut().zip(&g[from..from + c]) {
                                        *dx += g * scale;
                                    }
                                }
                            }
                        }
                    },
                );
            },
        );
        Ok(())
    })
}
