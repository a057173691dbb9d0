//! Text, character by character.

use crate::common::Folder;
use kiln_data::{DataError, Dataset, Loader, LoaderOptions, Place, TextFile, Vocabulary};
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
