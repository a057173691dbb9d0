//! The blocks of transformers, blocks one after another, and the encoder-decoder of both.

mod decoder;
mod encoder;
mod encoder_decoder;

pub use decoder::{DecoderCache, TransformerDecoder, TransformerDecoderLayer};
pub use encoder::{TransformerEncoder, TransformerEncoderLayer, TransformerEncoderLayerBuilder};
pub use encoder_decoder::{Transformer, TransformerMasks};
