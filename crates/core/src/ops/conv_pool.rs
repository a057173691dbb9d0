//! A convolution and the max pooling of its result, as one op.

use super::{Activation, ConvParams, Op, PoolParams, Window};
use crate::{DType, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

/// Parameters of a convolution whose result is pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ConvPoolParams {
    /// The convolution.
    pub conv: ConvParams,
    /// The pooling of its result.
    pub pool: PoolParams,
}
const _: () = assert!(size_of::<ConvPoolParams>() == 184);

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
            .chain(&p.window.input)
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

/// Convolutions of a backend with the pooling of their result, [`Op::ConvMaxPool`]: for backends that keep the result in cache.
///
/// Gradients are those of activations whose derivative follows from their result: none, ReLU, sigmoid and tanh.
pub trait ConvPoolOps: Runtime {
    /// `y` and `index` as [`PoolOps::max_pool`](super::PoolOps::max_pool) gives them of what [`ConvOps::conv`](super::ConvOps::conv) gives.
    fn conv_max_pool(
        &self,
        p: &ConvPoolParams,
        x: &Self::Buffer,
        w: &Self::Buffer,
        bias: Option<&Self::Buffer>,
        y: &mut Self::Buffer,
        index: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, w, bias, y, index);
        self.unsupported(Op::ConvMaxPool)
    }

    /// The name of the algorithm that computes [`conv_max_pool`](ConvPoolOps::conv_max_pool) of `p` in `dtype` on this backend, for
    /// profiles; `None` where there is no choice of one.
    fn conv_pool_algorithm(&self, p: &ConvPoolParams, dtype: DType) -> Option<&'static str> {
        let _ = (p, dtype);
        None
    }

    /// The gradients in `to`. That of the convolution's sums is [`PoolOps::max_pool_grad`](super::PoolOps::max_pool_grad) of the gradient before the activation:
    /// `dx` is [`ConvOps::conv_data_grad`](super::ConvOps::conv_data_grad) of it, `dw` [`ConvOps::conv_weight_grad`](super::ConvOps::conv_weight_grad), `db` its sums over all positions. Every window
    /// of the pooling has to see an element, as those without dilation do.
    fn conv_max_pool_grad(
        &self,
        p: &ConvPoolParams,
        of: &PooledGrad<'_, Self::Buffer>,
        x: &Self::Buffer,
        w: &Self::Buffer,
        to: ConvPoolGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, of, x, w, to);
        self.unsupported(Op::ConvMaxPool)
    }
}
