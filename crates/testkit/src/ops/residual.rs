//! Sums of a residual stream, with dropout of what is added, and their layer norm.

use crate::{Array, Case, Rounding, assert_close, check, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::autograd::recompute_activations;
use kiln_nn::{Activation, DropoutDraw, Indices, Init, Tensor, autocast};
use proptest::prelude::*;

/// The sum and its norm, one after the other along the first axis.
#[derive(Clone, Debug)]
struct ResidualNorm {
    x: Array,
    y: Option<Array>,
    scale: Array,
    shift: Array,
    eps: f64,
}

impl ResidualNorm {
    /// The sum, and for each element `f(s, scale, shift, row)` behind it.
    fn each(
        &self,
        inputs: &[Array],
        f: impl Fn(f64, f64, f64, &Row) -> f64,
        of_sum: impl Fn(f64, f64) -> f64,
    ) -> Array {
        let [rows, width] = [self.x.shape[0], self.x.shape[1]];
        let (x, y) = (&inputs[0], self.y.as_ref().map(|_| &inputs[1]));
        let [scale, shift] = [2, 1].map(|back| &inputs[inputs.len() - back]);
        let branch = |at: &[usize]| y.map_or(0.0, |y| y.at(at));
        Array::from_fn(&[2 * rows, width], |at| {
            let own = [at[0] % rows, at[1]];
            if at[0] < rows {
                return of_sum(x.at(&own), branch(&own));
            }
            let terms: Vec<[f64; 2]> = (0..width).map(|c| [x.at(&[own[0], c]), branch(&[own[0], c])]).collect();
            let row = Row::of(&terms);
            f(row.sums[own[1]], scale.at(&[own[1]]), shift.at(&[own[1]]), &row)
        })
    }
}

/// The statistics of a row.
struct Row {
    sums: Vec<f64>,
    mean: f64,
    var: f64,
    /// The mean of the magnitudes of the terms of the sums, and the largest of them.
    size: f64,
    most: f64,
}

impl Row {
    fn of(terms: &[[f64; 2]]) -> Row {
        let n = terms.len() as f64;
        let sums: Vec<f64> = terms.iter().map(|[x, y]| x + y).collect();
        let mean = sums.iter().sum::<f64>() / n;
        let sizes = || terms.iter().map(|[x, y]| x.abs() + y.abs());
        Row {
            mean,
            var: sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n,
            size: sizes().sum::<f64>() / n,
            most: sizes().fold(0.0, f64::max),
            sums,
        }
    }
}

impl Case for ResidualNorm {
    fn inputs(&self) -> Vec<Array> {
        let all = [Some(&self.x), self.y.as_ref(), Some(&self.scale), Some(&self.shift)];
        all.into_iter().flatten().cloned().collect()
    }

    fn call<B: Backend>(&self, _: &B, t: &[Tensor<B>]) -> Result<Tensor<B>> {
        let branch = self.y.as_ref().map(|_| (&t[1], None));
        let (s, n) = t[0].residual_norm(branch, &t[t.len() - 2], &t[t.len() - 1], self.eps)?;
        Tensor::concat(&[&s, &n], 0)
    }

    fn oracle(&self, inputs: &[Array]) -> Array {
        let norm = |s: f64, a: f64, b: f64, row: &Row| (s - row.mean) / (row.var + self.eps).sqrt() * a + b;
        self.each(inputs, norm, |x, y| x + y)
    }

    /// As of a layer norm, whose input has been rounded once: to the dtype of the stream. The error of a sum reaches its row's norm by
    /// itself, by the mean and by the variance.
    fn rounding(&self, inputs: &[Array], _: &Array) -> Rounding {
        let norm = |s: f64, a: f64, b: f64, row: &Row| {
            let rstd = 1.0 / (row.var + self.eps).sqrt();
            let by_variance = (s - row.mean).abs() * (1.0 + row.most * rstd);
            (row.most + row.size + by_variance) * rstd * a.abs() + b.abs()
        };
        let magnitude = self.each(inputs, norm, |x, y| x.abs() + y.abs());
        Rounding::terms(self.x.shape[1] as f64 + 10.0, magnitude).stored(3.0)
    }

    /// A seed times the scale, minus its mean and its projection on the result, all divided by the standard deviation, and a seed.
    fn slope_terms(&self, inputs: &[Array]) -> f64 {
        let rstd = self.each(inputs, |_, a, _, row| a.abs() / (row.var + self.eps).sqrt(), |_, _| 0.0);
        1.5 + 3.0 * 1.5 * rstd.data.iter().fold(0.0, |m: f64, r| r.max(m))
    }
}

/// Rows whose widths straddle packs of eight and the sizes of blocks, with a branch and without.
pub fn residual_norm<B: Backend>(backend: &B) {
    let width = prop_oneof![
        6 => 1usize..10,
        2 => prop::sample::select(vec![16usize, 24, 31, 33, 128, 129]),
        1 => prop::sample::select(vec![1023usize, 1024, 1025, 1032]),
    ];
    let choice = (0usize..5, width, any::<bool>(), prop::sample::select(vec![0.01, 0.1]));
    let strategy = choice.prop_flat_map(|(rows, width, added, eps)| {
        let tensor = || shapes::values(&[rows, width], -2.0, 2.0);
        let vector = || shapes::values(&[width], -1.5, 1.5);
        (tensor(), tensor(), vector(), vector()).prop_map(move |(x, y, scale, shift)| ResidualNorm {
            x,
            y: added.then_some(y),
            scale,
            shift,
            eps,
        })
    });
    check(backend, strategy);
}

/// The sum alone.
#[derive(Clone, Debug)]
struct ResidualAdd {
    x: Array,
    y: Array,
}

impl Case for ResidualAdd {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone(), self.y.clone()]
    }

    fn call<B: Backend>(&self, _: &B, t: &[Tensor<B>]) -> Result<Tensor<B>> {
        t[0].residual_add(&t[1], None)
    }

    fn oracle(&self, t: &[Array]) -> Array {
        Array::from_fn(&self.x.shape, |at| t[0].at(at) + t[1].at(at))
    }
}

/// Sums of sizes around packs of eight.
pub fn residual_add<B: Backend>(backend: &B) {
    let strategy =
        (0usize..4, prop_oneof![1usize..10, Just(17usize), Just(264usize)]).prop_flat_map(|(rows, width)| {
            let tensor = move || shapes::values(&[rows, width], -2.0, 2.0);
            (tensor(), tensor()).prop_map(|(x, y)| ResidualAdd { x, y })
        });
    check(backend, strategy);
}

fn sines<B: Backend>(backend: &B, shape: &[usize], k: f64, dtype: DType) -> Result<Tensor<B>> {
    let n = shape.iter().product::<usize>();
    let values: Vec<f64> = (0..n).map(|i| ((i as f64 + 1.0) * k).sin() + 0.25).collect();
    Tensor::from_f64(backend, &values, shape, dtype)
}

/// The results, and the gradients of the stream, the branch, the scale and the shift, for a norm that is squared and added to the sum.
fn step<B: Backend>(
    [x, y, scale, shift]: [&Tensor<B>; 4],
    run: impl Fn([&Tensor<B>; 4]) -> Result<(Tensor<B>, Tensor<B>)>,
) -> Result<Vec<Tensor<B>>> {
    let [x, y, scale, shift] = [x, y, scale, shift].map(|t| t.detach().requires_grad());
    let (s, n) = run([&x, &y, &scale, &shift])?;
    let wide = |t: &Tensor<B>| t.to_dtype(DType::F32);
    let loss = wide(&n)?.square()?.mul(&wide(&s)?)?.sum(&[], false)?;
    let grads = loss.backward()?;
    let all = [&x, &y, &scale, &shift].map(|t| grads.get(t).cloned());
    Ok([s.detach(), n.detach()]
        .into_iter()
        .chain(all.into_iter().flatten())
        .collect())
}

/// Dropout is that of the op of its own, in both directions; and inside of `autocast` the stream keeps its dtype, the norm and the
/// branch's gradient are halves, and values are those of f32 rounded.
///
/// # Panics
/// Where a value or a gradient differs, or an op returns an error.
pub fn dropped<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let step_number = Indices::from_slice(backend, &[7i32], &[1])?;
        let stream = Init::new(backend, 5).next_stream();
        for shape in [[3, 8], [5, 7], [2, 520], [1, 1040], [3, 2056]] {
            let vector = [shape[1]];
            let [x, y] = [1.3, 0.7].map(|k| sines(backend, &shape, k, DType::F32));
            let [scale, shift] = [2.1, 0.4].map(|k| sines(backend, &vector, k, DType::F32));
            let (x, y, scale, shift) = (x?, y?, scale?, shift?);
            for p in [0.0, 0.4, 1.0] {
                let draw = DropoutDraw {
                    p,
                    stream,
                    step: step_number.clone(),
                };
                let fused = |[x, y, a, b]: [&Tensor<B>; 4]| x.residual_norm(Some((y, Some(&draw))), a, b, 1e-2);
                let plain = |[x, y, a, b]: [&Tensor<B>; 4]| {
                    let s = x.add(&y.dropout_at(p, stream, &step_number)?)?;
                    let n = s.layer_norm(&vector, Some(a), Some(b), 1e-2)?;
                    Ok((s, n))
                };
                let added = |[x, y, a, b]: [&Tensor<B>; 4]| {
                    let s = x.residual_add(y, Some(&draw))?;
                    let n = s.layer_norm(&vector, Some(a), Some(b), 1e-2)?;
                    Ok((s, n))
                };
                let operands = [&x, &y, &scale, &shift];
                let want = step(operands, plain)?;
                for (what, got) in [("norm", step(operands, fused)?), ("add", step(operands, added)?)] {
                    compare(&format!("{what} of {shape:?}, p {p}"), &got, &want, 2e-5)?;
                }
                for (half, unit) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
                    let y = y.to_dtype(half)?;
                    let operands = [&x, &y, &scale, &shift];
                    let got = step(operands, |t| autocast(half, || fused(t)))?;
                    let dtypes: Vec<DType> = got.iter().map(Tensor::dtype).collect();
                    let wide = DType::F32;
                    assert_eq!(dtypes, [wide, half, wide, half, wide, wide], "{shape:?}");
                    let wide_y = y.to_dtype(wide)?;
                    let want = step([&x, &wide_y, &scale, &shift], plain)?;
                    // A norm and the gradient that it gets are rounded to halves.
                    compare(&format!("{half} of {shape:?}, p {p}"), &got, &want, 4.0 * unit)?;
                }
            }
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}

/// Compares tensors within a part of the largest element of each.
fn compare<B: Backend>(what: &str, got: &[Tensor<B>], want: &[Tensor<B>], part: f64) -> Result<()> {
    assert_eq!((got.len(), want.len()), (6, 6), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let (got, want) = (got.to_f64()?, want.to_f64()?);
        let most = want.iter().fold(1e-3, |m: f64, v| v.abs().max(m));
        assert_close(
            &format!("{what}, result {i}"),
            &got,
            &want,
            &vec![part * most; want.len()],
        );
    }
    Ok(())
}

/// Shapes, dtypes and probabilities that do not fit are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |dims: &[usize]| Tensor::zeros(backend, dims, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (x, vector) = (zeros(&[2, 4]), zeros(&[4]));
    refused!(x.residual_add(&zeros(&[4, 2]), None), Error::ShapeMismatch { .. });
    refused!(zeros(&[]).residual_add(&zeros(&[]), None), Error::Rank { .. });
    let half = x.to_dtype(DType::BF16).unwrap_or_else(|e| panic!("{e}"));
    refused!(x.residual_add(&half, None), Error::DTypeMismatch { .. });
    for wrong in [zeros(&[3]), zeros(&[1, 4])] {
        refused!(
            x.residual_norm(None, &wrong, &vector, 1e-5),
            Error::ShapeMismatch { .. }
        );
        refused!(
            x.residual_norm(None, &vector, &wrong, 1e-5),
            Error::ShapeMismatch { .. }
        );
    }
    for eps in [-1.0, f64::NAN] {
        refused!(
            x.residual_norm(None, &vector, &vector, eps),
            Error::InvalidArgument { argument: "eps", .. }
        );
    }
    let step = Indices::from_slice(backend, &[1i32], &[1]).unwrap_or_else(|e| panic!("{e}"));
    let draw = DropoutDraw {
        p: 1.5,
        stream: Init::new(backend, 0).next_stream(),
        step,
    };
    refused!(
        x.residual_add(&x, Some(&draw)),
        Error::InvalidArgument {
            argument: "parameters",
            ..
        }
    );
}

/// Linear layers that read a norm alone, or several of them, make it again beside the gradient of their input where it was not kept: the
/// gradients have the bits that they have with everything kept, in passes that free the graph and in those that do not.
///
/// # Panics
/// Where a value differs, or an op returns an error.
pub fn norm_again<B: Backend>(backend: &B) {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        if !backend.supports_dtype(dtype) {
            continue;
        }
        for (rows, width, outputs) in [(3, 8, 5), (19, 33, 24), (70, 136, 16), (131, 40, 9)] {
            for layers in [1, 2] {
                let run = || again(backend, dtype, [rows, width, outputs], layers);
                run().unwrap_or_else(|e| panic!("{dtype} {rows} {width} {outputs}: {e}"));
            }
        }
    }
}

fn again<B: Backend>(backend: &B, dtype: DType, [rows, width, outputs]: [usize; 3], layers: usize) -> Result<()> {
    let tensor =
        |shape: &[usize], k: f64| -> Result<Tensor<B>> { Ok(sines(backend, shape, k, DType::F32)?.requires_grad()) };
    let x = tensor(&[rows, width], 1.3)?;
    let (scale, shift) = (tensor(&[width], 2.1)?, tensor(&[width], 0.4)?);
    let (w, v) = (tensor(&[outputs, width], 0.7)?, tensor(&[outputs, width], 0.9)?);
    let loss = || -> Result<Tensor<B>> {
        let (s, n) = x.residual_norm(None, &scale, &shift, 1e-3)?;
        let mut y = n.linear(&w, None, Activation::None)?;
        if layers == 2 {
            y = y.add(&n.linear(&v, None, Activation::None)?)?;
        }
        let y = y.to_dtype(DType::F32)?;
        y.square()?.sum(&[], false)?.add(&s.square()?.sum(&[], false)?)
    };
    let gradients = |recompute: bool, retain: bool| -> Result<Vec<Vec<f64>>> {
        let loss = || if recompute { recompute_activations(loss) } else { loss() };
        let loss = match dtype {
            DType::F32 => loss()?,
            half => autocast(half, loss)?,
        };
        let mut found = Vec::new();
        let first = retain.then(|| loss.backward_retain()).transpose()?;
        for grads in first.into_iter().chain([loss.backward()?]) {
            for leaf in [&x, &scale, &shift, &w, &v] {
                found.extend(grads.get(leaf).map(Tensor::to_f64).transpose()?);
            }
        }
        Ok(found)
    };
    for retain in [false, true] {
        let what = format!("{dtype} {rows} {width} {outputs}, {layers} layers, {retain}");
        assert_eq!(gradients(true, retain)?, gradients(false, retain)?, "{what}");
    }
    Ok(())
}
