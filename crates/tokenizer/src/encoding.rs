//! The tokens of a text.

use std::ops::Range;

/// The tokens of one text, or of two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoding {
    /// Their ids.
    pub ids: Vec<u32>,
    /// The number of the segment of each: 0 for the first text, and for the second what the post-processor gives it
    /// (`token_type_ids`).
    pub type_ids: Vec<u32>,
    /// The bytes of the text that each stands for; an empty range at 0 for special tokens around the text.
    pub offsets: Vec<Range<usize>>,
    /// True for special tokens around the text.
    pub special: Vec<bool>,
}

impl Encoding {
    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn push(&mut self, id: u32, place: Range<usize>) {
        self.ids.push(id);
        self.type_ids.push(0);
        self.offsets.push(place);
        self.special.push(false);
    }

    pub(crate) fn push_special(&mut self, id: u32, type_id: u32) {
        self.ids.push(id);
        self.type_ids.push(type_id);
        self.offsets.push(0..0);
        self.special.push(true);
    }

    /// Adds the tokens of a text as those of a segment.
    pub(crate) fn append(&mut self, text: Encoding, type_id: u32) {
        self.type_ids.extend(std::iter::repeat_n(type_id, text.len()));
        self.ids.extend(text.ids);
        self.offsets.extend(text.offsets);
        self.special.extend(text.special);
    }
}
