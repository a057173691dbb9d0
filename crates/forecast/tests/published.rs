//! The model against published kernels: each is modelled with exponents that were fitted without it.

use kiln_forecast::published::{BAND, EXPONENTS, fitted, rows};

/// The largest mean of the errors.
const MEAN: f64 = 0.15;

#[test]
fn a_kernel_is_modelled_within_the_band_by_a_fit_without_it() {
    let rows = rows().unwrap();
    println!(
        "{:34} {:>12} {:>12} {:>8}",
        "kernel", "measured us", "modelled us", "error"
    );
    let (mut sum, mut worst) = (0.0, (0.0f64, ""));
    for (n, row) in rows.iter().enumerate() {
        let error = row.error(&fitted(&rows, Some(n)));
        println!(
            "{:34} {:>12.2} {:>12.2} {:>+7.1}%",
            row.id,
            1e6 * row.seconds,
            1e6 * row.seconds * (1.0 + error),
            100.0 * error
        );
        sum += error.abs();
        if error.abs() > worst.0.abs() {
            worst = (error, &row.id);
        }
    }
    let mean = sum / rows.len() as f64;
    println!(
        "{} kernels, mean error {:.1} %, worst {:+.1} % ({}); fitted to all: {:?}",
        rows.len(),
        100.0 * mean,
        100.0 * worst.0,
        worst.1,
        fitted(&rows, None)
    );
    assert!(mean <= MEAN, "mean error {mean}");
    assert!(worst.0.abs() <= BAND, "{worst:?}");
    assert_eq!(fitted(&rows, None), EXPONENTS, "the constants are those of the fit");
}

#[test]
fn every_row_says_where_it_is_published() {
    for row in rows().unwrap() {
        assert!(row.source.len() > 20 && row.seconds > 0.0, "{row:?}");
    }
}
