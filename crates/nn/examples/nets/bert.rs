//! The encoder of BERT (Devlin et al. 2018). In PyTorch:
//!
//! ```python
//! class Bert(nn.Module):
//!     def __init__(self, vocabulary, context, layers, heads, width):
//!         super().__init__()
//!         self.tokens = nn.Embedding(vocabulary, width)
//!         self.positions = nn.Embedding(context, width)
//!         self.types = nn.Embedding(2, width)
//!         self.norm = nn.LayerNorm(width)
//!         self.dropout = nn.Dropout(0.1)
//!         layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
//!         self.encoder = nn.TransformerEncoder(layer, layers)
//!         self.pooler = nn.Linear(width, width)
//!
//!     def forward(self, ids, types, padding):
//!         positions = self.positions.weight[: ids.shape[1]]
//!         x = self.tokens(ids) + positions + self.types(types)
//!         x = self.dropout(self.norm(x))
//!         x = self.encoder(x, src_key_padding_mask=padding)
//!         return x, torch.tanh(self.pooler(x[:, 0]))
//!
//!
//! model = Bert(50, 16, 2, 2, 16)
//! ```

use kiln_nn::prelude::*;

#[derive(Clone, Module)]
pub struct Bert<B: Backend> {
    tokens: Embedding<B>,
    positions: Param<B>,
    types: Embedding<B>,
    norm: (LayerNorm<B>, Dropout<B>),
    encoder: TransformerEncoder<B>,
    pooler: Linear<B>,
}

impl<B: Backend> Bert<B> {
    pub fn new(init: &mut Init<B>, [vocabulary, context, layers, heads, width]: [usize; 5]) -> Result<Self> {
        let layer = TransformerEncoderLayer::builder(width, heads).feedforward(4 * width).activation(Activation::Gelu);
        Ok(Bert {
            tokens: Embedding::new(init, vocabulary, width)?,
            positions: init.table(context, width)?,
            types: Embedding::new(init, 2, width)?,
            norm: (LayerNorm::new(init, &[width])?, Dropout::new(init, 0.1)?),
            encoder: TransformerEncoder::new(init, &layer, layers)?,
            pooler: Linear::new(init, width, width)?,
        })
    }

    pub fn forward(&self, ids: &Indices<B>, types: &Indices<B>, mask: &Indices<B>) -> Result<[Tensor<B>; 2]> {
        let x = (self.tokens.forward(ids)? + self.positions.i(..ids.shape()[1])? + self.types.forward(types)?)?;
        let x = self.encoder.forward_masked(&self.norm.forward(&x)?, &AttentionOptions::masked(mask))?;
        Ok([self.pooler.forward(&x.i((.., 0))?)?.tanh()?, x])
    }
}
