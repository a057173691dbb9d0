//! Tests of `kiln train`, `eval` and `predict` with BERT: classes of texts, words with tags, and questions about texts.

use crate::common::{piped, run, succeeds};
use kiln_cpu::Cpu;
use kiln_nn::module::StateDict;
use kiln_nn::weights;
use serde_json::json;

#[test]
fn texts_are_classified_by_a_bert_that_begins_with_a_pre_trained_one() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["good", "bad", "fine", "awful", "film", "plot", "the", "a", "was", "is"];
    let line = |i: usize| {
        (0..8)
            .map(|k| words[(i * 7 + k * k * 3 + i / 5) % 10])
            .collect::<Vec<_>>()
            .join(" ")
    };
    let text: String = (0..700).map(|i| line(i) + ".\n").collect();
    std::fs::write(dir.path().join("a.txt"), text).unwrap();
    let mut table = "score\tsplit\ttext\n".to_string();
    for i in 0..40 {
        let (score, split) = (
            if i % 2 == 0 { "1.5" } else { "-0.5" },
            if i % 5 == 4 { "test" } else { "train" },
        );
        table += &format!(
            "{score}\t{split}\tIt {} {}\n",
            if i % 2 == 0 { "is good," } else { "was bad," },
            line(i)
        );
    }
    std::fs::write(dir.path().join("b.tsv"), table).unwrap();
    let mini = "train bert-mini --data a.txt --tokenizer wordpiece:60 --batch 4 --max-steps 2 --out mini";
    let trained = succeeds(dir.path(), &mini.split(' ').collect::<Vec<_>>()).stdout;
    assert!(trained.contains("nats/token  perplexity "), "{trained}");
    let train = "train bert-classifier --data b.tsv --batch 8 --epochs 1 --init-from mini --out run";
    let trained = succeeds(dir.path(), &train.split(' ').collect::<Vec<_>>()).stdout;
    for part in [
        "starts from mini, ",
        "32 texts to train, 8 held back",
        "2 classes",
        "accuracy ",
    ] {
        assert!(trained.contains(part), "no `{part}` in: {trained}");
    }
    let measured = succeeds(dir.path(), &["eval", "-w", "run", "--data", "b.tsv", "--json"])
        .json()
        .remove(0);
    assert_eq!(
        (&measured["samples"], &measured["classes"][0]),
        (&8.into(), &"negative".into())
    );
    std::fs::write(dir.path().join("c.txt"), "It is good.\n").unwrap();
    let told = succeeds(dir.path(), &["predict", "-w", "run", "c.txt", "--top", "2", "--json"])
        .json()
        .remove(0);
    let shares: f64 = told["top"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["probability"].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-6, "{told}");
    let of_stdin = piped(
        dir.path(),
        &["predict", "-w", "run", "-", "--top", "2", "--json"],
        "It is good.\n",
    );
    assert_eq!(of_stdin.json()[0]["top"], told["top"]);
    for (args, code, parts) in [
        (
            "train bert-classifier --data b.tsv --init-from mini --tokenizer wordpiece:50 --out no",
            1,
            &["another shape", "same tokenizer"][..],
        ),
        (
            "train bert-classifier --data b.tsv --tokenizer characters --out no",
            1,
            &["[CLS]"],
        ),
        ("train bert-classifier", 2, &["labelled texts", "FILE.tsv"]),
        (
            "train bert-classifier --data a.txt --out no",
            1,
            &["a.txt", "column `text`"],
        ),
    ] {
        run(dir.path(), &args.split(' ').collect::<Vec<_>>()).fails(code, parts);
    }
}

#[test]
fn masked_words_are_filled_in() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "the fox runs over the hill.\n".repeat(400)).unwrap();
    let train = "train bert-mini --data a.txt --tokenizer wordpiece:40 --batch 4 --max-steps 2 --out run";
    succeeds(dir.path(), &train.split(' ').collect::<Vec<_>>());
    let text = "The [MASK] runs\n\nover [MASK] [MASK]\n";
    std::fs::write(dir.path().join("b.txt"), text).unwrap();
    let predict = |more: &[&str]| succeeds(dir.path(), &[&["predict", "-w", "run"], more].concat());
    let told = predict(&["b.txt", "--json", "--top", "3"]).json();
    assert_eq!((told.len(), &told[1]["line"]), (2, &3.into()));
    assert_eq!(told[0]["source"], "The [MASK] runs");
    let likeliest = told[0]["masks"][0][0]["token"].as_str().unwrap();
    let filled = told[0]["text"].as_str().unwrap();
    assert!(
        filled.ends_with(" runs") && filled.contains(likeliest.trim_start_matches("##")),
        "{filled}"
    );
    for (line, masks) in told.iter().zip([1, 2]) {
        assert_eq!(line["masks"].as_array().unwrap().len(), masks);
        for choices in line["masks"].as_array().unwrap() {
            let shares: Vec<f64> = choices
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c["probability"].as_f64().unwrap())
                .collect();
            assert!(
                shares.len() == 3 && shares.is_sorted_by(|a, b| a >= b) && shares[2] > 0.0,
                "{line}"
            );
        }
    }
    let plain = predict(&["b.txt"]).stdout;
    assert_eq!(plain.lines().count(), 2);
    assert_eq!(plain.lines().next(), Some(filled));
    assert_eq!(predict(&["b.txt", "--top", "2"]).stdout.lines().count(), 5);
    assert_eq!(piped(dir.path(), &["predict", "-w", "run", "-"], text).stdout, plain);
    // Weights as Hugging Face's hub has them: names of its own, a configuration of its own, the tokenizer beside them.
    let hub = dir.path().join("hub");
    std::fs::create_dir(&hub).unwrap();
    let (own, _) = weights::read(dir.path().join("run/best.safetensors"), &Cpu::new()).unwrap();
    let mut theirs = StateDict::new();
    for (name, value) in own.iter() {
        theirs.insert(name.replace("LayerNorm.weight", "LayerNorm.gamma"), value.clone());
    }
    let head = own.get("bert.pooler.dense.weight").unwrap();
    theirs.insert("cls.seq_relationship.weight", head.clone());
    let format = weights::Metadata::from([("format".to_string(), "pt".to_string())]);
    weights::write(hub.join("model.safetensors"), &theirs, &format).unwrap();
    let of_hub = [
        "predict",
        "-w",
        "hub/model.safetensors",
        "--model",
        "bert-mini",
        "b.txt",
    ];
    std::fs::write(hub.join("config.json"), r#"{"model_type": "bert"}"#).unwrap();
    run(dir.path(), &of_hub).fails(1, &["vocabulary", "tokenizer.json"]);
    std::fs::copy(dir.path().join("run/tokenizer.json"), hub.join("tokenizer.json")).unwrap();
    assert_eq!(succeeds(dir.path(), &of_hub).stdout, plain);
    theirs.insert("cls.other.weight", head.clone());
    weights::write(hub.join("model.safetensors"), &theirs, &format).unwrap();
    run(dir.path(), &of_hub).fails(1, &["cls.other.weight"]);
    std::fs::write(dir.path().join("c.txt"), "the fox\n").unwrap();
    std::fs::write(dir.path().join("d.txt"), "fox ".repeat(200) + "[MASK]").unwrap();
    for (args, code, parts) in [
        ("predict -w run", 2, &["<FILE> is missing", "[MASK]"][..]),
        ("predict -w run c.txt", 1, &["c.txt: line 1", "no [MASK]"]),
        ("predict -w run d.txt", 1, &["d.txt: line 1", "the network reads 126"]),
        ("predict -w run b.txt --out a.png", 2, &["--out"]),
    ] {
        run(dir.path(), &args.split(' ').collect::<Vec<_>>()).fails(code, parts);
    }
}

#[test]
fn words_are_tagged_by_a_bert_that_begins_with_a_pre_trained_one() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["Ada", "Bo", "Cy", "Dee"];
    let places = ["York", "Ulm", "Bath"];
    let sentence = |i: usize| {
        let (name, place) = (names[i % 4], places[i * 7 % 3]);
        match i % 3 {
            0 => format!("{name} NNP B-PER\nHill NNP I-PER\nwent VB O\nto TO O\n{place} NNP B-LOC\n. . O\n\n"),
            1 => format!("In IN O\n{place} NNP B-LOC\n, , O\nthere RB O\nis VB O\n{name} NNP B-PER\n. . O\n\n"),
            _ => format!("-DOCSTART- -X- O\n\nthe DT O\nfoxes NN O\njumped VB O\nover IN O\n{name} NNP B-PER\n\n"),
        }
    };
    let text: String = (0..150).map(sentence).collect();
    std::fs::write(dir.path().join("a.conll"), &text).unwrap();
    let plain: String = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect::<Vec<_>>()
        .join(" ");
    std::fs::write(dir.path().join("a.txt"), plain.repeat(3)).unwrap();
    let args = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    let good = |line: &str| {
        let args = args(line);
        succeeds(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    good("train bert-mini --data a.txt --tokenizer wordpiece:70 --batch 4 --max-steps 2 --out mini");
    let trained =
        good("train bert-tagger --data a.conll --batch 16 --epochs 3 --lr 1e-3 --init-from mini --out run").stdout;
    for part in [
        "starts from mini, ",
        "135 sentences to train, 15 held back",
        "4 classes",
        "F1 ",
    ] {
        assert!(trained.contains(part), "no `{part}` in: {trained}");
    }
    let measured = good("eval -w run --data a.conll --json").json().remove(0);
    assert_eq!(measured["samples"], 15);
    assert!(measured["f1"].as_f64().unwrap() > 0.8, "{measured}");
    assert!(measured["accuracy"].as_f64().unwrap() > 0.8, "{measured}");
    std::fs::write(dir.path().join("b.txt"), "In Ulm, there is Dee.\n\nfoxes!\n").unwrap();
    let told = good("predict -w run b.txt").stdout;
    let words: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(word, _)| word)
        .collect();
    assert_eq!(
        words,
        ["In", "Ulm", ",", "there", "is", "Dee", ".", "foxes", "!"],
        "{told}"
    );
    let told = good("predict -w run b.txt --json").json();
    assert_eq!((told.len(), &told[1]["words"][0]["word"]), (2, &"foxes".into()));
    assert!(told[0]["entities"].is_array(), "{}", told[0]);
    let of_stdin = piped(dir.path(), &["predict", "-w", "run", "-", "--json"], "foxes!\n");
    assert_eq!(of_stdin.json()[0]["words"], told[1]["words"]);
    // What it prints is what it reads.
    std::fs::create_dir(dir.path().join("both")).unwrap();
    std::fs::write(dir.path().join("both/train.txt"), text.replace(' ', "\t")).unwrap();
    std::fs::write(dir.path().join("both/test.txt"), good("predict -w run b.txt").stdout).unwrap();
    let measured = good("eval -w run --data both --json").json().remove(0);
    assert_eq!((&measured["samples"], &measured["accuracy"]), (&2.into(), &1.0.into()));
    std::fs::write(dir.path().join("bad.conll"), format!("{text}Ada\n")).unwrap();
    std::fs::write(dir.path().join("other.conll"), text.replace("B-LOC", "B-ORG")).unwrap();
    for (line, code, parts) in [
        ("train bert-tagger", 2, &["tagged words", "FILE.conll"][..]),
        (
            "train bert-tagger --data bad.conll --out no",
            1,
            &["bad.conll", "line 1151", "`Ada` without a tag"],
        ),
        (
            "eval -w run --data other.conll",
            1,
            &["other.conll", "line 5", "`B-ORG`", "one of B-LOC, B-PER, I-PER, O"],
        ),
        (
            "train bert-tagger --data b.txt --out no",
            1,
            &["b.txt", "line 3", "a word and its tag"],
        ),
        ("train bert-tagger --data mini --out no", 1, &["mini", "test.conll"]),
    ] {
        let line = args(line);
        run(dir.path(), &line.iter().map(String::as_str).collect::<Vec<_>>()).fails(code, parts);
    }
}

#[test]
fn a_reader_answers_questions_about_texts() {
    let dir = tempfile::tempdir().unwrap();
    let line = |i: usize| format!("Captain number {i} looked over the water for whale {}.\n", i * 7 % 50);
    let text: String = (0..120).map(line).collect();
    std::fs::write(dir.path().join("a.txt"), &text).unwrap();
    let args = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    let good = |line: &str| {
        let args = args(line);
        succeeds(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let train = "train bert-reader --data a.txt --tokenizer wordpiece:90 --batch 4 --max-steps 2 --out run";
    let trained = good(train).stdout;
    assert!(
        trained.contains(" windows to train, ") && trained.contains("exact "),
        "{trained}"
    );
    let measured = good("eval -w run --data a.txt --json").json().remove(0);
    for name in ["f1", "exact_match"] {
        assert!((0.0..=1.0).contains(&measured[name].as_f64().unwrap()), "{measured}");
    }
    let context = json!({
        "context": "Ahab looked over the water.",
        "qas": [{"id": "1", "question": "Who looked?", "answers": [{"text": "Ahab", "answer_start": 0}]}],
    });
    let squad = json!({"data": [{"paragraphs": vec![context.clone(); 10]}]}).to_string();
    std::fs::write(dir.path().join("b.json"), &squad).unwrap();
    std::fs::write(
        dir.path().join("bad.json"),
        squad.replace("\"answer_start\":0", "\"answer_start\":1"),
    )
    .unwrap();
    assert_eq!(good("eval -w run --data b.json --json").json()[0]["samples"], 1);
    let told = good("predict -w run --question what? a.txt --json").json().remove(0);
    let bytes = |name: &str| told[name].as_u64().unwrap() as usize;
    assert_eq!(told["answer"], text[bytes("from")..bytes("to")], "{told}");
    assert!(told["score"].is_number() && told["answered"].is_boolean(), "{told}");
    assert!(
        good("predict -w run --question what? a.txt")
            .stdout
            .starts_with("a.txt: ")
    );
    let of_stdin = piped(
        dir.path(),
        &["predict", "-w", "run", "--question", "what?", "-", "--json"],
        &text,
    );
    assert_eq!(of_stdin.json()[0]["answer"], told["answer"]);
    std::fs::write(dir.path().join("empty.txt"), " ").unwrap();
    for (line, code, parts) in [
        ("predict -w run --question what? a.txt --out a.png", 2, &["--out"][..]),
        ("train bert-reader", 2, &["SQuAD", "train-v1.1.json"][..]),
        (
            "train bert-reader --data bad.json --out no",
            1,
            &["bad.json", "answer_start at record 0", "`Ahab`"],
        ),
        ("predict -w run a.txt", 2, &["--question"]),
        ("predict -w run --question what?", 2, &["<FILE>"]),
        ("predict -w run --question what? empty.txt", 1, &["empty.txt"]),
        ("predict -w run --question what? no.txt", 1, &["no.txt"]),
    ] {
        let line = args(line);
        run(dir.path(), &line.iter().map(String::as_str).collect::<Vec<_>>()).fails(code, parts);
    }
}
