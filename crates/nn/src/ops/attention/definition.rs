//! The definition of attention of separate queries, keys and values in other ops.

use super::options::AttentionOptions;
use crate::ops::random::drop_at;
use crate::ops::reduce::acc_dtype;
use crate::{Backend, Result, Tensor};

/// The definition, with a matrix of weights.
pub(super) fn composed<B: Backend>([q, k, v]: [&Tensor<B>; 3], options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
    let (k, v) = (shared(q, k)?, shared(q, v)?);
    let wide = acc_dtype(q.dtype());
    if wide == q.dtype() {
        return weights(q, &k, options)?.matmul(&v);
    }
    // Scores of halves would be rounded before the exponential.
    let bias = options.bias.map(|bias| bias.to_dtype(wide)).transpose()?;
    let options = AttentionOptions {
        bias: bias.as_ref(),
        ..*options
    };
    let weights = weights(&q.to_dtype(wide)?, &k.to_dtype(wide)?, &options)?;
    weights.matmul(&v.to_dtype(wide)?)?.to_dtype(q.dtype())
}

/// The weights of attention with their dropout.
fn weights<B: Backend>(q: &Tensor<B>, k: &Tensor<B>, options: &AttentionOptions<'_, B>) -> Result<Tensor<B>> {
    let weights = q.attention_weights(k, options)?;
    match options.dropout {
        Some(draw) => drop_at(&draw.params(weights.size())?, &draw.step, &weights),
        None => Ok(weights),
    }
}

/// Keys or values with a head for each of the queries.
fn shared<B: Backend>(q: &Tensor<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let (rank, dims) = (x.rank(), x.shape().dims());
    if rank < 3 || q.rank() != rank || dims[rank - 3] == 0 {
        return Ok(x.clone());
    }
    let (heads, own) = (q.shape()[rank - 3], dims[rank - 3]);
    if own == 1 || own == heads || !heads.is_multiple_of(own) {
        return Ok(x.clone());
    }
    let (mut each, mut joined) = (dims.to_vec(), dims.to_vec());
    each.insert(rank - 2, heads / own);
    joined[rank - 3] = heads;
    x.unsqueeze(rank as isize - 2)?.broadcast_to(&each)?.reshape(&joined)
}
