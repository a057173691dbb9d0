//! Tokenizers of Hugging Face's library: the same tokens, places and texts; the same vocabulary from the same text.
//! `golden/tokenizers.py` makes the file.

use kiln_tokenizer::{Tokenizer, TokenizerError, TrainOptions};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/tokenizers.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap() as u32)
        .collect()
}

/// Compares every text of the cases, by a tokenizer read from a file and by that file written and read again.
#[test]
fn texts_have_the_tokens_of_hugging_face() {
    for case in golden()["cases"].as_array().unwrap() {
        let read = Tokenizer::from_json(case["tokenizer"].as_str().unwrap()).unwrap();
        let again = Tokenizer::from_json(&read.to_json().unwrap()).unwrap();
        for tokenizer in [read, again] {
            for row in case["rows"].as_array().unwrap() {
                let (text, second) = (row["text"].as_str().unwrap(), row["second"].as_str());
                let at = format!("{}: {text:?} {second:?}", case["name"]);
                assert_eq!(tokenizer.encode(text).unwrap().ids, numbers(&row["plain"]), "{at}");
                let found = tokenizer.encode_with_special(text, second).unwrap();
                assert_eq!(found.ids, numbers(&row["ids"]), "{at}");
                assert_eq!(found.type_ids, numbers(&row["type_ids"]), "{at}");
                let special: Vec<u32> = found.special.iter().map(|&s| u32::from(s)).collect();
                assert_eq!(special, numbers(&row["special"]), "{at}");
                let places = row["offsets"].as_array().unwrap().iter().map(numbers);
                for ((found, place), id) in found.offsets.iter().zip(places).zip(&found.ids) {
                    // A blank that was put before a text has no place in it; whether that is before or behind a character is open.
                    if found.is_empty() && place[0] == place[1] {
                        continue;
                    }
                    let token = tokenizer.token(*id);
                    assert_eq!(found.start as u32, place[0], "{at}: {token:?}");
                    // A letter that was composed with its accent ends behind that here, and before it there.
                    let accent = text
                        .get(place[1] as usize..found.end)
                        .is_some_and(|rest| rest == "\u{301}");
                    assert!(accent || found.end as u32 == place[1], "{at}: {token:?}");
                }
                for (skip, name) in [(true, "decoded"), (false, "decoded_with_special")] {
                    assert_eq!(
                        tokenizer.decode(&found.ids, skip).unwrap(),
                        row[name].as_str().unwrap(),
                        "{at}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_same_text_teaches_the_same_tokens() {
    let golden = golden();
    let corpus: Vec<&str> = golden["corpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_str().unwrap())
        .collect();
    let case = &golden["cases"][0];
    let options = TrainOptions {
        vocabulary: case["learned"].as_u64().unwrap() as usize,
        special_tokens: vec!["<|endoftext|>".into()],
        ..TrainOptions::default()
    };
    let learned = Tokenizer::train_bpe(&corpus, &options).unwrap().to_json().unwrap();
    let expected = Tokenizer::from_json(case["tokenizer"].as_str().unwrap()).unwrap();
    let [learned, expected] =
        [learned, expected.to_json().unwrap()].map(|t| serde_json::from_str::<Value>(&t).unwrap());
    assert_eq!(learned["model"]["vocab"], expected["model"]["vocab"]);
    assert_eq!(learned["model"]["merges"], expected["model"]["merges"]);
    assert_eq!(learned["added_tokens"], expected["added_tokens"]);
    assert!(
        Tokenizer::train_bpe(
            &corpus,
            &TrainOptions {
                vocabulary: 256,
                ..options
            }
        )
        .is_err()
    );

    let options = TrainOptions {
        vocabulary: 300,
        ..TrainOptions::default()
    };
    let bert = Tokenizer::train_wordpiece(&corpus, &options).unwrap();
    assert_eq!(bert.vocabulary(), 300);
    let encoding = bert.encode_with_special("Cáll ME", Some("zzzz")).unwrap();
    let tokens: Vec<&str> = encoding.ids.iter().map(|&id| bert.token(id).unwrap()).collect();
    assert_eq!(tokens[..3], ["[CLS]", "call", "me"]);
    assert_eq!(tokens.last(), Some(&"[SEP]"));
}

#[test]
fn streams_tell_the_whole_text() {
    for case in golden()["cases"].as_array().unwrap() {
        let tokenizer = Tokenizer::from_json(case["tokenizer"].as_str().unwrap()).unwrap();
        for row in case["rows"].as_array().unwrap() {
            for skip in [true, false] {
                let (mut stream, mut told) = (tokenizer.decode_stream(skip), String::new());
                let ids = numbers(&row["ids"]);
                for &id in &ids {
                    told.push_str(&stream.push(id).unwrap());
                }
                told.push_str(&stream.finish());
                assert_eq!(
                    told,
                    tokenizer.decode(&ids, skip).unwrap(),
                    "{}: {}",
                    case["name"],
                    row["text"]
                );
            }
        }
    }
}

#[test]
fn files_that_are_none_are_refused_by_name() {
    let golden = golden();
    let text = golden["cases"][2]["tokenizer"].as_str().unwrap();
    let refused = |change: &dyn Fn(&mut Value), parts: &[&str]| {
        let mut file: Value = serde_json::from_str(text).unwrap();
        change(&mut file);
        let message = Tokenizer::from_json(&file.to_string()).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    };
    refused(
        &|f| f["model"]["type"] = "Unigram".into(),
        &["model", "Unigram", "WordPiece"],
    );
    refused(
        &|f| f["normalizer"]["type"] = "Precompiled".into(),
        &["normalizer", "Precompiled", "NFKC"],
    );
    refused(
        &|f| f["pre_tokenizer"]["type"] = "Split".into(),
        &["pre-tokenizer", "Split", "ByteLevel"],
    );
    refused(
        &|f| f["decoder"]["type"] = "Metaspace".into(),
        &["decoder", "Metaspace"],
    );
    refused(&|f| f["model"]["vocab"]["x"] = (-1).into(), &["`x`", "-1"]);
    refused(&|f| f["model"]["vocab"]["twice"] = 3.into(), &["twice", "3"]);
    refused(&|f| f["model"]["vocab"]["far"] = 4_000_000_000u32.into(), &["far"]);
    refused(&|f| f["model"]["unk_token"] = "[what]".into(), &["[what]"]);
    refused(&|f| f["added_tokens"][0]["id"] = 9.into(), &["[PAD]", "9"]);
    assert!(matches!(Tokenizer::from_json("{"), Err(TokenizerError::Json(_))));
    assert!(matches!(Tokenizer::from_json("{}"), Err(TokenizerError::Json(_))));
    let missing = Tokenizer::open("nowhere/tokenizer.json").unwrap_err().to_string();
    assert!(missing.contains("nowhere"), "{missing}");
    // A file is named whatever is wrong with it, and what is no regular file is not waited for.
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.json");
    std::fs::write(&broken, "{}").unwrap();
    for (path, parts) in [
        (&*broken, ["broken.json", "model"]),
        (dir.path(), ["folder", "regular file"]),
    ] {
        let message = Tokenizer::open(path).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let tokenizer = Tokenizer::from_json(text).unwrap();
    assert!(matches!(
        tokenizer.decode(&[300], true),
        Err(TokenizerError::UnknownId { id: 300, .. })
    ));
    // A saved file is the tokenizer.
    let path = dir.path().join("tokenizer.json");
    tokenizer.save(&path).unwrap();
    assert_eq!(
        Tokenizer::open(&path).unwrap().to_json().unwrap(),
        tokenizer.to_json().unwrap()
    );
    assert!(tokenizer.save(dir.path().join("no/where.json")).is_err());
}
