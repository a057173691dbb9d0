//! Sums of a residual stream and their layer norm.
//!
//! | width      | [`Algorithm`] | where a row is                     |
//! |------------|---------------|------------------------------------|
//! | up to 1024 | `Held128`     | in the registers of 128 threads    |
//! | up to 2048 | `Held256`     | in the registers of 256 threads    |
//! | any        | `Plain`       | read again for each pass           |
//!
//! The gradient of a held row adds its part of the gradients of scale and shift on the way; the plain one leaves that to a launch over
//! columns. Either way the parts of stretches of rows, which sizes alone decide, are added by the last blocks of the launch that has made
//! them. A launch of its own does that where there are no rows, or more columns than counters.

use crate::buffer::maybe;
use crate::finish::TICKETS;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{ResidualNormGrads, ResidualNormInputs, ResidualOps, ResidualParams};
use kiln_core::{Buffer, DType, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, residual as kernels};

/// The most rows' parts that are added up, and the fewest rows of a part.
const PARTS: u64 = 1024;
const ROWS: u64 = 8;
/// The most blocks of a grid.
const GRID: u64 = i32::MAX as u64;

/// The kernel variants, which all compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A row of any length, read again for each pass.
    Plain,
    /// A row of at most 2048 in the registers of a block of 256.
    Held256,
    /// A row of at most 1024 in the registers of a block of 128.
    Held128,
}

impl Algorithm {
    /// All variants.
    pub const ALL: [Algorithm; 3] = [Algorithm::Plain, Algorithm::Held256, Algorithm::Held128];

    /// The variant that the backend takes for rows of `width`.
    pub fn choose(width: u64) -> Self {
        match width {
            0..=1024 => Algorithm::Held128,
            1025..=2048 => Algorithm::Held256,
            _ => Algorithm::Plain,
        }
    }

    /// The widest row that this variant takes.
    pub fn widest(self) -> u64 {
        match self {
            Algorithm::Plain => u64::MAX,
            Algorithm::Held256 => 2048,
            Algorithm::Held128 => 1024,
        }
    }

    fn threads(self) -> u32 {
        match self {
            Algorithm::Held128 => 128,
            Algorithm::Held256 | Algorithm::Plain => 256,
        }
    }
}

/// The kernel of a name for a stream of one dtype with branches and norms of another: `of!(RESIDUAL_ADD, stream, half)`.
macro_rules! of {
    ($name:ident, $same:ident, $bf16:ident, $f16:ident, $stream:expr, $half:expr) => {
        match ($stream, $half) {
            (DType::F32, DType::BF16) => &kernels::$bf16,
            (DType::F32, DType::F16) => &kernels::$f16,
            (stream, _) => super::instance(&kernels::$same, stream),
        }
    };
}

fn norm_kernel(algorithm: Algorithm, stream: DType, half: DType) -> &'static Kernel {
    match algorithm {
        Algorithm::Plain => of!(
            norm,
            RESIDUAL_NORM_PLAIN,
            RESIDUAL_NORM_PLAIN_BESIDE_BF16,
            RESIDUAL_NORM_PLAIN_BESIDE_F16,
            stream,
            half
        ),
        Algorithm::Held256 => of!(
            norm,
            RESIDUAL_NORM_HELD256,
            RESIDUAL_NORM_HELD256_BESIDE_BF16,
            RESIDUAL_NORM_HELD256_BESIDE_F16,
            stream,
            half
        ),
        Algorithm::Held128 => of!(
            norm,
            RESIDUAL_NORM_HELD128,
            RESIDUAL_NORM_HELD128_BESIDE_BF16,
            RESIDUAL_NORM_HELD128_BESIDE_F16,
            stream,
            half
        ),
    }
}

fn grad_kernel(algorithm: Algorithm, stream: DType, half: DType) -> &'static Kernel {
    match algorithm {
        Algorithm::Plain => of!(
            grad,
            RESIDUAL_NORM_GRAD_PLAIN,
            RESIDUAL_NORM_GRAD_PLAIN_BESIDE_BF16,
            RESIDUAL_NORM_GRAD_PLAIN_BESIDE_F16,
            stream,
            half
        ),
        Algorithm::Held256 => of!(
            grad,
            RESIDUAL_NORM_GRAD_HELD256,
            RESIDUAL_NORM_GRAD_HELD256_BESIDE_BF16,
            RESIDUAL_NORM_GRAD_HELD256_BESIDE_F16,
            stream,
            half
        ),
        Algorithm::Held128 => of!(
            grad,
            RESIDUAL_NORM_GRAD_HELD128,
            RESIDUAL_NORM_GRAD_HELD128_BESIDE_BF16,
            RESIDUAL_NORM_GRAD_HELD128_BESIDE_F16,
            stream,
            half
        ),
    }
}

fn block_of(grid: [u64; 2], block: [u32; 3]) -> Geometry {
    Geometry {
        grid: [grid[0].clamp(1, GRID) as u32, grid[1].max(1) as u32, 1],
        block,
        shared: 0,
    }
}

/// The parameters for a kernel: their padding says whether scale and shift are in f32.
fn with_affine(p: &ResidualParams, scale: &CudaBuffer) -> ResidualParams {
    ResidualParams {
        pad: u32::from(scale.dtype() == DType::F32),
        ..*p
    }
}

/// An error unless the algorithm takes rows of this width.
fn takes(algorithm: Algorithm, p: &ResidualParams) -> Result<()> {
    if p.width <= algorithm.widest() {
        return Ok(());
    }
    let expected = format!("at most {}", algorithm.widest());
    Err(Error::invalid("residual_norm", "width", p.width, expected))
}

/// The step, which kernels read where something is drawn.
fn step_of<'a>(p: &ResidualParams, step: Option<&'a CudaBuffer>) -> Option<&'a CudaBuffer> {
    step.filter(|_| p.drop > 0.0)
}

impl Cuda {
    /// [`ResidualOps::residual_norm`] by `algorithm`, for rows that it takes.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, rows that the algorithm does not take, and those of a launch.
    pub fn residual_norm_with(
        &self,
        algorithm: Algorithm,
        p: &ResidualParams,
        x: &CudaBuffer,
        branch: Option<(&CudaBuffer, &mut CudaBuffer)>,
        step: Option<&CudaBuffer>,
        (scale, shift): (&CudaBuffer, &CudaBuffer),
        n: &mut CudaBuffer,
        (mean, rstd): (&mut CudaBuffer, &mut CudaBuffer),
    ) -> Result<()> {
        checks::residual_norm(
            self,
            p,
            x,
            branch.as_ref().map(|(y, s)| (*y, &**s)),
            step,
            scale,
            shift,
            n,
            mean,
            rstd,
        )?;
        takes(algorithm, p)?;
        if x.is_empty() {
            return Ok(());
        }
        let kernel = norm_kernel(algorithm, x.dtype(), n.dtype());
        let (y, s) = match branch {
            Some((y, s)) => (y.arg(), s.out()),
            None => (maybe(None), maybe(None)),
        };
        let p = &with_affine(p, scale);
        let args = [
            Arg::value(p),
            x.arg(),
            y,
            maybe(step_of(p, step)),
            scale.arg(),
            shift.arg(),
            s,
            n.out(),
            mean.out(),
            rstd.out(),
        ];
        self.launch(kernel, block_of([p.rows, 1], [algorithm.threads(), 1, 1]), &args)
    }

    /// [`ResidualOps::residual_norm_grad`] by `algorithm`, for rows that it takes.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, rows that the algorithm does not take, and those of a launch.
    pub fn residual_norm_grad_with(
        &self,
        algorithm: Algorithm,
        p: &ResidualParams,
        of: &ResidualNormInputs<'_, CudaBuffer>,
        to: ResidualNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::residual_norm_grad(self, p, of, &to)?;
        let &ResidualNormInputs {
            s,
            scale,
            mean,
            rstd,
            g,
            ..
        } = of;
        let ResidualNormGrads { ds, dy, dscale, dshift } = to;
        takes(algorithm, p)?;
        let p = &with_affine(p, scale);
        let each = p.rows.div_ceil(PARTS).max(ROWS);
        let parts = p.rows.div_ceil(each);
        let mut partial = self.scratch(DType::F32, (parts * 2 * p.width) as usize)?;
        if !s.is_empty() {
            let counted = algorithm != Algorithm::Plain || p.width.div_ceil(32) <= TICKETS;
            let kernel = grad_kernel(algorithm, s.dtype(), g.dtype());
            let threads = [algorithm.threads(), 1, 1];
            let (value, stats) = (Arg::value(p), [mean.arg(), rstd.arg()]);
            let mut args = vec![
                value,
                s.arg(),
                scale.arg(),
                stats[0],
                stats[1],
                g.arg(),
                maybe(of.more),
                maybe(of.sum),
                maybe(step_of(p, of.step)),
                ds.out(),
                dy.map_or(maybe(None), CudaBuffer::out),
            ];
            if algorithm == Algorithm::Plain {
                self.launch(kernel, block_of([p.rows, 1], threads), &args)?;
                let columns = of!(
                    columns,
                    RESIDUAL_COLUMNS,
                    RESIDUAL_COLUMNS_BESIDE_BF16,
                    RESIDUAL_COLUMNS_BESIDE_F16,
                    s.dtype(),
                    g.dtype()
                );
                let args = [
                    value,
                    s.arg(),
                    stats[0],
                    stats[1],
                    g.arg(),
                    maybe(of.more),
                    partial.out(),
                    Arg::value(&each),
                    if counted { dscale.out() } else { maybe(None) },
                    if counted { dshift.out() } else { maybe(None) },
                ];
                self.launch(columns, block_of([p.width.div_ceil(32), parts], [32, 8, 1]), &args)?;
            } else {
                let geometry = block_of([parts, 1], threads);
                // Each adds up stretches of columns, 8 threads for each column.
                let stretches = p.width.div_ceil(u64::from(algorithm.threads() / 8));
                let sharers = self.sharers(kernel, geometry, 1, parts)?.min(stretches as u32);
                args.extend([
                    partial.out(),
                    Arg::value(&each),
                    dscale.out(),
                    dshift.out(),
                    Arg::value(&sharers),
                ]);
                self.launch(kernel, geometry, &args)?;
            }
            if counted {
                return Ok(());
            }
        }
        let kernel = super::instance(&kernels::RESIDUAL_TOTALS, dscale.dtype());
        let args = [
            Arg::value(p),
            partial.arg(),
            dscale.out(),
            dshift.out(),
            Arg::value(&parts),
        ];
        self.launch(kernel, block_of([p.width.div_ceil(32), 1], [32, 8, 1]), &args)
    }
}

impl ResidualOps for Cuda {
    fn residual_add(
        &self,
        p: &ResidualParams,
        x: &CudaBuffer,
        y: &CudaBuffer,
        step: Option<&CudaBuffer>,
        s: &mut CudaBuffer,
    ) -> Result<()> {
        checks::residual_add(self, p, x, y, step, s)?;
        let kernel = of!(
            add,
            RESIDUAL_ADD,
            RESIDUAL_ADD_BESIDE_BF16,
            RESIDUAL_ADD_BESIDE_F16,
            x.dtype(),
            y.dtype()
        );
        let step = maybe(step_of(p, step));
        let args = [Arg::value(p), x.arg(), y.arg(), step, s.out()];
        self.launch(kernel, self.striding(elements(p), 8), &args)
    }

    fn residual_add_grad(
        &self,
        p: &ResidualParams,
        g: &CudaBuffer,
        step: Option<&CudaBuffer>,
        dy: &mut CudaBuffer,
    ) -> Result<()> {
        checks::residual_add_grad(self, p, g, step, dy)?;
        let kernel = of!(
            add_grad,
            RESIDUAL_ADD_GRAD,
            RESIDUAL_ADD_GRAD_BESIDE_BF16,
            RESIDUAL_ADD_GRAD_BESIDE_F16,
            g.dtype(),
            dy.dtype()
        );
        let args = [Arg::value(p), g.arg(), maybe(step_of(p, step)), dy.out()];
        self.launch(kernel, self.striding(elements(p), 8), &args)
    }

    fn residual_norm(
        &self,
        p: &ResidualParams,
        x: &CudaBuffer,
        branch: Option<(&CudaBuffer, &mut CudaBuffer)>,
        step: Option<&CudaBuffer>,
        scale: &CudaBuffer,
        shift: &CudaBuffer,
        n: &mut CudaBuffer,
        mean: &mut CudaBuffer,
        rstd: &mut CudaBuffer,
    ) -> Result<()> {
        checks::residual_norm(
            self,
            p,
            x,
            branch.as_ref().map(|(y, s)| (*y, &**s)),
            step,
            scale,
            shift,
            n,
            mean,
            rstd,
        )?;
        let algorithm = Algorithm::choose(p.width);
        self.residual_norm_with(algorithm, p, x, branch, step, (scale, shift), n, (mean, rstd))
    }

    fn residual_norm_grad(
        &self,
        p: &ResidualParams,
        of: &ResidualNormInputs<'_, CudaBuffer>,
        to: ResidualNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::residual_norm_grad(self, p, of, &to)?;
        self.residual_norm_grad_with(Algorithm::choose(p.width), p, of, to)
    }
}

/// The elements of all rows.
fn elements(p: &ResidualParams) -> u64 {
    p.rows * p.width
}
