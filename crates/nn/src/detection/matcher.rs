//! Matches candidate boxes with targets by their overlap.

use crate::{Error, Result};

/// The target that a candidate box is matched with, if any.
///
/// See the example of [`Matcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The target of this number.
    Target(usize),
    /// No target.
    Background,
    /// Something between the two, from which nothing is learned.
    Ignored,
}

/// Assigns candidates, such as anchors, to targets by their overlap (`Matcher` of torchvision's detectors): a candidate stands for the target
/// that it overlaps most, if that is at least `high`; below `low` it is background, and between them it is ignored.
///
/// ```
/// use kiln_nn::detection::{Match, Matcher, overlaps};
/// let targets = [[0.0, 0.0, 10.0, 10.0]];
/// let candidates = [[0.0, 0.0, 10.0, 9.0], [0.0, 0.0, 10.0, 5.0], [20.0, 20.0, 30.0, 30.0]];
/// let matcher = Matcher::new(0.7, 0.3, false)?;
/// let found = matcher.assign(&overlaps(&targets, &candidates), candidates.len())?;
/// assert_eq!(found, [Match::Target(0), Match::Ignored, Match::Background]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matcher {
    high: f32,
    low: f32,
    allow_low_quality: bool,
}

impl Matcher {
    /// A matcher with two thresholds. With `allow_low_quality` the candidates that overlap a target more than all others do stand for the
    /// target that each of them overlaps most, however little that is, so that no target is without candidates.
    ///
    /// See the example of [`Matcher`].
    ///
    /// # Errors
    /// A `low` above `high`, NaN.
    pub fn new(high: f32, low: f32, allow_low_quality: bool) -> Result<Self> {
        if low <= high {
            return Ok(Matcher {
                high,
                low,
                allow_low_quality,
            });
        }
        Err(Error::invalid("matcher", "low", low, format!("at most {high}")))
    }

    /// What each of `candidates` candidates stands for, given the overlaps of every target with every candidate, row-major, a row for each
    /// target, as [`overlaps`](super::overlaps) makes them. Of equal overlaps the first target counts.
    ///
    /// See the example of [`Matcher`].
    ///
    /// # Errors
    /// A number of overlaps that is no multiple of that of candidates.
    pub fn assign(&self, overlaps: &[f32], candidates: usize) -> Result<Vec<Match>> {
        if !overlaps.len().is_multiple_of(candidates.max(1)) || (candidates == 0 && !overlaps.is_empty()) {
            let expected = format!("a multiple of {candidates}, the number of candidates");
            return Err(Error::invalid("matcher", "overlaps", overlaps.len(), expected));
        }
        let rows: Vec<&[f32]> = overlaps.chunks(candidates.max(1)).collect();
        let mut best = vec![(None, f32::NEG_INFINITY); candidates];
        for (target, row) in rows.iter().enumerate() {
            for (best, &overlap) in best.iter_mut().zip(*row) {
                if overlap > best.1 {
                    *best = (Some(target), overlap);
                }
            }
        }
        let mut found: Vec<Match> = best
            .iter()
            .map(|&(target, overlap)| match target {
                Some(target) if overlap >= self.high => Match::Target(target),
                Some(_) if overlap >= self.low => Match::Ignored,
                _ => Match::Background,
            })
            .collect();
        if self.allow_low_quality {
            for row in &rows {
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                for (i, _) in row.iter().enumerate().filter(|&(_, &overlap)| overlap == largest) {
                    if let Some(target) = best[i].0 {
                        found[i] = Match::Target(target);
                    }
                }
            }
        }
        Ok(found)
    }
}
