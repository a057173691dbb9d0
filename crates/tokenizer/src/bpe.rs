//! Byte-pair encoding: neighbouring symbols are joined, those first whose join was learned first.

use crate::vocabulary::Vocabulary;
use crate::{Result, TokenizerError};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Byte-pair encoding (Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016).
#[derive(Clone, Debug, Default)]
pub(crate) struct Bpe {
    pub(crate) vocabulary: Vocabulary,
    /// The joins in the order in which they were learned.
    pub(crate) merges: Vec<(String, String)>,
    pub(crate) options: BpeOptions,
    /// The rank of a join and the token that it makes, by the two tokens that are joined.
    joins: HashMap<(u32, u32), (u32, u32)>,
}

/// How pieces of a word are written and what becomes of characters without a token.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BpeOptions {
    pub(crate) unknown: Option<String>,
    pub(crate) fuse_unknown: bool,
    pub(crate) prefix: Option<String>,
    pub(crate) suffix: Option<String>,
    pub(crate) byte_fallback: bool,
    pub(crate) ignore_merges: bool,
}

/// A token of a word, with its length in the bytes of the word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) id: u32,
    pub(crate) length: usize,
}

/// A symbol on its way to a token, linked to its neighbours; one without length was joined to that before it.
struct Symbol {
    piece: Piece,
    before: Option<usize>,
    behind: Option<usize>,
}

/// A join that was found: its rank, the first symbol and the pair of tokens, which may have changed since.
type Found = (u32, usize, (u32, u32));

impl Bpe {
    /// The model of a vocabulary and the joins that were learned.
    ///
    /// # Errors
    /// A join of tokens that the vocabulary does not have, or whose result it does not have.
    pub(crate) fn new(vocabulary: Vocabulary, merges: Vec<(String, String)>, options: BpeOptions) -> Result<Self> {
        let id = |token: &str| {
            let unknown = || TokenizerError::UnknownToken {
                token: token.to_string(),
            };
            vocabulary.id(token).ok_or_else(unknown)
        };
        let mut joins = HashMap::with_capacity(merges.len());
        for (rank, (a, b)) in merges.iter().enumerate() {
            let rest = options.prefix.as_deref().and_then(|prefix| b.strip_prefix(prefix));
            let joined = id(&format!("{a}{}", rest.unwrap_or(b)))?;
            joins.entry((id(a)?, id(b)?)).or_insert((rank as u32, joined));
        }
        if let Some(unknown) = &options.unknown {
            id(unknown)?;
        }
        Ok(Bpe {
            vocabulary,
            merges,
            options,
            joins,
        })
    }

    /// The tokens of a word.
    ///
    /// # Errors
    /// A character without a token, where the model has none for unknown ones.
    pub(crate) fn encode(&self, word: &str) -> Result<Vec<Piece>> {
        let whole = self.vocabulary.id(word).filter(|_| self.options.ignore_merges);
        if let Some(id) = whole {
            let length = word.len();
            return Ok(vec![Piece { id, length }]);
        }
        let mut symbols = self.symbols(word)?;
        self.join(&mut symbols);
        Ok(symbols.into_iter().map(|s| s.piece).filter(|p| p.length > 0).collect())
    }

    /// The characters of a word as tokens.
    fn symbols(&self, word: &str) -> Result<Vec<Symbol>> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(word.len());
        let mut push = |piece: Piece| {
            let at = symbols.len();
            if let Some(last) = symbols.last_mut() {
                last.behind = Some(at);
            }
            symbols.push(Symbol {
                piece,
                before: at.checked_sub(1),
                behind: None,
            });
        };
        let unknown = self
            .options
            .unknown
            .as_deref()
            .and_then(|token| self.vocabulary.id(token));
        // The bytes of unknown characters that wait for becoming one token.
        let mut waiting = 0;
        let mut key = String::new();
        for (at, c) in word.char_indices() {
            key.clear();
            if at > 0 {
                key.push_str(self.options.prefix.as_deref().unwrap_or_default());
            }
            key.push(c);
            let length = c.len_utf8();
            if at + length == word.len() {
                key.push_str(self.options.suffix.as_deref().unwrap_or_default());
            }
            let known = self.vocabulary.id(&key);
            let fallen_back = match known {
                None if self.options.byte_fallback => self.bytes(c),
                _ => None,
            };
            if let (None, None) = (known, &fallen_back) {
                let Some(id) = unknown else {
                    return Err(TokenizerError::UnknownText { text: c.to_string() });
                };
                if waiting > 0 && !self.options.fuse_unknown {
                    push(Piece { id, length: waiting });
                    waiting = 0;
                }
                waiting += length;
                continue;
            }
            if let (Some(id), true) = (unknown, waiting > 0) {
                push(Piece { id, length: waiting });
                waiting = 0;
            }
            match (known, fallen_back) {
                (Some(id), _) => push(Piece { id, length }),
                (None, Some(ids)) => ids.into_iter().for_each(|id| push(Piece { id, length: 1 })),
                (None, None) => {}
            }
        }
        if let (Some(id), true) = (unknown, waiting > 0) {
            push(Piece { id, length: waiting });
        }
        Ok(symbols)
    }

    /// The bytes of a character as tokens such as `<0x0A>`; none if the vocabulary lacks one.
    fn bytes(&self, c: char) -> Option<Vec<u32>> {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).bytes();
        bytes
            .map(|byte| self.vocabulary.id(&format!("<0x{byte:02X}>")))
            .collect()
    }

    /// Joins neighbours until none of them can be joined.
    fn join(&self, symbols: &mut [Symbol]) {
        let mut found = BinaryHeap::new();
        let look = |symbols: &[Symbol], at: usize, found: &mut BinaryHeap<Reverse<Found>>| {
            let Some(behind) = symbols[at].behind else { return };
            let pair = (symbols[at].piece.id, symbols[behind].piece.id);
            if let Some(&(rank, _)) = self.joins.get(&pair) {
                found.push(Reverse((rank, at, pair)));
            }
        };
        for at in 0..symbols.len() {
            look(symbols, at, &mut found);
        }
        while let Some(Reverse((_, at, pair))) = found.pop() {
            let Some(behind) = symbols[at].behind.filter(|_| symbols[at].piece.length > 0) else {
                continue;
            };
            if (symbols[at].piece.id, symbols[behind].piece.id) != pair {
                continue;
            }
            let (_, joined) = self.joins[&pair];
            symbols[at].piece.id = joined;
            symbols[at].piece.length += std::mem::take(&mut symbols[behind].piece.length);
            symbols[at].behind = symbols[behind].behind;
            if let Some(next) = symbols[at].behind {
                symbols[next].before = Some(at);
            }
            if let Some(before) = symbols[at].before {
                look(symbols, before, &mut found);
            }
            look(symbols, at, &mut found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(merges: &[(&str, &str)], options: BpeOptions) -> Bpe {
        let mut vocabulary = Vocabulary::default();
        for token in ["a", "b", "c", "<unk>", "<0xC3>", "<0xA9>"] {
            vocabulary.add(token);
        }
        for (a, b) in merges {
            vocabulary.add(&format!("{a}{b}"));
        }
        let merges = merges.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        Bpe::new(vocabulary, merges, options).unwrap()
    }

    fn tokens(model: &Bpe, word: &str) -> Vec<String> {
        let pieces = model.encode(word).unwrap();
        assert_eq!(pieces.iter().map(|p| p.length).sum::<usize>(), word.len());
        pieces
            .iter()
            .map(|p| model.vocabulary.token(p.id).unwrap().to_string())
            .collect()
    }

    #[test]
    fn the_earliest_join_comes_first_and_the_leftmost_of_equals() {
        let model = model(
            &[("b", "c"), ("a", "b"), ("a", "a"), ("ab", "c")],
            BpeOptions::default(),
        );
        assert_eq!(tokens(&model, "abc"), ["a", "bc"]);
        assert_eq!(tokens(&model, "aab"), ["a", "ab"]);
        assert_eq!(tokens(&model, "aaaaa"), ["aa", "aa", "a"]);
        assert!(model.encode("").unwrap().is_empty());
        assert!(matches!(model.encode("aéb"), Err(TokenizerError::UnknownText { text }) if text == "é"));
    }

    #[test]
    fn unknown_characters_have_a_token_or_their_bytes() {
        let unknown = || Some("<unk>".to_string());
        let one = model(
            &[],
            BpeOptions {
                unknown: unknown(),
                ..Default::default()
            },
        );
        assert_eq!(tokens(&one, "aéüb"), ["a", "<unk>", "<unk>", "b"]);
        let fused = BpeOptions {
            unknown: unknown(),
            fuse_unknown: true,
            ..Default::default()
        };
        assert_eq!(tokens(&model(&[], fused), "éüb中"), ["<unk>", "b", "<unk>"]);
        let bytes = BpeOptions {
            unknown: unknown(),
            byte_fallback: true,
            ..Default::default()
        };
        assert_eq!(tokens(&model(&[], bytes), "éü"), ["<0xC3>", "<0xA9>", "<unk>"]);
        let whole = BpeOptions {
            ignore_merges: true,
            ..Default::default()
        };
        assert_eq!(
            tokens(&model(&[("b", "c"), ("a", "b"), ("ab", "c")], whole), "abc"),
            ["abc"]
        );
    }

    /// The definition: the first learned join that occurs is carried out at its leftmost place, until none occurs.
    fn plain(model: &Bpe, word: &str) -> Vec<u32> {
        let mut ids: Vec<u32> = word
            .chars()
            .map(|c| model.vocabulary.id(&c.to_string()).unwrap())
            .collect();
        loop {
            let rank = |i: usize| {
                model
                    .joins
                    .get(&(ids[i], ids[i + 1]))
                    .map(|&(rank, joined)| (rank, i, joined))
            };
            let Some((_, at, joined)) = (0..ids.len().saturating_sub(1)).filter_map(rank).min() else {
                return ids;
            };
            ids.splice(at..at + 2, [joined]);
        }
    }

    proptest! {
        #[test]
        fn joins_are_those_of_the_definition(word in "[abc]{0,24}", order in Just(vec![
            ("a", "b"), ("b", "c"), ("a", "a"), ("ab", "c"), ("aa", "ab"), ("c", "c"), ("bc", "bc"), ("aa", "aa"),
        ]).prop_shuffle()) {
            let model = model(&order, BpeOptions::default());
            let ids: Vec<u32> = model.encode(&word).unwrap().iter().map(|p| p.id).collect();
            prop_assert_eq!(ids, plain(&model, &word));
        }
    }
}
