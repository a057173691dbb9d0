//! Tagged words from files and folders.

use crate::common::{Folder, gzip};
use kiln_data::{BadRecords, DataKind, Dataset, Fact, Facts, Request, Sample, TokenizerChoice, sentences_of};
use std::path::Path;

fn request<'a>(path: &'a Path, tokenizer: &'a TokenizerChoice) -> Request<'a> {
    Request {
        path: Some(path),
        shape: &[24],
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: Some(tokenizer),
        bad: BadRecords::Refuse,
        facts: None,
    }
}

/// The tags of a sample's tokens, as names.
fn tags(sample: &Sample, names: &[String]) -> Vec<String> {
    let tagged = sample.targets.iter().filter(|tag| **tag >= 0.0);
    tagged.map(|&tag| names[tag as usize].clone()).collect()
}

#[test]
fn words_and_tags_are_read_from_a_file_and_from_a_folder() {
    let dir = Folder::new();
    let card = DataKind::Conll.card();
    let sentence = |i: usize| match i % 2 {
        0 => "-DOCSTART- -X- O\n\nAda NNP B-PER\nsleeps VBZ O\n\n".to_string(),
        _ => format!("the\tO\nriver\tO\nCam{i}\tB-LOC\n   \n"),
    };
    let text: String = (0..25).map(sentence).collect();
    let tokenizer = TokenizerChoice::WordPiece(50);
    let path = dir.file("a.conll", text.as_bytes());
    let opened = (card.open)(&request(&path, &tokenizer)).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (23, 2));
    let names = opened.facts.names(Facts::CLASSES).unwrap().to_vec();
    assert_eq!(names, ["B-LOC", "B-PER", "O"]);
    let samples: Vec<Sample> = (0..23).map(|i| opened.train.get(i).unwrap()).collect();
    assert_eq!(tags(&samples[0], &names), ["B-PER", "O"]);
    assert_eq!(tags(&samples[1], &names), ["O", "O", "B-LOC"]);
    for sample in &samples {
        let used = sample.input.iter().take_while(|&&id| id >= 0.0).count();
        assert_eq!((sample.shape.dims(), sample.targets.len()), (&[24][..], 24));
        assert!(
            sample.targets[used - 1..]
                .iter()
                .chain([&sample.targets[0]])
                .all(|&tag| tag == -100.0)
        );
    }
    // The same lines as a compressed file with other line ends, by name.
    let other = dir.file("b.txt", &gzip(text.replace('\n', "\r\n").as_bytes()));
    let again = (card.open)(&request(&other, &tokenizer)).unwrap();
    assert_eq!(again.train.get(1).unwrap(), samples[1]);
    // A folder has the part that is held back in a file of its own; a trained network needs that alone.
    let test = dir.file("both/test.txt", sentence(1).as_bytes());
    let folder = test.parent().unwrap();
    let missing = (card.open)(&request(folder, &tokenizer)).err().unwrap().to_string();
    assert!(missing.contains("train.conll"), "{missing}");
    dir.file("both/train.txt", text.as_bytes());
    let both = (card.open)(&request(folder, &tokenizer)).unwrap();
    assert_eq!((both.train.len(), both.test.len()), (25, 1));
    assert!((card.recognises)(&path) && (card.recognises)(folder) && !(card.recognises)(&other));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let dir = Folder::new();
    let card = DataKind::Conll.card();
    let tokenizer = TokenizerChoice::WordPiece(50);
    let failure = |name: &str, text: &str| {
        let path = dir.file(name, text.as_bytes());
        let found = (card.open)(&request(&path, &tokenizer)).err();
        found.unwrap_or_else(|| panic!("{name}")).to_string()
    };
    let fine = "a\tO\n\n".repeat(10);
    for (name, text, parts) in [
        (
            "one.conll",
            format!("{fine}word\n"),
            &["one.conll", "line 21", "`word` without a tag"][..],
        ),
        (
            "few.conll",
            "a O\n\nb O\n".to_string(),
            &["few.conll", "ten sentences or more"],
        ),
        (
            "none.conll",
            "\n\n -DOCSTART- O\n".to_string(),
            &["none.conll", "a word and its tag"],
        ),
    ] {
        let error = failure(name, &text);
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    }
    let path = dir.file("b.conll", fine.as_bytes());
    let error = (card.open)(&request(&path, &TokenizerChoice::Characters))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("[CLS]"), "{error}");
    let known = Facts::default().with(Facts::CLASSES, Fact::Names(vec!["B-X".into()]));
    let unknown = Request {
        facts: Some(&known),
        ..request(&path, &tokenizer)
    };
    let error = (card.held_back)(&unknown).err().unwrap().to_string();
    assert!(
        error.contains("line 1") && error.contains("`O`") && error.contains("B-X"),
        "{error}"
    );
}

#[test]
fn sentences_to_ask_about_are_lines() {
    let dir = Folder::new();
    let path = dir.file("a.txt", b"She sleeps.\n\n  (Ada)\t2!\n");
    let words = [vec!["She", "sleeps", "."], vec!["(", "Ada", ")", "2", "!"]];
    assert_eq!(sentences_of(&path).unwrap(), words);
}
