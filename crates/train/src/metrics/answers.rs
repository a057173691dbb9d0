//! Answers to questions, compared as SQuAD compares them.

/// The words of an answer that are compared: in small letters, without punctuation of ASCII and without the articles a, an and the.
fn words_of(answer: &str) -> Vec<String> {
    let kept = answer.to_lowercase();
    let kept: String = kept.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // An article is a run of letters, which other punctuation may stand beside.
    let mut text = String::with_capacity(kept.len());
    let mut rest = &kept[..];
    while let Some(first) = rest.chars().next() {
        let word = first.is_alphanumeric();
        let end = rest.find(|c: char| c.is_alphanumeric() != word).unwrap_or(rest.len());
        match &rest[..end] {
            "a" | "an" | "the" => text.push(' '),
            other => text.push_str(other),
        }
        rest = &rest[end..];
    }
    text.split_whitespace().map(str::to_string).collect()
}

/// The F1 of the words of two answers.
fn f1(prediction: &[String], answer: &[String]) -> f64 {
    let mut left: Vec<&String> = answer.iter().collect();
    let common = prediction.iter().filter(|word| {
        let at = left.iter().position(|other| other == word);
        at.map(|at| left.swap_remove(at)).is_some()
    });
    match common.count() {
        0 => 0.0,
        common => 2.0 * common as f64 / (prediction.len() + answer.len()) as f64,
    }
}

/// The exact match, 0 or 1, and the F1 of a predicted answer, each with the one of `answers` that it fits best: those of SQuAD 1.1
/// (Rajpurkar et al. 2016; `evaluate-v1.1.py`, and the metric `squad` of Hugging Face's evaluate divided by 100). Letters are compared as
/// small ones, punctuation and the articles a, an and the are left out. Without answers both are 0.
///
/// ```
/// let (exact, f1) = kiln_train::squad_scores("the Eiffel tower.", &["Eiffel Tower", "a tower"]);
/// assert_eq!((exact, f1), (1.0, 1.0));
/// let (exact, f1) = kiln_train::squad_scores("tower", &["Eiffel Tower"]);
/// assert!(exact == 0.0 && (f1 - 2.0 / 3.0).abs() < 1e-12);
/// ```
pub fn squad_scores(prediction: &str, answers: &[&str]) -> (f64, f64) {
    let prediction = words_of(prediction);
    let mut best = (0.0, 0.0f64);
    for answer in answers {
        let answer = words_of(answer);
        if prediction == answer {
            best.0 = 1.0;
        }
        best.1 = best.1.max(f1(&prediction, &answer));
    }
    best
}
