//! Reductions, norms, softmax and cross-entropy in half precision: computed in f32 and rounded once.

use crate::ops::elementwise::{every_magnitude, functions as tried, slopes};
use kiln_core::ops::GradReads;
use kiln_core::{Backend, DType, Result};
use kiln_nn::{CrossEntropyOptions, Indices, Reduction, Tensor};

/// Ops of a `[6, 10]` tensor; each differs from the same op in f32 by one rounding.
fn ops<B: Backend>(x: &Tensor<B>) -> Result<Vec<(&'static str, Tensor<B>)>> {
    let labels = Indices::from_slice(x.backend(), &[3i32, 0, 9, -100, 5, 5], &[6])?;
    let options = CrossEntropyOptions {
        label_smoothing: 0.1,
        reduction: Reduction::None,
        ..Default::default()
    };
    Ok(vec![
        ("sum", x.sum(&[0], false)?),
        ("mean", x.mean(&[1], false)?),
        ("max", x.max(&[1], false)?),
        ("var", x.var(&[1], 1, false)?),
        ("std", x.std(&[0], 0, false)?),
        ("norm", x.norm(2.0, &[], false)?),
        ("logsumexp", x.logsumexp(&[1], false)?),
        ("cumsum", x.cumsum(1)?),
        ("top_k", x.top_k(3, 1, true)?.0),
        ("softmax", x.softmax(1)?),
        ("softmax of columns", x.softmax(0)?),
        ("log_softmax", x.log_softmax(1)?),
        ("batch_norm", x.batch_norm(None, None, 1e-5)?.0),
        ("layer_norm", x.layer_norm(&[10], None, None, 1e-5)?),
        ("rms_norm", x.rms_norm(&[10], None, 1e-5)?),
        ("group_norm", x.group_norm(2, None, None, 1e-5)?),
        ("cross_entropy", x.cross_entropy_with(&labels, &options)?),
    ])
}

/// Values in bf16 and f16 are those of the same op in f32, for the same inputs, rounded once: within half of a unit in the
/// last place and the 1e-5 by which sums of f32 in two orders may differ.
///
/// # Panics
/// With op and dtype, when a number differs by more or an op returns an error.
pub fn rounded_once<B: Backend>(backend: &B) {
    rounded(backend).unwrap_or_else(|e| panic!("{e}"));
}

fn rounded<B: Backend>(backend: &B) -> Result<()> {
    let values: Vec<f64> = (0..60).map(|i| (f64::from(i) * 1.7).sin() * 3.0).collect();
    // Half of a unit in the last place, relative to the value.
    for (dtype, rounding) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
        let x = Tensor::from_f64(backend, &values, &[6, 10], dtype)?;
        for ((name, y), (_, want)) in ops(&x)?.into_iter().zip(ops(&x.to_dtype(DType::F32)?)?) {
            assert_eq!(y.dtype(), dtype, "{name}");
            for (y, want) in y.to_f64()?.into_iter().zip(want.to_f64()?) {
                let bound = want.abs() * (rounding + 1e-5) + 1e-6;
                assert!((y - want).abs() <= bound, "{dtype} {name}: {y}, expected {want}");
            }
        }
    }
    Ok(())
}

/// Values of every function of one tensor in bf16 and f16, and derivatives of those whose gradient reads their input, over the whole range of
/// the dtype: those of the function in f32 at the same argument, rounded once, with 1/16 of that rounding besides. Numbers below 1e-35,
/// and below the smallest f16, may be 0.
///
/// # Panics
/// As [`rounded_once`].
pub fn functions<B: Backend>(backend: &B) {
    for dtype in [DType::BF16, DType::F16] {
        every_function(backend, dtype).unwrap_or_else(|e| panic!("{dtype}: {e}"));
    }
}

fn every_function<B: Backend>(backend: &B, dtype: DType) -> Result<()> {
    let (rounding, smallest) = match dtype {
        DType::BF16 => (2f64.powi(-8), 1e-35),
        _ => (2f64.powi(-11), 2f64.powi(-24)),
    };
    let values: Vec<f64> = every_magnitude().into_iter().map(f64::from).collect();
    let x = Tensor::from_f64(backend, &values, &[values.len()], dtype)?;
    let (arguments, wide) = (x.to_f64()?, x.to_dtype(DType::F32)?);
    for (f, _) in tried() {
        let near = |what: &str, got: Vec<f64>, want: Vec<f64>, terms: f64| {
            for ((&x, got), want) in arguments.iter().zip(got).zip(want) {
                let bound = want.abs() * rounding * 1.0625 + smallest + terms * rounding / 16.0;
                // What the dtype rounds to infinity, and what is neither, says nothing.
                if want.is_finite() && got.is_finite() {
                    assert!(
                        (got - want).abs() <= bound,
                        "{dtype} {what} of {f:?} at {x:e}: {got:e}, expected {want:e}"
                    );
                } else {
                    assert_eq!(
                        got.is_nan(),
                        want.is_nan(),
                        "{dtype} {what} of {f:?} at {x:e}: {got:e}, expected {want:e}"
                    );
                }
            }
        };
        near("value", f.apply(&x)?.to_f64()?, f.apply(&wide)?.to_f64()?, 0.0);
        if f.row().reads == GradReads::Input {
            // Terms of up to about 1 cancel.
            near("slope", slopes(f, &x)?, slopes(f, &wide)?, 1.0);
        }
    }
    Ok(())
}

/// Losses are computed in f32: the sum in a mean may exceed the largest number of half precision, and gradients divided by the
/// number of rows may be below the smallest one before a loss scale is applied.
///
/// # Panics
/// As [`rounded_once`].
pub fn losses<B: Backend>(backend: &B) {
    ends(backend).unwrap_or_else(|e| panic!("{e}"));
}

fn ends<B: Backend>(backend: &B) -> Result<()> {
    const ROWS: usize = 2048;
    for (dtype, rounding) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
        let near = |what: &str, got: f64, want: f64| {
            let bound = want.abs() * (rounding + 1e-5);
            assert!((got - want).abs() <= bound, "{dtype} {what}: {got}, expected {want}");
        };
        let slope = |x: &Tensor<B>, loss: &Tensor<B>| {
            let scaled = loss.to_dtype(DType::F32)?.mul_scalar(32768.0)?;
            scaled.backward()?.remove(x).map_or(Ok(Vec::new()), |g| g.to_f64())
        };
        // e⁻¹⁸ is 1.5e-8, a quarter of the smallest f16.
        let x = Tensor::from_f64(backend, &[18.0, 0.0, 0.0, 0.0], &[1, 4], dtype)?.requires_grad();
        let g = slope(&x, &x.cross_entropy(&Indices::from_slice(backend, &[0], &[1])?)?)?;
        // The difference of the label's share from 1 is less than the rounding of a share in f32.
        assert!(g[0].abs() <= 32768.0 * 2f64.powi(-24), "{dtype} label: {}", g[0]);
        g[1..].iter().for_each(|&g| near("share", g, 32768.0 * (-18f64).exp()));
        // 2048 losses of 40 add up to more than the largest f16, and so do 2048 weights of 64.
        let rows = Tensor::from_f64(backend, &[-40.0, 0.0].repeat(ROWS), &[ROWS, 2], dtype)?.requires_grad();
        let labels = Indices::from_slice(backend, &[0; ROWS], &[ROWS])?;
        let weight = Tensor::from_f64(backend, &[64.0, 1.0], &[2], dtype)?;
        let options = CrossEntropyOptions {
            weight: Some(&weight),
            ..Default::default()
        };
        for loss in [
            rows.cross_entropy_with(&labels, &options)?,
            rows.nll_loss_with(&labels, &options)?,
        ] {
            near("mean", loss.item()?, 40.0);
            near("slope", slope(&rows, &loss)?[0], -32768.0 / ROWS as f64);
        }
        let target = rows.detach().neg()?;
        for (what, loss, value, g) in [
            ("mse", rows.mse_loss(&target, Reduction::Mean)?, 3200.0, -160.0),
            ("l1", rows.l1_loss(&target, Reduction::Mean)?, 40.0, -1.0),
            (
                "huber",
                rows.huber_loss(&target, 2000.0, Reduction::Mean)?,
                1600.0,
                -80.0,
            ),
        ] {
            near(what, loss.item()?, value);
            near(what, slope(&rows, &loss)?[0], g * 32768.0 / (2 * ROWS) as f64);
        }
    }
    Ok(())
}
