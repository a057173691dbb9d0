//! Two backends on one case: the same values and the same gradients.

use crate::gradcheck::{gradients, leaves};
use crate::slopes::by_oracle;
use crate::{Case, Proof, assert_close};
use kiln_core::{Backend, DType, Result};

/// Runs `case` in f32 on `a` and `b` and compares values, and gradients where the op has them: each is within its bound of
/// the exact ones, so the two are within both.
///
/// # Panics
/// When they differ, or either returns an error.
pub fn conformance<A: Backend, B: Backend>(a: &A, b: &B, case: &impl Case) {
    fn one<B: Backend>(backend: &B, case: &impl Case) -> Result<(Vec<f64>, Vec<Vec<f64>>)> {
        let inputs = leaves(backend, &case.inputs(), DType::F32)?;
        let y = case.call(backend, &inputs)?.to_f64()?;
        let grads = match case.proof() {
            Proof::Forward => Vec::new(),
            _ => gradients(backend, case, &inputs, false)?
                .iter()
                .map(|g| g.to_f64())
                .collect::<Result<_>>()?,
        };
        Ok((y, grads))
    }
    let get =
        |name: String, r: Result<(Vec<f64>, Vec<Vec<f64>>)>| r.unwrap_or_else(|e| panic!("{name}: {case:?}: {e}"));
    let (ya, ga) = get(a.name(), one(a, case));
    let (yb, gb) = get(b.name(), one(b, case));
    let both = |bounds: Vec<f64>| bounds.into_iter().map(|bound| 2.0 * bound).collect::<Vec<f64>>();
    let inputs = case.inputs();
    let rounding = case.rounding(&inputs, &case.oracle(&inputs));
    assert_close(&format!("{case:?}"), &yb, &ya, &both(rounding.bounds(DType::F32, &ya)));
    if ga.is_empty() {
        return;
    }
    for (i, ((x, y), slopes)) in ga.iter().zip(&gb).zip(by_oracle(case, &inputs)).enumerate() {
        let what = format!("gradient of input {i} of {case:?}");
        assert_close(&what, y, x, &both(slopes.bounds(DType::F32)));
    }
}
