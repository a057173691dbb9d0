//! Convolution and its two gradients, by the algorithms that [`crate::conv::plan`] chooses.

use crate::conv::plan::{Algorithm, choose};
use crate::conv::{Geometry, Operands, depthwise, direct, packed_columns, planar, scatter};
use crate::epilogue::{Epilogue, finish_rows};
use crate::scalar::Scalar;
use crate::simd::upcast::{Upcast, write_upcast};
use crate::winograd;
use crate::{Cpu, CpuBuffer};
use kiln_core::ops::ConvPass as Pass;
use kiln_core::ops::{ConvOps, ConvParams};
use kiln_core::{Buffer, DType, Result, checks};

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
            let (x, w) = (Upcast::new::<T>(self, x)?, Upcast::new::<T>(self, w)?);
            let bias = bias.map(|bias| Upcast::new::<T>(self, bias)).transpose()?;
            let bias = bias.as_ref().map(Upcast::slice);
            write_upcast::<T>(self, y, |y| {
                let epilogue = Epilogue {
                    bias,
                    activation: p.activation(),
                };
                let operands = Operands {
                    x: x.slice(),
                    w: w.slice(),
                    epilogue,
                };
                forward(self, &g, operands, y)
            })
        })
    }

    fn conv_data_grad(&self, p: &ConvParams, g: &CpuBuffer, w: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        let geometry = Geometry::new(p);
        crate::dispatch::float!(dx.dtype(), T => {
            let (g, w) = (Upcast::new::<T>(self, g)?, Upcast::new::<T>(self, w)?);
            write_upcast::<T>(self, dx, |dx| {
                data_grad(self, &geometry, g.slice(), w.slice(), dx)
            })
        })
    }

    fn conv_weight_grad(&self, p: &ConvParams, g: &CpuBuffer, x: &CpuBuffer, dw: &mut CpuBuffer) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        let geometry = Geometry::new(p);
        crate::dispatch::float!(dw.dtype(), T => {
            let (g, x) = (Upcast::new::<T>(self, g)?, Upcast::new::<T>(self, x)?);
            write_upcast::<T>(self, dw, |dw| {
                weight_grad(self, &geometry, g.slice(), x.slice(), dw)
            })
        })
    }

    fn conv_algorithm(&self, p: &ConvParams, pass: Pass, dtype: DType) -> Option<&'static str> {
        let (g, exact, prefer) = (Geometry::new(p), self.convolves_exactly(), self.preferred_algorithm());
        let algorithm = match dtype {
            _ if g.empty() => return None,
            DType::F64 => choose::<f64>(pass, &g, exact, prefer),
            _ => choose::<f32>(pass, &g, exact, prefer),
        };
        Some(algorithm.name())
    }
}

/// `y = f(x ⋆ w + bias)` by the cheapest algorithm.
pub(crate) fn forward<A: Scalar>(cpu: &Cpu, g: &Geometry, o: Operands<'_, A>, y: &mut [A]) -> Result<()> {
    if g.empty() {
        y.fill(A::default());
        finish_rows(y, g.outputs, o.epilogue.bias, o.epilogue.activation);
        return Ok(());
    }
    let run = |algorithm, y: &mut [A]| forward_by(cpu, algorithm, g, o, y);
    cheapest::<A>(cpu, Pass::Forward, g, y, run)
}

/// Computes the gradient with respect to the input from the gradient `g` of the output.
pub(crate) fn data_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], w: &[A], dx: &mut [A]) -> Result<()> {
    if p.empty() {
        dx.fill(A::default());
        return Ok(());
    }
    let run = |algorithm, dx: &mut [A]| data_grad_by(cpu, algorithm, p, g, w, dx);
    cheapest::<A>(cpu, Pass::DataGrad, p, dx, run)
}

/// Computes the gradient with respect to the weight from the gradient `g` of the output.
pub(crate) fn weight_grad<A: Scalar>(cpu: &Cpu, p: &Geometry, g: &[A], x: &[A], dw: &mut [A]) -> Result<()> {
    if p.empty() {
        dw.fill(A::default());
        return Ok(());
    }
    let run = |algorithm, dw: &mut [A]| weight_grad_by(cpu, algorithm, p, g, x, dw);
    cheapest::<A>(cpu, Pass::WeightGrad, p, dw, run)
}

/// Runs the cheapest algorithm; if its result is not finite, runs the cheapest algorithm of direct sums.
fn cheapest<A: Scalar>(
    cpu: &Cpu,
    pass: Pass,
    g: &Geometry,
    to: &mut [A],
    run: impl Fn(Algorithm, &mut [A]) -> Result<Outcome>,
) -> Result<()> {
    let prefer = cpu.preferred_algorithm();
    if let Outcome::NotFinite = run(choose::<A>(pass, g, cpu.convolves_exactly(), prefer), to)? {
        run(choose::<A>(pass, g, true, prefer), to)?;
    }
    Ok(())
}

/// The state of a result: complete, or to be recomputed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Not finite: Winograd's transforms spread a NaN or infinity over tiles, so direct sums must recompute the result.
    NotFinite,
}

impl From<bool> for Outcome {
    fn from(finite: bool) -> Self {
        if finite { Outcome::Done } else { Outcome::NotFinite }
    }
}

/// Computes the forward pass by an algorithm that supports it.
pub(crate) fn forward_by<A: Scalar>(
    cpu: &Cpu,
    algorithm: Algorithm,
    g: &Geometry,
    o: Operands<'_, A>,
    y: &mut [A],
) -> Result<Outcome> {
    match algorithm {
        Algorithm::Depthwise => depthwise::forward(cpu, g, o, y)?,
        Algorithm::Planar => planar::forward(cpu, g, o, y)?,
        Algorithm::PackedColumns(n) => packed_columns::forward(cpu, g, n, o, y)?,
        Algorithm::Winograd(tiling) => return winograd::forward(cpu, &tiling, o, y).map(Outcome::from),
        Algorithm::Direct | Algorithm::Scatter | Algorithm::WindowColumns => direct::forward(cpu, g, o, y)?,
    }
    Ok(Outcome::Done)
}

/// Computes the gradient of the input by an algorithm that supports it.
pub(crate) fn data_grad_by<A: Scalar>(
    cpu: &Cpu,
    algorithm: Algorithm,
    p: &Geometry,
    g: &[A],
    w: &[A],
    dx: &mut [A],
) -> Result<Outcome> {
    match algorithm {
        Algorithm::Depthwise => depthwise::data_grad(cpu, p, g, w, dx)?,
        Algorithm::Scatter => scatter::data_grad(cpu, p, g, w, dx)?,
        Algorithm::Winograd(tiling) => return winograd::data_grad(cpu, &tiling, g, w, dx).map(Outcome::from),
        Algorithm::Direct | Algorithm::Planar | Algorithm::PackedColumns(_) | Algorithm::WindowColumns => {
            direct::data_grad(cpu, p, g, w, dx)?
        }
    }
    Ok(Outcome::Done)
}

/// Computes the gradient of the weight by an algorithm that supports it.
pub(crate) fn weight_grad_by<A: Scalar>(
    cpu: &Cpu,
    algorithm: Algorithm,
    p: &Geometry,
    g: &[A],
    x: &[A],
    dw: &mut [A],
) -> Result<Outcome> {
    match algorithm {
        Algorithm::Depthwise => depthwise::weight_grad(cpu, p, g, x, dw)?,
        Algorithm::WindowColumns => packed_columns::weight_grad(cpu, p, g, x, dw)?,
        Algorithm::Winograd(tiling) => return winograd::weight_grad(cpu, &tiling, g, x, dw).map(Outcome::from),
        Algorithm::Direct | Algorithm::Planar | Algorithm::PackedColumns(_) | Algorithm::Scatter => {
            direct::weight_grad(cpu, p, g, x, dw)?
        }
    }
    Ok(Outcome::Done)
}
