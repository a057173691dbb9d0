//! Causal self-attention over packed queries, keys and values by every variant, and its gradient. Operations are those of the pairs of
//! positions that see each other; the gradient counts twice as many.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{AttentionMasks, AttentionOps, AttentionParams};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::Cuda;
use kiln_cuda::attention::Algorithm;

/// Sequences, positions, heads and width, as in benches/peers/torch_cuda.py.
const SIZES: [[usize; 4]; 4] = [
    [2, 64, 4, 32],
    [64, 1024, 12, 64],
    [8, 2048, 16, 128],
    [2, 1024, 8, 256],
];

pub(crate) fn run(bench: &Bench, cuda: &Cuda) -> Result<()> {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for [n, t, h, d] in SIZES {
            let size = format!("{dtype}/{n}x{t}x{h}x{d}");
            let (forward, gradient) = (format!("attention/{size}"), format!("attention_grad/{size}"));
            let packed = Shape::new(&[n, t, 3 * h * d])?;
            let (p, shape) = AttentionParams::new("attention", &packed, h, true)?;
            let cost = |times, tensors| Cost {
                flops: times * p.flops(),
                bytes: (tensors * shape.size() * dtype.size()) as u64,
                ..Cost::default()
            };
            if ![&forward, &gradient].iter().any(|id| bench.wants(id, cost(1, 4))) {
                continue;
            }
            let (qkv, g) = (
                random(cuda, 1, dtype, packed.size())?,
                random(cuda, 2, dtype, shape.size())?,
            );
            let (mut y, mut lse) = (cuda.alloc(dtype, shape.size())?, cuda.alloc(DType::F32, p.rows())?);
            let mut dqkv = cuda.alloc(dtype, packed.size())?;
            // The gradient needs the result even if that is not measured.
            cuda.attention(&p, &qkv, AttentionMasks::default(), &mut y, &mut lse)?;
            for variant in Algorithm::ALL.into_iter().filter(|variant| variant.computes(&p, dtype)) {
                bench.measure(cuda, &forward, variant.name(), cost(1, 4), || {
                    cuda.attention_with(variant, &p, &qkv, AttentionMasks::default(), &mut y, &mut lse)
                })?;
                bench.measure(cuda, &gradient, variant.name(), cost(2, 8), || {
                    cuda.attention_grad_with(variant, &p, &qkv, AttentionMasks::default(), [&y, &lse, &g], &mut dqkv)
                })?;
            }
        }
    }
    Ok(())
}
