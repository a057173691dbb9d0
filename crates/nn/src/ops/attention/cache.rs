//! Attention of new positions to all before them, whose keys and values are kept.

use super::OP;
use super::fused::by_heads_of;
use super::options::AttentionOptions;
use crate::autograd::is_grad_enabled;
use crate::tensor::same_dtype;
use crate::{Backend, Error, Indices, Result, Tensor};
use kiln_core::ops::{AttentionParams, ViewParams};

/// The fewest positions by which the memory of a cache grows.
const GROWTH: usize = 64;

/// The keys and values of the positions that a layer of causal attention has seen, so that a text is continued without computing
/// them again (the `past_key_values` of Hugging Face's transformers). Their memory has room for more, so that a position is added without
/// moving those before it.
///
/// See the example of [`Tensor::self_attention_cached`].
#[derive(Clone, Debug)]
pub struct KeyValueCache<B: Backend> {
    seen: Option<Seen<B>>,
}

/// Keys and values, each `[N, room, H·D]`, of which the first `len` positions were seen.
#[derive(Clone, Debug)]
struct Seen<B: Backend> {
    parts: [Tensor<B>; 2],
    len: usize,
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
        self.seen.as_ref().map_or(0, |seen| seen.len)
    }

    /// True if it has seen no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all positions but the first `len` (the `crop` of Hugging Face's caches).
    ///
    /// See the example of [`Tensor::self_attention_cached`].
    pub fn truncate(&mut self, len: usize) {
        match &mut self.seen {
            Some(seen) if len > 0 => seen.len = seen.len.min(len),
            seen => *seen = None,
        }
    }
}

impl<B: Backend> Seen<B> {
    fn room(&self) -> usize {
        self.parts[0].shape()[1]
    }

    /// The positions that were seen, by themselves.
    fn own(&self) -> Result<[Tensor<B>; 2]> {
        let [keys, values] = &self.parts;
        Ok([keys.narrow(1, 0, self.len)?, values.narrow(1, 0, self.len)?])
    }

    /// Adds the keys and values `[N, T, H·D]` of new positions. What has a gradient is joined, since memory that a gradient reads must not
    /// change.
    fn add(&mut self, new: &[Tensor<B>; 2]) -> Result<()> {
        let count = new[0].shape()[1];
        let tracked = |of: &[Tensor<B>; 2]| of.iter().any(Tensor::is_tracked);
        if tracked(&self.parts) || (is_grad_enabled() && tracked(new)) {
            let [keys, values] = self.own()?;
            self.parts = [
                Tensor::concat(&[&keys, &new[0]], 1)?,
                Tensor::concat(&[&values, &new[1]], 1)?,
            ];
            self.len += count;
            return Ok(());
        }
        if self.len + count > self.room() {
            let room = (self.len + count).saturating_add(GROWTH.max(self.len / 2));
            let [keys, values] = self.own()?;
            self.parts = [grown(&keys, room)?, grown(&values, room)?];
        }
        for (part, new) in self.parts.iter_mut().zip(new) {
            write(part, new, self.len)?;
        }
        self.len += count;
        Ok(())
    }
}

/// Writes `new [N, T, W]` over the positions of `part [N, room, W]` from `at` on.
fn write<B: Backend>(part: &mut Tensor<B>, new: &Tensor<B>, at: usize) -> Result<()> {
    same_dtype(OP, part, new)?;
    if new.size() == 0 {
        return Ok(());
    }
    let strides = part.shape().strides();
    let p = ViewParams::new(new.shape(), &strides.map(|stride| stride as i64), at * strides[1]);
    let backend = part.backend().clone();
    backend.view_write(&p, new.buffer(), part.buffer_mut()?)
}

/// The positions of `x [N, T, W]` with room for `room`. What comes behind them is not read.
fn grown<B: Backend>(x: &Tensor<B>, room: usize) -> Result<Tensor<B>> {
    let shape = x.shape().with(1, room)?;
    let mut y = Tensor::from_buffer(x.backend(), x.alloc_like(shape)?, shape);
    write(&mut y, x, 0)?;
    Ok(y)
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
        let of = |seen: &Seen<B>| {
            let [keys, values] = seen.own()?;
            Ok(Seen {
                parts: [keys.index_select(0, rows)?, values.index_select(0, rows)?],
                len: seen.len,
            })
        };
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
    /// qkv.self_attention_cached(2, &mut cache)?;
    /// cache.truncate(4);
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
        let past = cache.len();
        let Some(seen) = &mut cache.seen else {
            let y = self.self_attention(heads, true)?;
            cache.seen = Some(Seen {
                parts: [part(1)?, part(2)?],
                len: new,
            });
            return Ok(y);
        };
        let keys = seen.parts[0].shape();
        if keys[0] != n || keys[2] != width {
            let expected = format!("keys [{n}, T, {width}] of the positions before");
            return Err(Error::invalid(OP, "cache", keys, expected));
        }
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
        seen.add(&[part(1)?, part(2)?])?;
        let attended = by_heads_of(seen.len, [&part(0)?, &seen.parts[0], &seen.parts[1]], heads, &options);
        if attended.is_err() {
            seen.len = past;
        }
        attended
    }
}
