//! The epilogue of a product: bias, activation and slope of its sums, by elementwise kernels where a product's kernel has none.

use super::plan::{Algorithm, Plan};
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{ElementwiseOps, MatmulParams, ResidualOps, RowNorm, UnaryParams};
use kiln_core::{Buffer, DType, Error, Result, Runtime, checks};

/// The epilogue of a product: its sums on their way to memory, besides the activation of the parameters.
#[derive(Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row, `[n]`.
    pub bias: Option<&'a CudaBuffer>,
    /// Gets the input of an activation whose gradient reads it, or with a slope what the activation makes of `slope_at`, or the result of
    /// `norm`; of the result's shape and dtype.
    pub kept: Option<&'a mut CudaBuffer>,
    /// Makes the result the product, rounded, times the slope of the activation here: its input, or its result where the gradient
    /// reads that; of the result's shape and dtype.
    pub slope_at: Option<&'a CudaBuffer>,
    /// A layer norm whose result `kept` gets, beside the product.
    pub norm: Option<&'a RowNorm<'a, CudaBuffer>>,
}

/// A layer norm by its addresses, none if there is none: `RowNorm` of kernels/src/matmul.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct NormAt {
    pub(super) s: u64,
    mean: u64,
    rstd: u64,
    scale: u64,
    shift: u64,
    wide_stream: u32,
    wide: u32,
}
const _: () = assert!(size_of::<NormAt>() == 48);

impl Epilogue<'_> {
    /// Refuses operands that do not fit the result `c`, or each other.
    pub(super) fn check(&self, p: &MatmulParams, c: &CudaBuffer) -> Result<()> {
        if let Some(norm) = self.norm {
            let found = (norm.p.rows, norm.p.width);
            if found != (p.m, p.n) || p.batch_rank > 0 || norm.p.drop != 0.0 {
                let expected = "rows as those of a single product, without dropout";
                return Err(Error::invalid("matmul", "norm", format!("{found:?}"), expected));
            }
        }
        let beside = [self.slope_at.is_some(), self.norm.is_some(), self.bias.is_some()];
        let alone = beside.into_iter().filter(|&given| given).count() < 2;
        for found in self.kept.as_deref().into_iter().chain(self.slope_at) {
            if !alone || found.dtype() != c.dtype() || found.len() != c.len() {
                let expected = "a tensor of the result's shape and dtype, a slope and a norm alone";
                return Err(Error::invalid("matmul", "epilogue", found.len(), expected));
            }
        }
        Ok(())
    }

    /// True if the kernels of `algorithm` do all this.
    pub(super) fn is_of(&self, algorithm: Algorithm, p: &MatmulParams) -> bool {
        match (self.slope_at, self.norm) {
            (_, Some(_)) => algorithm.remakes(p),
            (Some(_), None) => algorithm.has_slopes(p),
            (None, None) => self.kept.is_none() || algorithm.keeps(p),
        }
    }
}

impl Cuda {
    /// The addresses of a norm, which a recording keeps.
    pub(super) fn row_norm(&self, norm: Option<&RowNorm<'_, CudaBuffer>>) -> Result<NormAt> {
        let Some(norm) = norm else {
            return Ok(NormAt::zeroed());
        };
        let (p, scale, shift) = (&norm.p, norm.scale, norm.shift);
        checks::residual_norm(self, p, norm.s, None, None, scale, shift, norm.s, norm.mean, norm.rstd)?;
        let all = [norm.s, norm.mean, norm.rstd, norm.scale, norm.shift];
        all.into_iter().try_for_each(|buffer| self.keep(buffer))?;
        let [s, mean, rstd, scale, shift] = all.map(|buffer| buffer.block.ptr());
        let wide = |buffer: &CudaBuffer| u32::from(buffer.dtype() == DType::F32);
        Ok(NormAt {
            s,
            mean,
            rstd,
            scale,
            shift,
            wide_stream: wide(norm.s),
            wide: wide(norm.scale),
        })
    }

    /// The result of a norm, by its op.
    pub(super) fn remake(&self, norm: &RowNorm<'_, CudaBuffer>, n: &mut CudaBuffer) -> Result<()> {
        let statistic = || self.scratch(norm.mean.dtype(), norm.mean.len());
        let (mut mean, mut rstd) = (statistic()?, statistic()?);
        let (p, scale, shift) = (&norm.p, norm.scale, norm.shift);
        self.residual_norm(p, norm.s, None, None, scale, shift, n, &mut mean, &mut rstd)
    }

    /// A product and the elementwise function or slope of its activation after it.
    pub(super) fn product_composed(
        &self,
        plan: Plan,
        p: &MatmulParams,
        of: (&CudaBuffer, &CudaBuffer),
        epilogue: Epilogue<'_>,
        c: &mut CudaBuffer,
    ) -> Result<()> {
        let Epilogue {
            bias,
            mut kept,
            slope_at,
            norm,
        } = epilogue;
        let plain = Epilogue {
            bias,
            ..Epilogue::default()
        };
        if let (Some(norm), Some(kept)) = (norm, kept.as_deref_mut()) {
            self.remake(norm, kept)?;
            return self.product_with(plan, p, of, plain, c);
        }
        let activation = p.activation().function();
        let p = &MatmulParams { activation: 0, ..*p };
        let Some(f) = activation else {
            // The identity, whose slope is 1.
            match (kept, slope_at) {
                (Some(kept), Some(at)) => self.copy(at, kept)?,
                (Some(kept), None) => self.matmul_with(plan, p, of.0, of.1, bias, kept)?,
                (None, _) => {}
            }
            return self.product_with(plan, p, of, plain, c);
        };
        let params = UnaryParams::new(f, c.len(), 0.0, 0.0);
        let Some(at) = slope_at else {
            let Some(kept) = kept else {
                return self.product_with(plan, p, of, plain, c);
            };
            self.product_with(plan, p, of, plain, kept)?;
            return self.unary(&params, kept, c);
        };
        if let Some(kept) = kept {
            self.unary(&params, at, kept)?;
        }
        let mut product = self.scratch(c.dtype(), c.len())?;
        self.product_with(plan, p, of, plain, &mut product)?;
        self.unary_grad(&params, at, at, &product, c)
    }
}
