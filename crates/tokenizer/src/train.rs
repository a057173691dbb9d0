//! Learning the joins of byte-pair encoding from text.

use crate::vocabulary::Vocabulary;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

/// How a vocabulary is learned: the options of Hugging Face's `BpeTrainer` and `WordPieceTrainer`, with their defaults.
///
/// ```
/// use kiln_tokenizer::{Tokenizer, TrainOptions};
/// let text = "low low low lower lowest newest newest widest";
/// let options = TrainOptions { vocabulary: 270, ..TrainOptions::default() };
/// let tokenizer = Tokenizer::train_bpe([text], &options)?;
/// assert!(tokenizer.encode("lowest")?.ids.len() < 6);
/// # Ok::<(), kiln_tokenizer::TokenizerError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// The number of tokens, special tokens and single characters included.
    pub vocabulary: usize,
    /// The number of times that a pair must occur to be joined.
    pub min_frequency: u64,
    /// Tokens that no text is cut into, with the first ids.
    pub special_tokens: Vec<String>,
    /// The number of single characters, the most frequent ones; the others are unknown. Byte-level tokenizers have all 256 bytes.
    pub limit_alphabet: Option<usize>,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            vocabulary: 30_000,
            min_frequency: 0,
            special_tokens: Vec::new(),
            limit_alphabet: None,
        }
    }
}

/// A word of the text in tokens, and how often it occurs.
struct Word {
    tokens: Vec<u32>,
    count: i64,
}

/// Pairs of neighbouring tokens.
struct Pairs {
    counts: HashMap<(u32, u32), i64>,
    /// The words that have a pair, or had it.
    words: HashMap<(u32, u32), HashSet<usize>>,
}

/// Learns a vocabulary and its joins: again and again, the pair of neighbours that is most frequent becomes a token, of equally
/// frequent ones that of the lower ids. `prefix` begins tokens that are not the first of their word; `alphabet` is in the vocabulary
/// even if it does not occur.
pub(crate) fn learn(
    words: &BTreeMap<String, u64>,
    options: &TrainOptions,
    alphabet: &[char],
    prefix: &str,
) -> (Vocabulary, Vec<(String, String)>) {
    let mut vocabulary = Vocabulary::default();
    for token in &options.special_tokens {
        vocabulary.add(token);
    }
    for c in letters(words, alphabet, options.limit_alphabet) {
        vocabulary.add(c.encode_utf8(&mut [0; 4]));
    }
    let mut words: Vec<Word> = words
        .iter()
        .map(|(word, &count)| Word {
            tokens: first_tokens(word, prefix, &mut vocabulary),
            count: count as i64,
        })
        .collect();
    let mut pairs = Pairs::of(&words);
    let mut heap: BinaryHeap<(i64, Reverse<(u32, u32)>)> = pairs
        .counts
        .iter()
        .map(|(&pair, &count)| (count, Reverse(pair)))
        .collect();
    let mut merges = Vec::new();
    while vocabulary.len() < options.vocabulary {
        let Some((count, Reverse(pair))) = heap.pop() else {
            break;
        };
        let now = pairs.counts.get(&pair).copied().unwrap_or(0);
        if now != count {
            // Its count has changed since it was noted.
            if now > 0 {
                heap.push((now, Reverse(pair)));
            }
            continue;
        }
        if count < 1 || (count as u64) < options.min_frequency {
            break;
        }
        let part = |id: u32| vocabulary.token(id).unwrap_or_default().to_string();
        let (a, b) = (part(pair.0), part(pair.1));
        let joined = vocabulary.add(&format!("{a}{}", b.strip_prefix(prefix).unwrap_or(&b)));
        merges.push((a, b));
        let changed = pairs.join(pair, joined, &mut words);
        heap.extend(changed.into_iter().filter_map(|pair| {
            let count = pairs.counts.get(&pair).copied().filter(|&count| count > 0)?;
            Some((count, Reverse(pair)))
        }));
    }
    (vocabulary, merges)
}

/// The characters that become tokens, in their order.
fn letters(words: &BTreeMap<String, u64>, alphabet: &[char], limit: Option<usize>) -> Vec<char> {
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    for (word, count) in words {
        for c in word.chars() {
            *counts.entry(c).or_default() += count;
        }
    }
    for &c in alphabet {
        counts.insert(c, u64::MAX);
    }
    let mut kept: Vec<(char, u64)> = counts.into_iter().collect();
    if let Some(limit) = limit {
        kept.sort_by_key(|&(_, count)| Reverse(count));
        kept.truncate(limit.max(alphabet.len()));
        kept.sort_unstable();
    }
    kept.into_iter().map(|(c, _)| c).collect()
}

/// The characters of a word as tokens; those that are not in the alphabet are left out.
fn first_tokens(word: &str, prefix: &str, vocabulary: &mut Vocabulary) -> Vec<u32> {
    let (mut tokens, mut buffer) = (Vec::new(), [0; 4]);
    for (at, c) in word.char_indices() {
        let letter: &str = c.encode_utf8(&mut buffer);
        let Some(id) = vocabulary.id(letter) else { continue };
        tokens.push(match at > 0 && !prefix.is_empty() {
            true => vocabulary.add(&format!("{prefix}{letter}")),
            false => id,
        });
    }
    tokens
}

impl Pairs {
    fn of(words: &[Word]) -> Self {
        let mut pairs = Pairs {
            counts: HashMap::new(),
            words: HashMap::new(),
        };
        for (at, word) in words.iter().enumerate() {
            for pair in word.tokens.windows(2) {
                pairs.add((pair[0], pair[1]), word.count, at);
            }
        }
        pairs
    }

    fn add(&mut self, pair: (u32, u32), count: i64, word: usize) {
        *self.counts.entry(pair).or_default() += count;
        if count > 0 {
            self.words.entry(pair).or_default().insert(word);
        }
    }

    /// Joins a pair in all words; returns the pairs that have become more frequent.
    fn join(&mut self, pair: (u32, u32), joined: u32, words: &mut [Word]) -> BTreeSet<(u32, u32)> {
        let mut more = BTreeSet::new();
        let places = self.words.remove(&pair).unwrap_or_default();
        for at in places {
            let Word { tokens, count } = &mut words[at];
            let count = *count;
            let mut i = 0;
            while i + 1 < tokens.len() {
                if (tokens[i], tokens[i + 1]) != pair {
                    i += 1;
                    continue;
                }
                if i > 0 {
                    self.add((tokens[i - 1], pair.0), -count, at);
                    self.add((tokens[i - 1], joined), count, at);
                    more.insert((tokens[i - 1], joined));
                }
                if i + 2 < tokens.len() {
                    self.add((pair.1, tokens[i + 2]), -count, at);
                    self.add((joined, tokens[i + 2]), count, at);
                    more.insert((joined, tokens[i + 2]));
                }
                tokens[i] = joined;
                tokens.remove(i + 1);
                i += 1;
            }
        }
        self.counts.remove(&pair);
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: all pairs are counted anew for every join.
    fn plain(words: &BTreeMap<String, u64>, vocabulary: usize) -> Vec<(String, String)> {
        let letters = letters(words, &[], None);
        let mut ids: Vec<String> = letters.iter().map(char::to_string).collect();
        let mut texts: Vec<(Vec<usize>, u64)> = words
            .iter()
            .map(|(word, &count)| {
                (
                    word.chars()
                        .map(|c| letters.iter().position(|&l| l == c).unwrap())
                        .collect(),
                    count,
                )
            })
            .collect();
        let mut merges = Vec::new();
        while ids.len() < vocabulary {
            let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
            for (text, count) in &texts {
                for pair in text.windows(2) {
                    *counts.entry((pair[0], pair[1])).or_default() += count;
                }
            }
            let Some((&(a, b), _)) = counts.iter().max_by_key(|&(pair, count)| (*count, Reverse(*pair))) else {
                break;
            };
            let token = format!("{}{}", ids[a], ids[b]);
            merges.push((ids[a].clone(), ids[b].clone()));
            let joined = ids.iter().position(|t| *t == token).unwrap_or_else(|| {
                ids.push(token);
                ids.len() - 1
            });
            for (text, _) in &mut texts {
                let mut i = 0;
                while i + 1 < text.len() {
                    if (text[i], text[i + 1]) == (a, b) {
                        text.splice(i..i + 2, [joined]);
                    }
                    i += 1;
                }
            }
        }
        merges
    }

    proptest! {
        #[test]
        fn joins_are_those_of_counting_anew(
            words in proptest::collection::btree_map("[abc]{1,7}", 1u64..5, 1..12),
            vocabulary in 3usize..24,
        ) {
            let options = TrainOptions { vocabulary, ..TrainOptions::default() };
            let (learned, merges) = learn(&words, &options, &[], "");
            prop_assert_eq!(&merges, &plain(&words, vocabulary));
            prop_assert!(learned.len() <= vocabulary.max(3));
        }
    }

    #[test]
    fn the_alphabet_is_limited_to_the_frequent() {
        let words = BTreeMap::from([("aab".to_string(), 3), ("bcd".to_string(), 1)]);
        assert_eq!(letters(&words, &[], None), ['a', 'b', 'c', 'd']);
        assert_eq!(letters(&words, &[], Some(2)), ['a', 'b']);
        assert_eq!(letters(&words, &['x'], Some(2)), ['a', 'x']);
        let options = TrainOptions {
            vocabulary: 5,
            special_tokens: vec!["[PAD]".into()],
            limit_alphabet: Some(2),
            ..TrainOptions::default()
        };
        let (vocabulary, merges) = learn(&words, &options, &[], "##");
        let tokens: Vec<&str> = vocabulary.iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, ["[PAD]", "a", "b", "##a", "##b"]);
        assert!(merges.is_empty());
    }
}
