//! Launches whose last blocks add up what all have written: `kernels/src/common/arrive.cuh`.

use crate::Cuda;
use kiln_core::Result;
use kiln_device::Geometry;
use kiln_kernels::Kernel;

/// Groups of blocks that a kernel has counters for: `TICKETS` of arrive.cuh.
pub(crate) const TICKETS: u64 = 4096;

impl Cuda {
    /// How many of the last blocks of each group add up its parts, for a launch in `groups` groups of `each` blocks; 0 if there are more
    /// groups than counters, and another launch has to do it. The sums do not depend on this number.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn sharers(&self, kernel: &'static Kernel, geometry: Geometry, groups: u64, each: u64) -> Result<u32> {
        if groups > TICKETS {
            return Ok(0);
        }
        let places = u64::from(self.resident(kernel, geometry)?) * u64::from(self.multiprocessors());
        Ok(sharers(groups, each, places) as u32)
    }
}

/// The blocks of each group that share its sum, where the device holds `places` blocks at a time.
///
/// All but one of them wait, in a place that another block could have. They do without loss where all blocks run at a time. Else they are
/// as many as the last wave has of each group, or as leave places enough for the last wave. Either way fewer wait than the device holds,
/// so those that they wait for do run.
fn sharers(groups: u64, each: u64, places: u64) -> u64 {
    let (groups, blocks) = (groups.max(1), groups * each);
    if blocks <= places {
        return each.max(1);
    }
    let last = match places {
        0 => 0,
        _ => (blocks - 1) % places + 1,
    };
    let beside = places.saturating_sub(last) / groups + 1;
    (last / groups).max(beside).min(each).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_where_all_run_at_a_time() {
        assert_eq!(sharers(18, 6, 132), 6);
        assert_eq!(sharers(1, 132, 132), 132);
        assert_eq!(sharers(0, 0, 132), 1);
    }

    #[test]
    fn few_wait_while_others_need_their_places() {
        // The last wave is 84 of 132: one block of each of 72 groups, with no place to wait in.
        assert_eq!(sharers(72, 3, 132), 1);
        // The last wave is 8 of 264: most places are free to wait in.
        assert_eq!(sharers(8, 67, 264), 33);
        assert_eq!(sharers(1, 1000, 1), 1);
        assert_eq!(sharers(5, 7, 0), 1);
    }

    #[test]
    fn fewer_wait_than_the_device_holds() {
        for groups in 1..40 {
            for each in 1..40 {
                for places in 1..90 {
                    let n = sharers(groups, each, places);
                    assert!((1..=each).contains(&n), "{groups} {each} {places}: {n}");
                    assert!(groups * (n - 1) < places, "{groups} {each} {places}: {n}");
                }
            }
        }
    }
}
