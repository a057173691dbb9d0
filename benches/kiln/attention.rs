//! Causal self-attention over packed queries, keys and values, and its gradient.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{ATTENTION, LONG_ATTENTION, output, random};
use kiln_core::ops::{AttentionMasks, AttentionOps, AttentionParams};
use kiln_core::{Result, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let mut group = c.benchmark_group("attention");
    for [batch, positions, heads, width] in ATTENTION.into_iter().chain([LONG_ATTENTION]) {
        if positions == LONG_ATTENTION[1] {
            group.sample_size(10);
        }
        let packed = Shape::new(&[batch, positions, 3 * heads * width])?;
        let (p, shape) = AttentionParams::new("self_attention", &packed, heads, true)?;
        let (qkv, g) = (random(&cpu, 0, packed.size())?, random(&cpu, 1, shape.size())?);
        let (mut y, mut lse) = (output(&cpu, shape.size())?, output(&cpu, p.rows())?);
        let mut dqkv = output(&cpu, packed.size())?;
        let size = format!("{batch}x{positions}x{heads}x{width}");
        group.throughput(Throughput::Elements(p.flops()));
        measure(&mut group, format!("forward-{size}"), || {
            cpu.attention(&p, &qkv, AttentionMasks::default(), &mut y, &mut lse)
        });
        group.throughput(Throughput::Elements(2 * p.flops()));
        measure(&mut group, format!("grad-{size}"), || {
            cpu.attention_grad(&p, &qkv, AttentionMasks::default(), &y, &lse, &g, &mut dqkv)
        });
    }
    group.finish();
    Ok(())
}
