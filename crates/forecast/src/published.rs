//! Kernels of others with their measured times (`data/published.toml`): what the model's exponents are fitted to, and what its error is known by.

use crate::model::{Exponents, modelled};
use crate::tables::{Cards, Error, Gpu};
use crate::work::{Overlap, Tensor, Turn, Waits, Work};
use serde::Deserialize;

const FILE: &str = include_str!("../data/published.toml");

/// The exponents of the model, as fitted to the published kernels.
pub const EXPONENTS: Exponents = Exponents {
    phases: 2.0,
    pipelined: 2.5,
    unrolled: 12.0,
    memory: 4.0,
};

/// The part by which a modelled time may be wrong. The worst error of a published kernel whose exponents were fitted without it is below
/// 20 %; a launch of Kiln's has more that is guessed: turns, bytes, wavefronts of shared memory.
pub const BAND: f64 = 0.30;

/// A published kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub id: String,
    /// Where its time is published.
    pub source: String,
    /// The card, at the clock of the measurement.
    pub gpu: Gpu,
    /// Its launch.
    pub work: Work,
    /// The time that was measured.
    pub seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    row: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    source: String,
    #[serde(default, rename = "note")]
    _note: String,
    gpu: String,
    clock: f64,
    seconds: f64,
    blocks: f64,
    warps: f64,
    resident: f64,
    #[serde(default)]
    turns: f64,
    #[serde(default)]
    turn: Turn,
    #[serde(default)]
    outside: Turn,
    #[serde(default)]
    waits: Waits,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    tensor: Tensor,
    bytes: f64,
}

/// All rows.
///
/// # Errors
/// [`Error`] if a table cannot be read or a row names a card that is not there, which this crate's tests exclude.
pub fn rows() -> Result<Vec<Row>, Error> {
    let cards = Cards::known()?;
    let file: File = toml::from_str(FILE).map_err(|e| Error::Table {
        file: "data/published.toml".to_string(),
        reason: e.to_string(),
    })?;
    let rows = file.row.into_iter().map(|entry| {
        let mut gpu = cards.gpu(&entry.gpu)?;
        // The data sheet's peaks are those of its own clock.
        let slower = entry.clock / gpu.card.clock;
        gpu.card.clock = entry.clock;
        gpu.card.f32 *= slower;
        gpu.card.tf32 *= slower;
        gpu.card.f16 *= slower;
        Ok(Row {
            id: entry.id,
            source: entry.source,
            gpu,
            work: Work {
                blocks: entry.blocks,
                warps: entry.warps,
                resident: entry.resident,
                turns: entry.turns,
                turn: entry.turn,
                outside: entry.outside,
                waits: entry.waits,
                overlap: entry.overlap,
                tensor: entry.tensor,
                bytes: entry.bytes,
            },
            seconds: entry.seconds,
        })
    });
    rows.collect()
}

impl Row {
    /// The modelled time divided by the measured one, less one.
    pub fn error(&self, exponents: &Exponents) -> f64 {
        modelled(&self.work, &self.gpu, exponents).seconds / self.seconds - 1.0
    }
}

/// The exponents that are tried.
const TRIED: [f64; 14] = [1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0];

/// The exponents with the least mean error of all rows but one.
pub fn fitted(rows: &[Row], without: Option<usize>) -> Exponents {
    // A row has one kind of loop, so for an exponent of memory the best ones of the others are found one by one.
    let error = |overlap: Overlap, exponents: &Exponents| -> f64 {
        let used = rows
            .iter()
            .enumerate()
            .filter(|(n, row)| Some(*n) != without && row.work.overlap == overlap);
        used.map(|(_, row)| row.error(exponents).abs()).sum()
    };
    let mut best = (f64::INFINITY, EXPONENTS);
    for memory in TRIED {
        let mut exponents = Exponents { memory, ..EXPONENTS };
        let mut sum = 0.0;
        for overlap in [Overlap::Phases, Overlap::Pipelined, Overlap::Unrolled] {
            let tried = TRIED.map(|p| {
                let mut tried = exponents;
                *tried.of(overlap) = p;
                (error(overlap, &tried), p)
            });
            let (least, p) = tried
                .into_iter()
                .fold((f64::INFINITY, 2.0), |a, b| if b.0 < a.0 { b } else { a });
            *exponents.of(overlap) = p;
            sum += least;
        }
        if sum < best.0 {
            best = (sum, exponents);
        }
    }
    best.1
}

impl Exponents {
    fn of(&mut self, overlap: Overlap) -> &mut f64 {
        match overlap {
            Overlap::Phases => &mut self.phases,
            Overlap::Pipelined => &mut self.pipelined,
            Overlap::Unrolled => &mut self.unrolled,
        }
    }
}
