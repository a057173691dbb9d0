//! The one door for properties: a strategy of cases, every proof a backend can give.

use crate::gradcheck::{gradients, leaves};
use crate::{Array, Case, Proof, Tolerance, assert_close, gradcheck, gradgradcheck, layouts};
use kiln_core::{Backend, DType, Result};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};

/// Cases a property tries by default.
const CASES: u32 = 48;
/// Elements of all inputs together above which numeric gradients are left to smaller cases.
const NUMERIC_LIMIT: usize = 160;

/// Runs [`CASES`] cases of `strategy` through every proof.
///
/// # Panics
/// With the smallest failing case.
pub fn check<B: Backend, C: Case + 'static>(backend: &B, strategy: impl Strategy<Value = C>) {
    check_with(CASES, backend, strategy);
}

/// As [`check`], with a number of cases.
///
/// # Panics
/// With the smallest failing case.
pub fn check_with<B: Backend, C: Case + 'static>(cases: u32, backend: &B, strategy: impl Strategy<Value = C>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&strategy, |case| {
        prove(backend, &case);
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
        forward(backend, case, &inputs, &want, DType::F32, case.tolerance())?;
        layouts(backend, case);
        if backend.supports(DType::F64) {
            forward(backend, case, &inputs, &want, DType::F64, Tolerance::F64)?;
        }
        if case.proof() != Proof::Forward {
            gradients(backend, case, &leaves(backend, &inputs, DType::F32)?, false)?;
            if backend.supports(DType::F64) && inputs.iter().map(Array::size).sum::<usize>() <= NUMERIC_LIMIT {
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

fn forward<B: Backend, C: Case>(
    backend: &B,
    case: &C,
    inputs: &[Array],
    want: &Array,
    dtype: DType,
    tolerance: Tolerance,
) -> Result<()> {
    let y = case.call(backend, &leaves(backend, inputs, dtype)?)?;
    assert_eq!(y.shape().dims(), want.shape, "shape of {case:?}");
    assert_eq!(y.dtype(), dtype, "dtype of {case:?}");
    assert_close(&format!("{dtype} {case:?}"), &y.to_f64()?, &want.data, tolerance);
    Ok(())
}
