//! Softmax cross-entropy from integer labels, and the CTC loss: the losses and their gradient.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{CTC, LOSSES, output, random};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{Result, Runtime, Shape};
use kiln_cpu::Cpu;
use kiln_nn::{CtcLossOptions, DType, Indices, Rng, Tensor, grad};

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
    ctc(c, &cpu)
}

fn ctc(c: &mut Criterion, cpu: &Cpu) -> Result<()> {
    let [steps, batch, classes, labels] = CTC;
    let logits = Tensor::randn(cpu, &[steps, batch, classes], DType::F32, &mut Rng::new(0))?;
    let log_probs = logits.log_softmax(-1)?.requires_grad();
    // No label is the blank, and none is that before it.
    let targets: Vec<i32> = (0..batch * labels)
        .map(|i| (1 + i * 7 % (classes - 1)) as i32)
        .collect();
    let targets = Indices::from_slice(cpu, &targets, &[batch, labels])?;
    let lengths = |length: usize| Indices::from_slice(cpu, &vec![length as i32; batch], &[batch]);
    let (input_lengths, target_lengths) = (lengths(steps)?, lengths(labels)?);
    let mut group = c.benchmark_group("ctc");
    group.throughput(Throughput::Elements((steps * batch) as u64));
    measure(&mut group, format!("{steps}x{batch}x{classes}-{labels}"), || {
        let loss = log_probs.ctc_loss(&targets, &input_lengths, &target_lengths, &CtcLossOptions::default())?;
        grad(&loss, &[&log_probs], None, false).map(drop)
    });
    group.finish();
    Ok(())
}
