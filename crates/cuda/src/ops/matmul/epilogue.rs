//! The epilogue of a product: bias, activation and slope of its sums, by elementwise kernels where a product's kernel has none.

use super::plan::{Algorithm, Plan};
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{ElementwiseOps, MatmulParams, UnaryParams};
use kiln_core::{Buffer, Error, Result, Runtime};

/// The epilogue of a product: its sums on their way to memory, besides the activation of the parameters.
#[derive(Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to every row, `[n]`.
    pub bias: Option<&'a CudaBuffer>,
    /// Gets the input of an activation whose gradient reads it, or with a slope what the activation makes of `slope_at`; of the
    /// result's shape and dtype.
    pub kept: Option<&'a mut CudaBuffer>,
    /// Makes the result the product, rounded, times the slope of the activation here: its input, or its result where the gradient
    /// reads that; of the result's shape and dtype.
    pub slope_at: Option<&'a CudaBuffer>,
}

impl Epilogue<'_> {
    /// Refuses operands that do not fit the result `c`, or each other.
    pub(super) fn check(&self, c: &CudaBuffer) -> Result<()> {
        let alone = self.slope_at.is_none() || self.bias.is_none();
        for found in self.kept.as_deref().into_iter().chain(self.slope_at) {
            if !alone || found.dtype() != c.dtype() || found.len() != c.len() {
                let expected = "a tensor of the result's shape and dtype, a slope without a bias";
                return Err(Error::invalid("matmul", "epilogue", found.len(), expected));
            }
        }
        Ok(())
    }

    /// True if the kernels of `algorithm` do all this.
    pub(super) fn is_of(&self, algorithm: Algorithm, p: &MatmulParams) -> bool {
        match self.slope_at {
            Some(_) => algorithm.has_slopes(p),
            None => self.kept.is_none() || algorithm.keeps(p),
        }
    }
}

impl Cuda {
    /// A product and the elementwise function or slope of its activation after it.
    pub(super) fn product_composed(
        &self,
        plan: Plan,
        p: &MatmulParams,
        of: (&CudaBuffer, &CudaBuffer),
        Epilogue { bias, kept, slope_at }: Epilogue<'_>,
        c: &mut CudaBuffer,
    ) -> Result<()> {
        let plain = Epilogue {
            bias,
            ..Epilogue::default()
        };
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
