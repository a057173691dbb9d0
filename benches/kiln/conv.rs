//! Convolutions of the two nets: forward with bias, data gradient, weight gradient. Throughput counts floating-point
//! operations.

use crate::measure;
use criterion::{Criterion, Throughput};
use kiln_benches::{CONVS, output, random};
use kiln_core::ops::{ConvOps, ConvParams, Window};
use kiln_core::{Result, Shape};
use kiln_cpu::Cpu;

pub(crate) fn run(c: &mut Criterion) -> Result<()> {
    let cpu = Cpu::new();
    for pass in ["conv-forward", "conv-data-grad", "conv-weight-grad"] {
        let mut group = c.benchmark_group(pass);
        for s in CONVS {
            let x_shape = Shape::new(&[s.batch, s.size, s.size, s.input])?;
            let w_shape = Shape::new(&[s.output, s.kernel, s.kernel, s.input])?;
            let (p, y_shape) = ConvParams::new("conv", &x_shape, &w_shape, &Window::new([s.kernel; 2]), 1)?;
            let (x, w) = (random(&cpu, 0, x_shape.size())?, random(&cpu, 1, w_shape.size())?);
            let (g, bias) = (random(&cpu, 2, y_shape.size())?, random(&cpu, 3, s.output)?);
            let macs = y_shape.size() * s.kernel * s.kernel * s.input;
            group.throughput(Throughput::Elements(2 * macs as u64));
            match pass {
                "conv-forward" => {
                    let mut y = output(&cpu, y_shape.size())?;
                    measure(&mut group, s.name, || cpu.conv(&p, &x, &w, Some(&bias), &mut y));
                }
                "conv-data-grad" => {
                    let mut dx = output(&cpu, x_shape.size())?;
                    measure(&mut group, s.name, || cpu.conv_data_grad(&p, &g, &w, &mut dx));
                }
                _ => {
                    let mut dw = output(&cpu, w_shape.size())?;
                    measure(&mut group, s.name, || cpu.conv_weight_grad(&p, &g, &x, &mut dw));
                }
            }
        }
        group.finish();
    }
    Ok(())
}
