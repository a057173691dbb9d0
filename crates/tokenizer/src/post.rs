//! Post-processors: the special tokens around one text or two.

use crate::{Encoding, Result, TokenizerError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The special tokens around one text or two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum PostProcessor {
    /// BERT's: `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]`.
    #[serde(rename = "BertProcessing")]
    Bert {
        /// The token between and behind texts, and its id.
        sep: (String, u32),
        /// The token before them, and its id.
        cls: (String, u32),
    },
    /// RoBERTa's: `<s> A </s>`, or `<s> A </s></s> B </s>`.
    #[serde(rename = "RobertaProcessing")]
    Roberta {
        /// The token between and behind texts, and its id.
        sep: (String, u32),
        /// The token before them, and its id.
        cls: (String, u32),
        /// Leave out blanks from the places of tokens.
        #[serde(default = "crate::split::yes")]
        trim_offsets: bool,
        /// A blank was put before the text.
        #[serde(default = "crate::split::yes")]
        add_prefix_space: bool,
    },
    /// Any order of texts and special tokens.
    #[serde(rename = "TemplateProcessing")]
    Template {
        /// Of one text.
        single: Vec<Slot>,
        /// Of two.
        pair: Vec<Slot>,
        /// The ids of the special tokens in them.
        special_tokens: BTreeMap<String, TemplateToken>,
    },
    /// None; of byte-level tokenizers.
    ByteLevel {
        /// Put a blank before a text that begins with none.
        #[serde(default = "crate::split::yes")]
        add_prefix_space: bool,
        /// Leave out blanks from the places of tokens.
        #[serde(default = "crate::split::yes")]
        trim_offsets: bool,
        /// As of the pre-tokenizer.
        #[serde(default = "crate::split::yes")]
        use_regex: bool,
    },
}

/// The types that are supported, for messages.
pub(crate) const SUPPORTED: &str = "BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel";

/// A place of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Slot {
    /// A special token.
    SpecialToken {
        /// The token's name among the special tokens of the template.
        id: String,
        /// The number of the segment that it belongs to.
        type_id: u32,
    },
    /// A text.
    Sequence {
        /// The first or the second.
        id: Text,
        /// The number of its segment.
        type_id: u32,
    },
}

/// One of two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Text {
    /// The first.
    A,
    /// The second.
    B,
}

/// A special token of a template, which may stand for several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TemplateToken {
    /// Its name.
    pub id: String,
    /// The ids that stand in its place.
    pub ids: Vec<u32>,
    /// Their tokens.
    pub tokens: Vec<String>,
}

impl PostProcessor {
    /// If the blanks at the ends of tokens are no part of their places: true if one was put before the text.
    pub(crate) fn trims(&self) -> Option<bool> {
        match self {
            PostProcessor::ByteLevel {
                trim_offsets: true,
                add_prefix_space,
                ..
            }
            | PostProcessor::Roberta {
                trim_offsets: true,
                add_prefix_space,
                ..
            } => Some(*add_prefix_space),
            _ => None,
        }
    }

    /// One text or two with the special tokens around them.
    ///
    /// # Errors
    /// A template with a token that it does not define.
    pub(crate) fn apply(&self, a: Encoding, b: Option<Encoding>) -> Result<Encoding> {
        let mut out = Encoding::default();
        match self {
            PostProcessor::Bert { sep, cls } => {
                out.push_special(cls.1, 0);
                out.append(a, 0);
                out.push_special(sep.1, 0);
                if let Some(b) = b {
                    out.append(b, 1);
                    out.push_special(sep.1, 1);
                }
            }
            PostProcessor::Roberta { sep, cls, .. } => {
                out.push_special(cls.1, 0);
                out.append(a, 0);
                out.push_special(sep.1, 0);
                if let Some(b) = b {
                    out.push_special(sep.1, 0);
                    out.append(b, 0);
                    out.push_special(sep.1, 0);
                }
            }
            PostProcessor::Template {
                single,
                pair,
                special_tokens,
            } => {
                let slots = if b.is_some() { pair } else { single };
                let (mut a, mut b) = (Some(a), b);
                for slot in slots {
                    match slot {
                        Slot::SpecialToken { id, type_id } => {
                            let token = special_tokens.get(id);
                            let token = token.ok_or_else(|| TokenizerError::UnknownToken { token: id.clone() })?;
                            token.ids.iter().for_each(|&id| out.push_special(id, *type_id));
                        }
                        Slot::Sequence { id, type_id } => {
                            let text = match id {
                                Text::A => a.take(),
                                Text::B => b.take(),
                            };
                            let twice = || TokenizerError::invalid("template", format!("has the text {id:?} twice"));
                            out.append(text.ok_or_else(twice)?, *type_id);
                        }
                    }
                }
            }
            PostProcessor::ByteLevel { .. } => return Ok(joined(a, b)),
        }
        Ok(out)
    }
}

/// Two texts one behind the other, as two segments.
pub(crate) fn joined(mut a: Encoding, b: Option<Encoding>) -> Encoding {
    if let Some(b) = b {
        a.append(b, 1);
    }
    a
}
