//! A convolution and the max pooling of its result, as one op.

use super::{ConvOps, ConvParams, PoolOps, PoolParams, Window};
use crate::{Buffer, Result, Shape};

/// Parameters of a convolution whose result is pooled.
#[derive(Clone, Copy, Debug)]
pub struct ConvPoolParams {
    /// The convolution.
    pub conv: ConvParams,
    /// The pooling of its result.
    pub pool: PoolParams,
}

impl ConvPoolParams {
    /// Parameters for `x [N, spatial…, C]` and `w [O, kernel…, C/groups]`, and the shape of the result.
    ///
    /// # Errors
    /// As [`ConvParams::new`] and [`PoolParams::new`].
    pub fn new(
        op: &'static str,
        x: &Shape,
        w: &Shape,
        (window, groups): (&Window, usize),
        (pool, ceil_mode): (&Window, bool),
    ) -> Result<(Self, Shape)> {
        let (conv, between) = ConvParams::new(op, x, w, window, groups)?;
        let (pool, shape) = PoolParams::new(op, &between, pool, ceil_mode, false)?;
        Ok((ConvPoolParams { conv, pool }, shape))
    }

    /// Elements of the convolution's result.
    pub fn between(&self) -> usize {
        let p = &self.pool;
        [p.batch, p.channels]
            .iter()
            .chain(&p.input)
            .map(|&d| d as usize)
            .product()
    }
}

/// Convolutions of a backend with the pooling of their result. The bodies here take memory for the result and call the two
/// ops: the definition that a form which keeps it in cache is compared with.
pub trait ConvPoolOps: ConvOps + PoolOps {
    /// `y` and `index` as [`PoolOps::max_pool`] gives them of what [`ConvOps::conv`] gives.
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &Self::Buffer,
        w: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
        index: &mut Self::Buffer,
    ) -> Result<()> {
        composed_conv_max_pool(self, p, (x, w, bias), (y, index))
    }

    /// `dw`, from the gradient `g` of the pooled result before its activation: [`ConvOps::conv_weight_grad`] of what
    /// [`PoolOps::max_pool_grad`] gives.
    fn conv_max_pool_weight_grad(
        &self,
        p: &ConvPoolParams,
        g: &Self::Buffer,
        index: &Self::Buffer,
        x: &Self::Buffer,
        dw: &mut Self::Buffer,
    ) -> Result<()> {
        composed_conv_max_pool_weight_grad(self, p, (g, index), x, dw)
    }
}

/// [`ConvPoolOps::conv_max_pool`] as two ops.
///
/// # Errors
/// Memory, and what the ops return.
pub fn composed_conv_max_pool<B: ConvPoolOps>(
    backend: &B,
    p: &ConvPoolParams,
    (x, w, bias): (&B::Buffer, &B::Buffer, Option<&B::Buffer>),
    (y, index): (&mut B::Buffer, &mut B::Buffer),
) -> Result<()> {
    let mut between = backend.alloc(y.dtype(), p.between())?;
    backend.conv(&p.conv, x, w, bias, &mut between)?;
    backend.max_pool(&p.pool, &between, y, index)
}

/// [`ConvPoolOps::conv_max_pool_weight_grad`] as two ops.
///
/// # Errors
/// As [`composed_conv_max_pool`].
pub fn composed_conv_max_pool_weight_grad<B: ConvPoolOps>(
    backend: &B,
    p: &ConvPoolParams,
    (g, index): (&B::Buffer, &B::Buffer),
    x: &B::Buffer,
    dw: &mut B::Buffer,
) -> Result<()> {
    let mut between = backend.alloc(g.dtype(), p.between())?;
    backend.max_pool_grad(&p.pool, g, index, &mut between)?;
    backend.conv_weight_grad(&p.conv, &between, x, dw)
}
