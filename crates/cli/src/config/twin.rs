//! How often a run is compared with the CPU, and what happens if it differs.

use serde::{Deserialize, Serialize};

/// The number of steps between two that are compared, and whether a difference is a warning alone: `every=500`, `every=500,warn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Every {
    steps: u64,
    warns: bool,
}

impl Every {
    /// The number of steps.
    pub(crate) fn steps(self) -> u64 {
        self.steps
    }

    /// True if the run goes on after a difference.
    pub(crate) fn warns(self) -> bool {
        self.warns
    }
}

impl std::str::FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (every, warns) = match text.strip_suffix(",warn") {
            Some(every) => (every, true),
            None => (text, false),
        };
        let number = every.strip_prefix("every=").and_then(|number| number.parse().ok());
        match number {
            Some(steps) if steps > 0 => Ok(Every { steps, warns }),
            _ => Err("expected every=N or every=N,warn, N steps, such as every=500".to_string()),
        }
    }
}

impl TryFrom<String> for Every {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Every> for String {
    fn from(every: Every) -> String {
        let warn = if every.warns { ",warn" } else { "" };
        format!("every={}{warn}", every.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_and_written() {
        for (text, steps, warns) in [("every=500", 500, false), ("every=7,warn", 7, true)] {
            let every: Every = text.parse().unwrap();
            assert_eq!(
                (every.steps(), every.warns(), String::from(every)),
                (steps, warns, text.to_string())
            );
        }
        for wrong in [
            "500",
            "every=0",
            "every=",
            "every=-1",
            "each=5",
            "every=5,",
            "every=5,stop",
            "warn",
            "every=5,warn,warn",
        ] {
            assert!(wrong.parse::<Every>().is_err(), "{wrong}");
        }
    }
}
