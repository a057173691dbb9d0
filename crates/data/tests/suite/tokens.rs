//! Folders of tokens: the same windows as those of a text in memory, and clear errors.

use crate::common::{Folder, gzip};
use kiln_data::{BadRecords, DataKind, Dataset, Facts, Request, TextFile, TokenizeStep, TokenizerChoice, write_tokens};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn request<'a>(path: &'a Path, tokenizer: Option<&'a TokenizerChoice>, facts: Option<&'a Facts>) -> Request<'a> {
    Request {
        path: Some(path),
        shape: &[16],
        sides: &[],
        own_size: false,
        target: None,
        tokenizer,
        bad: BadRecords::Refuse,
        facts,
    }
}

/// Lines with words of two alphabets, some of them indented, until there are so many bytes.
fn text(bytes: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        match number % 5 {
            0 => text.push_str("  an indented line,  with two blanks\n"),
            1 => text.push_str("Война и мир — длинный роман.\n\n"),
            2 => text.push_str("don't stop 12,345 times\r\n"),
            _ => text.push_str(&format!("the whale number {} swam away\n", number * 7919 % 1000)),
        }
    }
    text
}

fn write(files: &[PathBuf], choice: &TokenizerChoice, folder: &Path) -> kiln_data::Result<kiln_data::TokenIndex> {
    write_tokens(files, choice, folder, &mut |_| Ok(()))
}

#[test]
fn windows_are_those_of_the_text_in_memory() {
    let dir = Folder::new();
    // Longer than a piece that is read at once.
    let text = text((2 << 20) + 12_345);
    let path = dir.file("a.txt.gz", &gzip(text.as_bytes()));
    let folder = dir.path().join("tokens");
    let choice = TokenizerChoice::Bpe(400);
    let mut last = None;
    let index = write_tokens(std::slice::from_ref(&path), &choice, &folder, &mut |step| {
        last = Some(step);
        Ok(())
    })
    .unwrap();
    let characters = text.replace("\r\n", "\n").chars().count() as u64;
    assert_eq!(last, Some(TokenizeStep::Writing(characters, characters)));
    assert_eq!((index.bytes_per_token, index.vocabulary), (2, 400));
    assert_eq!(index.test.characters, characters / 10);

    assert!((DataKind::Tokens.card().recognises)(&folder) && !(DataKind::Tokens.card().recognises)(dir.path()));
    let opened = (DataKind::Tokens.card().open)(&request(&folder, None, None)).unwrap();
    let file = TextFile::open(&path).unwrap();
    let tokens = Arc::new(opened.train.tokens().unwrap().clone());
    let expected = file.split_by(&tokens, 16).unwrap();
    assert_eq!(expected.train.tokens_of_part() as u64, index.train.tokens);
    for (found, expected) in [(&opened.train, expected.train), (&opened.test, expected.test)] {
        assert_eq!(found.len(), expected.len());
        assert_eq!(found.characters_per_token(), expected.characters_per_token());
        for at in (0..expected.len()).step_by(997).chain([expected.len() - 1]) {
            assert_eq!(found.get(at).unwrap(), expected.get(at).unwrap(), "{at}");
        }
    }
    // A trained network reads them by its tokenizer, and no other folder's.
    let again = (DataKind::Tokens.card().held_back)(&request(&folder, None, Some(&opened.facts))).unwrap();
    assert_eq!(again.get(3).unwrap(), opened.test.get(3).unwrap());
    let other = dir.path().join("other");
    write(&[path], &TokenizerChoice::Bpe(300), &other).unwrap();
    let wrong = (DataKind::Tokens.card().open)(&request(&other, None, Some(&opened.facts)));
    assert!(wrong.err().unwrap().to_string().contains("not that of the network"));
}

#[test]
fn texts_follow_each_other_with_a_token_between() {
    let dir = Folder::new();
    let files = [
        dir.file("a.txt", b"one two three\n".repeat(20).as_slice()),
        dir.file("b.txt", b"four five\n".repeat(40).as_slice()),
    ];
    let folder = dir.path().join("tokens");
    let first = write(&files, &TokenizerChoice::Bpe(300), &folder).unwrap();
    let opened = (DataKind::Tokens.card().open)(&request(&folder, None, None)).unwrap();
    let ids: Vec<f32> = (0..opened.train.len())
        .flat_map(|i| opened.train.get(i).unwrap().input)
        .collect();
    // `<|endoftext|>` is the first token.
    assert!(ids.iter().filter(|id| **id == 0.0).count() >= 1);
    let again = TokenizerChoice::File(folder.join("tokenizer.json"));
    let third = dir.path().join("third");
    let index = write(&files, &again, &third).unwrap();
    assert_eq!(
        std::fs::read(folder.join("train.bin")).unwrap(),
        std::fs::read(third.join("train.bin")).unwrap()
    );
    assert_eq!(index, first);
    assert!((DataKind::Tokens.card().open)(&request(&third, Some(&again), None)).is_ok());
}

#[test]
fn what_is_wrong_is_named() {
    let dir = Folder::new();
    let file = dir.file("a.txt", text(4000).as_bytes());
    let folder = dir.path().join("tokens");
    let failed = |files: &[PathBuf], choice: &TokenizerChoice| write(files, choice, &folder).unwrap_err().to_string();
    let bpe = TokenizerChoice::Bpe(300);
    assert!(failed(std::slice::from_ref(&file), &TokenizerChoice::Characters).contains("bpe:N"));
    let latin = dir.file("latin.txt", b"caf\xe9 au lait");
    let wrong = failed(&[latin], &bpe);
    assert!(
        wrong.contains("latin.txt") && wrong.contains("byte 3") && wrong.contains("UTF-8"),
        "{wrong}"
    );
    assert!(failed(&[dir.file("empty.txt", b"")], &bpe).contains("empty.txt"));
    write(&[file], &bpe, &folder).unwrap();
    let open = |choice: Option<&TokenizerChoice>| {
        (DataKind::Tokens.card().open)(&request(&folder, choice, None))
            .err()
            .unwrap()
            .to_string()
    };
    assert!(open(Some(&bpe)).contains("bpe:300"));
    let path = folder.join("train.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0..2].copy_from_slice(&[255, 255]);
    std::fs::write(&path, &bytes).unwrap();
    let opened = (DataKind::Tokens.card().open)(&request(&folder, None, None)).unwrap();
    let wrong = opened.train.get(0).unwrap_err().to_string();
    assert!(wrong.contains("train.bin") && wrong.contains("65535"), "{wrong}");
    std::fs::write(&path, &bytes[1..]).unwrap();
    assert!(open(None).contains("write them anew"));
    std::fs::write(folder.join("tokens.json"), "{").unwrap();
    assert!(open(None).contains("tokens.json"));
}
