//! Entities and their scores, compared with seqeval.

use crate::golden::{indices, output, tensor, values};
use kiln_train::{EntityF1, entities};
use serde_json::Value;

fn strings(of: &Value) -> Vec<String> {
    let strings = of.as_array().unwrap().iter();
    strings.map(|tag| tag.as_str().unwrap().to_string()).collect()
}

#[test]
fn entities_and_their_scores_are_those_of_seqeval() {
    let cases: Value = serde_json::from_str(include_str!("../golden/entities.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let tags = strings(&case["tags"]);
        let of = |part: &str| -> Vec<Vec<String>> { case[part].as_array().unwrap().iter().map(strings).collect() };
        let (expected, predicted) = (of("expected"), of("predicted"));
        for (sentence, found) in expected.iter().zip(case["entities"].as_array().unwrap()) {
            let names: Vec<&str> = sentence.iter().map(String::as_str).collect();
            let own = entities(&names).into_iter();
            let own: Vec<Value> = own
                .map(|entity| serde_json::json!([entity.kind, entity.words.start, entity.words.end]))
                .collect();
            assert_eq!(&Value::from(own), found, "{names:?}");
        }
        // Tokens without a tag, in the middle and at the end, change nothing.
        let width = 2 * expected.iter().map(Vec::len).max().unwrap() + 1;
        let number = |tag: &String| tags.iter().position(|other| other == tag).unwrap();
        let labels: Vec<i32> = expected
            .iter()
            .flat_map(|row| {
                let each = row.iter().flat_map(|tag| [number(tag) as i32, -100]);
                each.chain(std::iter::repeat(-100)).take(width).collect::<Vec<_>>()
            })
            .collect();
        let mut scores = vec![0.0; labels.len() * tags.len()];
        for (row, predicted) in predicted.iter().enumerate() {
            for (at, tag) in predicted.iter().enumerate() {
                scores[(row * width + 2 * at) * tags.len() + number(tag)] = 1.0;
            }
        }
        for size in [1, 7, 30] {
            let found = values(&mut EntityF1::new(tags.clone()), expected.len(), size, |from, to| {
                let scores = &scores[from * width * tags.len()..to * width * tags.len()];
                output().with_scores(
                    tensor(scores, &[to - from, width, tags.len()]),
                    &indices(&labels[from * width..to * width], &[to - from, width]),
                )
            })
            .unwrap();
            for name in ["f1", "precision", "recall", "accuracy"] {
                let expected = case[name].as_f64().unwrap();
                assert!(
                    (found[name] - expected).abs() < 1e-12,
                    "{name}: {found:?}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn tags_of_parts_of_speech_are_words_by_themselves() {
    let found = entities(&["NOUN", "NOUN", "O", "X-Y"]);
    let kinds: Vec<(&str, usize)> = found.iter().map(|entity| (entity.kind, entity.words.len())).collect();
    assert_eq!(kinds, [("NOUN", 1), ("NOUN", 1), ("X-Y", 1)]);
    let wrong = output().with_scores(tensor(&[0.0; 4], &[2, 2]), &indices(&[0, 1], &[2]));
    assert!(values(&mut EntityF1::new(["O"]), 2, 2, |_, _| wrong.clone()).is_err());
}
