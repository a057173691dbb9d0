//! The tables of GPUs: what an SM of an architecture does in a clock, and what each card has.

use serde::Deserialize;
use std::collections::BTreeMap;

const ARCHITECTURES: &str = include_str!("../data/architectures.toml");
const CARDS: &str = include_str!("../data/cards.toml");

/// The lowest architecture that Kiln has kernels for.
pub const LOWEST: u32 = 80;

/// A fault of a table, or a card that is not in it.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    /// A table that cannot be read.
    #[error("{file}: {reason}")]
    Table {
        /// The table.
        file: String,
        /// Its fault, with the place.
        reason: String,
    },
    /// A card that is in no table.
    #[error("no card is called `{name}`; there are {known}; others can be added with a table of cards")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// All names, with commas between.
        known: String,
    },
    /// A card that Kiln's kernels do not run on.
    #[error("Kiln has kernels for compute capability 8.0 and above, and {title} has {major}.{minor}", major = sm / 10, minor = sm % 10)]
    NoKernels {
        /// The card.
        title: String,
        /// Ten times its compute capability.
        sm: u32,
    },
    /// A card of an architecture without constants.
    #[error("nothing is known of sm_{sm}, which {title} is; data/architectures.toml of kiln-forecast has {known}")]
    NoConstants {
        /// The card.
        title: String,
        /// Ten times its compute capability.
        sm: u32,
        /// The architectures that are known.
        known: String,
    },
}

/// The work that an SM does in a clock. `data/architectures.toml` has the source of each number.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Multiply-adds of f32.
    pub fma_lanes: f64,
    /// Special functions: exponential, reciprocal, roots.
    pub special_lanes: f64,
    /// The part of the peak of the card's tensor cores that `mma.sync` reaches.
    pub mma_sync: f64,
    /// Bytes read from L2.
    pub l2_bytes: f64,
    /// Bytes read from and written to L2, as many of each.
    pub l2_copy_bytes: f64,
    /// Clocks until L2 answers a load.
    pub l2_latency: f64,
    /// Clocks until DRAM answers a load.
    pub dram_latency: f64,
    /// Clocks from the end of a block until the next one issues.
    pub block_turnover: f64,
    /// The part of the data sheet's bandwidth that is reached.
    pub dram_efficiency: f64,
    /// Seconds from one small dependent kernel of a graph to the next.
    pub small_kernel: f64,
    /// By how much more than on the published kernels the model may be wrong.
    pub band: f64,
}

/// A card.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The name by which it is asked for.
    pub name: String,
    /// Its name in full.
    pub title: String,
    /// Ten times its compute capability.
    pub sm: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// GHz.
    pub clock: f64,
    /// GB of memory.
    pub memory: f64,
    /// MB of L2 cache.
    pub l2: f64,
    /// GB/s of the memory.
    pub bandwidth: f64,
    /// The part of it that is reached, where it is not that of the architecture.
    pub dram_efficiency: Option<f64>,
    /// TFLOP/s of f32.
    pub f32: f64,
    /// TFLOP/s of TF32 on tensor cores.
    pub tf32: f64,
    /// TFLOP/s of f16 and bf16 on tensor cores.
    pub f16: f64,
    /// The limit of the board's power.
    pub watts: f64,
    /// Dollars an hour.
    pub price: Option<f64>,
    /// Whose price, and when.
    #[serde(default)]
    pub price_source: String,
    /// Where the figures are from.
    #[serde(default)]
    pub source: String,
}

/// A card with what its architecture does.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// The card.
    pub card: Card,
    /// Its architecture.
    pub architecture: Architecture,
}

impl Gpu {
    /// Clocks a second.
    pub fn hertz(&self) -> f64 {
        self.card.clock * 1e9
    }

    /// Operations of tensor cores a clock of an SM at the data sheet's peak, of TF32 or of 16 bits.
    pub fn tensor_rate(&self, tf32: bool) -> f64 {
        let peak = if tf32 { self.card.tf32 } else { self.card.f16 };
        peak * 1e12 / (f64::from(self.card.sms) * self.hertz())
    }

    /// The part of the data sheet's bandwidth that is reached.
    pub fn dram_efficiency(&self) -> f64 {
        self.card.dram_efficiency.unwrap_or(self.architecture.dram_efficiency)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        (self.card.memory * 1e9) as u64
    }
}

/// All cards by name.
#[derive(Clone, Debug)]
pub struct Cards {
    cards: Vec<Card>,
    architectures: BTreeMap<String, Architecture>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardFile {
    card: Vec<Card>,
}

impl Cards {
    /// The cards that come with Kiln.
    ///
    /// # Errors
    /// [`Error::Table`] if a table of this crate cannot be read, which its tests exclude.
    pub fn known() -> Result<Cards, Error> {
        let architectures = toml::from_str(ARCHITECTURES).map_err(|e| Error::Table {
            file: "data/architectures.toml".to_string(),
            reason: e.to_string(),
        })?;
        let mut cards = Cards {
            cards: Vec::new(),
            architectures,
        };
        cards.add("data/cards.toml", CARDS)?;
        Ok(cards)
    }

    /// Adds the rows of a table; one with the name of a known card takes its place. `file` is for messages.
    ///
    /// # Errors
    /// [`Error::Table`] if the table is no such one, or a number of a card is not above zero.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), Error> {
        let wrong = |reason: String| Error::Table {
            file: file.to_string(),
            reason,
        };
        let rows: CardFile = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for card in rows.card {
            let positive = [
                ("sms", f64::from(card.sms)),
                ("clock", card.clock),
                ("memory", card.memory),
                ("l2", card.l2),
                ("bandwidth", card.bandwidth),
                ("f32", card.f32),
                ("f16", card.f16),
                ("watts", card.watts),
            ];
            for (field, n) in positive {
                if !(n.is_finite() && n > 0.0) {
                    return Err(wrong(format!(
                        "`{field}` of {} is {n}, which is no number above 0",
                        card.name
                    )));
                }
            }
            self.cards.retain(|known| known.name != card.name);
            self.cards.push(card);
        }
        Ok(())
    }

    /// The names of all cards that Kiln has kernels for, the fastest on tensor cores first.
    pub fn names(&self) -> Vec<&str> {
        let mut cards: Vec<&Card> = self.cards.iter().filter(|card| card.sm >= LOWEST).collect();
        cards.sort_by(|a, b| b.f16.total_cmp(&a.f16));
        cards.into_iter().map(|card| card.name.as_str()).collect()
    }

    /// The card that a device is, by what its driver says: one of as many multiprocessors of the same compute capability (`sm` is ten
    /// times that), with the longest of their names in the device's, and with the memory that is nearest to its bytes.
    ///
    /// ```
    /// # use kiln_forecast::Cards;
    /// let cards = Cards::known()?;
    /// let gpu = cards.device("NVIDIA H100 80GB HBM3", 90, 132, 85_520_000_000).expect("a card of the table");
    /// assert_eq!(gpu.card.name, "h100");
    /// assert!(cards.device("NVIDIA H100 80GB HBM3", 90, 100, 85_520_000_000).is_none());
    /// # Ok::<(), kiln_forecast::Error>(())
    /// ```
    pub fn device(&self, name: &str, sm: u32, multiprocessors: u32, bytes: u64) -> Option<Gpu> {
        let name = name.to_lowercase().replace(' ', "");
        let named = |card: &Card| match name.contains(&card.name.replace('-', "")) {
            true => card.name.len(),
            false => 0,
        };
        let apart = |card: &Card| (card.memory * 1e9 - bytes as f64).abs();
        let alike = self.cards.iter().filter(|c| c.sm == sm && c.sms == multiprocessors);
        let card = alike.max_by(|a, b| named(a).cmp(&named(b)).then(apart(b).total_cmp(&apart(a))))?;
        self.gpu(&card.name).ok()
    }

    /// The card of this name with its architecture, in upper or lower case.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NoKernels`], [`Error::NoConstants`].
    pub fn gpu(&self, name: &str) -> Result<Gpu, Error> {
        let card = self.cards.iter().find(|card| card.name.eq_ignore_ascii_case(name));
        let card = card.ok_or_else(|| Error::Unknown {
            name: name.to_string(),
            known: self.names().join(", "),
        })?;
        if card.sm < LOWEST {
            return Err(Error::NoKernels {
                title: card.title.clone(),
                sm: card.sm,
            });
        }
        let architecture = self.architectures.get(&format!("sm_{}", card.sm));
        let architecture = architecture.ok_or_else(|| Error::NoConstants {
            title: card.title.clone(),
            sm: card.sm,
            known: self.architectures.keys().cloned().collect::<Vec<_>>().join(", "),
        })?;
        Ok(Gpu {
            card: card.clone(),
            architecture: architecture.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_that_kernels_run_on_has_an_architecture_and_a_source() {
        let cards = Cards::known().unwrap();
        for name in cards.names() {
            let gpu = cards.gpu(name).unwrap();
            assert!(!gpu.card.source.is_empty(), "{name}");
            assert_eq!(gpu.card.price.is_some(), !gpu.card.price_source.is_empty(), "{name}");
            // The data sheet's f32 peak is lanes times clock.
            let f32 = f64::from(gpu.card.sms) * gpu.architecture.fma_lanes * 2.0 * gpu.hertz() / 1e12;
            assert!(
                (f32 / gpu.card.f32 - 1.0).abs() < 0.1,
                "{name}: {f32} of {}",
                gpu.card.f32
            );
        }
        assert_eq!(cards.gpu("H100").unwrap().card.name, "h100");
        assert!((cards.gpu("a100").unwrap().tensor_rate(false) - 2048.0).abs() < 20.0);
    }

    #[test]
    fn cards_that_cannot_be_forecast_for_say_why() {
        let cards = Cards::known().unwrap();
        let t4 = cards.gpu("t4").unwrap_err().to_string();
        assert!(t4.contains("8.0 and above") && t4.contains("7.5"), "{t4}");
        let unknown = cards.gpu("h1000").unwrap_err().to_string();
        assert!(unknown.contains("h1000") && unknown.contains("rtx4090"), "{unknown}");
    }

    #[test]
    fn rows_can_be_added_and_replaced() {
        let mut cards = Cards::known().unwrap();
        let row = "[[card]]\nname = \"h100\"\ntitle = \"mine\"\nsm = 90\nsms = 100\nclock = 1.0\nmemory = 64\nl2 = 50\nbandwidth = 1000\n\
            f32 = 25.6\ntf32 = 200\nf16 = 400\nwatts = 300\n";
        cards.add("mine.toml", row).unwrap();
        assert_eq!(cards.gpu("h100").unwrap().card.title, "mine");
        assert_eq!(cards.names().iter().filter(|name| **name == "h100").count(), 1);
        let wrong = cards
            .add("mine.toml", &row.replace("clock = 1.0", "clock = 0.0"))
            .unwrap_err();
        assert!(wrong.to_string().contains("`clock` of h100"), "{wrong}");
        assert!(cards.add("mine.toml", "[[card]]\nname = 3").is_err());
        cards.add("mine.toml", &row.replace("sm = 90", "sm = 130")).unwrap();
        assert!(matches!(cards.gpu("h100"), Err(Error::NoConstants { sm: 130, .. })));
    }
}
