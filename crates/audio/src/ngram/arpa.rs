//! Files of the ARPA format, which SRILM, KenLM and others write.

use super::{Entry, NGram, start};
use crate::{AudioError, Result};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

impl NGram {
    /// Reads a model of the ARPA format whose words are `labels`: word `i` is label `i`. `<s>` is the beginning and `</s>` the end; n-grams
    /// of other words are left out, and labels that the file lacks have the probability of its `<unk>`, or 0.
    ///
    /// # Errors
    /// [`AudioError::Io`]; [`AudioError::Line`] for a line that is not of the format, or a file without `\end\`.
    pub fn read_arpa(path: impl AsRef<Path>, labels: &[String]) -> Result<Self> {
        let path = path.as_ref();
        let (mut file, _) = kiln_files::open_regular(path).map_err(AudioError::io(path, "open"))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(AudioError::io(path, "read"))?;
        read(&text, labels).map_err(|(line, reason)| AudioError::Line {
            path: path.to_path_buf(),
            line,
            reason: reason.into(),
        })
    }
}

/// Reads the text of a file; errors are a line and a reason.
fn read(text: &str, labels: &[String]) -> Result<NGram, (usize, &'static str)> {
    let end = labels.len();
    let mut numbers: HashMap<&str, usize> = labels.iter().map(String::as_str).zip(0..).collect();
    numbers.insert("</s>", end);
    numbers.insert("<s>", start(end));
    let mut model = NGram {
        order: 0,
        labels: end,
        grams: HashMap::new(),
        unseen: f64::NEG_INFINITY,
    };
    // The lines before `\data\` are a comment.
    let mut lines = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != "\\data\\");
    if lines.next().is_none() {
        return Err((1, "no `\\data\\`, expected a language model of the ARPA format"));
    }
    for (i, line) in lines {
        let (line, at) = (line.trim(), i + 1);
        if line == "\\end\\" {
            return match model.order {
                0 => Err((at, "no n-grams")),
                _ => Ok(model),
            };
        }
        if line.is_empty() || (model.order == 0 && line.starts_with("ngram ")) {
            continue;
        }
        if let Some(section) = line.strip_prefix('\\') {
            let order = section.strip_suffix("-grams:").and_then(|n| n.parse().ok());
            if order != Some(model.order + 1) {
                return Err((at, "a section out of order, expected `\\1-grams:`, `\\2-grams:`, …"));
            }
            model.order += 1;
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |field: Option<&&str>| field.and_then(|f| f.parse::<f64>().ok()).filter(|p| !p.is_nan());
        let more = fields.len().checked_sub(model.order + 1);
        let (Some(log_prob), Some(0 | 1), true) = (number(fields.first()), more, model.order > 0) else {
            return Err((at, "expected a logarithm, the words of an n-gram, and at most a factor"));
        };
        let back_off = match fields.get(model.order + 1) {
            None => 0.0,
            factor => number(factor).ok_or((at, "a factor that is no number"))?,
        };
        let words = &fields[1..=model.order];
        let ln = std::f64::consts::LN_10;
        if words == ["<unk>"] {
            model.unseen = log_prob * ln;
        }
        let gram: Option<Vec<usize>> = words.iter().map(|word| numbers.get(word).copied()).collect();
        if let Some(gram) = gram {
            let entry = Entry {
                log_prob: log_prob * ln,
                back_off: back_off * ln,
            };
            model.grams.insert(gram, entry);
        }
    }
    Err((text.lines().count(), "no `\\end\\`: the file is not whole"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LanguageModel;

    const MODEL: &str = "\
a comment
\\data\\
ngram 1=5
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.5
-0.5\t</s>
-0.4\ta\t-0.25
-0.6\tb\t-0.125

\\2-grams:
-0.1\t<s> a
-0.2\ta b

\\end\\
";

    fn labels() -> Vec<String> {
        ["a", "b", "c"].map(String::from).to_vec()
    }

    #[test]
    fn probabilities_are_those_of_the_file() {
        let model = read(MODEL, &labels()).unwrap();
        for (context, label, want) in [
            (&[][..], Some(0), -0.1),
            (&[], Some(1), -0.5 - 0.6),
            (&[0], Some(1), -0.2),
            (&[0], Some(0), -0.25 - 0.4),
            (&[0, 1], None, -0.125 - 0.5),
            (&[1], Some(2), -0.125 - 1.0),
        ] {
            let found = model.log_prob(context, label);
            assert!(
                (found - want * std::f64::consts::LN_10).abs() < 1e-12,
                "{context:?} {label:?}: {found}"
            );
        }
    }

    #[test]
    fn other_files_are_refused() {
        let line = |text: &str| read(text, &labels()).unwrap_err().0;
        assert_eq!(line(""), 1);
        assert_eq!(line(&MODEL.replace("\\end\\\n", "")), 16);
        assert_eq!(line(&MODEL.replace("2-grams", "3-grams")), 13);
        assert_eq!(line(&MODEL.replace("-0.2\ta b", "-0.2\ta")), 15);
        assert_eq!(line(&MODEL.replace("-0.6\tb", "x\tb")), 11);
        assert_eq!(line("\\data\\\n\\end\\"), 2);
    }
}
