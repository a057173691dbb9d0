//! Numbers with a range, which flags and configuration files check alike.

use serde::{Deserialize, Serialize};

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub(crate) struct Whole<const MIN: u64, const MAX: u64 = { u64::MAX }>(u64);

/// A number of things, at least one.
pub(crate) type Count = Whole<1>;

/// A number of things that fits 32 bits, at least one.
pub(crate) type Small = Whole<1, { u32::MAX as u64 }>;

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// The number.
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    fn expected() -> String {
        match (MIN, MAX) {
            (0, u64::MAX) => "expected a whole number".to_string(),
            (_, u64::MAX) => format!("expected a whole number of {MIN} or more"),
            _ => format!("expected a whole number from {MIN} to {MAX}"),
        }
    }
}

impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Whole<MIN, MAX> {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        match (MIN..=MAX).contains(&number) {
            true => Ok(Whole(number)),
            false => Err(Self::expected()),
        }
    }
}

impl<const MIN: u64, const MAX: u64> From<Whole<MIN, MAX>> for u64 {
    fn from(number: Whole<MIN, MAX>) -> u64 {
        number.0
    }
}

impl<const MIN: u64, const MAX: u64> std::str::FromStr for Whole<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<u64>().map_err(|_| Self::expected())?.try_into()
    }
}

/// A type of finite numbers that pass a test.
macro_rules! real {
    ($(#[$doc:meta])* $name:ident, $test:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub(crate) struct $name(f64);

        impl $name {
            /// The number.
            pub(crate) fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = String;

            fn try_from(number: f64) -> Result<Self, String> {
                let test: fn(f64) -> bool = $test;
                match number.is_finite() && test(number) {
                    true => Ok($name(number)),
                    false => Err(concat!("expected ", $expected).to_string()),
                }
            }
        }

        impl From<$name> for f64 {
            fn from(number: $name) -> f64 {
                number.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                text.parse::<f64>().map_err(|_| "expected a number".to_string())?.try_into()
            }
        }
    };
}

real! {
    /// A finite number of 0 or more.
    Rate, |number| number >= 0.0, "a finite number of 0 or more"
}

real! {
    /// A finite number above 0.
    Positive, |number| number > 0.0, "a finite number above 0"
}

real! {
    /// A number above 0 and at most 1.
    Factor, |number| number > 0.0 && number <= 1.0, "a number above 0 and at most 1"
}

real! {
    /// A number from 0 to 1.
    Share, |number| (0.0..=1.0).contains(&number), "a number from 0 to 1"
}

/// The size of square images: `64`, in colour, or `64x64x1`, in grey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ImageSize([usize; 3]);

impl ImageSize {
    /// The shape `[H, W, C]`.
    pub(crate) fn shape(self) -> [usize; 3] {
        self.0
    }
}

impl std::str::FromStr for ImageSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<usize>> = text.split('x').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[side]) if side > 0 => Ok(ImageSize([side, side, 3])),
            Some(&[height, width, channels @ (1 | 3)]) if height == width && width > 0 => {
                Ok(ImageSize([height, width, channels]))
            }
            _ => Err("expected the side of square images, such as 64, or 64x64x1 for grey ones".to_string()),
        }
    }
}

impl TryFrom<String> for ImageSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ImageSize> for String {
    fn from(ImageSize([height, width, channels]): ImageSize) -> String {
        format!("{height}x{width}x{channels}")
    }
}

/// The decays of two moments, each from 0 to below 1: the text `0.9,0.999`, or a list of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "TextOrPair", into = "[f64; 2]")]
pub(crate) struct Betas([f64; 2]);

/// The ways to write [`Betas`].
#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrPair {
    Pair([f64; 2]),
    Text(String),
}

impl TryFrom<[f64; 2]> for Betas {
    type Error = String;

    fn try_from(pair: [f64; 2]) -> Result<Self, String> {
        match pair.iter().all(|beta| (0.0..1.0).contains(beta)) {
            true => Ok(Betas(pair)),
            false => Err("expected two numbers from 0 to below 1".to_string()),
        }
    }
}

impl TryFrom<TextOrPair> for Betas {
    type Error = String;

    fn try_from(written: TextOrPair) -> Result<Self, String> {
        match written {
            TextOrPair::Pair(pair) => pair.try_into(),
            TextOrPair::Text(text) => text.parse(),
        }
    }
}

impl From<Betas> for [f64; 2] {
    fn from(betas: Betas) -> [f64; 2] {
        betas.0
    }
}

impl std::str::FromStr for Betas {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected two numbers, such as 0.9,0.999";
        let (first, second) = text.split_once(',').ok_or(expected)?;
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| expected.to_string());
        [number(first)?, number(second)?].try_into()
    }
}

/// A number of bytes, as text with a unit of 1024: `8G`, `512M`, `1.5GiB`, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Bytes(u64);

impl Bytes {
    /// The number.
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a number of bytes, such as 8G or 512M".to_string();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = text[..text.len() - unit.len()].parse().map_err(|_| expected())?;
        let power = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
            "" => 0,
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            _ => return Err(expected()),
        };
        let bytes = number * 1024f64.powi(power);
        match (1.0..1e18).contains(&bytes) {
            true => Ok(Bytes(bytes as u64)),
            false => Err(expected()),
        }
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        bytes.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units_of_1024() {
        for (text, bytes) in [
            ("7", 7),
            ("2k", 2048),
            ("1.5M", 3 << 19),
            ("8GiB", 8 << 30),
            ("1tb", 1 << 40),
        ] {
            let read: Bytes = text.parse().unwrap();
            assert_eq!((read.get(), String::from(read).parse()), (bytes, Ok(read)));
        }
        for wrong in ["", "0", "G", "-1G", "1X", "1 G", "nan", "1e30", "999999999999T"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn betas_are_two_numbers_below_1() {
        let betas: Betas = "0.5, 0.999".parse().unwrap();
        assert_eq!(<[f64; 2]>::from(betas), [0.5, 0.999]);
        for json in ["[0.5,0.999]", "\"0.5,0.999\""] {
            assert_eq!(serde_json::from_str::<Betas>(json).unwrap(), betas, "{json}");
        }
        assert_eq!(serde_json::to_string(&betas).unwrap(), "[0.5,0.999]");
        for wrong in ["0.5", "0.5,1", "-0.1,0.9", "a,b", "0.1,0.2,0.3", "nan,0.5", ""] {
            assert!(wrong.parse::<Betas>().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<Betas>("[0.5]").is_err());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!("1e-3".parse::<Rate>().map(Rate::get), Ok(1e-3));
        for wrong in ["-1", "nan", "inf", "fast", ""] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
            assert!(wrong.parse::<Positive>().is_err(), "{wrong}");
            assert!(wrong.parse::<Count>().is_err(), "{wrong}");
        }
        assert_eq!("0".parse::<Rate>().map(Rate::get), Ok(0.0));
        assert_eq!("0.5".parse::<Positive>().map(Positive::get), Ok(0.5));
        assert_eq!("0".parse::<Positive>().unwrap_err(), "expected a finite number above 0");
        assert_eq!(
            "0".parse::<Count>().unwrap_err(),
            "expected a whole number of 1 or more"
        );
        type Few = Whole<0, 256>;
        assert_eq!("256".parse::<Few>().map(Few::get), Ok(256));
        assert_eq!(
            "257".parse::<Few>().unwrap_err(),
            "expected a whole number from 0 to 256"
        );
        assert!(serde_json::from_str::<Count>("0").is_err() && serde_json::from_str::<Rate>("-1").is_err());
        assert_eq!(serde_json::to_string(&Rate(1.5)).unwrap(), "1.5");
    }
}
