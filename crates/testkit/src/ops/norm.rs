//! Batch, layer, RMS, group and instance norm.

mod moments;
mod recomputed;
mod residual;
mod running;
mod sums;

pub use moments::convolution_and_batch_norm;
pub use recomputed::recomputed_batch_norm;
pub use residual::batch_norm_and_relu;
pub use running::running_statistics;
pub use sums::batch_norm_and_convolution;

use crate::array::unravel;
use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Kind {
    Batch,
    /// Batch norm with given mean and variance.
    Eval(Array, Array),
    /// Layer norm over this many trailing dimensions.
    Layer(usize),
    Rms(usize),
    Group(usize),
    Instance,
}

#[derive(Clone, Debug)]
struct Norm {
    kind: Kind,
    x: Array,
    scale: Option<Array>,
    shift: Option<Array>,
    eps: f64,
}

impl Norm {
    /// The statistic that the element `at` belongs to.
    fn group(&self, at: &[usize]) -> Vec<usize> {
        let (rank, c) = (at.len(), at[at.len() - 1]);
        match self.kind {
            Kind::Batch | Kind::Eval(..) => vec![c],
            Kind::Layer(k) | Kind::Rms(k) => at[..rank - k].to_vec(),
            Kind::Group(groups) => vec![at[0], c / (self.x.shape[rank - 1] / groups)],
            Kind::Instance => vec![at[0], c],
        }
    }
}

impl Case for Norm {
    fn inputs(&self) -> Vec<Array> {
        let all = [Some(&self.x), self.scale.as_ref(), self.shift.as_ref()];
        all.into_iter().flatten().cloned().collect()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let scale = self.scale.is_some().then(|| &x[1]);
        let shift = self.shift.is_some().then(|| &x[x.len() - 1]);
        let x = &x[0];
        let tail = |k: usize| &x.shape()[x.rank() - k..];
        match &self.kind {
            Kind::Batch => Ok(x.batch_norm(scale, shift, self.eps)?.0),
            Kind::Eval(mean, var) => {
                // Statistics have the accumulation dtype.
                let wide = if x.dtype() == DType::F64 {
                    DType::F64
                } else {
                    DType::F32
                };
                let of = |a: &Array| Tensor::from_f64(backend, &a.data, &a.shape, wide);
                x.batch_norm_eval(&of(mean)?, &of(var)?, scale, shift, self.eps)
            }
            Kind::Layer(k) => x.layer_norm(tail(*k), scale, shift, self.eps),
            Kind::Rms(k) => x.rms_norm(tail(*k), scale, self.eps),
            Kind::Group(groups) => x.group_norm(*groups, scale, shift, self.eps),
            Kind::Instance => x.instance_norm(scale, shift, self.eps),
        }
    }

    fn oracle(&self, inputs: &[Array]) -> Array {
        self.each(inputs, |x, scale, shift, s| {
            (x - s.mean) / (s.var + self.eps).sqrt() * scale + shift
        })
    }

    /// The mean and the mean square are sums of n terms, and the root halves the error of the latter. The error of the
    /// mean adds to a difference, that of the variance multiplies it. The rest are a few products.
    fn rounding(&self, inputs: &[Array], _: &Array) -> Rounding {
        let steps = self.groups(&inputs[0]).values().map(Vec::len).max().unwrap_or(0) as f64 + 8.0;
        let magnitude = self.each(inputs, |x, scale, shift, s| {
            let rstd = 1.0 / (s.var + self.eps).sqrt();
            let variance = (s.square + self.eps) / (s.var + self.eps);
            let terms = x.abs() + s.size + (x - s.mean).abs() * variance;
            terms * rstd * scale.abs() + shift.abs()
        });
        Rounding::terms(steps, magnitude)
    }

    /// A seed times the scale, minus its mean and its projection on the result, all divided by the standard deviation.
    fn slope_terms(&self, inputs: &[Array]) -> f64 {
        let rstd = self.each(inputs, |_, scale, _, s| scale.abs() / (s.var + self.eps).sqrt());
        3.0 * 1.5 * rstd.data.iter().fold(0.0, |m: f64, r| r.max(m))
    }
}

/// The statistics of the elements that are normalised together.
struct Statistics {
    mean: f64,
    var: f64,
    /// The mean of the magnitudes (`size`) and of the squares (`square`).
    size: f64,
    square: f64,
}

impl Norm {
    /// The elements that share a statistic.
    fn groups(&self, x: &Array) -> BTreeMap<Vec<usize>, Vec<f64>> {
        let mut groups: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (n, &v) in x.data.iter().enumerate() {
            groups.entry(self.group(&unravel(n, &x.shape))).or_default().push(v);
        }
        groups
    }

    /// The array of `f` of each element, its scale, its shift and its statistics.
    fn each(&self, inputs: &[Array], f: impl Fn(f64, f64, f64, &Statistics) -> f64) -> Array {
        let x = &inputs[0];
        let statistics = self.groups(x).into_iter().map(|(at, values)| {
            let n = values.len() as f64;
            let mean_of = |f: &dyn Fn(f64) -> f64| values.iter().map(|&v| f(v)).sum::<f64>() / n;
            let (size, square) = (mean_of(&f64::abs), mean_of(&|v| v * v));
            let (mean, var) = match &self.kind {
                Kind::Eval(mean, var) => (mean.at(&at), var.at(&at)),
                Kind::Rms(_) => (0.0, square),
                _ => {
                    let mean = mean_of(&|v| v);
                    (mean, mean_of(&|v| (v - mean).powi(2)))
                }
            };
            let given = matches!(self.kind, Kind::Eval(..));
            let of = Statistics {
                mean,
                var,
                size: if given { mean.abs() } else { size },
                square: if given { var } else { square },
            };
            (at, of)
        });
        let statistics: BTreeMap<_, _> = statistics.collect();
        Array::from_fn(&x.shape, |at| {
            let scale = self.scale.as_ref().map_or(1.0, |_| inputs[1].broadcast_at(at));
            let shift = self.shift.as_ref();
            let shift = shift.map_or(0.0, |_| inputs[inputs.len() - 1].broadcast_at(at));
            f(x.at(at), scale, shift, &statistics[&self.group(at)])
        })
    }
}

/// Cases of one kind of norm; `make` gives the kind and the shape of scale and shift for a shape.
fn norms(
    shape: impl Strategy<Value = Vec<usize>>,
    make: impl Fn(&[usize], usize) -> (Kind, Vec<usize>) + Clone + 'static,
    shifted: bool,
) -> impl Strategy<Value = Norm> {
    let choice = (
        shape,
        any::<[bool; 2]>(),
        0usize..12,
        prop::sample::select(vec![0.01, 0.1]),
    );
    choice.prop_flat_map(move |(shape, [scaled, shift], pick, eps)| {
        let (kind, channels) = make(&shape, pick);
        let vector = || shapes::values(&channels, -1.5, 1.5);
        (shapes::values(&shape, -2.0, 2.0), vector(), vector()).prop_map(move |(x, a, b)| Norm {
            kind: kind.clone(),
            x,
            scale: scaled.then_some(a),
            shift: (shifted && shift).then_some(b),
            eps,
        })
    })
}

/// Shapes `[N, positions…, C]` with up to two spatial dimensions, small enough for central differences.
fn images() -> impl Strategy<Value = Vec<usize>> {
    let channels = prop_oneof![3 => 1usize..7, 1 => prop::sample::select(vec![31usize, 33])];
    (1usize..4, prop::collection::vec(1usize..4, 0..3), channels)
        .prop_map(|(n, mid, c)| [&[n], &mid[..], &[c]].concat())
}

/// Batch norm in training.
pub fn batch_norm<B: Backend>(backend: &B) {
    let shape = rows().prop_map(|mut s| {
        // With a single value per channel there is no variance.
        s[0] += usize::from(s[0] == 1);
        s
    });
    check(backend, norms(shape, |s, _| (Kind::Batch, vec![s[s.len() - 1]]), true));
}

/// Batch norm with given statistics.
pub fn batch_norm_eval<B: Backend>(backend: &B) {
    let make = |s: &[usize], k: usize| {
        let c = s[s.len() - 1];
        let mean = Array::from_fn(&[c], |i| (i[0] + k) as f64 * 0.25 - 1.0);
        let var = Array::from_fn(&[c], |i| ((i[0] + k) % 5) as f64 * 0.5);
        (Kind::Eval(mean, var), vec![c])
    };
    check(backend, norms(rows(), make, true));
}

/// Batch norm of halves with scale and shift in f32: values are those of f32 rounded once, and gradients of scale and shift are not
/// rounded to a half. In training and in evaluation.
///
/// # Panics
/// Where a value or a gradient differs, or an op returns an error.
pub fn mixed_batch_norm<B: Backend>(backend: &B) {
    for (dtype, unit) in [(DType::BF16, 2f64.powi(-8)), (DType::F16, 2f64.powi(-11))] {
        for [n, c] in [[6, 3], [40, 8], [33, 20]] {
            for eval in [false, true] {
                mixed(backend, dtype, unit, [n, c], eval).unwrap_or_else(|e| panic!("{dtype}: {e}"));
            }
        }
    }
}

fn mixed<B: Backend>(backend: &B, dtype: DType, unit: f64, [n, c]: [usize; 2], eval: bool) -> Result<()> {
    let values = |n: usize, k: f64| (0..n).map(|i| (i as f64 * k).sin() + 0.25).collect::<Vec<_>>();
    let leaf =
        |v: &[f64], shape: &[usize], dtype| Ok::<_, Error>(Tensor::from_f64(backend, v, shape, dtype)?.requires_grad());
    let x = leaf(&values(n * c, 1.7), &[n, c], dtype)?;
    let g = Tensor::from_f64(backend, &values(n * c, 0.9), &[n, c], dtype)?;
    let affine = [
        leaf(&values(c, 0.3), &[c], DType::F32)?,
        leaf(&values(c, 2.1), &[c], DType::F32)?,
    ];
    let stats = [
        Tensor::full(backend, &[c], DType::F32, 0.125)?,
        Tensor::full(backend, &[c], DType::F32, 0.7)?,
    ];
    let run = |x: &Tensor<B>, g: &Tensor<B>| {
        let [scale, shift] = &affine;
        let y = match eval {
            true => x.batch_norm_eval(&stats[0], &stats[1], Some(scale), Some(shift), 1e-3)?,
            false => x.batch_norm(Some(scale), Some(shift), 1e-3)?.0,
        };
        let grads = y.backward_with(g)?;
        let all = [x, scale, shift].map(|t| grads.get(t).cloned());
        Ok::<_, Error>((y, all.into_iter().flatten().collect::<Vec<_>>()))
    };
    let (y, got) = run(&x, &g)?;
    let wide = x.detach().to_dtype(DType::F32)?.requires_grad();
    let (want, wanted) = run(&wide, &g.to_dtype(DType::F32)?)?;
    assert_eq!((y.dtype(), got.len(), wanted.len()), (dtype, 3, 3));
    let dtypes: Vec<DType> = got.iter().map(Tensor::dtype).collect();
    assert_eq!(dtypes, [dtype, DType::F32, DType::F32]);
    // n terms of at most 4 are added in another order than in f32.
    let sums = 4.0 * (n * (n + 8)) as f64 * 2f64.powi(-24);
    let close = |what: &str, got: &Tensor<B>, want: &Tensor<B>, unit: f64, sums: f64| {
        for (got, want) in got.to_f64()?.into_iter().zip(want.to_f64()?) {
            let bound = unit * want.abs() + sums;
            assert!(
                (got - want).abs() <= bound,
                "{dtype} [{n}, {c}] {what}: {got}, expected {want}"
            );
        }
        Ok::<_, Error>(())
    };
    close("y", &y, &want, unit, 1e-5)?;
    close("dx", &got[0], &wanted[0], unit, 1e-5)?;
    close("dscale", &got[1], &wanted[1], 0.0, sums)?;
    close("dshift", &got[2], &wanted[2], 0.0, sums)
}

/// Layer norm over one or more trailing dimensions.
pub fn layer_norm<B: Backend>(backend: &B) {
    check(backend, norms(rows(), |s, k| tail(s, k, Kind::Layer), true));
}

/// RMS norm.
pub fn rms_norm<B: Backend>(backend: &B) {
    check(backend, norms(rows(), |s, k| tail(s, k, Kind::Rms), false));
}

/// As [`images`], sometimes with an empty batch.
fn rows() -> impl Strategy<Value = Vec<usize>> {
    images()
        .prop_flat_map(|s| (Just(s), 0usize..8))
        .prop_map(|(mut s, empty)| {
            if empty == 0 {
                s[0] = 0;
            }
            s
        })
}

fn tail(shape: &[usize], pick: usize, kind: fn(usize) -> Kind) -> (Kind, Vec<usize>) {
    let k = 1 + pick % shape.len();
    (kind(k), shape[shape.len() - k..].to_vec())
}

/// Group norm with every number of groups that divides the channels.
pub fn group_norm<B: Backend>(backend: &B) {
    let make = |s: &[usize], pick: usize| {
        let c = s[s.len() - 1];
        let divisors: Vec<usize> = (1..=c).filter(|d| c.is_multiple_of(*d)).collect();
        (Kind::Group(divisors[pick % divisors.len()]), vec![c])
    };
    check(backend, norms(rows(), make, true));
}

/// Instance norm.
pub fn instance_norm<B: Backend>(backend: &B) {
    let shape = images().prop_map(|mut s| {
        s.insert(1, 2);
        s
    });
    check(
        backend,
        norms(shape, |s, _| (Kind::Instance, vec![s[s.len() - 1]]), true),
    );
}

/// Bad arguments are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let of = |shape: &[usize], dtype| Tensor::ones(backend, shape, dtype).unwrap_or_else(|e| panic!("{e}"));
    let f32 = |shape: &[usize]| of(shape, DType::F32);
    let rank = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::Rank { .. })), "{r:?}");
    let shape = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::ShapeMismatch { .. })), "{r:?}");
    let dtype = |r: Result<Tensor<B>>| assert!(matches!(r, Err(Error::DTypeMismatch { .. })), "{r:?}");
    let argument = |name: &str, r: Result<Tensor<B>>| match r {
        Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
        other => panic!("{other:?}"),
    };
    let train = |x: &Tensor<B>, s: Option<&Tensor<B>>, eps: f64| x.batch_norm(s, None, eps).map(|(y, ..)| y);
    let x = f32(&[2, 3, 4]);
    for r in 0..2 {
        rank(train(&f32(&[4, 4][..r]), None, 0.1));
        rank(f32(&[4, 4][..r]).group_norm(1, None, None, 0.1));
        rank(f32(&[4, 4][..r]).instance_norm(None, None, 0.1));
    }
    for eps in [-1e-5, f64::NAN, f64::INFINITY] {
        argument("eps", train(&x, None, eps));
        argument("eps", x.layer_norm(&[4], None, None, eps));
        argument("eps", x.rms_norm(&[4], None, eps));
        argument("eps", x.group_norm(2, None, None, eps));
        argument("eps", x.instance_norm(None, None, eps));
    }
    for groups in [0, 3, 5, usize::MAX] {
        argument("groups", x.group_norm(groups, None, None, 0.1));
    }
    for bad in [&[3][..], &[4, 4], &[3, 4, 1], &[1, 2, 3, 4], &[0]] {
        shape(x.layer_norm(bad, None, None, 0.1));
        shape(x.rms_norm(bad, None, 0.1));
    }
    argument("normalized_shape", x.layer_norm(&[], None, None, 0.1));
    argument("input", train(&f32(&[1, 4]), None, 0.1));
    argument("input", f32(&[2, 4]).instance_norm(None, None, 0.1));
    argument("input", f32(&[2, 3, 0]).instance_norm(None, None, 0.1));
    argument("input", f32(&[2, 0, 4]).group_norm(2, None, None, 0.1));
    for bad in [f32(&[3]), f32(&[1, 4]), f32(&[]), f32(&[0])] {
        shape(train(&x, Some(&bad), 0.1));
        shape(x.layer_norm(&[4], Some(&bad), None, 0.1));
        shape(x.rms_norm(&[4], Some(&bad), 0.1));
        shape(x.group_norm(2, None, Some(&bad), 0.1));
        shape(x.instance_norm(None, Some(&bad), 0.1));
        shape(x.batch_norm_eval(&f32(&[4]), &bad, None, None, 0.1));
    }
    let half = of(&[4], DType::BF16);
    dtype(train(&x, Some(&half), 0.1));
    dtype(x.layer_norm(&[4], None, Some(&half), 0.1));
    dtype(x.batch_norm_eval(&half, &half, None, None, 0.1));
    let tracked = f32(&[4]).requires_grad();
    let r = x.batch_norm_eval(&tracked, &f32(&[4]), None, None, 0.1);
    assert!(matches!(r, Err(Error::NoGradient { .. })), "{r:?}");
}
