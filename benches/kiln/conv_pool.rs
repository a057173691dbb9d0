//! Convolutions followed by ReLU and 2×2 max pooling, as mnist-cnn and lenet have them: forward and both gradients, by the
//! algorithm chosen and by every other one that computes the case.

use crate::measure;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use kiln_benches::{CONVS, Conv, output, random};
use kiln_core::ops::{Activation, ConvPoolGrads, ConvPoolOps, ConvPoolParams, PooledGrad, Window};
use kiln_core::{Buffer, DType, Result, Runtime, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let mut group = c.benchmark_group("conv-pool");
    for s in CONVS {
        one(&mut group, &Cpu::new(), &s, s.name.into())?;
    }
    group.finish();
    let mut group = c.benchmark_group("algorithms/conv-pool");
    for s in CONVS {
        let (p, ..) = params(&s)?;
        for algorithm in Cpu::algorithms() {
            let cpu = Cpu::builder().algorithm(algorithm)?.build();
            // The argmax gradient has no forward pass.
            if cpu.conv_pool_algorithm(&p, DType::F32) == Some(algorithm) || algorithm == "argmax gradient" {
                one(&mut group, &cpu, &s, format!("{}/{algorithm}", s.name))?;
            }
        }
    }
    group.finish();
    Ok(())
}

fn params(s: &Conv) -> Result<(ConvPoolParams, [Shape; 3])> {
    let x = Shape::new(&[s.batch, s.size, s.size, s.input])?;
    let w = Shape::new(&[s.output, s.kernel, s.kernel, s.input])?;
    let (window, pool) = (Window::new([s.kernel; 2]), Window::new([2, 2]).stride([2, 2]));
    let (mut p, y) = ConvPoolParams::new("conv_max_pool", &x, &w, (&window, 1), (&pool, false))?;
    p.conv.activation = Activation::Relu as u32;
    Ok((p, [x, w, y]))
}

fn one(group: &mut BenchmarkGroup<'_, WallTime>, cpu: &Cpu, s: &Conv, id: String) -> Result<()> {
    let (p, [x_shape, w_shape, y_shape]) = params(s)?;
    let (x, w) = (random(cpu, 0, x_shape.size())?, random(cpu, 1, w_shape.size())?);
    let (g, bias) = (random(cpu, 2, y_shape.size())?, random(cpu, 3, s.output)?);
    let mut y = output(cpu, y_shape.size())?;
    let mut index = cpu.alloc(DType::I32, y_shape.size())?;
    // The gradient's bench needs the indices even when a filter leaves out the forward one.
    cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut y, &mut index)?;
    group.throughput(Throughput::Elements(p.conv.flops()));
    measure(group, format!("forward/{id}"), || {
        cpu.conv_max_pool(&p, &x, &w, Some(&bias), &mut y, &mut index)
    });
    let (mut dx, mut dw, mut db) = (output(cpu, x.len())?, output(cpu, w.len())?, output(cpu, s.output)?);
    for (gradients, of_image) in [("weight-grad", false), ("both-grads", true)] {
        measure(group, format!("{gradients}/{id}"), || {
            let to = ConvPoolGrads {
                dx: of_image.then_some(&mut dx),
                dw: Some(&mut dw),
                db: Some(&mut db),
            };
            let of = PooledGrad {
                g: &g,
                y: &y,
                index: &index,
            };
            cpu.conv_max_pool_grad(&p, &of, &x, &w, to)
        });
    }
    Ok(())
}
