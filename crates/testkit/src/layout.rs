//! Results do not depend on how inputs were made: a case is run on inputs that were permuted, sliced and broadcast.

use crate::array::{Array, unravel};
use crate::{Case, assert_close};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Tensor, no_grad};

/// Runs `case` in f32 on inputs with the same values that were permuted, sliced or expanded, and compares the results.
///
/// # Panics
/// When a result changes, or the op returns an error.
pub fn layouts<B: Backend>(backend: &B, case: &impl Case) {
    let inputs = case.inputs();
    // The first entry along the leading axis, repeated: the values of the expanded inputs.
    let repeated: Vec<Array> = inputs
        .iter()
        .map(|x| Array::from_fn(&x.shape, |i| x.at(&first_entry(i))))
        .collect();
    let answer = |tensors: Result<Vec<Tensor<B>>>| no_grad(|| case.call(backend, &tensors?)?.to_f64());
    let plain = |arrays: &[Array]| arrays.iter().map(|x| upload(backend, x)).collect::<Result<Vec<_>>>();
    let run = || -> Result<()> {
        // Only the order of the arithmetic can differ: each result is within its rounding error of the exact one.
        let twice = |arrays: &[Array], want: &[f64]| -> Vec<f64> {
            let rounding = case.rounding(arrays, &case.oracle(arrays));
            let bounds = rounding.bounds(DType::F32, want);
            bounds.into_iter().map(|bound| 2.0 * bound).collect()
        };
        let want = answer(plain(&inputs))?;
        let bounds = twice(&inputs, &want);
        for (name, layout) in [("permuted", permuted::<B> as fn(&B, &Array) -> _), ("sliced", sliced)] {
            let got = answer(inputs.iter().map(|x| layout(backend, x)).collect())?;
            assert_close(&format!("{name} {case:?}"), &got, &want, &bounds);
        }
        let got = answer(inputs.iter().map(|x| expanded(backend, x)).collect())?;
        let want = answer(plain(&repeated))?;
        assert_close(&format!("broadcast {case:?}"), &got, &want, &twice(&repeated, &want));
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{case:?}: {e}"));
}

fn upload<B: Backend>(backend: &B, x: &Array) -> Result<Tensor<B>> {
    Tensor::from_f64(backend, &x.data, &x.shape, DType::F32)
}

fn first_entry(index: &[usize]) -> Vec<usize> {
    index
        .iter()
        .enumerate()
        .map(|(d, &i)| if d == 0 { 0 } else { i })
        .collect()
}

/// `x`, uploaded with its axes reversed and permuted back.
fn permuted<B: Backend>(backend: &B, x: &Array) -> Result<Tensor<B>> {
    let back: Vec<usize> = x.shape.iter().rev().copied().collect();
    let stored = Array::from_fn(&back, |i| x.at(&i.iter().rev().copied().collect::<Vec<_>>()));
    let axes: Vec<isize> = (0..x.shape.len() as isize).rev().collect();
    upload(backend, &stored)?.permute(&axes)
}

/// `x`, uploaded backwards in every other entry of a tensor of NaN and sliced out.
fn sliced<B: Backend>(backend: &B, x: &Array) -> Result<Tensor<B>> {
    let wide: Vec<usize> = x.shape.iter().map(|d| 2 * d + 1).collect();
    let mut stored = Array::new(&wide, vec![f64::NAN; wide.iter().product()]);
    for n in 0..x.size() {
        let i = unravel(n, &x.shape);
        let at: Vec<usize> = i.iter().zip(&x.shape).map(|(i, d)| 2 * (d - 1 - i) + 1).collect();
        *stored.at_mut(&at) = x.at(&i);
    }
    let mut t = upload(backend, &stored)?;
    for axis in 0..x.shape.len() as isize {
        t = t.slice(axis, Some(-2), None, -2)?;
    }
    Ok(t)
}

/// The first entry of `x` along the leading axis, expanded.
fn expanded<B: Backend>(backend: &B, x: &Array) -> Result<Tensor<B>> {
    let t = upload(backend, x)?;
    match x.shape.first() {
        None | Some(0) => Ok(t),
        Some(_) => t.narrow(0, 0, 1)?.broadcast_to(&x.shape),
    }
}
