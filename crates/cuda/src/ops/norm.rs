//! Batch, layer, RMS, group and instance norm.
//!
//! Layer and RMS norm have rows of contiguous values, which several kernel variants normalise ([`Algorithm`]); a row's width
//! chooses the variant, and [`Cuda::norm_rows_with`] takes a given one, for benches and tests.
//!
//! The others reduce columns of `[rows, channels]` in two stages (`Tiles`); batch norm is a group norm of one sample
//! with a group per channel, whose second stage is a part of the first one's kernel.

mod batch;
mod statistics;

use super::instance;
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{
    BatchNormGrads, BatchNormInputs, BatchNormParams, BatchNormTrainParams, GroupNormParams, NormOps, RunningStats,
};
use kiln_core::{Buffer, DType, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, norm as columns, norm_rows as rows};

/// Blocks that stage 1 aims at, enough for any device to hide latency, and the most chunks of one sample.
const BLOCKS: u64 = 1024;
const CHUNKS: u64 = 256;
/// The fewest rows that a thread of a tile visits.
const VISITS: u64 = 8;
/// The most tiles whose last block does the second stage, `TICKETS` of `norm.cu`.
const TICKETS: u64 = 4096;
/// The most blocks of a grid.
const GRID: u64 = i32::MAX as u64;

/// `outer` times `rows` rows, each outer part cut into `chunks` of `step` rows; as in `norm.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Cut {
    outer: u64,
    rows: u64,
    step: u64,
    chunks: u64,
}
const _: () = assert!(size_of::<Cut>() == 32);

/// How blocks of 256 cover `outer·rows` rows of `channels`: tiles of columns by chunks of rows. Sizes alone decide, so
/// the same call adds in the same order on every device.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    cut: Cut,
    geometry: Geometry,
}

impl Tiles {
    fn new(dtype: DType, outer: u64, rows: u64, channels: u64) -> Result<Self> {
        let lanes = 16 / dtype.size() as u64;
        let packs = if channels.is_multiple_of(lanes) {
            channels / lanes
        } else {
            channels
        };
        let across = packs.min(32).next_power_of_two();
        let (down, tiles) = (256 / across, packs.div_ceil(across));
        let wanted = (BLOCKS / (tiles * outer).max(1)).clamp(1, CHUNKS);
        let step = rows.div_ceil(wanted).max(down * VISITS);
        let chunks = rows.div_ceil(step);
        let grid = tiles
            .checked_mul(outer * chunks)
            .filter(|&n| n <= GRID && channels < 1 << 32);
        let grid = grid.ok_or_else(|| Error::TooLarge {
            op: "norm",
            dims: [outer, rows, channels].map(|d| d as usize).into(),
        })?;
        Ok(Tiles {
            cut: Cut {
                outer,
                rows,
                step,
                chunks,
            },
            geometry: Geometry {
                grid: [grid as u32, 1, 1],
                block: [across as u32, down as u32, 1],
                shared: 0,
            },
        })
    }

    /// True if the last block of each tile does stage 2 of `p`: it has all that is combined there.
    fn ends(&self, p: &GroupNormParams) -> bool {
        let tiles = u64::from(self.geometry.grid[0]) / self.parts().max(1);
        p.is_batch_norm() && tiles <= TICKETS
    }

    /// The number of partial results of stage 1: one for each outer part and chunk.
    fn parts(&self) -> u64 {
        self.cut.outer * self.cut.chunks
    }
}

/// A grid that strides over `n` items, `each` a block.
fn striding(n: u64, each: u64, block: [u32; 3]) -> Geometry {
    Geometry {
        grid: [n.div_ceil(each).min(GRID) as u32, 1, 1],
        block,
        shared: 0,
    }
}

/// The kernel variants for rows, which all compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A thread per row.
    Naive,
    /// A block per row, which it reads again for each pass.
    Long,
    /// A row of at most 8192 in the registers of a block.
    Blocks,
    /// A row of at most 1024 in the registers of a warp.
    Warps,
}

impl Algorithm {
    /// All variants.
    pub const ALL: [Algorithm; 4] = [Algorithm::Naive, Algorithm::Long, Algorithm::Blocks, Algorithm::Warps];

    /// The variant that the backend takes for rows of `width`: the fastest one that holds them.
    pub fn choose(width: u64) -> Self {
        let holds = |a: &Algorithm| a.widest() >= width;
        Self::ALL.into_iter().rev().find(holds).unwrap_or(Algorithm::Long)
    }

    /// The widest row that this variant takes.
    pub fn widest(self) -> u64 {
        match self {
            Algorithm::Naive | Algorithm::Long => u64::MAX,
            Algorithm::Blocks => 8192,
            Algorithm::Warps => 1024,
        }
    }

    /// A name for benches: `naive`, `long`, …
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Naive => "naive",
            Algorithm::Long => "long",
            Algorithm::Blocks => "blocks",
            Algorithm::Warps => "warps",
        }
    }

    /// The kernels of the norm and of its gradient, and the rows of one block.
    fn kernels(self) -> (&'static PerFloat, &'static PerFloat, u64) {
        match self {
            Algorithm::Naive => (&rows::NORM_NAIVE, &rows::NORM_GRAD_NAIVE, 256),
            Algorithm::Long => (&rows::NORM_LONG, &rows::NORM_GRAD_LONG, 1),
            Algorithm::Blocks => (&rows::NORM_BLOCKS, &rows::NORM_GRAD_BLOCKS, 1),
            Algorithm::Warps => (&rows::NORM_WARPS, &rows::NORM_GRAD_WARPS, 8),
        }
    }
}

/// Flags that the kernels of columns read in place of the padding of their parameters, as in `norm.cuh`: scale and shift are of f32
/// whatever the tensor is, the result is that of a ReLU, the gradients of scale and shift are of f32, moments take the place of statistics.
const WIDE: u32 = 1;
const RELU: u32 = 2;
const WIDE_GRADS: u32 = 4;
const M2: u32 = 8;

/// The parameters as the kernels of columns read them.
fn with_affine(p: &GroupNormParams, affine: Option<&CudaBuffer>) -> GroupNormParams {
    let wide = affine.is_some_and(|b| b.dtype() == DType::F32);
    GroupNormParams {
        pad: if wide { WIDE } else { 0 } | p.pad,
        ..*p
    }
}

/// As [`BatchNormParams::group_norm`], with the ReLU behind it.
fn columns_of(p: &BatchNormParams) -> GroupNormParams {
    GroupNormParams {
        pad: if p.relu == 1 { RELU } else { 0 },
        ..p.group_norm()
    }
}

/// Scale and shift, where there are any.
pub type Affine<'a> = (Option<&'a CudaBuffer>, Option<&'a CudaBuffer>);

/// The operands that the forward pass of batch norm has beside those of group norm.
#[derive(Default)]
struct OfBatch<'a> {
    moments: Option<&'a CudaBuffer>,
    residual: Option<&'a CudaBuffer>,
    running: Option<(RunningStats<'a, CudaBuffer>, f64)>,
}

/// The gradient of the result of a norm, `g`, from which its sums make the one before residual and ReLU: the sum with another term, zero
/// where the result `y` is not positive, written to `dr`. Of a ReLU whose `y` is not given, the sums make it again from x and the shift.
struct ResultGrad<'a> {
    g: &'a CudaBuffer,
    more: Option<&'a CudaBuffer>,
    y: Option<&'a CudaBuffer>,
    shift: Option<&'a CudaBuffer>,
    dr: Option<&'a mut CudaBuffer>,
}

impl<'a> ResultGrad<'a> {
    /// A gradient that is used as it is.
    fn plain(g: &'a CudaBuffer) -> Self {
        ResultGrad {
            g,
            more: None,
            y: None,
            shift: None,
            dr: None,
        }
    }
}

/// The gradients of scale and shift; for batch norm also the factors of `dx`, with its scale.
struct Totals<'a> {
    dscale: &'a mut CudaBuffer,
    dshift: &'a mut CudaBuffer,
    factors: Option<(Option<&'a CudaBuffer>, &'a mut CudaBuffer)>,
}

impl Cuda {
    fn tiles(&self, p: &GroupNormParams, dtype: DType) -> Result<Tiles> {
        Tiles::new(dtype, p.samples, p.positions, p.groups * p.width)
    }

    fn norm_columns(
        &self,
        p: &GroupNormParams,
        x: &CudaBuffer,
        (scale, shift): Affine<'_>,
        y: &mut CudaBuffer,
        (mean, rstd): (&mut CudaBuffer, &mut CudaBuffer),
        of: OfBatch<'_>,
    ) -> Result<()> {
        let (dtype, tiles) = (x.dtype(), self.tiles(p, x.dtype())?);
        let p = &with_affine(p, scale.or(shift));
        let ([running_mean, running_var, batches], momentum) = match of.running {
            Some((r, momentum)) => ([r.mean.out(), r.var.out(), r.batches.out()], momentum),
            None => ([maybe(None); 3], 0.0),
        };
        let momentum = Arg::value(&momentum);
        let groups = mean.len() as u64;
        let to = [mean.out(), rstd.out(), running_mean, running_var, batches, momentum];
        let (residual, scale, shift) = (maybe(of.residual), maybe(scale), maybe(shift));
        if let Some(moments) = of.moments {
            let (p, cut, [a, b, c, d, e, f]) = (Arg::value(p), Arg::value(&tiles.cut), to);
            let affine = [residual, scale, shift, moments.arg()];
            let [r, s, t, m] = affine;
            let args = [p, cut, x.arg(), r, s, t, m, y.out(), a, b, c, d, e, f];
            return self.launch(instance(&columns::NORM_APPLY_MOMENTS, dtype), tiles.geometry, &args);
        }
        self.norm_statistics(p, &tiles, x, groups, to)?;
        let (p, cut) = (Arg::value(p), Arg::value(&tiles.cut));
        let args = [p, cut, x.arg(), residual, scale, shift, mean.arg(), rstd.arg(), y.out()];
        self.launch(instance(&columns::NORM_APPLY, dtype), tiles.geometry, &args)
    }

    fn norm_columns_grad(
        &self,
        p: &GroupNormParams,
        x: &CudaBuffer,
        scale: Option<&CudaBuffer>,
        (mean, rstd): (&CudaBuffer, &CudaBuffer),
        grad: ResultGrad<'_>,
        dx: &mut CudaBuffer,
        (dscale, dshift): (&mut CudaBuffer, &mut CudaBuffer),
    ) -> Result<()> {
        let (dtype, tiles) = (x.dtype(), self.tiles(p, x.dtype())?);
        // Where the sums write no gradient before residual and ReLU of their own, they write it to `dx`, of which dx is then made. What a
        // ReLU that is made again changes is not written: dx makes it once more.
        let ResultGrad {
            g,
            more,
            y,
            shift,
            mut dr,
        } = grad;
        let p = &with_affine(p, scale.or(shift));
        let changed = more.is_some() || y.is_some();
        let to = match (changed, dr.as_deref_mut()) {
            (true, None) => Some(&mut *dx),
            (_, dr) => dr,
        };
        let of = ResultGrad {
            g,
            more,
            y,
            shift,
            dr: to,
        };
        let mut factors = self.scratch(DType::F32, 2 * mean.len())?;
        // A channel of batch norm is a group: its totals are what dx subtracts.
        let is_batch_norm = p.is_batch_norm();
        let totals = Totals {
            dscale,
            dshift,
            factors: is_batch_norm.then_some((scale, &mut factors)),
        };
        let partial = self.norm_sums(p, &tiles, x, (mean, rstd), of, totals)?;
        let again = p.pad & RELU != 0 && !changed;
        let (p, cut, scale) = (Arg::value(p), Arg::value(&tiles.cut), maybe(scale));
        if !is_batch_norm {
            let groups = striding(mean.len() as u64, 1, [128, 1, 1]);
            let kernel = instance(&columns::NORM_FACTORS, dtype);
            self.launch(kernel, groups, &[p, cut, partial.arg(), scale, factors.out()])?;
        }
        let stats = [mean.arg(), rstd.arg()];
        let dx = dx.out();
        let g = match (changed, &dr) {
            (false, _) => g.arg(),
            (true, Some(dr)) => dr.arg(),
            (true, None) => dx,
        };
        let mut args = vec![p, cut, x.arg(), scale, stats[0], stats[1], g, factors.arg(), dx];
        let kernels = if again {
            args.push(maybe(shift));
            &columns::NORM_GRAD_RELU
        } else {
            &columns::NORM_GRAD
        };
        self.launch(instance(kernels, dtype), tiles.geometry, &args)
    }

    /// The sums `dscale` and `dshift` with what they come from: per part and channel `[Σ g·x̂, Σ g]`. They are zero where there are no
    /// samples.
    fn norm_sums(
        &self,
        p: &GroupNormParams,
        tiles: &Tiles,
        x: &CudaBuffer,
        (mean, rstd): (&CudaBuffer, &CudaBuffer),
        grad: ResultGrad<'_>,
        totals: Totals<'_>,
    ) -> Result<CudaBuffer> {
        let mut partial = self.scratch(DType::F32, (tiles.parts() * 2 * p.groups * p.width) as usize)?;
        let dtype = totals.dscale.dtype();
        let wide = dtype == DType::F32 && x.dtype() != DType::F32;
        let with = GroupNormParams {
            pad: if wide { WIDE_GRADS } else { 0 } | p.pad,
            ..*p
        };
        let (scale, factors) = match totals.factors {
            Some((scale, factors)) => (maybe(scale), factors.out()),
            None => (maybe(None), maybe(None)),
        };
        let to = [totals.dscale.out(), totals.dshift.out(), factors];
        let ends = tiles.ends(p);
        let [a, b, c] = if ends { to } else { [maybe(None); 3] };
        let mut args = vec![
            Arg::value(&with),
            Arg::value(&tiles.cut),
            x.arg(),
            mean.arg(),
            rstd.arg(),
            grad.g.arg(),
            partial.out(),
            maybe(grad.more),
        ];
        let dr = grad.dr.map_or(maybe(None), CudaBuffer::out);
        let kernels = if p.pad & RELU != 0 {
            args.extend([dr, a, b, scale, c, maybe(grad.shift)]);
            &columns::NORM_SUMS_RELU
        } else {
            args.extend([maybe(grad.y), dr, a, b, scale, c]);
            &columns::NORM_SUMS
        };
        self.launch(instance(kernels, x.dtype()), tiles.geometry, &args)?;
        if !ends {
            let parts = tiles.parts();
            let geometry = striding(p.groups * p.width, 32, [32, 8, 1]);
            let [a, b, c] = to;
            let args = [Arg::value(p), partial.arg(), Arg::value(&parts), a, b, scale, c];
            self.launch(instance(&columns::NORM_TOTALS, dtype), geometry, &args)?;
        }
        Ok(partial)
    }
}

impl Cuda {
    /// [`NormOps::group_norm`] of a single position by `algorithm`, for rows that it takes.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, rows that the algorithm does not take, and those of a launch.
    pub fn norm_rows_with(
        &self,
        algorithm: Algorithm,
        p: &GroupNormParams,
        x: &CudaBuffer,
        (scale, shift): Affine<'_>,
        y: &mut CudaBuffer,
        mean: &mut CudaBuffer,
        rstd: &mut CudaBuffer,
    ) -> Result<()> {
        checks::group_norm(self, p, x, scale, shift, y, mean, rstd)?;
        takes(algorithm, p)?;
        let (kernels, _, each) = algorithm.kernels();
        let geometry = striding(p.samples * p.groups, each, [256, 1, 1]);
        let (scale, shift) = (maybe(scale), maybe(shift));
        let args = [Arg::value(p), x.arg(), scale, shift, y.out(), mean.out(), rstd.out()];
        self.launch(instance(kernels, x.dtype()), geometry, &args)
    }

    /// `dx` of [`NormOps::group_norm_grad`] of a single position by `algorithm`, for rows that it takes.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, rows that the algorithm does not take, and those of a launch.
    pub fn norm_rows_grad_with(
        &self,
        algorithm: Algorithm,
        p: &GroupNormParams,
        x: &CudaBuffer,
        scale: Option<&CudaBuffer>,
        (mean, rstd): (&CudaBuffer, &CudaBuffer),
        g: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        checks::norm_rows_grad(self, p, x, scale, (mean, rstd), g, dx)?;
        takes(algorithm, p)?;
        let (_, kernels, each) = algorithm.kernels();
        let geometry = striding(p.samples * p.groups, each, [256, 1, 1]);
        let stats = [mean.arg(), rstd.arg()];
        let args = [
            Arg::value(p),
            x.arg(),
            maybe(scale),
            stats[0],
            stats[1],
            g.arg(),
            dx.out(),
        ];
        self.launch(instance(kernels, x.dtype()), geometry, &args)
    }
}

/// An error unless the algorithm takes rows of this shape.
fn takes(algorithm: Algorithm, p: &GroupNormParams) -> Result<()> {
    if p.positions == 1 && p.width <= algorithm.widest() {
        return Ok(());
    }
    let expected = format!("one position of at most {} elements", algorithm.widest());
    Err(Error::invalid("group_norm", "rows", format!("{p:?}"), expected))
}

impl NormOps for Cuda {
    fn batch_norm_eval(
        &self,
        p: &BatchNormParams,
        x: &CudaBuffer,
        residual: Option<&CudaBuffer>,
        scale: Option<&CudaBuffer>,
        shift: Option<&CudaBuffer>,
        mean: &CudaBuffer,
        var: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::batch_norm_eval(self, p, x, residual, scale, shift, mean, var, y)?;
        self.norm_of_given(&columns::NORM_EVAL, p, x, residual, (scale, shift), (mean, var), y)
    }

    fn batch_norm(
        &self,
        p: &BatchNormTrainParams,
        x: &CudaBuffer,
        moments: Option<&CudaBuffer>,
        residual: Option<&CudaBuffer>,
        scale: Option<&CudaBuffer>,
        shift: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
        mean: &mut CudaBuffer,
        rstd: &mut CudaBuffer,
        running: RunningStats<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::batch_norm(self, p, x, moments, residual, scale, shift, y, mean, rstd, &running)?;
        let of = OfBatch {
            moments,
            residual,
            running: Some((running, p.momentum)),
        };
        let p = columns_of(&p.batch_norm());
        self.norm_columns(&p, x, (scale, shift), y, (mean, rstd), of)
    }

    fn batch_norm_apply(
        &self,
        p: &BatchNormParams,
        x: &CudaBuffer,
        residual: Option<&CudaBuffer>,
        scale: Option<&CudaBuffer>,
        shift: Option<&CudaBuffer>,
        mean: &CudaBuffer,
        rstd: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::batch_norm_apply(self, p, x, residual, scale, shift, mean, rstd, y)?;
        self.norm_of_given(&columns::NORM_APPLY, p, x, residual, (scale, shift), (mean, rstd), y)
    }

    fn batch_norm_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CudaBuffer>,
        g: &CudaBuffer,
        more: Option<&CudaBuffer>,
        to: BatchNormGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::batch_norm_grad(self, p, of, g, more, &to)?;
        let grad = ResultGrad {
            g,
            more,
            y: of.y,
            shift: of.shift,
            dr: to.dr,
        };
        let (stats, affine) = ((of.mean, of.rstd), (to.dscale, to.dshift));
        // A ReLU whose result is not given is made again.
        let norm = match of.y {
            Some(_) => p.group_norm(),
            None => columns_of(p),
        };
        self.norm_columns_grad(&norm, of.x, of.scale, stats, grad, to.dx, affine)
    }

    fn batch_norm_data_grad(
        &self,
        p: &BatchNormParams,
        of: &BatchNormInputs<'_, CudaBuffer>,
        d: &CudaBuffer,
        dscale: &CudaBuffer,
        dshift: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        checks::batch_norm_data_grad(self, p, of, d, dscale, dshift, dx)?;
        self.norm_data_grad_of_sums(p, of, d, [dscale, dshift], dx)
    }

    fn group_norm(
        &self,
        p: &GroupNormParams,
        x: &CudaBuffer,
        scale: Option<&CudaBuffer>,
        shift: Option<&CudaBuffer>,
        y: &mut CudaBuffer,
        mean: &mut CudaBuffer,
        rstd: &mut CudaBuffer,
    ) -> Result<()> {
        checks::group_norm(self, p, x, scale, shift, y, mean, rstd)?;
        debug_assert_eq!((y.len(), mean.len() as u64), (x.len(), p.samples * p.groups));
        // The kernels read flags there.
        let p = &GroupNormParams { pad: 0, ..*p };
        if x.is_empty() {
            return Ok(());
        }
        if p.positions > 1 {
            return self.norm_columns(p, x, (scale, shift), y, (mean, rstd), OfBatch::default());
        }
        self.norm_rows_with(Algorithm::choose(p.width), p, x, (scale, shift), y, mean, rstd)
    }

    fn group_norm_grad(
        &self,
        p: &GroupNormParams,
        x: &CudaBuffer,
        scale: Option<&CudaBuffer>,
        mean: &CudaBuffer,
        rstd: &CudaBuffer,
        g: &CudaBuffer,
        dx: &mut CudaBuffer,
        dscale: &mut CudaBuffer,
        dshift: &mut CudaBuffer,
    ) -> Result<()> {
        checks::group_norm_grad(self, p, x, scale, mean, rstd, g, dx, dscale, dshift)?;
        debug_assert_eq!((g.len(), dx.len()), (x.len(), x.len()));
        // The kernels read flags there.
        let p = &GroupNormParams { pad: 0, ..*p };
        if p.positions > 1 && !x.is_empty() {
            let grad = ResultGrad::plain(g);
            return self.norm_columns_grad(p, x, scale, (mean, rstd), grad, dx, (dscale, dshift));
        }
        // Every sample is a row of the sums that give dscale and dshift.
        let tiles = Tiles::new(x.dtype(), 1, p.samples, p.groups * p.width)?;
        let totals = Totals {
            dscale,
            dshift,
            factors: None,
        };
        self.norm_sums(p, &tiles, x, (mean, rstd), ResultGrad::plain(g), totals)?;
        if x.is_empty() {
            return Ok(());
        }
        let algorithm = Algorithm::choose(p.width);
        self.norm_rows_grad_with(algorithm, p, x, scale, (mean, rstd), g, dx)
    }
}
