//! A convolution and the max pooling of its result, as one op.

use super::{
    Activation, ConvOps, ConvParams, ElementwiseOps, GradReads, PoolOps, PoolParams, Reduce, ReduceOps, ReduceParams,
    Unary, UnaryParams, Window,
};
use crate::{Buffer, Error, Result, Shape, checks};

const OP: &str = "conv_max_pool";

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

    /// The convolution without its activation, which its gradients are those of.
    pub fn linear(&self) -> ConvParams {
        ConvParams {
            activation: Activation::None as u32,
            ..self.conv
        }
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

/// What the gradients of a convolution with its pooling are computed from.
#[derive(Clone, Copy, Debug)]
pub struct PooledGrad<'a, B> {
    /// The gradient of the result.
    pub g: &'a B,
    /// The result, of which the activation's derivative follows.
    pub y: &'a B,
    /// What [`ConvPoolOps::conv_max_pool`] left in `index`.
    pub index: &'a B,
}

/// The gradients of a convolution with its pooling, where they are wanted.
#[derive(Debug)]
pub struct ConvPoolGrads<'a, B> {
    /// That of the image.
    pub dx: Option<&'a mut B>,
    /// That of the weight.
    pub dw: Option<&'a mut B>,
    /// That of the bias.
    pub db: Option<&'a mut B>,
}

/// Convolutions of a backend with the pooling of their result. The bodies here take memory for the result and call the two
/// ops: the definition that a form which keeps it in cache is compared with.
///
/// Gradients are those of activations whose derivative follows from their result: none, ReLU, sigmoid and tanh.
pub trait ConvPoolOps: ElementwiseOps + ReduceOps + ConvOps + PoolOps {
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
        checks::conv_max_pool(self, p, x, w, bias, y, index)?;
        composed_conv_max_pool(self, p, (x, w, bias), (y, index))
    }

    /// The gradients in `to`. That of the convolution's sums is [`PoolOps::max_pool_grad`] of the gradient before the activation:
    /// `dx` is [`ConvOps::conv_data_grad`] of it, `dw` [`ConvOps::conv_weight_grad`], `db` its sums over all positions. Every window
    /// of the pooling has to see an element, as those without dilation do.
    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, Self::Buffer>,
        x: &Self::Buffer,
        w: &Self::Buffer,
        to: ConvPoolGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        checks::conv_max_pool_grad(self, p, of, x, w, &to)?;
        composed_conv_max_pool_grad(self, p, of, (x, w), to)
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

/// [`ConvPoolOps::conv_max_pool_grad`] as ops of their own.
///
/// # Errors
/// As [`composed_conv_max_pool`]; an activation whose derivative does not follow from its result.
pub fn composed_conv_max_pool_grad<B: ConvPoolOps>(
    backend: &B,
    p: &ConvPoolParams,
    of: &PooledGrad<'_, B::Buffer>,
    (x, w): (&B::Buffer, &B::Buffer),
    to: ConvPoolGrads<'_, B::Buffer>,
) -> Result<()> {
    let before;
    let g = match derivative(p.conv.activation())? {
        None => of.g,
        Some(f) => {
            let mut g = backend.alloc(of.g.dtype(), of.g.len())?;
            let f = UnaryParams::new(f, of.g.len(), 0.0, 0.0);
            backend.unary_grad(&f, of.y, of.y, of.g, &mut g)?;
            before = g;
            &before
        }
    };
    if let Some(db) = to.db {
        let channels = p.pool.channels as usize;
        let rows = Shape::new(&[g.len() / channels.max(1), channels])?;
        let (sum, _) = ReduceParams::new(OP, Reduce::Sum, &rows, &[0], false)?;
        backend.reduce(&sum, g, db)?;
    }
    if to.dx.is_none() && to.dw.is_none() {
        return Ok(());
    }
    let mut between = backend.alloc(g.dtype(), p.between())?;
    backend.max_pool_grad(&p.pool, g, of.index, &mut between)?;
    if let Some(dx) = to.dx {
        backend.conv_data_grad(&p.linear(), &between, w, dx)?;
    }
    if let Some(dw) = to.dw {
        backend.conv_weight_grad(&p.linear(), &between, x, dw)?;
    }
    Ok(())
}

/// The function whose gradient is that of the activation, `None` when there is none.
fn derivative(f: Activation) -> Result<Option<Unary>> {
    match f.function() {
        None => Ok(None),
        Some(function) if function.function().reads == GradReads::Output => Ok(Some(function)),
        Some(_) => {
            let expected = "none, ReLU, sigmoid or tanh, whose derivative follows from the result";
            Err(Error::invalid(OP, "activation", format!("{f:?}"), expected))
        }
    }
}
