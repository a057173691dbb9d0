//! Low-rank additions as a setting.

use super::names::Names;
use kiln_nn::lora::LoraOptions;
use serde::{Deserialize, Serialize};

/// `r=8,alpha=16,dropout=0.05,modules=c_attn`: the rank, and what is not as it is by default. `modules` may be repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Lora {
    r: usize,
    alpha: Option<f64>,
    dropout: Option<f64>,
    modules: Vec<Names>,
}

impl Lora {
    /// The options; `alpha` is `r` by default.
    pub(crate) fn options(&self) -> LoraOptions {
        LoraOptions {
            r: self.r,
            alpha: self.alpha.unwrap_or(self.r as f64),
            dropout: self.dropout.unwrap_or(0.0),
            target_modules: self.modules.iter().map(Names::pattern).collect(),
        }
    }
}

impl std::str::FromStr for Lora {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            "expected r=N, and if you like alpha=X, dropout=P and modules=PATTERN, such as r=8,alpha=16,modules=c_attn";
        let wrong = |entry: &str| format!("`{entry}`: {expected}");
        let (mut r, mut lora) = (
            None,
            Lora {
                r: 0,
                alpha: None,
                dropout: None,
                modules: Vec::new(),
            },
        );
        for entry in text.split(',') {
            let (name, value) = entry.split_once('=').ok_or_else(|| wrong(entry))?;
            let number = || value.parse::<f64>().ok().filter(|x| x.is_finite());
            match name {
                "r" if r.is_none() => r = value.parse::<u32>().ok().filter(|&r| (1..=65_536).contains(&r)),
                "alpha" if lora.alpha.is_none() => lora.alpha = Some(number().ok_or_else(|| wrong(entry))?),
                "dropout" if lora.dropout.is_none() => {
                    let p = number().filter(|p| (0.0..1.0).contains(p));
                    lora.dropout = Some(p.ok_or_else(|| wrong(entry))?);
                }
                "modules" => lora.modules.push(value.parse().map_err(|_| wrong(entry))?),
                _ => return Err(wrong(entry)),
            }
            if name == "r" && r.is_none() {
                return Err(wrong(entry));
            }
        }
        lora.r = r.ok_or(expected)? as usize;
        Ok(lora)
    }
}

impl TryFrom<String> for Lora {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Lora> for String {
    fn from(lora: Lora) -> String {
        let mut text = format!("r={}", lora.r);
        for (name, value) in [("alpha", lora.alpha), ("dropout", lora.dropout)] {
            if let Some(value) = value {
                text.push_str(&format!(",{name}={value}"));
            }
        }
        for names in lora.modules {
            text.push_str(&format!(",modules={}", names.pattern()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_read_and_written() {
        for text in [
            "r=8",
            "r=8,alpha=16",
            "r=4,alpha=0.5,dropout=0.1,modules=c_attn,modules=h.?.mlp*",
        ] {
            let lora: Lora = text.parse().unwrap();
            assert_eq!(String::from(lora), text);
        }
        let options = "r=8,modules=c_attn".parse::<Lora>().unwrap().options();
        assert_eq!((options.r, options.alpha, options.dropout), (8, 8.0, 0.0));
        for wrong in [
            "",
            "8",
            "r=0",
            "r=-1",
            "r=8,r=4",
            "alpha=16",
            "r=8,alpha=x",
            "r=8,dropout=1",
            "r=8,rank=2",
            "r=8,modules=",
        ] {
            assert!(wrong.parse::<Lora>().is_err(), "{wrong}");
        }
    }
}
