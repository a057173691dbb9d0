//! Runs of a target over many inputs, and minimisation of a failing input.

use crate::{Target, mutate};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// True if the target panics on the input.
pub fn fails(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err()
}

/// Runs the target on its seeds and then on the inputs with these numbers, as long as `go_on` is true for the next one; returns
/// the first input that fails.
pub fn search(
    target: &Target,
    numbers: impl Iterator<Item = u64>,
    mut go_on: impl FnMut(u64, &[u8]) -> bool,
) -> Option<Vec<u8>> {
    let seeds = (target.seeds)();
    if let Some(seed) = seeds.iter().find(|seed| fails(target, seed)) {
        return Some(seed.clone());
    }
    for number in numbers {
        let input = mutate::input(&seeds, number);
        if !go_on(number, &input) {
            return None;
        }
        if fails(target, &input) {
            return Some(input);
        }
    }
    None
}

/// A shorter input that fails as well: pieces are left out, large ones first, and then bytes are made zero.
pub fn minimise(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut piece = best.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < best.len() {
            let mut shorter = best.clone();
            drop(shorter.drain(at..(at + piece).min(best.len())));
            if fails(&shorter) {
                best = shorter;
            } else {
                at += piece;
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    for at in 0..best.len() {
        let mut plainer = best.clone();
        plainer[at] = 0;
        if best[at] != 0 && fails(&plainer) {
            best = plainer;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let input = b"a long text with one X and one Y in it";
        let both = |input: &[u8]| input.contains(&b'X') && input.contains(&b'Y');
        assert_eq!(minimise(input, both), b"XY");
        assert!(minimise(b"abc", |_| true).is_empty());
    }

    #[test]
    fn a_failing_input_is_found_again() {
        let target = Target {
            name: "t",
            about: "",
            run: |input| assert!(!input.starts_with(b"ab"), "on purpose"),
            seeds: || vec![b"bb".to_vec()],
        };
        let find = || search(&target, 0..100_000, |_, _| true);
        let found = find().expect("one byte of two is another one");
        assert!(found.starts_with(b"ab") && find() == Some(found));
    }
}
