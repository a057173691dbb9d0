//! Byte-level tokenizers keep every text as it is.

use kiln_tokenizer::{Tokenizer, TrainOptions};
use proptest::prelude::*;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let options = TrainOptions {
        vocabulary: 330,
        special_tokens: vec!["<|endoftext|>".into()],
        ..TrainOptions::default()
    };
    let texts = [
        "the cat's mat is the rat's, ça va? 東京東京 1 2 12 12",
        "the the  the\n\n\nthe",
    ];
    Tokenizer::train_bpe(texts, &options).unwrap()
});

proptest! {
    #[test]
    fn decoding_gives_the_text_back(text in "(the|cat's|[a-e ]|\\PC|[\\x00-\\x20]|<\\|endoftext\\|>|東京){0,30}") {
        let tokenizer = &*TOKENIZER;
        let encoding = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokenizer.decode(&encoding.ids, false).unwrap(), &*text);
        // Places go on from each other, and cover the text.
        let mut end = 0;
        for place in &encoding.offsets {
            prop_assert!(place.start <= end && place.end >= end && text.get(place.clone()).is_some());
            end = place.end;
        }
        prop_assert_eq!(end, text.len());
        let mut stream = tokenizer.decode_stream(false);
        let mut told = String::new();
        for id in encoding.ids {
            told.push_str(&stream.push(id).unwrap());
        }
        told.push_str(&stream.finish());
        prop_assert_eq!(told, text);
    }
}
