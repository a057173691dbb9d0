//! Connectionist temporal classification: what the kernels need to know, and the errors of labels and lengths that only they see.

use crate::{Error, Result, Shape};
use bytemuck::{Pod, Zeroable};

const OP: &str = "ctc_loss";

/// Parameters of the CTC loss of log-probabilities `[time, batch, classes]` and labels `[batch, labels]`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct CtcParams {
    /// The number of steps T.
    pub time: u64,
    /// The number of sequences N.
    pub batch: u64,
    /// The number of classes C, the blank included.
    pub classes: u64,
    /// The columns of the labels S; a sequence uses as many of them as its length says.
    pub labels: u64,
    /// The class of the blank.
    pub blank: u64,
    /// 1 if a loss that is infinite becomes 0, with gradient 0.
    pub zero_infinity: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<CtcParams>() == 48);

impl CtcParams {
    /// Parameters for `log_probs` `[T, N, C]`, `targets` `[N, S]`, and lengths `[N]` each.
    ///
    /// # Errors
    /// [`Error::Rank`] for log-probabilities of another rank, [`Error::ShapeMismatch`] for targets or lengths of another batch, an error for
    /// a blank that is no class, or sizes whose product overflows.
    pub fn new(
        log_probs: &Shape,
        targets: &Shape,
        input_lengths: &Shape,
        target_lengths: &Shape,
        blank: usize,
        zero_infinity: bool,
    ) -> Result<Self> {
        let [time, batch, classes] = *log_probs.dims() else {
            return Err(Error::Rank {
                op: OP,
                expected: "3",
                rank: log_probs.rank(),
            });
        };
        let labels = match *targets.dims() {
            [n, labels] if n == batch => labels,
            _ => return Err(mismatch(log_probs, targets)),
        };
        for lengths in [input_lengths, target_lengths] {
            if lengths.dims() != [batch] {
                return Err(mismatch(log_probs, lengths));
            }
        }
        if blank >= classes {
            return Err(Error::invalid(
                OP,
                "blank",
                blank,
                format!("below {classes}, the number of classes"),
            ));
        }
        let p = CtcParams {
            time: time as u64,
            batch: batch as u64,
            classes: classes as u64,
            labels: labels as u64,
            blank: blank as u64,
            zero_infinity: u32::from(zero_infinity),
            pad: 0,
        };
        Shape::new(&[batch, time, labels.saturating_mul(2).saturating_add(1)])?;
        Ok(p)
    }

    /// The states of a step, `2·labels + 1`: the blanks before, between and behind the labels, and then the labels.
    pub fn states(&self) -> u64 {
        self.labels.saturating_mul(2).saturating_add(1)
    }

    /// The error of a sequence with more steps than there are, or fewer than none.
    pub fn input_length_error(time: u64, length: i64, position: u64) -> Error {
        let expected = format!("0 to {time}, the steps of log_probs");
        Error::invalid(
            OP,
            "input_lengths",
            format!("{length} at position {position}"),
            expected,
        )
    }

    /// The error of a sequence with more labels than there are columns, or fewer than none.
    pub fn target_length_error(labels: u64, length: i64, position: u64) -> Error {
        let expected = format!("0 to {labels}, the columns of targets");
        Error::invalid(
            OP,
            "target_lengths",
            format!("{length} at position {position}"),
            expected,
        )
    }

    /// The error of a label that is the blank or no class.
    pub fn label_error(classes: u64, blank: u64, label: i64, position: u64) -> Error {
        if label == blank as i64 {
            let value = format!("{label} at position {position}");
            return Error::invalid(OP, "targets", value, "classes other than the blank");
        }
        Error::IndexOutOfRange {
            op: OP,
            index: label,
            position: position as usize,
            size: classes as usize,
        }
    }
}

fn mismatch(log_probs: &Shape, other: &Shape) -> Error {
    Error::ShapeMismatch {
        op: OP,
        lhs: *log_probs,
        rhs: *other,
    }
}
