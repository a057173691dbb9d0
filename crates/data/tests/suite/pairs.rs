//! Pairs of texts: tables, and lines with mistakes put into them.

use crate::common::{Folder, gzip};
use kiln_data::{
    BadRecords, DataError, DataKind, Dataset, Draw, Facts, FileOptions, MadeUp, Opened, PAIRS, Request, Result, Sample,
    TokenizerChoice, Transform, Typos,
};
use std::path::Path;

fn request<'a>(path: &'a Path, bad: BadRecords, facts: Option<&'a Facts>) -> Request<'a> {
    Request {
        path: Some(path),
        shape: &[12],
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: None,
        bad,
        facts,
    }
}

fn open(kind: DataKind, path: &Path) -> Result<Opened> {
    (kind.card().open)(&request(path, BadRecords::Refuse, None))
}

/// The source, the target and the label of a sample.
fn read(data: &dyn Dataset<Sample = Sample>, index: usize) -> (String, String, i32) {
    let text = |values: &[f32]| values.iter().map(|&c| char::from_u32(c as u32).unwrap()).collect();
    let sample = data.get(index).unwrap();
    (text(&sample.input), text(&sample.targets), sample.label)
}

#[test]
fn a_table_of_pairs_is_read_and_every_tenth_line_held_back() {
    let folder = Folder::new();
    let mut table = "target\tnote\tsource\n".to_string();
    (0..25).for_each(|i| table += &format!("yé{i}\t-\tx{i}\n\n"));
    let path = folder.file("a.tsv", table.as_bytes());
    let opened = open(DataKind::Pairs, &path).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (23, 2));
    assert_eq!(read(&*opened.train, 0), ("x0".into(), "yé0".into(), 0));
    assert_eq!(read(&*opened.test, 0), ("x9".into(), "yé9".into(), 0));
    assert_eq!(opened.facts.text(Facts::VOCABULARY), Some("0123456789xyé"));
    assert_eq!((opened.train.length(0), opened.train.length(22)), (Some(3), Some(4)));
    assert_eq!(opened.train.characters_per_token(), Some(1.0));
    // Compressed, and by a column.
    let split = "source\ttarget\tsplit\na\tb\ttrain\nc\td\ttest\ne\tf\tdev\n";
    let path = folder.file("b.tsv.gz", &gzip(split.as_bytes()));
    assert!((DataKind::Pairs.card().recognises)(&path));
    let opened = open(DataKind::Pairs, &path).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (1, 2));
    let held_back = (DataKind::Pairs.card().held_back)(&request(&path, BadRecords::Refuse, Some(&opened.facts)));
    assert_eq!(read(&*held_back.unwrap(), 1), ("e".into(), "f".into(), 0));
    // By a tokenizer, which is learned from what is trained on.
    let choice = TokenizerChoice::WordPiece(20);
    let with = Request {
        tokenizer: Some(&choice),
        ..request(&path, BadRecords::Refuse, None)
    };
    let opened = (DataKind::Pairs.card().open)(&with).unwrap();
    assert!(opened.facts.tokens().is_some() && opened.train.tokens().unwrap().tokenizer().is_some());
}

#[test]
fn lines_that_are_no_pairs_are_told_or_left_out() {
    let folder = Folder::new();
    let lines = |bad: &str| format!("source\ttarget\n{bad}\n{}", "ab\tba\n".repeat(20));
    for (bad, parts) in [
        ("a", ["line 2", "number of fields", "2, those of the first line"]),
        ("\tb", ["line 2, column `source`", "text", "none"]),
        ("b\t ", ["line 2, column `target`", "text", "none"]),
        (
            "abababababababa\tb",
            ["line 2, column `source`", "15 characters", "at most 12"],
        ),
    ] {
        let path = folder.file("c.tsv", lines(bad).as_bytes());
        let message = open(DataKind::Pairs, &path).unwrap_err().to_string();
        assert!(
            message.contains("c.tsv") && parts.iter().all(|p| message.contains(p)),
            "{message}"
        );
        let skipping = (DataKind::Pairs.card().open)(&request(&path, BadRecords::Skip, None)).unwrap();
        assert_eq!(skipping.train.skipped().unwrap().count(), 1, "{bad}");
        // One with two fields counts when lines are held back.
        assert!(skipping.train.len() + skipping.test.len() == 20, "{bad}");
    }
    // Characters that the trained network does not know.
    let path = folder.file("d.tsv", lines("a\tb").as_bytes());
    let facts = open(DataKind::Pairs, &path).unwrap().facts;
    let other = folder.file("e.tsv", lines("q\tb").as_bytes());
    let error = (DataKind::Pairs.card().open)(&request(&other, BadRecords::Refuse, Some(&facts))).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("e.tsv") && message.contains("line 2") && message.contains("`q`"),
        "{message}"
    );
    for (text, part) in [
        ("a\tb\n", "a column `source`"),
        ("source\tb\nx\ty\n", "a column `target`"),
        ("source\ttarget\n", "pairs of texts"),
        ("source\ttarget\na\tb\n", "pairs of texts"),
    ] {
        let path = folder.file("f.tsv", text.as_bytes());
        let message = open(DataKind::Pairs, &path).unwrap_err().to_string();
        assert!(message.contains("f.tsv") && message.contains(part), "{message}");
    }
}

/// The text of which lines have a mistake in some words.
fn book() -> String {
    (0..60)
        .map(|i| format!("  the {i} whales swam, and swam\n\n"))
        .collect()
}

#[test]
fn a_text_gives_lines_to_be_noised_and_lines_with_mistakes_that_stay() {
    let folder = Folder::new();
    let path = folder.file("book.txt", book().as_bytes());
    let wide = |facts| Request {
        shape: &[128],
        ..request(&path, BadRecords::Refuse, facts)
    };
    let opened = (DataKind::Spelling.card().open)(&wide(None)).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (54, 6));
    let (source, target, label) = read(&*opened.train, 3);
    assert_eq!((&source[..], label), ("the 3 whales swam, and swam", 1));
    assert_eq!(source, target);
    let noised: Vec<_> = (0..6).map(|i| read(&*opened.test, i)).collect();
    assert!(
        noised
            .iter()
            .all(|(_, target, label)| target.starts_with("the 5") && *label == 0)
    );
    assert!(
        noised.iter().filter(|(source, target, _)| source != target).count() >= 3,
        "{noised:?}"
    );
    // The same each time, and known to the network.
    let again = (DataKind::Spelling.card().held_back)(&wide(Some(&opened.facts))).unwrap();
    assert!((0..6).all(|i| read(&*again, i) == noised[i]));
    let known = opened.facts.text(Facts::VOCABULARY).unwrap();
    assert!(
        noised
            .iter()
            .all(|(source, ..)| source.chars().all(|c| known.contains(c)))
    );
    assert!(!known.contains('\n'));

    // A file for the trained network keeps its white space.
    let text = "  the whales  swam\n\nand the 12 whales swam and the whales swam and swam and swam\n";
    let file = folder.file("new.txt", text.as_bytes());
    let options = FileOptions {
        shape: &[128],
        facts: &opened.facts,
        tokenizer: None,
        own_size: false,
        invert: None,
    };
    let samples = (DataKind::Spelling.card().file.unwrap())(&file, &options).unwrap();
    let of = |values: &[f32]| -> String { values.iter().map(|&c| char::from_u32(c as u32).unwrap()).collect() };
    let whole: String = samples.iter().map(|s| of(&s.input) + &of(&s.targets)).collect();
    assert_eq!(whole, text);
    assert!(samples.iter().all(|s| s.input.len() <= 48));
    let wrong = folder.file("wrong.txt", "the\nwhale q\n".as_bytes());
    let error = (DataKind::Spelling.card().file.unwrap())(&wrong, &options).unwrap_err();
    assert!(matches!(&error, DataError::Value { what: "character", .. }), "{error}");
    assert!(
        error.to_string().contains("wrong.txt") && error.to_string().contains("line 2"),
        "{error}"
    );
}

#[test]
fn mistakes_are_in_some_words_anew_in_each_epoch_and_of_the_letters_of_the_text() {
    let text = "Call me Ishmael, some years ago: a 1st é";
    let typos = Typos::new(0.5).unwrap();
    let of = |epoch, index| typos.of(text, &Draw::new(7, epoch, index));
    assert_eq!(of(3, 4), of(3, 4));
    assert_ne!(of(3, 4), of(4, 4));
    assert_ne!(of(3, 4), of(3, 5));
    assert_eq!(Typos::new(0.0).unwrap().of(text, &Draw::new(1, 2, 3)), text);
    let letters = |text: &str| -> Vec<String> {
        let words = text
            .split(|c: char| !c.is_alphabetic())
            .filter(|word| word.chars().count() > 1);
        words.map(str::to_string).collect()
    };
    let (mut changed, mut words) = (0, 0);
    for index in 0..400 {
        let noised = of(0, index);
        assert!(noised.chars().all(|c| text.contains(c)), "{noised}");
        // What is no word of two letters stays.
        assert!(noised.ends_with('é') && noised.contains(": a 1"), "{noised}");
        let length = |text: &str| text.chars().count() as i64;
        assert!((length(&noised) - length(text)).abs() <= 7, "{noised}");
        let (found, own) = (letters(&noised), letters(text));
        if found.len() == own.len() {
            words += own.len();
            changed += found.iter().zip(&own).filter(|(a, b)| a != b).count();
        }
    }
    // Some mistakes change nothing: a neighbour or a letter that is the same.
    let share = f64::from(changed as u32) / words as f64;
    assert!((0.38..0.52).contains(&share), "{share}");
    assert!(Typos::new(1.5).is_err() && Typos::new(f32::NAN).is_err());
    // As a transform it is the same.
    let mut sample = Sample::default();
    let codes: Vec<f32> = text.chars().map(|c| u32::from(c) as f32).collect();
    let shape = kiln_core::Shape::new(&[codes.len()]).unwrap();
    sample.fill(shape, codes.into_iter()).unwrap();
    typos.apply(&mut sample, &Draw::new(7, 3, 4)).unwrap();
    let found: String = sample
        .input
        .iter()
        .map(|&c| char::from_u32(c as u32).unwrap())
        .collect();
    assert_eq!(found, of(3, 4));
}

#[test]
fn made_up_pairs_can_be_learned() {
    let made = MadeUp {
        shape: &[128],
        outputs: 65,
        count: 30,
        seed: 5,
    };
    let opened = (PAIRS.synthetic)(&made).unwrap();
    assert_eq!((opened.train.len(), opened.test.len()), (30, 6));
    for index in 0..30 {
        let (source, target, _) = read(&*opened.train, index);
        assert_eq!(source.chars().rev().collect::<String>(), target);
        assert!((1..=6).contains(&source.len()));
    }
    assert_ne!(read(&*opened.train, 0), read(&*opened.test, 0));
    let random = (PAIRS.samples)(&made).unwrap();
    assert_eq!((random.len(), random.tokens().unwrap().len()), (30, 65));
    assert_eq!(random.get(29).unwrap().input.len(), 63);
    assert_eq!(random.get(29).unwrap().targets.len(), 63);
}
