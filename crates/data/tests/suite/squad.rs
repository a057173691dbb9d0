//! Questions about texts, from SQuAD's JSON and made of any text.

use crate::common::Folder;
use kiln_data::{BadRecords, DataKind, Dataset, Opened, Questions, Request, Result, Sample, TokenizerChoice, Tokens};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const TOKENIZER: TokenizerChoice = TokenizerChoice::WordPiece(120);

fn open(kind: DataKind, path: &Path, most: usize, bad: BadRecords) -> Result<Opened> {
    let request = Request {
        path: Some(path),
        shape: &[most],
        sides: &[],
        own_size: false,
        target: None,
        tokenizer: Some(&TOKENIZER),
        bad,
        facts: None,
    };
    (kind.card().open)(&request)
}

/// A text of some words, with a question for the one at `place`, which no other text has.
fn paragraph(number: usize, words: usize, place: usize) -> Value {
    let word = |at: usize| match at {
        _ if at == place => format!("Zoë{number}"),
        _ => ["the", "river", "naïve", "ran", "past"][at % 5].to_string(),
    };
    let context = (0..words).map(word).collect::<Vec<_>>().join(" ") + ".";
    let answer = format!("Zoë{number}");
    let before = &context[..context.find(&answer).unwrap()];
    json!({
        "context": context,
        "qas": [{
            "id": format!("q{number}"),
            "question": "Who ran past the river?",
            "answers": [{"text": answer, "answer_start": before.chars().count()}],
        }],
    })
}

fn file(paragraphs: Vec<Value>) -> String {
    json!({"version": "1.1", "data": [{"title": "a", "paragraphs": paragraphs}]}).to_string()
}

/// The text that the targets of a sample stand for.
fn answer(questions: &Questions, window: usize, sample: &Sample) -> Option<String> {
    let [first, last] = [sample.targets[0] as usize, sample.targets[1] as usize];
    let found = questions.answer_at(window, &(first..last + 1))?;
    Some(found.1.to_string())
}

#[test]
fn answers_are_found_again_in_the_windows_that_have_them() {
    let dir = Folder::new();
    let long = (0..20)
        .map(|i| paragraph(i, 5 + 9 * i, (7 * i) % (5 + 9 * i)))
        .collect();
    let path = dir.file("a.json", file(long).as_bytes());
    let opened = open(DataKind::Squad, &path, 48, BadRecords::Refuse).unwrap();
    let mut asked = 0;
    for part in [&opened.train, &opened.test] {
        let questions = part.questions().unwrap();
        asked += questions.questions().len();
        let mut answered = vec![0; questions.questions().len()];
        for window in 0..part.len() {
            let sample = part.get(window).unwrap();
            let (ids, kinds) = sample.input.split_at(48);
            let used = ids.iter().take_while(|&&id| id >= 0.0).count();
            let text = questions.text_in(window).unwrap();
            assert_eq!((sample.shape.dims(), sample.label), (&[2, 48][..], window as i32));
            assert_eq!(text.end + 1, used);
            assert!(
                kinds
                    .iter()
                    .enumerate()
                    .all(|(at, &kind)| { kind == f32::from(at >= text.start && at < used) })
            );
            let question = questions.question_of(window).unwrap();
            match answer(questions, window, &sample) {
                Some(found) => {
                    assert_eq!(found, questions.questions()[question].answers[0]);
                    answered[question] += 1;
                }
                None => assert_eq!(sample.targets, [0.0, 0.0]),
            }
        }
        assert!(answered.iter().all(|&windows| windows > 0), "{answered:?}");
        assert!(part.len() > 2 * answered.len() && !questions.has_unanswerable());
    }
    assert_eq!(asked, 20);
}

#[test]
fn a_folder_has_both_parts_and_some_questions_have_no_answer() {
    let dir = Folder::new();
    let mut none = paragraph(7, 12, 3);
    none["qas"][0]["answers"] = json!([]);
    none["qas"][0]["is_impossible"] = json!(true);
    none["qas"][0]["plausible_answers"] = json!([{"text": "the", "answer_start": 0}]);
    let test = dir.file("squad/dev-v2.0.json", file(vec![none, paragraph(3, 30, 4)]).as_bytes());
    let folder = test.parent().unwrap();
    let card = DataKind::Squad.card();
    assert!((card.recognises)(folder) && (card.recognises)(&test));
    let missing = open(DataKind::Squad, folder, 48, BadRecords::Refuse)
        .err()
        .unwrap()
        .to_string();
    assert!(missing.contains("train*.json"), "{missing}");
    dir.file("squad/train-v2.0.json", file(vec![paragraph(1, 9, 2)]).as_bytes());
    let opened = open(DataKind::Squad, folder, 48, BadRecords::Refuse).unwrap();
    let questions = opened.test.questions().unwrap();
    assert_eq!((opened.train.len(), questions.questions().len()), (1, 2));
    assert!(questions.has_unanswerable() && questions.questions()[0].answers.is_empty());
    assert_eq!(opened.test.get(0).unwrap().targets, [0.0, 0.0]);
}

#[test]
fn what_is_wrong_is_named_with_its_field() {
    let dir = Folder::new();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut bad = paragraph(2, 12, 3);
        change(&mut bad);
        let mut all: Vec<Value> = (10..22).map(|i| paragraph(i, 12, 3)).collect();
        all.insert(2, bad);
        file(all)
    };
    let cases: [(&str, String, &[&str]); 8] = [
        (
            "syntax.json",
            "{\"data\": [\n1}".to_string(),
            &["syntax.json", "line 2"],
        ),
        (
            "field.json",
            with(&|of| drop(of.as_object_mut().unwrap().remove("context"))),
            &["`context`", "line 1"],
        ),
        (
            "start.json",
            with(&|of| of["qas"][0]["answers"][0]["answer_start"] = json!(4)),
            &["answer_start", "record 2", "q2"],
        ),
        (
            "far.json",
            with(&|of| of["qas"][0]["answers"][0]["answer_start"] = json!(4000)),
            &["4000", "characters"],
        ),
        (
            "empty.json",
            with(&|of| of["qas"][0]["answers"][0]["text"] = json!(" ")),
            &["text at record 2", "none"],
        ),
        (
            "none.json",
            with(&|of| of["qas"][0]["answers"] = json!([])),
            &["answers at record 2", "is_impossible"],
        ),
        (
            "both.json",
            with(&|of| of["qas"][0]["is_impossible"] = json!(true)),
            &["answers at record 2"],
        ),
        (
            "asked.json",
            with(&|of| of["qas"][0]["question"] = json!("")),
            &["question at record 2"],
        ),
    ];
    for (name, text, parts) in cases {
        let path = dir.file(name, text.as_bytes());
        let error = open(DataKind::Squad, &path, 48, BadRecords::Refuse)
            .err()
            .unwrap_or_else(|| panic!("{name}"));
        for part in [name].iter().chain(parts) {
            assert!(error.to_string().contains(part), "no `{part}` in: {error}");
        }
        if parts.iter().any(|part| part.contains("record")) {
            let opened = open(DataKind::Squad, &path, 48, BadRecords::Skip).unwrap();
            assert_eq!(opened.train.skipped().unwrap().count(), 1, "{name}");
        }
    }
    let few = dir.file("few.json", file(vec![paragraph(1, 9, 2)]).as_bytes());
    let error = open(DataKind::Squad, &few, 48, BadRecords::Refuse)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("ten texts"), "{error}");
    let fine = dir.file("fine.json", with(&|_| ()).as_bytes());
    let error = open(DataKind::Squad, &fine, 7, BadRecords::Refuse)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("at least 8"), "{error}");
}

#[test]
fn any_text_has_questions_for_its_words() {
    let dir = Folder::new();
    let line = |i: usize| {
        format!(
            "Captain Ahab number {i} looked over the water for whale {}.\n",
            i * 7 % 50
        )
    };
    let path = dir.file("a.txt", (0..300).map(line).collect::<String>().as_bytes());
    let opened = open(DataKind::Cloze, &path, 192, BadRecords::Refuse).unwrap();
    let questions = opened.test.questions().unwrap();
    assert!(questions.has_unanswerable());
    for window in 0..opened.test.len() {
        let sample = opened.test.get(window).unwrap();
        let question = &questions.questions()[questions.question_of(window).unwrap()];
        if let Some(found) = answer(questions, window, &sample) {
            assert_eq!(found, question.answers[0]);
            assert!(
                !question.text.contains(&found) && question.text.contains("what"),
                "{question:?}"
            );
        }
    }
}

#[test]
fn a_question_is_asked_about_a_text() {
    let text = "Call me Ishmael. ".repeat(20);
    let tokens = Arc::new(Tokens::of(&TOKENIZER, &text).unwrap());
    let asked = Questions::ask(&text, " Call me what? ", &tokens, 32).unwrap();
    assert!(asked.len() > 3);
    let last = asked.len() - 1;
    let positions = asked.text_in(last).unwrap();
    let (bytes, found) = asked.answer_at(last, &(positions.end - 1..positions.end)).unwrap();
    assert_eq!((&text[bytes], found), (".", "."));
    assert!(asked.answer_at(last, &(0..2)).is_none() && asked.answer_at(last + 1, &positions).is_none());
    for (text, question) in [("", "what?"), ("a text", " ")] {
        assert!(Questions::ask(text, question, &tokens, 32).is_err());
    }
    assert!(Questions::ask("a text", "what?", &tokens, 7).is_err());
}
