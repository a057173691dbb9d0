//! The layout of Hugging Face's `tokenizer.json`.

use crate::added::AddedToken;
use crate::bpe::{Bpe, BpeOptions};
use crate::vocabulary::Vocabulary;
use crate::wordpiece::WordPiece;
use crate::{Model, Result, Tokenizer, TokenizerError, decode, normalize, post, split};
use kiln_files::{open_regular, write_atomic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::Path;

/// The parts of a file. Those that change nothing of what is supported are left out.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Map<String, Value>,
}

/// A model of byte-pair encoding.
#[derive(Serialize, Deserialize)]
struct BpeModel {
    #[serde(default)]
    dropout: Option<f64>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    vocab: Map<String, Value>,
    merges: Vec<Merge>,
}

/// A join: `a b`, or `["a", "b"]`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

/// A model of WordPiece.
#[derive(Serialize, Deserialize)]
struct WordPieceModel {
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
    vocab: Map<String, Value>,
}

/// Reads a part whose type has to be one of `supported`.
fn part<T: DeserializeOwned>(value: Value, part: &'static str, supported: &'static str) -> Result<Option<T>> {
    if value.is_null() {
        return Ok(None);
    }
    let unsupported = |kind: &&str| !supported.split(", ").any(|known| known == *kind);
    if let Some(kind) = value["type"].as_str().filter(unsupported) {
        return Err(TokenizerError::Unsupported {
            part,
            kind: kind.to_string(),
            supported,
        });
    }
    // Inside of a sequence there can be another type.
    serde_json::from_value(value)
        .map(Some)
        .map_err(|e| TokenizerError::invalid(part, format!("is not supported: {e}; supported are {supported}")))
}

fn vocabulary(vocab: &Map<String, Value>) -> Result<Vocabulary> {
    let mut vocabulary = Vocabulary::default();
    for (token, id) in vocab {
        let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let wrong = || {
            TokenizerError::invalid(
                "vocabulary",
                format!("gives `{token}` the id {id}, a whole number is expected"),
            )
        };
        vocabulary.insert(token.clone(), number.ok_or_else(wrong)?)?;
    }
    Ok(vocabulary)
}

fn model(mut of: Map<String, Value>) -> Result<Model> {
    const SUPPORTED: &str = "BPE, WordPiece";
    let kind = match of.remove("type") {
        Some(Value::String(kind)) => kind,
        // Older files do not name it.
        _ if of.contains_key("merges") => "BPE".to_string(),
        _ => "WordPiece".to_string(),
    };
    let unsupported = |kind: String| TokenizerError::Unsupported {
        part: "model",
        kind,
        supported: SUPPORTED,
    };
    match kind.as_str() {
        "BPE" => {
            let of: BpeModel = serde_json::from_value(Value::Object(of))?;
            if let Some(dropout) = of.dropout.filter(|&p| p != 0.0) {
                return Err(unsupported(format!("BPE with a dropout of {dropout}")));
            }
            let merge = |merge: Merge| match merge {
                Merge::Pair(a, b) => Ok((a, b)),
                Merge::Text(text) => match text.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok((a.to_string(), b.to_string())),
                    _ => Err(TokenizerError::invalid(
                        "model",
                        format!("has the join `{text}`, not two tokens"),
                    )),
                },
            };
            let merges = of.merges.into_iter().map(merge).collect::<Result<_>>()?;
            let some = |text: Option<String>| text.filter(|text| !text.is_empty());
            let options = BpeOptions {
                unknown: of.unk_token,
                fuse_unknown: of.fuse_unk,
                prefix: some(of.continuing_subword_prefix),
                suffix: some(of.end_of_word_suffix),
                byte_fallback: of.byte_fallback,
                ignore_merges: of.ignore_merges,
            };
            Ok(Model::Bpe(Bpe::new(vocabulary(&of.vocab)?, merges, options)?))
        }
        "WordPiece" => {
            let of: WordPieceModel = serde_json::from_value(Value::Object(of))?;
            let (prefix, longest) = (of.continuing_subword_prefix, of.max_input_chars_per_word);
            let model = WordPiece::new(vocabulary(&of.vocab)?, of.unk_token, prefix, longest)?;
            Ok(Model::WordPiece(model))
        }
        _ => Err(unsupported(kind)),
    }
}

/// Reads the text of a `tokenizer.json`.
fn read(text: &str) -> Result<Tokenizer> {
    let parts: Parts = serde_json::from_str(text)?;
    Tokenizer::assembled(
        part(parts.normalizer, "normalizer", normalize::SUPPORTED)?,
        part(parts.pre_tokenizer, "pre-tokenizer", split::SUPPORTED)?,
        model(parts.model)?,
        part(parts.post_processor, "post-processor", post::SUPPORTED)?,
        part(parts.decoder, "decoder", decode::SUPPORTED)?,
        parts.added_tokens,
    )
}

/// Writes a `tokenizer.json`.
fn write(tokenizer: &Tokenizer) -> Result<String> {
    let vocab = |vocabulary: &Vocabulary| -> Map<String, Value> {
        vocabulary
            .iter()
            .map(|(token, id)| (token.to_string(), id.into()))
            .collect()
    };
    let (kind, model) = match &tokenizer.model {
        Model::Bpe(bpe) => {
            let BpeOptions {
                unknown,
                fuse_unknown,
                prefix,
                suffix,
                byte_fallback,
                ignore_merges,
            } = bpe.options.clone();
            let model = BpeModel {
                dropout: None,
                unk_token: unknown,
                continuing_subword_prefix: prefix,
                end_of_word_suffix: suffix,
                fuse_unk: fuse_unknown,
                byte_fallback,
                ignore_merges,
                vocab: vocab(&bpe.vocabulary),
                merges: bpe
                    .merges
                    .iter()
                    .map(|(a, b)| Merge::Pair(a.clone(), b.clone()))
                    .collect(),
            };
            ("BPE", serde_json::to_value(model)?)
        }
        Model::WordPiece(pieces) => {
            let model = WordPieceModel {
                unk_token: pieces.unknown.clone(),
                continuing_subword_prefix: pieces.prefix.clone(),
                max_input_chars_per_word: pieces.longest,
                vocab: vocab(&pieces.vocabulary),
            };
            ("WordPiece", serde_json::to_value(model)?)
        }
    };
    let mut model = model;
    model["type"] = kind.into();
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": tokenizer.added,
        "normalizer": tokenizer.normalizer,
        "pre_tokenizer": tokenizer.pre_tokenizer,
        "post_processor": tokenizer.post_processor,
        "decoder": tokenizer.decoder,
        "model": model,
    });
    Ok(serde_json::to_string(&file)?)
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read, that is none of Hugging Face's tokenizers, or with parts that are not supported.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut text = String::new();
        open_regular(path)
            .and_then(|(mut file, _)| file.read_to_string(&mut text))
            .map_err(|source| TokenizerError::Io {
                path: path.to_path_buf(),
                action: "read",
                source,
            })?;
        Self::from_json(&text).map_err(|source| TokenizerError::InFile {
            path: path.to_path_buf(),
            source: Box::new(source),
        })
    }

    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`Tokenizer::open`].
    pub fn from_json(text: &str) -> Result<Self> {
        read(text)
    }

    /// The text of a `tokenizer.json`, which Hugging Face's tokenizers read.
    ///
    /// # Errors
    /// Memory.
    pub fn to_json(&self) -> Result<String> {
        write(self)
    }

    /// Writes a `tokenizer.json`, as a whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(write_atomic(path.as_ref(), self.to_json()?.as_bytes())?)
    }
}
