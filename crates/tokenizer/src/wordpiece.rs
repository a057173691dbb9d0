//! WordPiece: a word is cut into the longest tokens from its beginning on.

use crate::bpe::Piece;
use crate::vocabulary::Vocabulary;
use crate::{Result, TokenizerError};

/// WordPiece as BERT has it (Schuster and Nakajima, "Japanese and Korean Voice Search", 2012; Devlin et al., "BERT", 2018).
#[derive(Clone, Debug)]
pub(crate) struct WordPiece {
    pub(crate) vocabulary: Vocabulary,
    /// The token of a word that cannot be cut.
    pub(crate) unknown: String,
    /// The beginning of tokens that go on with a word: `##`.
    pub(crate) prefix: String,
    /// The length in characters above which a word is unknown.
    pub(crate) longest: usize,
    unknown_id: u32,
}

impl WordPiece {
    /// # Errors
    /// No token for unknown words.
    pub(crate) fn new(vocabulary: Vocabulary, unknown: String, prefix: String, longest: usize) -> Result<Self> {
        let Some(unknown_id) = vocabulary.id(&unknown) else {
            return Err(TokenizerError::UnknownToken { token: unknown });
        };
        Ok(WordPiece {
            vocabulary,
            unknown,
            prefix,
            longest,
            unknown_id,
        })
    }

    /// The tokens of a word.
    pub(crate) fn encode(&self, word: &str) -> Vec<Piece> {
        let whole = Piece {
            id: self.unknown_id,
            length: word.len(),
        };
        if word.chars().count() > self.longest {
            return vec![whole];
        }
        let (mut pieces, mut at, mut key) = (Vec::new(), 0, String::new());
        while at < word.len() {
            let ends = word[at..].char_indices().rev().map(|(i, c)| i + c.len_utf8());
            let found = ends.into_iter().find_map(|length| {
                key.clear();
                if at > 0 {
                    key.push_str(&self.prefix);
                }
                key.push_str(&word[at..at + length]);
                self.vocabulary.id(&key).map(|id| Piece { id, length })
            });
            let Some(piece) = found else { return vec![whole] };
            at += piece.length;
            pieces.push(piece);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_tokens_come_first() {
        let mut vocabulary = Vocabulary::default();
        for token in ["[UNK]", "un", "una", "##aff", "##able", "##ffable", "é"] {
            vocabulary.add(token);
        }
        let model = WordPiece::new(vocabulary.clone(), "[UNK]".into(), "##".into(), 10).unwrap();
        let tokens = |word: &str| -> Vec<String> {
            let pieces = model.encode(word);
            assert_eq!(pieces.iter().map(|p| p.length).sum::<usize>(), word.len());
            pieces
                .iter()
                .map(|p| model.vocabulary.token(p.id).unwrap().to_string())
                .collect()
        };
        assert_eq!(tokens("unaffable"), ["una", "##ffable"]);
        assert_eq!(tokens("unaff"), ["[UNK]"]);
        assert_eq!(tokens("unable"), ["[UNK]"]);
        assert_eq!(tokens("é"), ["é"]);
        assert_eq!(tokens("éaffaffaffa"), ["[UNK]"]);
        assert!(tokens("").is_empty());
        assert!(WordPiece::new(vocabulary, "<unk>".into(), "##".into(), 10).is_err());
    }
}
