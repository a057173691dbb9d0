//! Convolution and its two gradients: the choice of kernel.

use crate::conv::{Geometry, depthwise, few, winograd};
use crate::epilogue::finish_rows;
use crate::scalar::Scalar;
use crate::wide::{Wide, write_wide};
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{Activation, ConvOps, ConvParams};
use kiln_core::{Buffer, Result, checks};

impl ConvOps for Cpu {
    fn conv(
        &self,
        p: &ConvParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        bias: Option<&CpuBuffer>,
        y: &mut CpuBuffer,
    ) -> Result<()> {
        checks::conv(self, p, x, w, bias, y)?;
        let g = Geometry::new(p);
        crate::dispatch::float!(y.dtype(), T => {
            let (x, w) = (Wide::new::<T>(self, x)?, Wide::new::<T>(self, w)?);
            let bias = bias.map(|bias| Wide::new::<T>(self, bias)).transpose()?;
            let bias = bias.as_ref().map(Wide::slice);
            write_wide::<T>(self, y, |y| {
                forward(self, &g, x.slice(), w.slice(), bias, p.activation(), y)
            })
        })
    }

    fn conv_data_grad(&self, p: &ConvParams, g: &CpuBuffer, w: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        let geometry = Geometry::new(p);
        crate::dispatch::float!(dx.dtype(), T => {
            let (g, w) = (Wide::new::<T>(self, g)?, Wide::new::<T>(self, w)?);
            write_wide::<T>(self, dx, |dx| {
                data_grad(self, &geometry, g.slice(), w.slice(), dx)
            })
        })
    }

    fn conv_weight_grad(&self, p: &ConvParams, g: &CpuBuffer, x: &CpuBuffer, dw: &mut CpuBuffer) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        let geometry = Geometry::new(p);
        crate::dispatch::float!(dw.dtype(), T => {
            let (g, x) = (Wide::new::<T>(self, g)?, Wide::new::<T>(self, x)?);
            write_wide::<T>(self, dw, |dw| {
                weight_grad(self, &geometry, g.slice(), x.slice(), dw)
            })
        })
    }
}

pub(crate) fn forward<A: Scalar>(
    cpu: &Cpu,
    g: &Geometry,
    x: &[A],
    w: &[A],
    bias: Option<&[A]>,
    f: Activation,
    y: &mut [A],
) -> Result<()> {
    if g.empty() {
        y.fill(A::default());
        finish_rows(y, g.outputs, bias, f);
        return Ok(());
    }
    if g.depthwise() {
        return depthwise::forward(cpu, g, x, w, bias, f, y);
    }
    if !cpu.convolves_exactly() && winograd::forward(cpu, g, x, w, bias, f, y)?.is_some() {
        return Ok(());
    }
    few::forward(cpu, g, x, w, bias, f, y)
}

pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    if p.empty() {
        dx.fill(A::default());
        return Ok(());
    }
    if p.depthwise() {
        return depthwise::data_grad(cpu, p, g, w, dx);
    }
    if !cpu.convolves_exactly() && winograd::data_grad(cpu, p, g, w, dx)?.is_some() {
        return Ok(());
    }
    few::data_grad(cpu, p, g, w, dx)
}

pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    if p.empty() {
        dw.fill(A::default());
        return Ok(());
    }
    if p.depthwise() {
        return depthwise::weight_grad(cpu, p, g, x, dw);
    }
    if !cpu.convolves_exactly() && winograd::weight_grad(cpu, p, g, x, dw)?.is_some() {
        return Ok(());
    }
    few::weight_grad(cpu, p, g, x, dw)
}
