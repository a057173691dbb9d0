//! Counts of right answers.

use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, State, Tensor};

/// The index of the first largest score, or of the first NaN.
fn best(row: &[f64]) -> usize {
    let mut best = 0;
    for (j, x) in row.iter().enumerate() {
        if !row[best].is_nan() && (x.is_nan() || *x > row[best]) {
            best = j;
        }
    }
    best
}

/// Counts are exact over all that rows and classes can be for a kernel: with equal scores, NaN, and labels that are no class.
///
/// # Panics
/// When a count differs, or an op returns an error.
pub fn correct<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let sizes = [
            (0, 3),
            (1, 1),
            (7, 5),
            (8, 32),
            (9, 33),
            (70, 10),
            (3, 300),
            (5, 1025),
            (300, 513),
        ];
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            if !backend.supports_dtype(dtype) {
                continue;
            }
            let sum = State::new(Tensor::zeros(backend, &[], DType::F32)?);
            let mut want = 0.0f32;
            for (rows, classes) in sizes {
                // Few different values, so that many are equal.
                let mut scores: Vec<f64> = (0..rows * classes).map(|i| (i * 7919 % 13) as f64 - 6.0).collect();
                scores.iter_mut().skip(40).step_by(97).for_each(|x| *x = f64::NAN);
                let of_row = |(r, row): (usize, &[f64])| match r % 4 {
                    0 => -100,
                    1 => classes as i32,
                    2 => ((best(row) + 1) % classes) as i32,
                    _ => best(row) as i32,
                };
                let labels: Vec<i32> = scores.chunks(classes).enumerate().map(of_row).collect();
                let pairs = scores.chunks(classes).zip(&labels);
                let count = pairs.filter(|(row, label)| best(row) as i32 == **label).count();
                let x = Tensor::from_f64(backend, &scores, &[rows, classes], dtype)?;
                let labels = Indices::from_slice(backend, &labels, &[rows])?;
                x.add_correct(&labels, 0.25, &sum)?;
                want += count as f32 * 0.25;
                assert_eq!(sum.get().to_vec::<f32>()?, [want], "{dtype} {rows}x{classes}");
            }
        }
        Ok(())
    };
    run().expect("counts");
}

/// Labels of another shape, sums of another size or dtype, and weights that are no numbers are refused, and the sum stays.
///
/// # Panics
/// When a call is accepted.
pub fn correct_refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let x = Tensor::zeros(backend, &[2, 3], DType::F32)?;
        let sum = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).map(State::new);
        let labels = |n: usize| Indices::full(backend, &[n], 0);
        let e = x.add_correct(&labels(3)?, 1.0, &sum(&[])?).unwrap_err();
        assert!(matches!(e, Error::ShapeMismatch { .. }), "{e}");
        let e = x.add_correct(&labels(2)?, 1.0, &sum(&[2])?).unwrap_err();
        assert!(matches!(e, Error::ShapeMismatch { .. }), "{e}");
        let e = Tensor::zeros(backend, &[2, 0], DType::F32)?.add_correct(&labels(2)?, 1.0, &sum(&[])?);
        assert!(matches!(e, Err(Error::InvalidArgument { .. })), "{e:?}");
        assert!(
            Tensor::zeros(backend, &[], DType::F32)?
                .add_correct(&labels(1)?, 1.0, &sum(&[])?)
                .is_err()
        );
        Ok(())
    };
    run().expect("refusals");
}
