//! Matrix products and linear layers.

mod slopes;

pub use slopes::{as_two_ops, remade, targets};

use super::elementwise::Function;
use crate::array::broadcast_shape;
use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::ops::Activation;
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// The product `op(a) · op(b)`; with `trans` of `None` through `matmul`, which also takes vectors.
#[derive(Clone, Debug)]
struct Product {
    a: Array,
    b: Array,
    trans: Option<(bool, bool)>,
}

impl Case for Product {
    fn inputs(&self) -> Vec<Array> {
        vec![self.a.clone(), self.b.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.trans {
            Some((ta, tb)) => x[0].matmul_t(&x[1], ta, tb),
            None => x[0].matmul(&x[1]),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (ta, tb) = self.trans.unwrap_or_default();
        let (mut a, mut b) = (x[0].clone(), x[1].clone());
        let (row, column) = (a.shape.len() == 1, b.shape.len() == 1);
        if row {
            a.shape.insert(0, 1);
        }
        if column {
            b.shape.push(1);
        }
        let (ra, rb) = (a.shape.len(), b.shape.len());
        let (m, k) = if ta {
            (a.shape[ra - 1], a.shape[ra - 2])
        } else {
            (a.shape[ra - 2], a.shape[ra - 1])
        };
        let n = if tb { b.shape[rb - 2] } else { b.shape[rb - 1] };
        let batch = broadcast_shape(&a.shape[..ra - 2], &b.shape[..rb - 2]);
        let mut c = Array::from_fn(&[&batch[..], &[m, n]].concat(), |at| {
            let (lead, i, j) = (&at[..batch.len()], at[batch.len()], at[batch.len() + 1]);
            let read = |x: &Array, r: usize, c: usize, t: bool| {
                let last = if t { [c, r] } else { [r, c] };
                x.broadcast_at(&[lead, &last].concat()[batch.len() + 2 - x.shape.len().max(2)..])
            };
            (0..k).map(|l| read(&a, i, l, ta) * read(&b, l, j, tb)).sum()
        });
        if column {
            c.shape.pop();
        }
        if row {
            c.shape.remove(batch.len());
        }
        c
    }

    /// A product for each element of a row, and their sum.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let inner = match (self.trans.is_some_and(|t| t.0), self.a.shape.len()) {
            (true, rank) => self.a.shape[rank - 2],
            (false, rank) => self.a.shape[rank - 1],
        };
        Rounding::terms(inner as f64 + 1.0, self.oracle(&magnitudes(x)))
    }
}

/// Sizes mostly small enough for numeric gradients, sometimes 0.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![12 => 1usize..5, 1 => Just(0usize), 3 => prop::sample::select(vec![15usize, 16, 17, 31, 33]),
        1 => prop::sample::select(vec![127usize, 129])]
}

fn with_values(a: Vec<usize>, b: Vec<usize>, trans: Option<(bool, bool)>) -> impl Strategy<Value = Product> {
    (shapes::values(&a, -1.0, 1.0), shapes::values(&b, -1.0, 1.0)).prop_map(move |(a, b)| Product { a, b, trans })
}

/// Batched products with broadcast batches, with either operand transposed.
pub fn matmul<B: Backend>(backend: &B) {
    let batches: Vec<[&[usize]; 2]> = vec![
        [&[], &[]],
        [&[], &[]],
        [&[3], &[]],
        [&[], &[2]],
        [&[2], &[2]],
        [&[2, 1], &[1, 3]],
        [&[1], &[2, 2]],
        [&[0], &[1]],
    ];
    let strategy = (
        (size(), size(), size()),
        any::<(bool, bool)>(),
        prop::sample::select(batches),
    )
        .prop_flat_map(|((m, n, k), (ta, tb), [la, lb])| {
            let matrix = |lead: &[usize], r, c, t: bool| [lead, &if t { [c, r] } else { [r, c] }].concat();
            with_values(matrix(la, m, k, ta), matrix(lb, k, n, tb), Some((ta, tb)))
        });
    check(backend, strategy);
}

/// Products with vectors on either side.
pub fn matmul_vectors<B: Backend>(backend: &B) {
    let lead = || prop::collection::vec(1usize..4, 0..3);
    let strategy = (size(), size(), lead(), any::<(bool, bool)>()).prop_flat_map(|(k, n, lead, (left, right))| {
        let (a, b) = match (left, right) {
            (true, true) => (vec![k], vec![k]),
            (true, false) => (vec![k], [&lead[..], &[k, n]].concat()),
            _ => ([&lead[..], &[n, k]].concat(), vec![k]),
        };
        with_values(a, b, None)
    });
    check(backend, strategy);
}

/// The linear layer `f(x · wᵀ + bias)`.
#[derive(Clone, Debug)]
struct Linear {
    x: Array,
    w: Array,
    bias: Option<Array>,
    f: Activation,
}

impl Case for Linear {
    fn inputs(&self) -> Vec<Array> {
        [Some(&self.x), Some(&self.w), self.bias.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].linear(&x[1], x.get(2), self.f)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let mut shape = x[0].shape.clone();
        let inner = shape.pop().unwrap_or_default();
        shape.push(x[1].shape[0]);
        Array::from_fn(&shape, |at| {
            let (&j, lead) = at.split_last().expect("rank 1 or more");
            let sum: f64 = (0..inner)
                .map(|l| x[0].at(&[lead, &[l]].concat()) * x[1].at(&[j, l]))
                .sum();
            activate(self.f, sum + x.get(2).map_or(0.0, |b| b.at(&[j])))
        })
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let sums = Linear {
            f: Activation::None,
            ..self.clone()
        };
        let inner = self.w.shape[1] as f64;
        // The input of an activation is rounded where the gradient reads it.
        let stored = f64::from(u8::from(self.f.reads_input()));
        activated(self.f, inner + 2.0, sums.oracle(&magnitudes(x)), want).stored(stored)
    }

    fn slope_terms(&self, x: &[Array]) -> f64 {
        activated_slope(self.f, x)
    }
}

/// The absolute values of every input: with them an oracle that adds up products gives the sum of their magnitudes.
pub(super) fn magnitudes(inputs: &[Array]) -> Vec<Array> {
    inputs.iter().map(|x| x.map(f64::abs)).collect()
}

/// The rounding of an activation of sums with `steps` roundings of terms with these magnitudes. No activation has a derivative
/// above hardswish's 1.5, by which it may magnify the error of a sum. Its own error is added; fused formulas may round twice as
/// often as the function of the table, whose units in the last place count as two roundings.
pub(super) fn activated(f: Activation, steps: f64, magnitude: Array, want: &Array) -> Rounding {
    let Some(f) = f.function() else {
        return Rounding::terms(steps, magnitude);
    };
    let each = magnitude.data.iter().zip(&want.data);
    let data = each.map(|(m, y)| 1.5 * m + y.abs()).collect();
    Rounding::terms(steps + 2.0 * f.function().ulps, Array::new(&magnitude.shape, data))
}

/// Terms of an activation's derivative that cancel are at most 1.5 in magnitude, seeds at most 1.5, and the other operands of
/// the products at most the largest input. A gradient may add such terms of every result; the bound counts the results.
pub(super) fn activated_slope(f: Activation, x: &[Array]) -> f64 {
    let inputs = x.iter().flat_map(|x| &x.data);
    let largest = inputs.fold(1.0, |m: f64, x| m.max(x.abs()));
    f.function().map_or(0.0, |_| 1.5 * 1.5 * largest)
}

/// The activation of a fused op by its formula.
pub(super) fn activate(f: Activation, x: f64) -> f64 {
    f.function().map_or(x, |f| Function::plain(f).exact(x))
}

/// Linear layers with every activation, with and without bias.
pub fn linear<B: Backend>(backend: &B) {
    let activation = prop::sample::select(Activation::ALL.to_vec());
    let lead = prop::collection::vec(prop_oneof![8 => 1usize..4, 1 => Just(0usize)], 0..3);
    let strategy = (lead, size(), size(), activation, any::<bool>()).prop_flat_map(|(lead, inner, out, f, bias)| {
        let bias = if bias {
            shapes::values(&[out], -1.0, 1.0).prop_map(Some).boxed()
        } else {
            Just(None).boxed()
        };
        let x = shapes::values(&[&lead[..], &[inner]].concat(), -1.0, 1.0);
        let w = shapes::values(&[out, inner], -1.0, 1.0);
        (x, w, bias).prop_map(move |(x, w, bias)| Linear { x, w, bias, f })
    });
    check(backend, strategy);
}

#[derive(Clone, Debug)]
struct Joined {
    x: Array,
    layers: Vec<(Array, Array)>,
}

impl Joined {
    /// The weights of all layers one below the other, or their biases.
    fn whole(parts: &[Array]) -> Array {
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
        let data: Vec<f64> = parts.iter().flat_map(|part| part.data.iter().copied()).collect();
        Array::new(&shape, data)
    }

    /// The layer that all are together, as the case of [`Linear`] with its inputs.
    fn as_linear(x: &[Array]) -> Linear {
        let (weights, biases) = x[1..].split_at(x.len() / 2);
        Linear {
            x: x[0].clone(),
            w: Joined::whole(weights),
            bias: Some(Joined::whole(biases)),
            f: Activation::None,
        }
    }
}

impl Case for Joined {
    fn inputs(&self) -> Vec<Array> {
        let (weights, biases): (Vec<Array>, Vec<Array>) = self.layers.iter().cloned().unzip();
        [vec![self.x.clone()], weights, biases].concat()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (weights, biases) = x[1..].split_at(x.len() / 2);
        x[0].linear_joined(&weights.iter().zip(biases).collect::<Vec<_>>())
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let linear = Joined::as_linear(x);
        linear.oracle(&linear.inputs())
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let linear = Joined::as_linear(x);
        linear.rounding(&linear.inputs(), want)
    }
}

/// Several linear layers of one input as one.
pub fn linear_joined<B: Backend>(backend: &B) {
    let lead = prop::collection::vec(1usize..4, 0..3);
    let outputs = prop::collection::vec(size(), 1..5);
    let strategy = (lead, size(), outputs).prop_flat_map(|(lead, inner, outputs)| {
        let layer = |out: usize| {
            (
                shapes::values(&[out, inner], -1.0, 1.0),
                shapes::values(&[out], -1.0, 1.0),
            )
        };
        let layers: Vec<_> = outputs.into_iter().map(layer).collect();
        let x = shapes::values(&[&lead[..], &[inner]].concat(), -1.0, 1.0);
        (x, layers).prop_map(|(x, layers)| Joined { x, layers })
    });
    check(backend, strategy);
}

/// An activation inside of a linear layer gives the same bits as the elementwise op, over the whole finite range of each dtype.
/// The units of processors that multiply bf16 take operands below the smallest normal number for zero, so that a product may too.
///
/// # Panics
/// With dtype, activation and value, when the two differ or when an op returns an error.
pub fn fused_activations<B: Backend>(backend: &B) {
    let compare = || -> Result<()> {
        let mut values: Vec<f64> = (-2000..=2000).map(|i| f64::from(i) / 100.0).collect();
        values.extend((-3900..=3800).flat_map(|e| [1.0, -1.0].map(|sign| sign * 10f64.powf(f64::from(e) / 100.0))));
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            if !backend.supports_dtype(dtype) {
                continue;
            }
            let column = Tensor::from_f64(backend, &values, &[values.len(), 1], dtype)?;
            let one = Tensor::ones(backend, &[1, 1], dtype)?;
            for &f in Activation::ALL {
                let elementwise = match f.function() {
                    None => column.clone(),
                    Some(f) => Function::plain(f).apply(&column)?,
                };
                let want = elementwise.to_f64()?;
                let zero = Tensor::zeros(backend, &[1], dtype)?;
                let of_zero = match f.function() {
                    None => zero,
                    Some(f) => Function::plain(f).apply(&zero)?,
                };
                let of_zero = of_zero.to_f64()?[0];
                // The values as rows, and as columns, of products with 1.
                for fused in [column.linear(&one, None, f)?, one.linear(&column, None, f)?] {
                    for ((x, got), want) in column.to_f64()?.iter().zip(fused.to_f64()?).zip(&want) {
                        let subnormal = dtype == DType::BF16 && x.abs() < f64::from(f32::MIN_POSITIVE);
                        let same = got == *want || got.is_nan() && want.is_nan() || subnormal && got == of_zero;
                        assert!(same, "{dtype} {f:?} of {x:e}: {got:e} fused, {want:e} elementwise");
                    }
                }
            }
        }
        Ok(())
    };
    compare().unwrap_or_else(|e| panic!("{e}"));
}

/// Operands that do not fit are typed errors.
///
/// # Panics
/// When an argument is accepted, or refused with another error.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).expect("small tensor");
    let two = zeros(&[2, 3]);
    for rank in 0..=6 {
        let other = zeros(&vec![1; rank]);
        for flags in [(false, false), (true, true)] {
            let found = two.matmul_t(&other, flags.0, flags.1);
            match rank {
                0 | 1 => assert!(matches!(found, Err(Error::Rank { .. })), "rank {rank}: {found:?}"),
                _ => assert!(
                    matches!(found, Err(Error::ShapeMismatch { .. })),
                    "rank {rank}: {found:?}"
                ),
            }
        }
        let found = two.matmul(&other);
        match rank {
            0 => assert!(matches!(found, Err(Error::Rank { .. })), "{found:?}"),
            _ => assert!(
                matches!(found, Err(Error::ShapeMismatch { .. })),
                "rank {rank}: {found:?}"
            ),
        }
        let found = two.linear(&other, None, Activation::None);
        match rank {
            2 => assert!(matches!(found, Err(Error::ShapeMismatch { .. })), "{found:?}"),
            _ => assert!(matches!(found, Err(Error::Rank { .. })), "rank {rank}: {found:?}"),
        }
    }
    assert!(matches!(
        zeros(&[]).linear(&two, None, Activation::None),
        Err(Error::Rank { .. })
    ));
    assert!(matches!(
        zeros(&[2, 4, 3]).matmul(&zeros(&[3, 3, 5])),
        Err(Error::ShapeMismatch { .. })
    ));
    let bias = two.linear(&zeros(&[4, 3]), Some(&zeros(&[3])), Activation::None);
    assert!(matches!(bias, Err(Error::ShapeMismatch { .. })), "{bias:?}");
    let half = Tensor::zeros(backend, &[3, 3], DType::BF16).expect("small tensor");
    assert!(matches!(two.matmul(&half), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(
        two.linear(&half, None, Activation::None),
        Err(Error::DTypeMismatch { .. })
    ));
    // With an empty inner dimension the sums are 0; huge empty operands give a result that is too large.
    assert_eq!(
        zeros(&[2, 0]).matmul(&zeros(&[0, 3])).and_then(|c| c.to_f64()),
        Ok(vec![0.0; 6])
    );
    let huge = zeros(&[1 << 40, 0]);
    assert!(matches!(huge.matmul_t(&huge, false, true), Err(Error::TooLarge { .. })));
}
