//! Facts about data that a network is built and asked with: a vocabulary, the names of classes, the scale of columns.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A fact about data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// A text, such as the characters of a vocabulary.
    Text(String),
    /// Names, such as those of classes.
    Names(Vec<String>),
    /// Numbers, such as the means of columns.
    Numbers(Vec<f64>),
}

/// The facts about its data that a network has to know, by name: the network is built for them, and other data and single files are read
/// by them. Whoever saves weights saves these facts too.
///
/// ```
/// use kiln_data::{Fact, Facts};
///
/// let facts = Facts::default().with(Facts::CLASSES, Fact::Names(vec!["cat".to_string(), "dog".to_string()]));
/// assert_eq!(facts.sizes().outputs, Some(2));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(BTreeMap<String, Fact>);

/// Behind the name of columns: the fact with their means.
pub(super) const MEAN: &str = "mean";
/// Behind the name of columns: the fact with their standard deviations.
pub(super) const DEVIATION: &str = "deviation";

/// The sizes of a network that its data decides; `None` for those that the network knows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The numbers of an input row.
    pub features: Option<usize>,
    /// The characters or tokens that a text consists of.
    pub vocabulary: Option<usize>,
    /// The shape `[H, W, C]` of images.
    pub image: Option<[usize; 3]>,
    /// The last dimension of the output: classes, characters, letters with a blank or numbers to predict.
    pub outputs: Option<usize>,
}

impl Facts {
    /// The characters of a text, in order, or the number of tokens of its tokenizer.
    pub const VOCABULARY: &'static str = "vocabulary";
    /// A number that tells the tokenizer of a text from others: [`TextTokenizer::digest`](crate::TextTokenizer::digest).
    pub const TOKENIZER: &'static str = "tokenizer";
    /// The letters of transcripts, in the order of their classes: class 1 is the first, class 0 the blank.
    pub const ALPHABET: &'static str = "alphabet";
    /// The sample rate of sound, in Hz: one number.
    pub const SAMPLE_RATE: &'static str = "sample_rate";
    /// The names of the classes, in the order of their labels.
    pub const CLASSES: &'static str = "classes";
    /// The names of the columns of numbers that a row consists of.
    pub const FEATURES: &'static str = "features";
    /// The names of the columns that are predicted.
    pub const TARGETS: &'static str = "targets";

    /// The shape `[H, W, C]` of images, of networks that are built for images of several shapes: three numbers.
    pub const IMAGE: &'static str = "image";

    /// These facts and another.
    pub fn with(mut self, name: impl Into<String>, fact: Fact) -> Self {
        self.0.insert(name.into(), fact);
        self
    }

    /// These facts and the shape `[H, W, C]` of images ([`Facts::IMAGE`]).
    pub fn with_image(self, shape: &[usize]) -> Self {
        self.with(Facts::IMAGE, Fact::Numbers(shape.iter().map(|&n| n as f64).collect()))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The text of this name; `None` if there is none.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Fact::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The names under this name; `None` if there are none.
    pub fn names(&self, name: &str) -> Option<&[String]> {
        match self.0.get(name) {
            Some(Fact::Names(names)) => Some(names),
            _ => None,
        }
    }

    /// The numbers under this name; `None` if there are none.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        match self.0.get(name) {
            Some(Fact::Numbers(numbers)) => Some(numbers),
            _ => None,
        }
    }

    /// Changes predicted numbers, one for each of the targets, from the scale of training to the units of the data.
    pub fn in_units(&self, numbers: &mut [f64]) {
        let scale = |part: &str| self.numbers(&format!("{}_{part}", Facts::TARGETS)).unwrap_or_default();
        let (mean, deviation) = (scale(MEAN), scale(DEVIATION));
        for (number, (mean, deviation)) in numbers.iter_mut().zip(mean.iter().zip(deviation)) {
            *number = *number * deviation + mean;
        }
    }

    /// The number of characters that a text consists of; `None` if it consists of the tokens of a tokenizer, and for other data.
    fn characters(&self) -> Option<usize> {
        self.text(Facts::VOCABULARY).map(|text| text.chars().count())
    }

    /// The number of tokens of the tokenizer of a text; `None` if it consists of characters, and for other data.
    pub fn tokens(&self) -> Option<usize> {
        match self.numbers(Facts::VOCABULARY) {
            Some(&[tokens]) => Some(tokens as usize),
            _ => None,
        }
    }

    /// The sizes of a network for this data.
    pub fn sizes(&self) -> Sizes {
        let count = |name: &str| self.names(name).map(<[String]>::len);
        let vocabulary = self.characters().or_else(|| self.tokens());
        let letters = self.text(Facts::ALPHABET).map(|text| text.chars().count() + 1);
        Sizes {
            features: count(Facts::FEATURES),
            vocabulary,
            image: match self.numbers(Facts::IMAGE) {
                Some(&[h, w, c]) => Some([h, w, c].map(|n| n as usize)),
                _ => None,
            },
            outputs: letters
                .or_else(|| count(Facts::CLASSES))
                .or_else(|| count(Facts::TARGETS))
                .or(vocabulary),
        }
    }

    /// The sizes in words: `65 different characters`, `8 features`, `64x64x3`; empty if there are none.
    pub fn described(&self) -> String {
        let counted = |count: usize, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {more}"),
        };
        let names = |name: &str, one: &str, more: &str| self.names(name).map(|n| counted(n.len(), one, more));
        let parts = [
            self.characters()
                .map(|n| counted(n, "character", "different characters")),
            self.tokens().map(|n| counted(n, "token", "tokens")),
            self.text(Facts::ALPHABET)
                .map(|text| counted(text.chars().count(), "letter", "letters")),
            names(Facts::CLASSES, "class", "classes"),
            names(Facts::FEATURES, "feature", "features"),
            self.names(Facts::TARGETS)
                .map(|targets| format!("target {}", targets.join(", "))),
            self.sizes().image.map(|[h, w, c]| format!("{h}x{w}x{c}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_a_kind_and_give_sizes() {
        let facts = Facts::default()
            .with(Facts::FEATURES, Fact::Names(vec!["a".into(), "b".into()]))
            .with(Facts::TARGETS, Fact::Names(vec!["c".into()]))
            .with("scale", Fact::Numbers(vec![0.5]));
        let sizes = Sizes {
            features: Some(2),
            vocabulary: None,
            image: None,
            outputs: Some(1),
        };
        assert_eq!(facts.sizes(), sizes);
        assert_eq!(facts.described(), "2 features, target c");
        assert_eq!((facts.numbers("scale"), facts.names("scale")), (Some(&[0.5][..]), None));
        let text = Facts::default().with(Facts::VOCABULARY, Fact::Text("aäb".into()));
        assert_eq!((text.sizes().outputs, text.sizes().vocabulary), (Some(3), Some(3)));
        let text = Facts::default().with(Facts::VOCABULARY, Fact::Numbers(vec![7.0]));
        assert_eq!((text.sizes().outputs, text.tokens()), (Some(7), Some(7)));
        assert_eq!(text.described(), "7 tokens");
        let labelled = text.with(Facts::CLASSES, Fact::Names(vec!["a".into(), "b".into()]));
        assert_eq!(
            (labelled.sizes().outputs, labelled.sizes().vocabulary),
            (Some(2), Some(7))
        );
        let images = Facts::default().with_image(&[32, 32, 3]);
        assert_eq!(images.sizes().image, Some([32, 32, 3]));
        assert_eq!(images.described(), "32x32x3");
        assert_eq!(
            (Facts::default().sizes(), Facts::default().described()),
            (Sizes::default(), String::new())
        );
    }
}
