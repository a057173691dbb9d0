//! Measurement in turns: every contender runs once per round, so that a machine that slows down affects all alike. The
//! results are medians of the rounds' ratios.

/// The function that runs a turn of the contender with this number: seconds of a repetition, or the reason of a failure.
pub(super) type Turn<'a> = dyn FnMut(usize) -> Result<f64, String> + 'a;

/// The number of rounds after which peers that are much slower than the fastest peer are left out.
const TRIAL: usize = 2;

/// The ratio to the fastest peer's time above which a peer is left out.
const BEHIND: f64 = 1.3;

/// The results of the rounds: the seconds of each contender by round, with fewer rounds for those left out.
pub(super) struct Rounds {
    pub(super) seconds: Vec<Vec<f64>>,
}

/// The ratios of a peer's seconds to Kiln's over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Rounds {
    /// Runs `rounds` rounds of `contenders`, the first of which is Kiln and is never left out. A contender that fails is
    /// left out.
    pub(super) fn play(contenders: usize, rounds: usize, turn: &mut Turn<'_>) -> Rounds {
        let mut seconds = vec![Vec::new(); contenders];
        let mut plays = vec![true; contenders];
        for round in 0..rounds {
            for i in 0..contenders {
                if !plays[i] {
                    continue;
                }
                match turn(i) {
                    Ok(s) => seconds[i].push(s),
                    Err(_) => {
                        plays[i] = false;
                        seconds[i].clear();
                    }
                }
            }
            if round + 1 == TRIAL {
                let best = seconds[1..]
                    .iter()
                    .filter_map(|s| least(s))
                    .fold(f64::INFINITY, f64::min);
                for i in 1..contenders {
                    plays[i] &= least(&seconds[i]).is_some_and(|s| s <= BEHIND * best);
                }
            }
        }
        Rounds { seconds }
    }

    /// The peer with the least median among those measured in every round.
    pub(super) fn best(&self) -> Option<usize> {
        let played = self.seconds[0].len();
        let rest = (1..self.seconds.len()).filter(|&i| played > 0 && self.seconds[i].len() == played);
        rest.min_by(|&a, &b| median(&self.seconds[a]).total_cmp(&median(&self.seconds[b])))
    }

    /// The ratios of the seconds of contender `i` to Kiln's in the same round.
    pub(super) fn ratio(&self, i: usize) -> Option<Ratio> {
        let pairs = self.seconds[i].iter().zip(&self.seconds[0]);
        let ratios: Vec<f64> = pairs.map(|(peer, kiln)| peer / kiln).collect();
        (!ratios.is_empty()).then(|| Ratio {
            median: median(&ratios),
            low: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            high: ratios.iter().copied().fold(0.0, f64::max),
        })
    }
}

fn least(seconds: &[f64]) -> Option<f64> {
    seconds.iter().copied().min_by(f64::total_cmp)
}

/// The median; NaN if there are no values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The largest relative difference between two lists of losses; infinite if they cannot be compared.
pub(super) fn difference(losses: &[f64], reference: &[f64]) -> f64 {
    if losses.len() != reference.len() || losses.is_empty() {
        return f64::INFINITY;
    }
    let apart = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs().max(f64::MIN_POSITIVE);
    let worst = losses.iter().zip(reference).map(apart).fold(0.0, f64::max);
    // A NaN or infinite loss agrees with no other.
    match losses.iter().chain(reference).all(|l| l.is_finite()) {
        true => worst,
        false => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_far_behind_sit_out_and_ratios_are_of_one_round() {
        // Kiln, peers with 1.8, 1.5 and 10 times its time, and one that fails, on a machine that slows down with every turn.
        let (factors, mut slower) = ([1.0, 1.8, 1.5, 10.0, 0.0], 1.0);
        let mut order = Vec::new();
        let rounds = Rounds::play(5, 5, &mut |i| {
            slower *= 1.001;
            order.push(i);
            if i == 4 {
                Err("no".into())
            } else {
                Ok(factors[i] * slower)
            }
        });
        assert_eq!(order[..5], [0, 1, 2, 3, 4]);
        assert_eq!(rounds.seconds.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 5, 2, 0]);
        assert_eq!((rounds.best(), rounds.ratio(4)), (Some(2), None));
        let ratio = rounds.ratio(2).expect("played");
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
        assert!((1.5..1.51).contains(&ratio.median), "{ratio:?}");
    }

    #[test]
    fn medians_and_differences() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert!(median(&[]).is_nan());
        assert_eq!(difference(&[1.0, 2.2], &[1.0, 2.0]), (2.2 - 2.0) / 2.0);
        assert_eq!(difference(&[1.0], &[1.0, 1.0]), f64::INFINITY);
        assert_eq!(difference(&[f64::NAN], &[1.0]), f64::INFINITY);
    }
}
