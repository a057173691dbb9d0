//! Tests of networks that write a text for a text: a table of pairs, and spelling learned from any text.

use crate::common::{piped, run, succeeds};
use std::path::Path;

fn words(dir: &Path, line: &str) -> String {
    succeeds(dir, &line.split(' ').collect::<Vec<_>>()).stdout
}

/// Short texts of few letters, to be copied with small letters as capitals.
fn table(dir: &Path) {
    let mut table = "source\ttarget\tsplit\n".to_string();
    for i in 0..90usize {
        let text: String = (0..1 + i % 4)
            .map(|k| char::from(b'a' + ((i * 7 + k * 5 + i / 4) % 6) as u8))
            .collect();
        let split = if i % 9 == 8 { "test" } else { "train" };
        table += &format!("{text}\t{}\t{split}\n", text.to_uppercase());
    }
    std::fs::write(dir.join("pairs.tsv"), table).unwrap();
}

#[test]
fn pairs_are_learned_measured_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    table(dir);
    let told = words(
        dir,
        "train transformer --data pairs.tsv --batch 16 --epochs 40 --lr 2e-3 --out run",
    );
    for part in [
        "the pairs pairs.tsv: 12 different characters, 80 pairs to train, 10 held back",
        "nats/token",
        "accuracy ",
        "exact ",
        "CER ",
    ] {
        assert!(told.contains(part), "no `{part}` in: {told}");
    }
    let measured = succeeds(dir, &["eval", "-w", "run", "--data", "pairs.tsv", "--json"])
        .json()
        .remove(0);
    let of = |name: &str| {
        measured[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} in {measured}"))
    };
    assert!(
        of("cer") < 0.1 && of("exact_match") >= 0.8 && of("accuracy") > 0.9,
        "{measured}"
    );
    // The same in batches of another size: the loss and the accuracy are means of means.
    let again = succeeds(
        dir,
        &["eval", "-w", "run", "--data", "pairs.tsv", "--json", "--batch", "3"],
    )
    .json()
    .remove(0);
    assert_eq!((&again["cer"], &again["samples"]), (&measured["cer"], &10.into()));
    assert!((again["exact_match"].as_f64().unwrap() - of("exact_match")).abs() < 1e-6);

    // Line by line, from a file and from standard input, greedily and by a search.
    std::fs::write(dir.join("a.txt"), "fade\n\n  cab \n").unwrap();
    let told = succeeds(dir, &["predict", "-w", "run", "a.txt"]).stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, ""));
    assert!(lines[0].chars().all(|c| "ABCDEF".contains(c)), "{told}");
    assert_eq!(
        piped(dir, &["predict", "-w", "run", "-"], "fade\n\n  cab \n").stdout,
        told
    );
    let found = succeeds(dir, &["predict", "-w", "run", "a.txt", "--beam", "4", "--json"]).json();
    assert_eq!(found.len(), 3);
    assert_eq!((&found[0]["source"], &found[2]["line"]), (&"fade".into(), &3.into()));
    std::fs::write(dir.join("b.txt"), "ab\nhome\n").unwrap();
    std::fs::write(dir.join("c.txt"), [b'a', 0xff]).unwrap();
    for (args, code, parts) in [
        (
            &["predict", "-w", "run", "b.txt"][..],
            1,
            &["b.txt", "line 2", "`h`", "12 that the model knows"][..],
        ),
        (&["predict", "-w", "run", "c.txt"], 1, &["c.txt", "UTF-8"]),
        (&["predict", "-w", "run", "-"], 1, &["standard input"]),
        (&["predict", "-w", "run"], 2, &["<FILE> is missing", "standard input"]),
        (&["predict", "-w", "run", "no.txt"], 1, &["no.txt"]),
        (&["predict", "-w", "run", "a.txt", "--beam", "0"], 2, &["--beam"]),
        (
            &["predict", "-w", "run", "a.txt", "--out", "a.png"],
            2,
            &["--out", "nothing that is drawn"],
        ),
        (&["generate", "run"], 2, &["transformer"]),
        (&["train", "transformer"], 2, &["pairs of texts", "FILE.tsv"]),
        (
            &["train", "transformer", "--data", "pairs.tsv", "--data-format", "texts"],
            2,
            &["pairs, spelling"],
        ),
        (
            &["train", "transformer", "--data", "pairs.tsv", "--tokenizer", "bpe:3"],
            2,
            &["from 257"],
        ),
    ] {
        run(dir, args).fails(code, parts);
    }
}

#[test]
fn spelling_is_learned_from_a_text_by_characters_or_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let text: String = (0..120)
        .map(|i| format!("the {} whale saw {} ships\n", ["white", "old"][i % 2], i % 10))
        .collect();
    std::fs::write(dir.join("book.txt"), text).unwrap();
    let told = words(
        dir,
        "train transformer --data book.txt --batch 8 --max-steps 3 --out run",
    );
    assert!(
        told.contains("the spelling of book.txt: ") && told.contains("108 pairs to train, 12 held back"),
        "{told}"
    );
    let config = std::fs::read_to_string(dir.join("run/config.json")).unwrap();
    assert!(config.contains("\"spelling\""), "{config}");
    let long = format!("  {}the ship\n", "the old whale saw ".repeat(8));
    std::fs::write(dir.join("new.txt"), &long).unwrap();
    let told = succeeds(dir, &["predict", "-w", "run", "new.txt", "--json"])
        .json()
        .remove(0);
    assert_eq!(told["source"], long.trim_end_matches('\n'));
    assert!(told["text"].as_str().unwrap().starts_with("  "), "{told}");
    words(dir, "train --resume run --max-steps 4");
    let told = words(
        dir,
        "train transformer --data book.txt --tokenizer bpe:270 --batch 8 --max-steps 2 --out bpe",
    );
    assert!(told.contains("270 tokens"), "{told}");
    words(dir, "predict -w bpe new.txt --beam 2");
    let eval = succeeds(dir, &["eval", "-w", "bpe", "--data", "book.txt", "--json"])
        .json()
        .remove(0);
    assert!(eval["cer"].as_f64().is_some(), "{eval}");
}
