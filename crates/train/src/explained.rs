//! The skipped steps of a run that are explained: the first, and later ones with a cause that was not told before.

use crate::Place;

/// The number of skipped steps of a run that are all examined. Of later ones the eighth, the sixteenth and so on are, so that a cause
/// that appears after days is told too, and a run that skips for one reason does not pay for it again and again.
const EXAMINED: u64 = 4;

/// The explanations of skipped steps.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    /// The number of skipped steps that could have been examined.
    steps: u64,
    /// The places that were told.
    told: Vec<Place>,
}

impl Explained {
    /// Counts a skipped step; true if it is one to examine.
    pub(crate) fn examines(&mut self) -> bool {
        self.steps += 1;
        self.steps <= EXAMINED || self.steps.is_power_of_two()
    }

    /// True if a cause is to be told: a later one is if it is a new one.
    pub(crate) fn tells(&mut self, place: &Place) -> bool {
        let new = !self.told.contains(place);
        if new {
            self.told.push(place.clone());
        }
        new || self.steps <= EXAMINED
    }
}
