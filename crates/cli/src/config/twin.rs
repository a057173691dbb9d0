//! How often a run is compared with the CPU.

use serde::{Deserialize, Serialize};

/// The number of steps between two that are compared: `every=500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Every(u64);

impl Every {
    /// The number of steps.
    pub(crate) fn steps(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("every=").and_then(|number| number.parse().ok());
        match number {
            Some(steps) if steps > 0 => Ok(Every(steps)),
            _ => Err("expected every=N, N steps, such as every=500".to_string()),
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
        format!("every={}", every.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_and_written() {
        let every: Every = "every=500".parse().unwrap();
        assert_eq!((every.steps(), String::from(every)), (500, "every=500".to_string()));
        for wrong in ["500", "every=0", "every=", "every=-1", "each=5"] {
            assert!(wrong.parse::<Every>().is_err(), "{wrong}");
        }
    }
}
