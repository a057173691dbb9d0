//! Attention of new positions to all before them, whose keys and values are kept.

use super::OP;
use super::fused::by_heads;
use super::options::AttentionOptions;
use crate::{Backend, Error, Indices, Result, Tensor};
use kiln_core::ops::AttentionParams;

/// The keys and values of the positions that a layer of causal attention has seen, so that a text is continued without computing
/// them again (the `past_key_values` of Hugging Face's transformers).
///
/// See the example of [`Tensor::self_attention_cached`].
#[derive(Clone, Debug)]
pub struct KeyValueCache<B: Backend> {
    /// Keys and values, each `[N, T, H·D]`.
    seen: Option<[Tensor<B>; 2]>,
}

impl<B: Backend> Default for KeyValueCache<B> {
    fn default() -> Self {
        KeyValueCache { seen: None }
    }
}

impl<B: Backend> KeyValueCache<B> {
    /// A cache that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of positions that it has seen.
    pub fn len(&self) -> usize {
        self.seen.as_ref().map_or(0, |[keys, _]| keys.shape()[1])
    }

    /// True if it has seen no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[compiled_once]
impl<B: Backend> KeyValueCache<B> {
    /// The cache of the sequences `rows` `[M]`, in this order and as often as they are named: those of a beam that go on (the
    /// `reorder_cache` of Hugging Face's transformers).
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, KeyValueCache, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut cache = KeyValueCache::new();
    /// Tensor::randn(&cpu, &[2, 5, 3 * 8], DType::F32, &mut Rng::new(0))?.self_attention_cached(2, &mut cache)?;
    /// let mut beams = cache.select(&Indices::from_slice(&cpu, &[1i32, 1, 0], &[3])?)?;
    /// let next = Tensor::randn(&cpu, &[3, 1, 3 * 8], DType::F32, &mut Rng::new(1))?;
    /// assert_eq!(next.self_attention_cached(2, &mut beams)?.shape().dims(), [3, 1, 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    pub fn select(&self, rows: &Indices<B>) -> Result<Self> {
        let of = |[keys, values]: &[Tensor<B>; 2]| Ok([keys.index_select(0, rows)?, values.index_select(0, rows)?]);
        Ok(KeyValueCache {
            seen: self.seen.as_ref().map(of).transpose()?,
        })
    }
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Causal [`Tensor::self_attention`] of positions that come after those of `cache`, to which they are added: packed queries, keys
    /// and values `[N, T, 3·H·D]` of the new positions to `[N, T, H·D]`. Positions in one call or in several give the same results up
    /// to rounding.
    ///
    /// ```
    /// use kiln_nn::{DType, KeyValueCache, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let qkv = Tensor::randn(&cpu, &[2, 5, 3 * 8], DType::F32, &mut Rng::new(0))?;
    /// let mut cache = KeyValueCache::new();
    /// qkv.narrow(1, 0, 4)?.self_attention_cached(2, &mut cache)?;
    /// let last = qkv.narrow(1, 4, 1)?.self_attention_cached(2, &mut cache)?;
    /// assert_eq!(cache.len(), 5);
    /// let whole = qkv.self_attention(2, true)?.narrow(1, 4, 1)?;
    /// assert!(last.sub(&whole)?.abs()?.max(&[], false)?.item()? < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::self_attention`]; a cache of another number of sequences or another width. The cache is then as it was.
    pub fn self_attention_cached(&self, heads: usize, cache: &mut KeyValueCache<B>) -> Result<Tensor<B>> {
        let (p, shape) = AttentionParams::new(OP, self.shape(), heads, true)?;
        let [n, new, width] = [p.batch as usize, p.positions as usize, shape[2]];
        let part = |i| self.narrow(2, i * width, width);
        let Some([keys, values]) = &cache.seen else {
            let y = self.self_attention(heads, true)?;
            cache.seen = Some([part(1)?, part(2)?]);
            return Ok(y);
        };
        if keys.shape()[0] != n || keys.shape()[2] != width {
            let expected = format!("keys [{n}, T, {width}] of the positions before");
            return Err(Error::invalid(OP, "cache", keys.shape(), expected));
        }
        let past = keys.shape()[1];
        let all = [
            Tensor::concat(&[keys, &part(1)?], 1)?,
            Tensor::concat(&[values, &part(2)?], 1)?,
        ];
        // One position attends to all of them; of several, each to those up to itself.
        let mask = (new > 1).then(|| {
            let attends = |i: usize| (0..past + new).map(move |key| u8::from(key <= past + i));
            let mask: Vec<u8> = (0..new).flat_map(attends).collect();
            Indices::from_slice(self.backend(), &mask, &[1, 1, new, past + new])
        });
        let mask = mask.transpose()?;
        let options = AttentionOptions {
            mask: mask.as_ref(),
            ..AttentionOptions::default()
        };
        let y = by_heads([&part(0)?, &all[0], &all[1]], heads, &options)?;
        cache.seen = Some(all);
        Ok(y)
    }
}
