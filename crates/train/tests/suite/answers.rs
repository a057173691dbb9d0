//! Answers to questions, compared with SQuAD's own program.

use kiln_train::squad_scores;
use serde_json::Value;

#[test]
fn scores_of_answers_are_those_of_squads_program() {
    let cases: Value = serde_json::from_str(include_str!("../golden/squad.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let answers = case["answers"].as_array().unwrap().iter();
        let answers: Vec<&str> = answers.map(|answer| answer.as_str().unwrap()).collect();
        let (exact, f1) = squad_scores(case["prediction"].as_str().unwrap(), &answers);
        assert_eq!(exact, case["exact"].as_f64().unwrap(), "{case}");
        assert!((f1 - case["f1"].as_f64().unwrap()).abs() < 1e-12, "{f1}: {case}");
    }
    assert_eq!(squad_scores("a", &[]), (0.0, 0.0));
}
