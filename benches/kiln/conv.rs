//! Convolutions of mnist-cnn and lenet: forward with bias, data gradient, weight gradient. Throughput counts floating-point
//! operations.

use crate::measure;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use kiln_benches::{CONVS, Conv, output, random};
use kiln_core::ops::{ConvOps, ConvParams, ConvPass, Window};
use kiln_core::{DType, Result, Shape};
use kiln_cpu::Cpu;

const PASSES: [(ConvPass, &str); 3] = [
    (ConvPass::Forward, "conv-forward"),
    (ConvPass::DataGrad, "conv-data-grad"),
    (ConvPass::WeightGrad, "conv-weight-grad"),
];

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    for (pass, name) in PASSES {
        let mut group = c.benchmark_group(name);
        for s in CONVS {
            one(&mut group, &cpu, pass, &s, s.name.into())?;
        }
        group.finish();
    }
    // Each convolution by every algorithm that supports it.
    for (pass, name) in PASSES {
        let mut group = c.benchmark_group(format!("algorithms/{name}"));
        for s in CONVS {
            for algorithm in Cpu::algorithms() {
                let cpu = Cpu::builder().algorithm(algorithm)?.build();
                let (p, _) = params(&s)?;
                if cpu.conv_algorithm(&p, pass, DType::F32) == Some(algorithm) {
                    one(&mut group, &cpu, pass, &s, format!("{}/{algorithm}", s.name))?;
                }
            }
        }
        group.finish();
    }
    Ok(())
}

fn params(s: &Conv) -> Result<(ConvParams, Shape)> {
    let x = Shape::new(&[s.batch, s.size, s.size, s.input])?;
    let w = Shape::new(&[s.output, s.kernel, s.kernel, s.input])?;
    ConvParams::new("conv", &x, &w, &Window::new([s.kernel; 2]), 1)
}

fn one(group: &mut BenchmarkGroup<'_, WallTime>, cpu: &Cpu, pass: ConvPass, s: &Conv, id: String) -> Result<()> {
    let (p, y_shape) = params(s)?;
    let (inputs, weights) = (
        s.batch * s.size * s.size * s.input,
        s.output * s.kernel * s.kernel * s.input,
    );
    let (x, w) = (random(cpu, 0, inputs)?, random(cpu, 1, weights)?);
    let (g, bias) = (random(cpu, 2, y_shape.size())?, random(cpu, 3, s.output)?);
    group.throughput(Throughput::Elements(p.flops()));
    match pass {
        ConvPass::Forward => {
            let mut y = output(cpu, y_shape.size())?;
            measure(group, id, || cpu.conv(&p, &x, &w, Some(&bias), &mut y));
        }
        ConvPass::DataGrad => {
            let mut dx = output(cpu, inputs)?;
            measure(group, id, || cpu.conv_data_grad(&p, &g, &w, &mut dx));
        }
        ConvPass::WeightGrad => {
            let mut dw = output(cpu, weights)?;
            measure(group, id, || cpu.conv_weight_grad(&p, &g, &x, &mut dw));
        }
    }
    Ok(())
}
