//! Text, character by character.

use crate::common::Folder;
use kiln_data::{
    BadRecords, DataError, DataKind, Dataset, Facts, Loader, LoaderOptions, Place, Request, TextFile, Tokens,
    Vocabulary,
};
use std::sync::Arc;

fn text(bytes: &[u8]) -> Result<TextFile, DataError> {
    TextFile::from_bytes("text.txt", bytes.to_vec())
}

#[test]
fn windows_give_every_character_its_next_one() {
    let folder = Folder::new();
    let path = folder.file("abc.txt", "abcdefghij".repeat(5).as_bytes());
    let file = TextFile::open(&path).unwrap();
    let vocabulary = file.vocabulary();
    assert_eq!(vocabulary.characters(), "abcdefghij".chars().collect::<Vec<_>>());
    let split = file.split(&vocabulary, 4).unwrap();
    // A tenth of 50 characters is one window of 4 and the next character.
    assert_eq!((split.train.characters(), split.test.characters()), (45, 5));
    assert_eq!((split.train.len(), split.test.len()), (11, 1));
    let sample = split.train.get(2).unwrap();
    assert_eq!(sample.shape.dims(), [5]);
    assert_eq!(sample.input, [8.0, 9.0, 0.0, 1.0, 2.0]);
    assert_eq!(split.test.get(0).unwrap().input, [5.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!(split.train.source(), Some(&*path));
    assert!(matches!(
        split.train.get(11),
        Err(DataError::Index { index: 11, len: 11 })
    ));
    // Beyond the last window nothing is read.
    assert_eq!(split.train.get(10).unwrap().input, [0.0, 1.0, 2.0, 3.0, 4.0]);

    let options = LoaderOptions {
        batch_size: 3,
        ..Default::default()
    };
    let loader = Loader::new(Arc::new(split.train), options).unwrap();
    let batch = loader.epoch(0).unwrap().next().unwrap().unwrap();
    assert_eq!(batch.inputs.shape(), [3, 5]);
    assert_eq!(batch.len(), 3);
}

#[test]
fn a_vocabulary_numbers_characters_and_back() {
    let vocabulary = Vocabulary::of("naïve\nβ\u{1f600}n");
    assert_eq!(vocabulary.len(), 8);
    for (id, &c) in vocabulary.characters().iter().enumerate() {
        assert_eq!(vocabulary.id(c), Some(id as i32));
        assert_eq!(vocabulary.character(id), Some(c));
    }
    assert_eq!(vocabulary.character(8), None);
    assert_eq!(vocabulary.encode("vin"), Err('i'));
    assert!(vocabulary.encode("").unwrap().is_empty());
    let again: String = vocabulary.characters().iter().collect();
    assert_eq!(Vocabulary::of(&again), vocabulary);
    assert!(Vocabulary::of("").is_empty());
}

#[test]
fn line_ends_and_marks_of_other_systems_are_not_characters() {
    let file = text(b"\xef\xbb\xbfone\r\ntwo\r\n\rthree\n").unwrap();
    assert_eq!(file.text(), "one\ntwo\n\rthree\n");
}

#[test]
fn what_is_no_text_is_refused() {
    assert!(matches!(text(b""), Err(DataError::Empty { .. })));
    assert!(matches!(text(b"\xef\xbb\xbf"), Err(DataError::Empty { .. })));
    let broken = text(b"abc\xffdef").unwrap_err();
    assert!(
        matches!(
            broken,
            DataError::Value {
                place: Place::Byte(3),
                ..
            }
        ),
        "{broken}"
    );
    assert!(
        broken.to_string().contains("0xff") && broken.to_string().contains("UTF-8"),
        "{broken}"
    );
    // A sequence that the end of the file cuts.
    let cut = text("aé".as_bytes().split_last().unwrap().1).unwrap_err();
    assert!(
        matches!(
            cut,
            DataError::Value {
                place: Place::Byte(1),
                ..
            }
        ),
        "{cut}"
    );
    let folder = Folder::new();
    assert!(matches!(TextFile::open(folder.path()), Err(DataError::Io { .. })));
    let missing = TextFile::open(folder.path().join("no.txt")).unwrap_err();
    assert!(missing.to_string().contains("no.txt"), "{missing}");
}

#[test]
fn a_text_has_two_windows_at_least() {
    let file = text(b"0123456789").unwrap();
    let vocabulary = file.vocabulary();
    let split = file.split(&vocabulary, 4).unwrap();
    assert_eq!((split.train.len(), split.test.len()), (1, 1));
    let short = file.split(&vocabulary, 5).unwrap_err().to_string();
    for part in ["text.txt", "10 characters", "at least 12"] {
        assert!(short.contains(part), "{short}");
    }
    assert!(matches!(
        file.split(&vocabulary, 0),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(file.split(&vocabulary, usize::MAX).is_err());
    // Another file's characters.
    let other = text(b"01234\n56x89").unwrap().split(&vocabulary, 4).unwrap_err();
    assert!(
        matches!(
            other,
            DataError::Value {
                place: Place::Line { line: 1, .. },
                ..
            }
        ),
        "{other}"
    );
    let other = text(b"01234x56789")
        .unwrap()
        .split(&vocabulary, 4)
        .unwrap_err()
        .to_string();
    assert!(
        other.contains("line 1") && other.contains("`x`") && other.contains("10 that"),
        "{other}"
    );
}

/// A text of distinct lines, with some letters of two bytes.
fn lines(count: usize) -> String {
    (0..count)
        .map(|i| format!("Line {i}: the naïve fox jumps over {} lazy dogs.\n", i * 7 % 31))
        .collect()
}

#[test]
fn a_compressed_text_is_the_text() {
    use std::io::Write;
    let folder = Folder::new();
    let written = lines(400);
    let plain = TextFile::open(folder.file("a.txt", written.as_bytes())).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(written.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(
        TextFile::open(folder.file("a.txt.gz", &packed)).unwrap().text(),
        plain.text()
    );
    let cut = TextFile::open(folder.file("b.txt.gz", &packed[..packed.len() / 2])).unwrap_err();
    let cut = cut.to_string();
    assert!(
        cut.contains("b.txt.gz: broken gzip") && cut.contains("ends before its stream does"),
        "{cut}"
    );
}

#[test]
fn windows_of_a_tokenizer_hold_back_the_last_tenth_of_the_characters() {
    let file = text(lines(300).as_bytes()).unwrap();
    let (all, training) = (file.text().chars().count(), file.training_part().chars().count());
    assert_eq!(training, all - all / 10);
    for choice in ["bpe:300", "wordpiece:100"] {
        let tokens = Arc::new(Tokens::of(&choice.parse().unwrap(), file.training_part()).unwrap());
        let split = file.split_by(&tokens, 16).unwrap();
        assert_eq!(
            (split.train.characters(), split.test.characters()),
            (training, all / 10)
        );
        let share = split.test.characters_per_token().unwrap();
        assert!((share - (all / 10) as f64 / split.test.tokens_of_part() as f64).abs() < 1e-12);
        // The windows are the text again, but for what they leave out at the end.
        let mut ids: Vec<i32> = Vec::new();
        for i in 0..split.test.len() {
            let sample = split.test.get(i).unwrap();
            assert_eq!(sample.input.len(), 17);
            ids.extend(sample.input[usize::from(i > 0)..].iter().map(|&id| id as i32));
            let special = tokens.tokenizer().unwrap().special();
            assert_eq!(sample.targets.len(), if special.is_some() { 3 + 17 } else { 0 });
            if let Some(special) = special {
                assert_eq!(
                    sample.targets[..3],
                    [special.mask, special.cls, special.sep].map(|id| id as f32)
                );
            }
        }
        let mut stream = tokens.stream();
        let again: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        let held = &file.text()[file.training_part().len()..];
        match choice.starts_with("bpe") {
            true => assert!(held.starts_with(again.trim_end_matches('\u{fffd}')), "{again}"),
            false => assert!(again.contains("lazy dogs"), "{again}"),
        }
        let short = text(&lines(9).into_bytes())
            .unwrap()
            .split_by(&tokens, 64)
            .unwrap_err()
            .to_string();
        assert!(
            short.contains("tokens in its last tenth") && short.contains("at least 65"),
            "{short}"
        );
    }
}

#[test]
fn a_trained_network_keeps_its_tokenizer() {
    let folder = Folder::new();
    let path = folder.file("a.txt", lines(200).as_bytes());
    let of = |choice: &str, facts: Option<&Facts>| {
        let choice = choice.parse().unwrap();
        let request = Request {
            path: Some(&path),
            shape: &[8],
            sides: &[],
            own_size: false,
            target: None,
            tokenizer: Some(&choice),
            bad: BadRecords::Refuse,
            facts,
        };
        (DataKind::Text.card().open)(&request)
    };
    let learned = of("bpe:280", None).unwrap();
    let tokenizer = learned.train.tokens().unwrap().tokenizer().unwrap();
    let file = folder.file("tokenizer.json", tokenizer.json().as_bytes());
    let (file, facts) = (file.to_str().unwrap(), &learned.facts);
    assert_eq!((facts.sizes().outputs, facts.tokens()), (Some(280), Some(280)));
    let again = of(file, Some(facts)).unwrap();
    assert_eq!(&again.facts, facts);
    assert_eq!(again.test.get(0).unwrap(), learned.test.get(0).unwrap());
    assert_eq!(of(file, None).unwrap().facts, *facts);
    let other = Tokens::of(&"bpe:290".parse().unwrap(), "another text").unwrap();
    let other = folder.file("other.json", other.tokenizer().unwrap().json().as_bytes());
    let error = of(other.to_str().unwrap(), Some(facts)).unwrap_err();
    assert!(
        matches!(error, DataError::OtherTokenizer { expected: 280, .. }),
        "{error}"
    );
    assert!(matches!(
        of("bpe:280", Some(facts)),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(matches!(
        of("characters", Some(facts)),
        Err(DataError::InvalidArgument { .. })
    ));
    assert!(matches!(of("no.json", Some(facts)), Err(DataError::Tokenizer(_))));
    let characters = of("characters", None).unwrap();
    assert!(of("characters", Some(&characters.facts)).is_ok());
    assert!(matches!(
        of(file, Some(&characters.facts)),
        Err(DataError::InvalidArgument { .. })
    ));
}
