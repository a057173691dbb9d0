//! Convolution and its two gradients, by the algorithms that [`crate::conv::plan`] chooses.

use crate::conv::plan::{Algorithm, choose};
use crate::conv::{Geometry, Operands, depthwise, direct, halves, packed_columns, planar, product, scatter};
use crate::epilogue::{Epilogue, finish_rows};
use crate::gemm::halves::{Half, HalfKernels};
use crate::ops::norm::{batch_norm_grad_sums, channel_moments};
use crate::scalar::{Scalar, Stored};
use crate::simd::upcast::{Upcast, write_upcast};
use crate::winograd;
use crate::{Cpu, CpuBuffer};
use half::{bf16, f16};
use kiln_core::ops::ConvPass as Pass;
use kiln_core::ops::{Activation, BatchNormInputs, ConvNormGrads, ConvOps, ConvParams, NormOps};
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
        let bias = Bias {
            of: bias,
            f: p.activation(),
        };
        match y.dtype() {
            DType::BF16 => half_forward::<bf16>(self, &g, [x, w], bias, y),
            DType::F16 => half_forward::<f16>(self, &g, [x, w], bias, y),
            dtype => crate::dispatch::float!(dtype, T => wide_forward::<T>(self, &g, [x, w], bias, y)),
        }
    }

    fn conv_moments(
        &self,
        p: &ConvParams,
        x: &CpuBuffer,
        w: &CpuBuffer,
        y: &mut CpuBuffer,
        moments: &mut CpuBuffer,
    ) -> Result<()> {
        checks::conv_moments(self, p, x, w, y, moments)?;
        self.conv(p, x, w, None, y)?;
        channel_moments(self, u64::from(p.out_channels), y, moments)
    }

    fn conv_data_grad(&self, p: &ConvParams, g: &CpuBuffer, w: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        checks::conv_data_grad(self, p, g, w, dx)?;
        gradient(self, Pass::DataGrad, &Geometry::new(p), [g, w], dx)
    }

    fn conv_norm_grad(
        &self,
        p: &ConvParams,
        g: &CpuBuffer,
        w: &CpuBuffer,
        of: &BatchNormInputs<'_, CpuBuffer>,
        more: Option<&CpuBuffer>,
        to: ConvNormGrads<'_, CpuBuffer>,
    ) -> Result<()> {
        checks::conv_norm_grad(self, p, g, w, of, more, &to)?;
        self.conv_data_grad(p, g, w, to.d)?;
        batch_norm_grad_sums(self, &p.norm_of_input(), of, more, to.d, (to.dscale, to.dshift))?;
        match to.y {
            Some(y) => self.batch_norm_apply(&p.norm_of_input(), of.x, None, of.scale, of.shift, of.mean, of.rstd, y),
            None => Ok(()),
        }
    }

    fn conv_weight_grad(&self, p: &ConvParams, g: &CpuBuffer, x: &CpuBuffer, dw: &mut CpuBuffer) -> Result<()> {
        checks::conv_weight_grad(self, p, g, x, dw)?;
        gradient(self, Pass::WeightGrad, &Geometry::new(p), [g, x], dw)
    }

    fn conv_algorithm(&self, p: &ConvParams, pass: Pass, dtype: DType) -> Option<&'static str> {
        let (g, exact, prefer) = (Geometry::new(p), self.convolves_exactly(), self.preferred_algorithm());
        let algorithm = match dtype {
            _ if g.empty() => return None,
            DType::F64 => choose::<f64>(pass, &g, dtype, exact, prefer),
            _ => choose::<f32>(pass, &g, dtype, exact, prefer),
        };
        Some(algorithm.name())
    }
}

/// The bias of an op, and the activation behind it.
#[derive(Clone, Copy)]
struct Bias<'a> {
    of: Option<&'a CpuBuffer>,
    f: Activation,
}

/// The kernels by which halves are packed as they are, where that is the cheapest algorithm.
fn words<T: Half>(cpu: &Cpu, pass: Pass, g: &Geometry) -> Option<HalfKernels> {
    if g.empty() {
        return None;
    }
    match choose::<f32>(pass, g, T::DTYPE, cpu.convolves_exactly(), cpu.preferred_algorithm()) {
        Algorithm::Words(kernels) => Some(kernels),
        _ => None,
    }
}

fn half_forward<T: Half>(
    cpu: &Cpu,
    g: &Geometry,
    [x, w]: [&CpuBuffer; 2],
    bias: Bias<'_>,
    y: &mut CpuBuffer,
) -> Result<()> {
    let Some(kernels) = words::<T>(cpu, Pass::Forward, g) else {
        return wide_forward::<T>(cpu, g, [x, w], bias, y);
    };
    let of = bias.of.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
    let e = Epilogue {
        bias: of.as_ref().map(Upcast::slice),
        activation: bias.f,
    };
    halves::forward::<T>(cpu, kernels, g, [x.as_slice(), w.as_slice()], e, y.as_mut_slice())
}

fn wide_forward<T: Stored>(
    cpu: &Cpu,
    g: &Geometry,
    [x, w]: [&CpuBuffer; 2],
    bias: Bias<'_>,
    y: &mut CpuBuffer,
) -> Result<()> {
    let (x, w) = (Upcast::new::<T>(cpu, x)?, Upcast::new::<T>(cpu, w)?);
    let of = bias.of.map(|bias| Upcast::new::<T>(cpu, bias)).transpose()?;
    let epilogue = Epilogue {
        bias: of.as_ref().map(Upcast::slice),
        activation: bias.f,
    };
    let o = Operands {
        x: x.slice(),
        w: w.slice(),
        epilogue,
    };
    write_upcast::<T>(cpu, y, |y| forward(cpu, g, o, y))
}

/// The gradient of `pass`, of the gradient of the output and the other operand.
fn gradient(cpu: &Cpu, pass: Pass, p: &Geometry, operands: [&CpuBuffer; 2], to: &mut CpuBuffer) -> Result<()> {
    match to.dtype() {
        DType::BF16 => half_gradient::<bf16>(cpu, pass, p, operands, to),
        DType::F16 => half_gradient::<f16>(cpu, pass, p, operands, to),
        dtype => crate::dispatch::float!(dtype, T => wide_gradient::<T>(cpu, pass, p, operands, to)),
    }
}

fn half_gradient<T: Half>(
    cpu: &Cpu,
    pass: Pass,
    p: &Geometry,
    operands: [&CpuBuffer; 2],
    to: &mut CpuBuffer,
) -> Result<()> {
    let Some(kernels) = words::<T>(cpu, pass, p) else {
        return wide_gradient::<T>(cpu, pass, p, operands, to);
    };
    let (operands, to) = (operands.map(CpuBuffer::as_slice::<T>), to.as_mut_slice());
    match pass {
        Pass::DataGrad => halves::data_grad(cpu, kernels, p, operands, to),
        _ => halves::weight_grad(cpu, kernels, p, operands, to),
    }
}

fn wide_gradient<T: Stored>(
    cpu: &Cpu,
    pass: Pass,
    p: &Geometry,
    [g, other]: [&CpuBuffer; 2],
    to: &mut CpuBuffer,
) -> Result<()> {
    let (g, other) = (Upcast::new::<T>(cpu, g)?, Upcast::new::<T>(cpu, other)?);
    let (g, other) = (g.slice(), other.slice());
    write_upcast::<T>(cpu, to, |to| match pass {
        Pass::DataGrad => data_grad(cpu, p, g, other, to),
        _ => weight_grad(cpu, p, g, other, to),
    })
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
    if let Outcome::NotFinite = run(choose::<A>(pass, g, A::DTYPE, cpu.convolves_exactly(), prefer), to)? {
        run(choose::<A>(pass, g, A::DTYPE, true, prefer), to)?;
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
        Algorithm::Product => product::run(cpu, Pass::Forward, g, [o.x, o.w], o.epilogue, y)?,
        Algorithm::Planar => planar::forward(cpu, g, o, y)?,
        Algorithm::PackedColumns(n) => packed_columns::forward(cpu, g, n, o, y)?,
        Algorithm::Winograd(tiling) => return winograd::forward(cpu, &tiling, o, y).map(Outcome::from),
        Algorithm::Direct | Algorithm::Scatter | Algorithm::WindowColumns | Algorithm::Words(_) => {
            direct::forward(cpu, g, o, y)?
        }
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
        Algorithm::Product => product::run(cpu, Pass::DataGrad, p, [g, w], Epilogue::NONE, dx)?,
        Algorithm::Scatter => scatter::data_grad(cpu, p, g, w, dx)?,
        Algorithm::Winograd(tiling) => return winograd::data_grad(cpu, &tiling, g, w, dx).map(Outcome::from),
        Algorithm::Direct
        | Algorithm::Planar
        | Algorithm::PackedColumns(_)
        | Algorithm::WindowColumns
        | Algorithm::Words(_) => direct::data_grad(cpu, p, g, w, dx)?,
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
        Algorithm::Product => product::run(cpu, Pass::WeightGrad, p, [g, x], Epilogue::NONE, dw)?,
        Algorithm::WindowColumns => packed_columns::weight_grad(cpu, p, g, x, dw)?,
        Algorithm::Winograd(tiling) => return winograd::weight_grad(cpu, &tiling, g, x, dw).map(Outcome::from),
        Algorithm::Direct
        | Algorithm::Planar
        | Algorithm::PackedColumns(_)
        | Algorithm::Scatter
        | Algorithm::Words(_) => direct::weight_grad(cpu, p, g, x, dw)?,
    }
    Ok(Outcome::Done)
}
