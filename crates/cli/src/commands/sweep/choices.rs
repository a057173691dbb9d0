//! The settings that a sweep varies, and the combinations of them that are run.

use crate::config::{self, RunConfig};
use crate::error::{Error, Result};
use kiln_core::philox::philox4x32;
use kiln_files::shown;

/// The values of one setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    /// `KEY=A,B,C`: these, as `--set` takes them.
    List(Vec<String>),
    /// `KEY=LOW..HIGH`: a number between, its logarithm uniform if both are above 0.
    Range(f64, f64),
}

/// A setting that a sweep varies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Varied {
    pub(super) key: String,
    pub(super) values: Values,
}

impl Varied {
    /// Reads `KEY=A,B,C` or `KEY=LOW..HIGH`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::usage(format!("--over {}: {why}", shown(text)))
                .help("for instance --over optimizer.lr=1e-3,1e-2 or 1e-4..1e-1")
        };
        let (key, values) = text.split_once('=').ok_or_else(|| wrong("expected KEY=VALUES"))?;
        let values = match values.split_once("..") {
            Some((low, high)) => {
                let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
                match (number(low), number(high)) {
                    (Some(low), Some(high)) if low < high => Values::Range(low, high),
                    _ => return Err(wrong("expected two numbers, the lower first")),
                }
            }
            None => Values::List(values.split(',').map(|value| value.trim().to_string()).collect()),
        };
        let varied = Varied {
            key: key.trim().to_string(),
            values,
        };
        // Unknown keys and values of another type are errors now, not after hours.
        match &varied.values {
            Values::List(values) => values.iter().try_for_each(|value| varied.set(value).map(drop))?,
            Values::Range(low, high) => [low, high]
                .into_iter()
                .try_for_each(|v| varied.set(&v.to_string()).map(drop))?,
        }
        Ok(varied)
    }

    fn set(&self, value: &str) -> Result<RunConfig> {
        config::set(&format!("{}={value}", self.key))
    }
}

/// One run of a sweep: the values of the varied settings, in their order.
pub(super) type Choice = Vec<String>;

/// All combinations of lists, the last setting varying fastest.
pub(super) fn grid(varied: &[Varied]) -> Result<Vec<Choice>> {
    let mut choices = vec![Choice::new()];
    for setting in varied {
        let Values::List(values) = &setting.values else {
            return Err(
                Error::usage(format!("--over {}: a range has no end of values", setting.key))
                    .help("draw from it with --random N, or list the values"),
            );
        };
        let with = |choice: &Choice| {
            values
                .iter()
                .map(|v| [&choice[..], std::slice::from_ref(v)].concat())
                .collect::<Vec<_>>()
        };
        choices = choices.iter().flat_map(with).collect();
    }
    Ok(choices)
}

/// `count` random combinations, which depend on `seed` alone.
pub(super) fn random(varied: &[Varied], count: u64, seed: u64) -> Vec<Choice> {
    let draw = |run: u64, i: usize, setting: &Varied| match &setting.values {
        Values::List(values) => values[(uniform(seed, run, i) * values.len() as f64) as usize].clone(),
        Values::Range(low, high) => {
            let at = uniform(seed, run, i);
            let value = match *low > 0.0 {
                true => (low.ln() + at * (high.ln() - low.ln())).exp(),
                false => low + at * (high - low),
            };
            // Three digits are enough to choose by, and can be read.
            format!("{value:.2e}")
        }
    };
    (0..count)
        .map(|run| {
            varied
                .iter()
                .enumerate()
                .map(|(i, setting)| draw(run, i, setting))
                .collect()
        })
        .collect()
}

/// A number of `[0, 1)` that depends on the arguments alone: Philox with the seed as its key.
fn uniform(seed: u64, run: u64, setting: usize) -> f64 {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let ([a, b], setting) = (halves(run), setting as u32);
    let [word, ..] = philox4x32([a, b, setting, 0], halves(seed));
    f64::from(word) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(texts: &[&str]) -> Vec<Varied> {
        texts.iter().map(|text| Varied::parse(text).unwrap()).collect()
    }

    #[test]
    fn grids_have_all_combinations() {
        let choices = grid(&varied(&["optimizer.lr=1e-3, 1e-2", "batch=4,8"])).unwrap();
        let joined: Vec<String> = choices.iter().map(|choice| choice.join(" ")).collect();
        assert_eq!(joined, ["1e-3 4", "1e-3 8", "1e-2 4", "1e-2 8"]);
        assert!(
            grid(&varied(&["optimizer.lr=1e-4..1"]))
                .unwrap_err()
                .help
                .unwrap()
                .contains("--random")
        );
    }

    #[test]
    fn draws_stay_in_their_range_and_repeat() {
        let settings = varied(&[
            "optimizer.lr=1e-4..1e-1",
            "optimizer.momentum=0..0.9",
            "optimizer.name=sgd,rmsprop",
        ]);
        let choices = random(&settings, 400, 3);
        assert_eq!(choices, random(&settings, 400, 3));
        assert_ne!(choices, random(&settings, 400, 4));
        let number = |i: usize| choices.iter().map(move |c| c[i].parse::<f64>().unwrap());
        assert!(number(0).all(|lr| (1e-4..=1e-1).contains(&lr)) && number(1).all(|m| (0.0..=0.9).contains(&m)));
        // As many below the middle of the logarithms as above, about.
        let low = number(0).filter(|lr| *lr < 10f64.powf(-2.5)).count();
        assert!((150..250).contains(&low), "{low}");
        let sgd = choices.iter().filter(|c| c[2] == "sgd").count();
        assert!((150..250).contains(&sgd), "{sgd}");
    }

    #[test]
    fn wrong_choices_are_refused_at_once() {
        for (text, part) in [
            ("optimizer.lr", "expected KEY=VALUES"),
            ("optimizer.lrr=1,2", "no setting `optimizer.lrr`"),
            ("optimizer.name=adam,adamm", "none of sgd"),
            ("batch=4,0", "a whole number from 1"),
            ("optimizer.lr=1..1", "the lower first"),
            ("optimizer.lr=a..b", "the lower first"),
        ] {
            let error = Varied::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
    }
}
