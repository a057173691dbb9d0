//! Matrix products, convolutions and max pooling.

use super::{Reference, ReferenceBuffer};
use crate::array::unravel;
use crate::ops::elementwise::Function;
use kiln_core::ops::{ConvOps, ConvParams, MatmulOps, MatmulParams, PoolOps, PoolParams};
use kiln_core::{Result, checks};

impl MatmulOps for Reference {
    fn matmul(
        &self,
        p: &MatmulParams,
        a: &ReferenceBuffer,
        b: &ReferenceBuffer,
        c: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
        let [m, n, k] = [p.m, p.n, p.k].map(|d| d as usize);
        let dims: Vec<usize> = p.batch[..p.batch_rank as usize].iter().map(|&d| d as usize).collect();
        for batch in 0..p.batches() {
            let at = unravel(batch, &dims);
            let start = |strides: &[i64]| at.iter().zip(strides).map(|(&i, &s)| i * s as usize).sum::<usize>();
            let (a0, b0) = (start(&p.a_batch), start(&p.b_batch));
            for i in 0..m {
                for j in 0..n {
                    let mut sum = 0.0;
                    for l in 0..k {
                        let a_at = if p.trans_a == 1 { l * m + i } else { i * k + l };
                        let b_at = if p.trans_b == 1 { j * k + l } else { l * n + j };
                        sum += a.data[a0 + a_at] * b.data[b0 + b_at];
                    }
                    c.data[(batch * m + i) * n + j] = sum;
                }
            }
        }
        Ok(())
    }
}

/// The taps of a window that lie inside of the image along one dimension, each with the position that it reads.
fn inside(o: usize, kernel: u32, [stride, dilation, padding, size]: [u32; 4]) -> Vec<(usize, usize)> {
    let [kernel, stride, dilation, padding, size] = [kernel, stride, dilation, padding, size].map(|v| v as usize);
    let first = padding.saturating_sub(o * stride).div_ceil(dilation);
    let read = |k: usize| (k, o * stride + k * dilation - padding);
    (first..kernel).map(read).take_while(|&(_, at)| at < size).collect()
}

/// Calls `f(position, image, channel, taps)` for every image, output position and channel, the taps inside of the image
/// with the input positions that they read.
fn windows(
    [input, kernel, output]: [[u32; 3]; 3],
    [stride, dilation, padding]: [[u32; 3]; 3],
    [batch, channels]: [u32; 2],
    mut f: impl FnMut(usize, usize, usize, &[(usize, usize)]),
) {
    let positions = output.map(|d| d as usize);
    let count = positions.iter().product::<usize>();
    for o in 0..count {
        let place = unravel(o, &positions);
        let along = |i: usize| inside(place[i], kernel[i], [stride[i], dilation[i], padding[i], input[i]]);
        let mut seen = vec![(0, 0)];
        for i in 0..3 {
            let join = |&(k, at): &(usize, usize), &(k2, at2): &(usize, usize)| {
                (k * kernel[i] as usize + k2, at * input[i] as usize + at2)
            };
            let own = along(i);
            seen = seen.iter().flat_map(|a| own.iter().map(move |b| join(a, b))).collect();
        }
        for image in 0..batch as usize {
            for channel in 0..channels as usize {
                f(image * count + o, image, channel, &seen);
            }
        }
    }
}

/// Calls `f(y, x, w)` with the offsets of every product of a convolution, which adds `x[x]·w[w]` to `y[y]`.
fn taps(p: &ConvParams, mut f: impl FnMut(usize, usize, usize)) {
    let [channels, outputs] = [p.in_channels, p.out_channels].map(|d| d as usize);
    let (of_group, by_group) = (p.group_in(), p.group_out());
    windows(
        [p.window.input, p.window.kernel, p.window.output],
        [p.window.stride, p.window.dilation, p.window.padding],
        [p.batch, p.out_channels],
        |position, image, output, seen| {
            let group = output / by_group;
            for &(tap, at) in seen {
                for c in 0..of_group {
                    let x = (image * p.window.in_positions() + at) * channels + group * of_group + c;
                    let w = (output * p.window.taps() + tap) * of_group + c;
                    f(position * outputs + output, x, w);
                }
            }
        },
    );
}

impl ConvOps for Reference {
    fn conv(
        &self,
        p: &ConvParams,
        x: &ReferenceBuffer,
        w: &ReferenceBuffer,
        bias: Option<&ReferenceBuffer>,
        y: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::conv(self, p, x, w, bias, y)?;
        y.data.fill(0.0);
        taps(p, |yi, xi, wi| y.data[yi] += x.data[xi] * w.data[wi]);
        for (i, y) in y.data.iter_mut().enumerate() {
            *y += bias.map_or(0.0, |bias| bias.data[i % p.out_channels as usize]);
            if let Some(f) = p.activation().function() {
                *y = Function::plain(f).exact(*y);
            }
        }
        Ok(())
    }

    fn conv_data_grad(
        &self,
        p: &ConvParams,
        g: &ReferenceBuffer,
        w: &ReferenceBuffer,
        dx: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        dx.data.fill(0.0);
        taps(p, |yi, xi, wi| dx.data[xi] += g.data[yi] * w.data[wi]);
        Ok(())
    }

    fn conv_weight_grad(
        &self,
        p: &ConvParams,
        g: &ReferenceBuffer,
        x: &ReferenceBuffer,
        dw: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        dw.data.fill(0.0);
        taps(p, |yi, xi, wi| dw.data[wi] += g.data[yi] * x.data[xi]);
        Ok(())
    }
}

impl PoolOps for Reference {
    fn max_pool(
        &self,
        p: &PoolParams,
        x: &ReferenceBuffer,
        y: &mut ReferenceBuffer,
        index: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::max_pool(self, p, x, y, index)?;
        let channels = p.channels as usize;
        let positions = p.window.input.iter().map(|&d| d as usize).product::<usize>();
        windows(
            [p.window.input, p.window.kernel, p.window.output],
            [p.window.stride, p.window.dilation, p.window.padding],
            [p.batch, p.channels],
            |position, image, channel, seen| {
                let (mut best, mut place) = (f64::NEG_INFINITY, -1.0);
                for &(_, at) in seen {
                    let x = x.data[(image * positions + at) * channels + channel];
                    if place < 0.0 || x > best || x.is_nan() && !best.is_nan() {
                        (best, place) = (x, at as f64);
                    }
                }
                let o = position * channels + channel;
                (y.data[o], index.data[o]) = (best, place);
            },
        );
        Ok(())
    }
}
