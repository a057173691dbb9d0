//! Softmax cross-entropy from integer labels: the losses and their gradient.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{LOSSES, output, random};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{Result, Runtime, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    let mut group = c.benchmark_group("cross-entropy");
    for (rows, classes) in LOSSES {
        let p = CrossEntropyParams::new(
            "cross_entropy",
            &Shape::new(&[rows, classes])?,
            &Shape::new(&[rows])?,
            0.0,
            -100,
        )?;
        let logits = random(&cpu, 0, rows * classes)?;
        let labels: Vec<i32> = (0..rows).map(|r| (7 * r % classes) as i32).collect();
        let labels = cpu.upload(&labels)?;
        let (mut loss, mut weight) = (output(&cpu, rows)?, output(&cpu, rows)?);
        let (g, mut dlogits) = (random(&cpu, 1, rows)?, output(&cpu, rows * classes)?);
        group.throughput(Throughput::Elements((rows * classes) as u64));
        measure(&mut group, format!("{rows}x{classes}"), || {
            cpu.cross_entropy(&p, &logits, &labels, None, &mut loss, &mut weight)?;
            cpu.cross_entropy_grad(&p, &logits, &labels, None, &g, None, &mut dlogits)
        });
    }
    group.finish();
    Ok(())
}
