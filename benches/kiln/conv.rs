//! Convolutions of mnist-cnn and lenet: forward with bias, data gradient, weight gradient, in f32 and in bf16 (`conv-forward-bf16`
//! and so on). Throughput counts floating-point operations.

use crate::measure;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use kiln_benches::{CONVS, Conv, random_in};
use kiln_core::ops::{ConvOps, ConvParams, ConvPass, Window};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cpu::Cpu;

const PASSES: [(ConvPass, &str); 3] = [
    (ConvPass::Forward, "conv-forward"),
    (ConvPass::DataGrad, "conv-data-grad"),
    (ConvPass::WeightGrad, "conv-weight-grad"),
];

/// The dtypes, each with what its groups are called beside those of f32.
const DTYPES: [(DType, &str); 2] = [(DType::F32, ""), (DType::BF16, "-bf16")];

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    for ((pass, name), (dtype, suffix)) in PASSES.into_iter().flat_map(|pass| DTYPES.map(|dtype| (pass, dtype))) {
        let mut group = c.benchmark_group(format!("{name}{suffix}"));
        for s in CONVS {
            one(&mut group, &cpu, (pass, dtype), &s, s.name.into())?;
        }
        group.finish();
        // Each convolution by every algorithm that supports it.
        let mut group = c.benchmark_group(format!("algorithms/{name}{suffix}"));
        for s in CONVS {
            for algorithm in Cpu::algorithms() {
                let cpu = Cpu::builder().algorithm(algorithm)?.build();
                let (p, _) = params(&s)?;
                if cpu.conv_algorithm(&p, pass, dtype) == Some(algorithm) {
                    one(&mut group, &cpu, (pass, dtype), &s, format!("{}/{algorithm}", s.name))?;
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

fn one(
    group: &mut BenchmarkGroup<'_, WallTime>,
    cpu: &Cpu,
    (pass, dtype): (ConvPass, DType),
    s: &Conv,
    id: String,
) -> Result<()> {
    let random = |stream, len| random_in(cpu, dtype, stream, len);
    let output = |len| cpu.alloc(dtype, len);
    let (p, y_shape) = params(s)?;
    let (inputs, weights) = (
        s.batch * s.size * s.size * s.input,
        s.output * s.kernel * s.kernel * s.input,
    );
    let (x, w) = (random(0, inputs)?, random(1, weights)?);
    let (g, bias) = (random(2, y_shape.size())?, random(3, s.output)?);
    group.throughput(Throughput::Elements(p.flops()));
    match pass {
        ConvPass::Forward => {
            let mut y = output(y_shape.size())?;
            measure(group, id, || cpu.conv(&p, &x, &w, Some(&bias), &mut y));
        }
        ConvPass::DataGrad => {
            let mut dx = output(inputs)?;
            measure(group, id, || cpu.conv_data_grad(&p, &g, &w, &mut dx));
        }
        ConvPass::WeightGrad => {
            let mut dw = output(weights)?;
            measure(group, id, || cpu.conv_weight_grad(&p, &g, &x, &mut dw));
        }
    }
    Ok(())
}
