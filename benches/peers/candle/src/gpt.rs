//! GPT-mini, with the names of Kiln's parameters: six pre-norm blocks of six heads, 384 wide, for 256 tokens. It is written as candle's own
//! models are, with its layers and its cache of keys and values.

use candle_core::safetensors::BufferedSafetensors;
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::kv_cache::KvCache;
use candle_nn::ops::softmax_last_dim;
use candle_nn::{Embedding, LayerNorm, Linear, Module};

const CONTEXT: usize = 256;
const LAYERS: usize = 6;
const HEADS: usize = 6;
const WIDTH: usize = 384;
const EPS: f64 = 1e-5;

/// The weights of a file in the dtype of the network.
struct Weights<'a> {
    tensors: &'a BufferedSafetensors,
    dtype: DType,
}

impl Weights<'_> {
    fn get(&self, name: &str) -> Result<Tensor> {
        self.tensors.load(name, &Device::Cpu)?.to_dtype(self.dtype)
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        let bias = self.get(&format!("{name}.bias"))?;
        Ok(Linear::new(self.get(&format!("{name}.weight"))?, Some(bias)))
    }

    fn norm(&self, name: &str) -> Result<LayerNorm> {
        let bias = self.get(&format!("{name}.bias"))?;
        Ok(LayerNorm::new(self.get(&format!("{name}.weight"))?, bias, EPS))
    }
}

struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: LayerNorm,
    c_fc: Linear,
    c_down: Linear,
}

impl Block {
    fn new(weights: &Weights<'_>, at: usize) -> Result<Self> {
        let name = |part: &str| format!("h.{at}.{part}");
        Ok(Block {
            ln_1: weights.norm(&name("ln_1"))?,
            c_attn: weights.linear(&name("attn.c_attn"))?,
            c_proj: weights.linear(&name("attn.c_proj"))?,
            ln_2: weights.norm(&name("ln_2"))?,
            c_fc: weights.linear(&name("mlp.c_fc"))?,
            c_down: weights.linear(&name("mlp.c_proj"))?,
        })
    }

    fn next(&self, x: &Tensor, cache: &mut KvCache, mask: Option<&Tensor>) -> Result<Tensor> {
        let x = (x + self.attention(&self.ln_1.forward(x)?, cache, mask)?)?;
        let y = self.c_fc.forward(&self.ln_2.forward(&x)?)?.gelu_erf()?;
        &x + self.c_down.forward(&y)?
    }

    /// Attention of positions behind those of the cache to all of them.
    fn attention(&self, x: &Tensor, cache: &mut KvCache, mask: Option<&Tensor>) -> Result<Tensor> {
        let (n, t, _) = x.dims3()?;
        let all = self.c_attn.forward(x)?;
        let part = |i: usize| {
            let part = all.narrow(D::Minus1, i * WIDTH, WIDTH)?;
            part.reshape((n, t, HEADS, WIDTH / HEADS))?
                .transpose(1, 2)?
                .contiguous()
        };
        let (keys, values) = cache.append(&part(1)?, &part(2)?)?;
        let scale = 1.0 / ((WIDTH / HEADS) as f64).sqrt();
        let mut scores = (part(0)?.matmul(&keys.t()?)? * scale)?;
        if let Some(mask) = mask {
            scores = scores.broadcast_add(mask)?;
        }
        let y = softmax_last_dim(&scores)?.matmul(&values.contiguous()?)?;
        self.c_proj.forward(&y.transpose(1, 2)?.reshape((n, t, WIDTH))?)
    }
}

pub(crate) struct Gpt {
    wte: Embedding,
    wpe: Tensor,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    lm_head: Linear,
    dtype: DType,
}

impl Gpt {
    pub(crate) fn new(tensors: &BufferedSafetensors, dtype: DType) -> Result<Self> {
        let weights = Weights { tensors, dtype };
        Ok(Gpt {
            wte: Embedding::new(weights.get("wte.weight")?, WIDTH),
            wpe: weights.get("wpe")?,
            blocks: (0..LAYERS).map(|at| Block::new(&weights, at)).collect::<Result<_>>()?,
            ln_f: weights.norm("ln_f")?,
            lm_head: Linear::new(weights.get("lm_head.weight")?, None),
            dtype,
        })
    }

    /// The logits of the token behind ids, which begin at position `past`.
    fn next(&self, ids: &Tensor, caches: &mut [KvCache], past: usize) -> Result<Tensor> {
        let (_, t) = ids.dims2()?;
        let mut x = self.wte.forward(ids)?.broadcast_add(&self.wpe.narrow(0, past, t)?)?;
        let mask = (t > 1).then(|| self.mask(t)).transpose()?;
        for (block, cache) in self.blocks.iter().zip(caches) {
            x = block.next(&x, cache, mask.as_ref())?;
        }
        let last = x.narrow(1, t - 1, 1)?.squeeze(1)?;
        self.lm_head.forward(&self.ln_f.forward(&last.contiguous()?)?)
    }

    /// What is added to the scores of a prompt, so that no token sees a later one.
    fn mask(&self, t: usize) -> Result<Tensor> {
        let of = |i: usize| (0..t).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 });
        let mask: Vec<f32> = (0..t).flat_map(of).collect();
        Tensor::from_vec(mask, (t, t), &Device::Cpu)?.to_dtype(self.dtype)
    }

    /// The logits of `count` tokens that go on with a prompt, each the likeliest one.
    pub(crate) fn write(&self, prompt: &Tensor, count: usize) -> Result<Vec<Tensor>> {
        let mut caches = vec![KvCache::new(2, CONTEXT); LAYERS];
        let mut logits = vec![self.next(prompt, &mut caches, 0)?];
        let (_, length) = prompt.dims2()?;
        for past in length..length + count - 1 {
            let ids = logits[logits.len() - 1].argmax_keepdim(1)?;
            logits.push(self.next(&ids, &mut caches, past)?);
        }
        Ok(logits)
    }
}
