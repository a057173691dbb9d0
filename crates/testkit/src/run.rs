//! The entry point of property tests: runs a strategy of cases through every check that the backend supports.

use crate::gradcheck::leaves;
use crate::half_gradients::largest;
use crate::{
    Array, Case, Proof, Reference, assert_close, conformance, gradcheck, gradcheck_by_oracle, gradgradcheck,
    gradgradcheck_by_oracle, half_gradcheck, layouts,
};
use kiln_core::{Backend, DType, Result};
use kiln_nn::no_grad;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};
use std::fmt::Debug;

/// The default number of cases of a property.
const CASES: u32 = 48;
/// The number of elements of all inputs together above which no numeric gradients are computed.
const NUMERIC_LIMIT: usize = 160;

/// Runs 48 cases of `strategy` through every check.
///
/// # Panics
/// With the smallest failing case.
pub fn check<B: Backend, C: Case + 'static>(backend: &B, strategy: impl Strategy<Value = C>) {
    check_with(CASES, backend, strategy);
}

/// As [`check`], with a number of cases; `PROPTEST_CASES` can make it smaller, for slow devices and sanitizers.
///
/// # Panics
/// With the smallest failing case.
pub fn check_with<B: Backend, C: Case + 'static>(cases: u32, backend: &B, strategy: impl Strategy<Value = C>) {
    each(cases, strategy, |case| prove(backend, case));
}

/// Runs `proof` on `cases` cases of `strategy`, fewer where `PROPTEST_CASES` says so.
///
/// # Panics
/// With the smallest failing case.
pub(crate) fn each<C: Debug>(cases: u32, strategy: impl Strategy<Value = C>, proof: impl Fn(&C)) {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config = Config {
        cases: asked.map_or(cases, |n: u32| n.min(cases)),
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&strategy, |case| {
        proof(&case);
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}

fn prove<B: Backend, C: Case>(backend: &B, case: &C) {
    let run = || -> Result<()> {
        let inputs = case.inputs();
        let want = case.oracle(&inputs);
        forward(backend, case, &inputs, &want, DType::F32)?;
        layouts(backend, case);
        if backend.supports_dtype(DType::F64) {
            forward(backend, case, &inputs, &want, DType::F64)?;
        }
        for dtype in [DType::F16, DType::BF16] {
            if backend.supports_dtype(dtype) {
                half(backend, case, &inputs, dtype)?;
                if case.proof() != Proof::Forward && case.proves_half(dtype) {
                    half_gradcheck(backend, case, dtype);
                }
            }
        }
        if case.proof() != Proof::Forward {
            if inputs.iter().map(Array::size).sum::<usize>() > NUMERIC_LIMIT {
                // The case is too large for central differences.
                conformance(&Reference, backend, case);
                return Ok(());
            }
            gradcheck_by_oracle(backend, case);
            if case.proof() == Proof::SecondGradient {
                gradgradcheck_by_oracle(backend, case);
            }
            if backend.supports_dtype(DType::F64) {
                gradcheck(backend, case);
                if case.proof() == Proof::SecondGradient {
                    gradgradcheck(backend, case);
                }
            }
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

fn forward<B: Backend, C: Case>(backend: &B, case: &C, inputs: &[Array], want: &Array, dtype: DType) -> Result<()> {
    let y = case.call(backend, &leaves(backend, inputs, dtype)?)?;
    assert_eq!(y.shape().dims(), want.shape, "shape of {case:?}");
    assert_eq!(y.dtype(), dtype, "dtype of {case:?}");
    let bounds = case.rounding(inputs, want).bounds(dtype, &want.data);
    assert_close(&format!("{dtype} {case:?}"), &y.to_f64()?, &want.data, &bounds);
    Ok(())
}

/// Compares values in half precision: arithmetic in f32 on rounded inputs, with a result that is rounded once, or as often as
/// the case allows.
fn half<B: Backend, C: Case>(backend: &B, case: &C, inputs: &[Array], dtype: DType) -> Result<()> {
    let largest = largest(dtype);
    let inputs = leaves(backend, inputs, dtype)?;
    let rounded: Vec<Array> = inputs
        .iter()
        .map(|x| Ok(Array::new(x.shape().dims(), x.to_f64()?)))
        .collect::<Result<_>>()?;
    let want = case.oracle(&rounded);
    let y = no_grad(|| case.call(backend, &inputs))?;
    assert_eq!(y.shape().dims(), want.shape, "shape of {case:?}");
    assert_eq!(y.dtype(), dtype, "dtype of {case:?}");
    let mut got = y.to_f64()?;
    let bounds = case.rounding(&rounded, &want).bounds(dtype, &want.data);
    for ((got, want), bound) in got.iter_mut().zip(&want.data).zip(&bounds) {
        // A result beyond the largest value of the dtype may be infinite.
        if want.is_finite() && want.abs() + bound > largest {
            *got = *want;
        }
    }
    assert_close(&format!("{dtype} {case:?}"), &got, &want.data, &bounds);
    Ok(())
}
