//! Multi-head self-attention as one fused op, and its definition in other ops. Gradients of gradients are taken of the
//! definition, and it runs on a backend that does not have the fused op.

mod cache;
mod definition;
mod dot_product;
mod fused;
mod options;

use super::index::above;
use super::reduce::acc_dtype;
use crate::autograd::{Cast, Rule, RuleContext, checkpoint_as, is_grad_enabled, vjp};
use crate::{Backend, Error, Result, Tensor};
use fused::Masks;
use kiln_core::ops::{AttentionParams, Op};

pub use cache::KeyValueCache;
pub(crate) use fused::by_heads;
pub use options::AttentionOptions;

const OP: &str = "self_attention";

struct Attention<B: Backend> {
    p: AttentionParams,
    qkv: Tensor<B>,
    masks: Masks<B>,
    lse: B::Buffer,
}

impl<B: Backend> Rule<B> for Attention<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (p, qkv, g) = (&self.p, &self.qkv, cx.grad);
        if is_grad_enabled() {
            return vjp(&[qkv], g, |t| composed(p, &t[0], &self.masks));
        }
        let mut dqkv = qkv.alloc_like(*qkv.shape())?;
        let backend = qkv.backend();
        let y = cx.output().buffer();
        backend.attention_grad(
            p,
            qkv.buffer(),
            self.masks.buffers(),
            y,
            &self.lse,
            g.buffer(),
            &mut dqkv,
        )?;
        Ok(vec![Some(Tensor::from_buffer(backend, dqkv, *qkv.shape()))])
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The definition: `softmax(scale·q·kᵀ)·v` of every head, with masks that of attention of operands that lie apart.
fn composed<B: Backend>(p: &AttentionParams, qkv: &Tensor<B>, masks: &Masks<B>) -> Result<Tensor<B>> {
    let [n, t, h, d] = [p.batch, p.positions, p.heads, p.width].map(|d| d as usize);
    let heads = qkv.reshape(&[n, t, 3, h, d])?.permute(&[2, 0, 3, 1, 4])?;
    let part = |i| heads.narrow(0, i, 1)?.reshape(&[n, h, t, d]);
    if !masks.is_empty() {
        let y = definition::composed([&part(0)?, &part(1)?, &part(2)?], &masks.options(p.causal, p.scale))?;
        return y.permute(&[0, 2, 1, 3])?.reshape(&[n, t, h * d]);
    }
    let mut scores = part(0)?.mul_scalar(p.scale)?.matmul_t(&part(1)?, false, true)?;
    if p.causal == 1 {
        // Above the diagonal the key comes after the query.
        scores = scores.masked_fill(&above(scores.backend(), [t, t], 0)?, f64::NEG_INFINITY)?;
    }
    let y = scores.softmax(-1)?.matmul(&part(2)?)?;
    y.permute(&[0, 2, 1, 3])?.reshape(&[n, t, h * d])
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Self-attention of `heads` heads over packed queries, keys and values (Vaswani et al., "Attention Is All You Need",
    /// 2017): `[N, T, 3·H·D]`, the queries of all heads, then the keys, then the values, to `[N, T, H·D]`. Every head
    /// gives `softmax(q·kᵀ/√D)·v`; when `causal`, a position attends only to itself and earlier ones. As PyTorch's
    /// `scaled_dot_product_attention` and FlashAttention's `flash_attn_qkvpacked_func`, without dropout;
    /// [`Tensor::self_attention_with`] has that and masks.
    ///
    /// With `causal`, a value that is NaN or infinite may turn earlier positions into NaN or not, depending on the
    /// backend: their weight for it is 0, and 0 times that value is NaN in a backend that multiplies them.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let qkv = Tensor::randn(&cpu, &[2, 5, 3 * 8], DType::F32, &mut Rng::new(0))?;
    /// assert_eq!(qkv.self_attention(4, true)?.shape().dims(), [2, 5, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A rank other than 3, no heads, a last dimension that is no multiple of `3·heads`, memory.
    pub fn self_attention(&self, heads: usize, causal: bool) -> Result<Tensor<B>> {
        let options = AttentionOptions {
            causal,
            ..AttentionOptions::default()
        };
        self.self_attention_with(heads, &options)
    }

    /// [`Tensor::self_attention`] with options: a mask or a bias, which broadcasts to the scores `[N, H, T, T]`, and dropout of the
    /// weights. Where the backend has the op, neither scores nor weights are stored, and queries, keys and values are read where they
    /// are.
    ///
    /// ```
    /// # use kiln_nn::{AttentionOptions, DType, Indices, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let qkv = Tensor::randn(&cpu, &[2, 3, 3 * 8], DType::F32, &mut Rng::new(0))?;
    /// // The last two positions of the second sequence are padding.
    /// let mask = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 0, 0], &[2, 1, 1, 3])?;
    /// let y = qkv.self_attention_with(4, &AttentionOptions::masked(&mask))?;
    /// assert_eq!(y.shape().dims(), [2, 3, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::self_attention`], a mask or a bias that does not broadcast to the scores, a mask that is not u8, a scale that
    /// is no finite number above 0.
    pub fn self_attention_with(&self, heads: usize, options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::low() {
            return cast.of(self)?.self_attention_with(heads, options);
        }
        let (mut p, shape) = AttentionParams::new(OP, self.shape(), heads, options.causal)?;
        if let Some(scale) = options.scale {
            if !(scale > 0.0 && scale.is_finite()) {
                return Err(Error::invalid(OP, "scale", scale, "a finite number above 0"));
            }
            p.scale = scale;
        }
        let mut apart = p.apart();
        let leading = [p.batch as usize];
        let Some(masks) = Masks::new(options, &leading, acc_dtype(self.dtype()), &mut apart)? else {
            let [n, t, h, d] = [p.batch, p.positions, p.heads, p.width].map(|d| d as usize);
            let part = |i| {
                let joined = self.narrow(2, i * h * d, h * d)?;
                joined.reshape(&[n, t, h, d])?.transpose(1, 2)
            };
            let y = definition::composed([&part(0)?, &part(1)?, &part(2)?], options)?;
            return y.transpose(1, 2)?.reshape(&[n, t, h * d]);
        };
        let p = AttentionParams {
            mask: apart.mask,
            bias: apart.bias,
            drop: apart.drop,
            seed: apart.seed,
            stream: apart.stream,
            ..p
        };
        if !self.has_op(Op::Attention) {
            // The scores, a matrix for each head, are dropped and computed again for the gradient.
            return checkpoint_as(OP, &[self], move |x| composed(&p, &x[0], &masks));
        }
        let backend = self.backend();
        let mut y = self.alloc_like(shape)?;
        let mut lse = backend.alloc(acc_dtype(self.dtype()), p.rows())?;
        backend.attention(&p, self.buffer(), masks.buffers(), &mut y, &mut lse)?;
        Ok(
            Tensor::from_buffer(backend, y, shape).record(OP, &[self], || Attention {
                p,
                qkv: self.clone(),
                masks,
                lse,
            }),
        )
    }
}
