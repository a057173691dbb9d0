//! Ops compared with values and gradients of PyTorch: losses, norms and reductions (`golden/losses.py`), and ops of all
//! kinds at the edges of their domains (`golden/edges.py`).

mod edges;
mod losses;
mod values;

use crate::assert_close;
use crate::compare::unit;
use kiln_core::ops::Unary;
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Tensor, grad};
use serde_json::Value;
use values::{numbers, shape, tensor};

/// Compares values and gradients with PyTorch's, in those of f64 and f32 that the backend has, within rounding error.
///
/// # Panics
/// With the case, when a number differs or an op returns an error.
pub fn pytorch<B: Backend>(backend: &B) {
    all(backend, include_str!("../golden/losses.json"), 80, losses::call);
}

/// As [`pytorch`], at NaN, infinities, zeros, ties and bounds, for empty tensors, and beyond the edge of an image; with
/// gradients of gradients where the file has them. Gradients of gradients that are NaN in PyTorch are not compared, because
/// its formulas give NaN where a product of 0 and ∞ could have been avoided.
///
/// # Panics
/// As [`pytorch`].
pub fn edges<B: Backend>(backend: &B) {
    all(backend, include_str!("../golden/edges.json"), 250, edges::call);
}

/// A function that calls the op of a case on its inputs.
type Call<B> = fn(&B, &Value, &[Tensor<B>]) -> Result<Tensor<B>>;

fn all<B: Backend>(backend: &B, cases: &str, least: usize, call: Call<B>) {
    let cases: Value = serde_json::from_str(cases).expect("JSON");
    let cases = cases.as_array().expect("a list of cases");
    assert!(cases.len() > least);
    for dtype in [DType::F64, DType::F32]
        .into_iter()
        .filter(|dtype| backend.supports_dtype(*dtype))
    {
        for case in cases {
            let mut told = case.clone();
            for made in ["output", "grads", "second"] {
                told.as_object_mut().expect("a case").remove(made);
            }
            let name = format!("{dtype} {told}");
            one(backend, case, &name, call, dtype).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

/// The rounding error that the results of an op may have: `steps` roundings in a row, relative to the result or to the largest
/// number that it is computed from.
struct Admitted {
    dtype: DType,
    steps: f64,
    /// True if each result depends on one element of each input, and nothing cancels.
    single: bool,
    /// The largest of the inputs and the results.
    largest: f64,
}

impl Admitted {
    fn new(case: &Value, dtype: DType) -> Self {
        let inputs = case["inputs"].as_array().expect("inputs");
        let inputs: Vec<f64> = inputs.iter().flat_map(|v| numbers(&v["data"])).collect();
        let name = case["name"].as_str().expect("a name");
        let row = Unary::ALL.iter().map(|f| f.function()).find(|row| row.name == name);
        let moved = ["maximum", "minimum", "max", "min", "top_k", "gather", "pad", "max_pool"];
        let (steps, single) = match (row, name) {
            // A unit in the last place counts as two roundings; the input and the parameters are rounded too.
            (Some(row), _) => (2.0 * row.ulps + 3.0, true),
            (None, "div" | "pow") => (6.0, true),
            (None, name) if moved.contains(&name) => (1.0, true),
            // Sums, some of them nested, and a dozen functions.
            _ => (2.0 * inputs.len() as f64 + 12.0, false),
        };
        let results = numbers(&case["output"]["data"]);
        // The derivative is divided by a probability and by its complement, which has fewer correct digits.
        let given = inputs.iter().filter(|_| name == "bce_loss");
        let over: Vec<f64> = given.map(|x| 1.0 / (x * (1.0 - x)).abs()).collect();
        Admitted {
            dtype,
            steps,
            single,
            largest: largest(inputs.iter().chain(&results).chain(&over)),
        }
    }

    /// The unit roundoff of the dtype, plus the error of the files, which have twelve digits.
    fn unit(&self) -> f64 {
        unit(self.dtype) + 5e-13
    }

    fn values(&self, want: &[f64]) -> Vec<f64> {
        // Some of PyTorch's formulas lose digits by cancellation in f64.
        let own = unit(DType::F64) * self.largest;
        let size = |w: &f64| if self.single { w.abs() } else { self.largest };
        want.iter().map(|w| self.steps * self.unit() * size(w) + own).collect()
    }

    /// The bounds of gradients, as in [`Slopes::bounds`](crate::slopes::Slopes::bounds). The gradient is a sum over
    /// `seeds` results with the weights 1, 2, 3, …, whose terms may cancel.
    fn gradients(&self, seeds: usize, want: &[f64]) -> Vec<f64> {
        let roundings = 4.0 * (self.steps + 2.0) + seeds as f64;
        let all = largest(want).max(self.largest) * seeds as f64;
        let size = |w: &f64| if self.single { w.abs() + seeds as f64 } else { all };
        want.iter().map(|w| roundings * self.unit() * size(w)).collect()
    }
}

/// The largest finite magnitude, but at least 1, the magnitude of constants in formulas.
fn largest<'a>(numbers: impl IntoIterator<Item = &'a f64>) -> f64 {
    let finite = numbers.into_iter().filter(|v| v.is_finite());
    finite.fold(1.0, |m, v| m.max(v.abs()))
}

/// The numbers 1, 2, 3, … in the shape of `y`.
fn counted<B: Backend>(y: &Tensor<B>) -> Result<Tensor<B>> {
    let numbers: Vec<f64> = (1..=y.size()).map(|i| i as f64).collect();
    Tensor::from_f64(y.backend(), &numbers, y.shape(), y.dtype())
}

fn one<B: Backend>(backend: &B, case: &Value, name: &str, call: Call<B>, dtype: DType) -> Result<()> {
    let admitted = Admitted::new(case, dtype);
    let given = case["inputs"].as_array().expect("inputs").iter();
    let inputs: Vec<_> = given
        .map(|v| Ok(tensor(backend, v, dtype)?.requires_grad()))
        .collect::<Result<_>>()?;
    let y = call(backend, case, &inputs)?;
    let want = &case["output"];
    assert_eq!(y.shape().dims(), shape(want), "{name}");
    let want = numbers(&want["data"]);
    assert_close(name, &y.to_f64()?, &want, &admitted.values(&want));
    let refs: Vec<&Tensor<B>> = inputs.iter().collect();
    let found = |g: Option<Tensor<B>>, x: &Tensor<B>| g.map_or_else(|| Ok(vec![0.0; x.size()]), |g| g.to_f64());
    for create_graph in [true, false] {
        let grads = grad(&y, &refs, Some(&counted(&y)?), create_graph)?;
        let first = grads[0].clone();
        let wanted = case["grads"].as_array().expect("gradients");
        for ((g, x), want) in grads.into_iter().zip(&inputs).zip(wanted) {
            let what = format!("gradient (create_graph: {create_graph}) of {name}");
            let want = numbers(&want["data"]);
            assert_close(&what, &found(g, x)?, &want, &admitted.gradients(y.size(), &want));
        }
        let (Some(second), Some(first), true) = (case["second"].as_array(), first, create_graph) else {
            continue;
        };
        let seeds = first.size() * y.size();
        let grads = match first.is_tracked() {
            true => grad(&first, &refs, Some(&counted(&first)?), true)?,
            false => vec![None; inputs.len()],
        };
        for ((g, x), want) in grads.into_iter().zip(&inputs).zip(second) {
            let (got, mut want) = (found(g, x)?, numbers(&want["data"]));
            for (want, got) in want.iter_mut().zip(&got).filter(|(want, _)| want.is_nan()) {
                *want = *got;
            }
            let bounds = admitted.gradients(seeds, &want);
            assert_close(&format!("second gradient of {name}"), &got, &want, &bounds);
        }
    }
    Ok(())
}
