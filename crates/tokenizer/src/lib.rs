//! Tokenizers: text as the numbers that language models read. Byte-pair encoding over bytes as GPT-2 has it and WordPiece as BERT
//! has it are learned from text, or read from the `tokenizer.json` of Hugging Face's libraries.
//!
//! ```
//! use kiln_tokenizer::{Tokenizer, TrainOptions};
//! let texts = ["Call me Ishmael.", "Call me what you will."];
//! let options = TrainOptions {
//!     vocabulary: 300,
//!     special_tokens: vec!["<|endoftext|>".into()],
//!     ..TrainOptions::default()
//! };
//! let tokenizer = Tokenizer::train_bpe(texts, &options)?;
//! let encoding = tokenizer.encode("Call me.<|endoftext|>")?;
//! assert_eq!(encoding.ids.last(), Some(&0));
//! assert_eq!(tokenizer.decode(&encoding.ids, true)?, "Call me.");
//! # Ok::<(), kiln_tokenizer::TokenizerError>(())
//! ```

mod added;
mod bpe;
mod bytes;
mod decode;
mod encoding;
mod error;
mod json;
mod normalize;
mod post;
mod split;
mod stream;
mod tokenizer;
mod train;
mod unicode;
mod vocabulary;
mod wordpiece;

pub use added::AddedToken;
pub use decode::Decoder;
pub use encoding::Encoding;
pub use error::{Result, TokenizerError};
pub use normalize::Normalizer;
pub use post::{PostProcessor, Slot, TemplateToken, Text};
pub use split::PreTokenizer;
pub use stream::DecodeStream;
pub(crate) use tokenizer::Model;
pub use tokenizer::Tokenizer;
pub use train::TrainOptions;
