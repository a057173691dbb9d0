//! The cross-entropy of a linear layer's logits, by parts.

use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Activation, CrossEntropyOptions, Indices, Reduction, Tensor, grad};

/// Numbers from −1 to 1 that look random.
fn mixed(n: usize, seed: usize) -> Vec<f64> {
    (0..n)
        .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 - 1.0)
        .collect()
}

/// The largest distance of two lists of numbers, by the largest magnitude of the second.
fn apart(got: &[f64], want: &[f64]) -> f64 {
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(0.0, f64::max);
    let scale = largest(&mut want.iter().map(|x| x.abs()));
    assert!(got.iter().all(|x| x.is_finite()), "{got:?}");
    largest(&mut got.iter().zip(want).map(|(a, b)| (a - b).abs())) / scale.max(1e-30)
}

/// The loss by parts, its gradients and the gradients of these are those of the logits as a whole but for rounding: for classes that fill
/// vectors and that do not, any number of rows at a time, ignored rows, smoothing, and both reductions.
///
/// # Panics
/// When one is too far from what it should be, or an op returns an error.
pub fn linear_cross_entropy<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        for (dtype, bound) in [
            (DType::F32, 1e-5),
            (DType::F64, 1e-12),
            (DType::BF16, 0.03),
            (DType::F16, 4e-3),
        ] {
            if !backend.supports_dtype(dtype) {
                continue;
            }
            for (rows, inner, classes, parts) in [
                (1, 1, 1, None),
                (7, 5, 3, Some(1)),
                (12, 8, 40, Some(5)),
                (33, 16, 131, Some(16)),
                (20, 24, 600, None),
                (9, 3, 521, Some(4)),
            ] {
                for (smoothing, reduction) in [(0.0, Reduction::Mean), (0.1, Reduction::Mean), (0.0, Reduction::Sum)] {
                    let x =
                        Tensor::from_f64(backend, &mixed(rows * inner, 1), &[1, rows, inner], dtype)?.requires_grad();
                    let w = Tensor::from_f64(backend, &mixed(classes * inner, 2), &[classes, inner], dtype)?
                        .requires_grad();
                    let of = |r: usize| if r % 5 == 3 { -100 } else { (r * 31 % classes) as i32 };
                    let labels: Vec<i32> = (0..rows).map(of).collect();
                    let labels = Indices::from_slice(backend, &labels, &[1, rows])?;
                    let options = CrossEntropyOptions {
                        label_smoothing: smoothing,
                        reduction,
                        ..Default::default()
                    };
                    let got = x.linear_cross_entropy(&w, &labels, &options, parts)?;
                    let want = x
                        .linear(&w, None, Activation::None)?
                        .cross_entropy_with(&labels, &options)?;
                    let name = format!("{dtype} {rows} {inner} {classes} {parts:?} {smoothing} {reduction:?}");
                    assert!(
                        apart(&got.to_f64()?, &want.to_f64()?) <= bound,
                        "{name}: {got:?} {want:?}"
                    );
                    assert_eq!(got.dtype(), want.dtype());
                    if classes == 1 {
                        continue;
                    }
                    let seed = got.full_like(1.5)?.detach();
                    let of = |y: &Tensor<B>| grad(y, &[&x, &w], Some(&seed), false);
                    // A pass that keeps the graph computes the definition.
                    let second = grad(
                        &x.linear_cross_entropy(&w, &labels, &options, parts)?,
                        &[&x],
                        Some(&seed),
                        true,
                    )?;
                    let (got, want) = (of(&got)?, of(&want)?);
                    for (got, want) in got
                        .iter()
                        .chain(&second)
                        .flatten()
                        .zip(want.iter().chain(&want[..1]).flatten())
                    {
                        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
                        let distance = apart(&got.to_f64()?, &want.to_f64()?);
                        assert!(distance <= bound, "{name}: {distance}");
                    }
                }
            }
            // Where no row counts the loss is NaN, and nothing has a gradient.
            let x = Tensor::from_f64(backend, &mixed(6, 1), &[2, 3], dtype)?.requires_grad();
            let w = Tensor::from_f64(backend, &mixed(15, 2), &[5, 3], dtype)?.requires_grad();
            let labels = Indices::full(backend, &[2], -100)?;
            let loss = x.linear_cross_entropy(&w, &labels, &CrossEntropyOptions::default(), Some(1))?;
            assert!(loss.item()?.is_nan());
            for g in grad(&loss, &[&x, &w], None, false)?.iter().flatten() {
                assert!(g.to_f64()?.iter().all(|g| *g == 0.0), "{g:?}");
            }
        }
        Ok(())
    };
    run().expect("losses");
}

/// Sizes and dtypes that do not agree, labels that are no class, and no rows at a time are refused.
///
/// # Panics
/// When a call is accepted.
pub fn linear_cross_entropy_refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let x = Tensor::zeros(backend, &[2, 3], DType::F32)?;
        let w = |inner: usize, dtype| Tensor::zeros(backend, &[5, inner], dtype);
        let options = CrossEntropyOptions::default();
        let of = |w: &Tensor<B>, labels: &[i32], rows| {
            let labels = Indices::from_slice(backend, labels, &[labels.len()])?;
            let loss = x.linear_cross_entropy(w, &labels, &options, rows);
            loss.and_then(|loss| loss.to_f64())
        };
        let right = w(3, DType::F32)?;
        assert!(of(&right, &[0, 4], None).is_ok());
        // The first row of padding is no class.
        for label in [5, -1] {
            let e = of(&right, &[0, label], None).unwrap_err();
            assert!(matches!(e, Error::IndexOutOfRange { size: 5, .. }), "{e}");
            let _ = backend.sync();
        }
        let e = of(&right, &[0, 4], Some(0)).unwrap_err();
        assert!(matches!(e, Error::InvalidArgument { argument: "rows", .. }), "{e}");
        assert!(matches!(of(&right, &[0], None), Err(Error::ShapeMismatch { .. })));
        assert!(matches!(
            of(&w(4, DType::F32)?, &[0, 4], None),
            Err(Error::ShapeMismatch { .. })
        ));
        assert!(matches!(
            of(&w(3, DType::BF16)?, &[0, 4], None),
            Err(Error::DTypeMismatch { .. })
        ));
        Ok(())
    };
    run().expect("refusals");
}
