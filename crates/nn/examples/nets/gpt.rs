//! A GPT (Radford et al. 2019). In PyTorch:
//!
//! ```python
//! class Block(nn.Module):
//!     def __init__(self, width, heads):
//!         super().__init__()
//!         self.heads = heads
//!         self.ln_1 = nn.LayerNorm(width)
//!         self.c_attn = nn.Linear(width, 3 * width)
//!         self.c_proj = nn.Linear(width, width)
//!         self.ln_2 = nn.LayerNorm(width)
//!         self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
//!
//!     def forward(self, x):
//!         n, t, width = x.shape
//!         q, k, v = self.c_attn(self.ln_1(x)).split(width, dim=2)
//!         q = q.view(n, t, self.heads, -1).transpose(1, 2)
//!         k = k.view(n, t, self.heads, -1).transpose(1, 2)
//!         v = v.view(n, t, self.heads, -1).transpose(1, 2)
//!         y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
//!         y = y.transpose(1, 2).reshape(n, t, width)
//!         x = x + self.c_proj(y)
//!         return x + self.mlp(self.ln_2(x))
//!
//!
//! class Gpt(nn.Module):
//!     def __init__(self, vocabulary, context, layers, heads, width):
//!         super().__init__()
//!         self.wte = nn.Embedding(vocabulary, width)
//!         self.wpe = nn.Embedding(context, width)
//!         self.h = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
//!         self.ln_f = nn.LayerNorm(width)
//!         self.lm_head = nn.Linear(width, vocabulary, bias=False)
//!
//!     def forward(self, ids):
//!         positions = torch.arange(ids.shape[1], device=ids.device)
//!         x = self.wte(ids) + self.wpe(positions)
//!         return self.lm_head(self.ln_f(self.h(x)))
//!
//!
//! model = Gpt(65, 32, 2, 2, 16)
//! ```

use kiln_nn::prelude::*;

#[derive(Clone, Module)]
struct Block<B: Backend> {
    heads: usize,
    ln_1: LayerNorm<B>,
    c_attn: Linear<B>,
    c_proj: Linear<B>,
    ln_2: LayerNorm<B>,
    mlp: (Linear<B>, Gelu, Linear<B>),
}

fn block<B: Backend>(init: &mut Init<B>, width: usize, heads: usize) -> Result<Block<B>> {
    Ok(Block {
        heads,
        ln_1: LayerNorm::new(init, &[width])?,
        c_attn: Linear::new(init, width, 3 * width)?,
        c_proj: Linear::new(init, width, width)?,
        ln_2: LayerNorm::new(init, &[width])?,
        mlp: (Linear::new(init, width, 4 * width)?, Gelu, Linear::new(init, 4 * width, width)?),
    })
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.c_attn.forward(&self.ln_1.forward(x)?)?.self_attention(self.heads, true)?;
        let x = (x + self.c_proj.forward(&y)?)?;
        &x + self.mlp.forward(&self.ln_2.forward(&x)?)?
    }
}

#[derive(Clone, Module)]
pub struct Gpt<B: Backend> {
    wte: Embedding<B>,
    wpe: Embedding<B>,
    h: Vec<Block<B>>,
    ln_f: LayerNorm<B>,
    lm_head: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    pub fn new(init: &mut Init<B>, [vocabulary, context, layers, heads, width]: [usize; 5]) -> Result<Self> {
        Ok(Gpt {
            wte: Embedding::new(init, vocabulary, width)?,
            wpe: Embedding::new(init, context, width)?,
            h: (0..layers).map(|_| block(init, width, heads)).collect::<Result<_>>()?,
            ln_f: LayerNorm::new(init, &[width])?,
            lm_head: Linear::builder(width, vocabulary).bias(false).build(init)?,
        })
    }

    pub fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>> {
        let x = (self.wte.forward(ids)? + self.wpe.weight.narrow(0, 0, ids.shape()[1])?)?;
        self.lm_head.forward(&self.ln_f.forward(&self.h.forward(&x)?)?)
    }
}
