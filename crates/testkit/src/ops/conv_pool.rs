//! Convolutions with the pooling of their result.

use super::conv::{Conv, conv_case};
use super::pool::{Axis, Kind, Pool};
use crate::compare::unit;
use crate::gradcheck::SECOND_STEP;
use crate::{Array, Case, Proof, Rounding, check, refused};
use kiln_core::ops::{Activation, Window};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct ConvPool {
    conv: Conv,
    /// The pooling of the convolution's result.
    pool: Pool,
}

impl Case for ConvPool {
    fn inputs(&self) -> Vec<Array> {
        self.conv.inputs()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (conv, pool) = (&self.conv, &self.pool);
        x[0].conv_max_pool(
            &x[1],
            x.get(2),
            (&conv.window(), conv.groups),
            conv.f,
            (&pool.window(), pool.ceil_mode),
        )
    }

    fn oracle(&self, x: &[Array]) -> Array {
        self.pool.oracle(&[self.conv.oracle(x)])
    }

    /// Where another element of a window is nearly as large as the largest, the gradient jumps, and no difference across the jump
    /// is a second derivative.
    fn proof(&self) -> Proof {
        let x = self.inputs();
        let margin = self.pool.margin(&self.conv.oracle(&x));
        // Second differences move each input by at most 2.5 steps. Two results, sums of products of numbers up to 1, then
        // come nearer by 4 times that for each of their terms, and activations have slopes of at most 1.13.
        let nearer = 5.0 * 2.5 * SECOND_STEP * (self.conv.terms() as f64 + 1.0);
        match margin > nearer {
            true => Proof::SecondGradient,
            false => Proof::Gradient,
        }
    }

    /// Two results come nearer by twice the roundings of their terms' two factors and their own, and activations have slopes of at most
    /// 1.13.
    fn proves_half(&self, dtype: DType) -> bool {
        let nearer = 5.0 * unit(dtype) * (self.conv.terms() as f64 + 1.0);
        self.pool.distance(&self.conv.oracle(&self.inputs())) > nearer
    }

    /// The error of the largest of some results is at most the largest of their errors.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let conv = self.conv.rounding(x, &self.conv.oracle(x));
        let magnitude = self.pool.oracle(&[conv.magnitude]);
        Rounding { magnitude, ..conv }
    }

    fn slope_terms(&self, x: &[Array]) -> f64 {
        self.conv.slope_terms(x)
    }
}

/// Convolutions of every kind, with poolings of any kernel, stride, padding and dilation.
pub fn conv_max_pool<B: Backend>(backend: &B) {
    let axis = (1usize..4, 1usize..4, 0usize..2, 1usize..3);
    let axes = prop::collection::vec(axis, 3);
    let strategy = (
        conv_case(false).prop_filter("a result to pool", |conv| conv.output().iter().all(|o| o.0 > 0)),
        axes,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(conv, axes, ceil_mode, dilated)| {
            let outputs = conv.output();
            let axis =
                |(&(size, _), (kernel, stride, padding, dilation)): (&(usize, usize), (usize, usize, usize, usize))| {
                    let dilation = if dilated && size > dilation { dilation } else { 1 };
                    let kernel = kernel.min((size - 1) / dilation + 1);
                    Axis {
                        size,
                        kernel,
                        stride,
                        padding: padding.min(kernel / 2),
                        dilation,
                    }
                };
            let pool = Pool {
                kind: Kind::Max,
                ceil_mode,
                axes: outputs.iter().zip(axes).map(axis).collect(),
                x: Array::zeros(&[0]),
            };
            ConvPool { conv, pool }
        });
    check(backend, strategy);
}

/// The values, and whichever gradients are wanted, are those of the two ops one after the other.
///
/// # Panics
/// When values or gradients differ.
pub fn as_two_ops<B: Backend>(backend: &B) {
    let two = Window::new([2, 2]).stride([2, 2]);
    let three = Window::new([3, 3]).stride([2, 2]);
    for (x, w, pool) in [
        ([3, 9, 8, 2], [5, 3, 3, 2], (&two, false)),
        // Windows of the convolution with lines that fill a vector.
        ([2, 11, 12, 6], [9, 5, 5, 6], (&two, false)),
        // Windows of the pooling that are larger than the convolution's result.
        ([2, 4, 4, 3], [5, 3, 3, 3], (&three, true)),
        ([2, 3, 5, 3], [5, 3, 3, 3], (&two, true)),
    ] {
        for n in 0..8 {
            as_two_ops_of(backend, x, w, pool, [n & 1 != 0, n & 2 != 0, n & 4 != 0]).expect("valid calls");
        }
    }
}

fn as_two_ops_of<B: Backend>(
    backend: &B,
    x: [usize; 4],
    w: [usize; 4],
    (pool, ceil_mode): (&Window, bool),
    wanted: [bool; 3],
) -> Result<()> {
    let leaf = |i: usize, shape: &[usize], wanted: bool| {
        let n: usize = shape.iter().product();
        let data: Vec<f32> = (0..n).map(|j| ((j * 37 + i * 11) % 101) as f32 / 50.0 - 1.0).collect();
        let t = Tensor::from_slice(backend, &data, shape)?;
        Ok::<_, Error>(if wanted { t.requires_grad() } else { t })
    };
    let conv = Window::new([w[1], w[2]]);
    let bias = leaf(2, &w[..1], wanted[2])?;
    let x = leaf(0, &x, wanted[0])?;
    let w = leaf(1, &w, wanted[1])?;
    let one = x.conv_max_pool(&w, Some(&bias), (&conv, 1), Activation::Relu, (pool, ceil_mode))?;
    let two = x
        .conv(&w, Some(&bias), &conv, 1, Activation::Relu)?
        .max_pool(pool, ceil_mode)?;
    // Inputs and seeds are at most 1 in magnitude, so a sum of n products has n roundings relative to at most n, in either way.
    let close = |what: &str, n: usize, a: &Tensor<B>, b: &Tensor<B>| -> Result<()> {
        let bound = 2.0 * (n as f64 + 2.0).powi(2) * 2f64.powi(-24);
        crate::assert_close(what, &a.to_f64()?, &b.to_f64()?, &vec![bound; b.size()]);
        Ok(())
    };
    let (taps, channels) = (w.shape()[1..].iter().product::<usize>(), w.shape()[0]);
    // The number of terms: for an input every tap of every channel, for a weight every result of its channel.
    let products = (taps * channels / w.shape()[3]).max(two.size() / channels);
    close("values", taps, &one, &two)?;
    let leaves: Vec<&Tensor<B>> = [&x, &w, &bias].into_iter().filter(|t| t.is_tracked()).collect();
    if leaves.is_empty() {
        return Ok(());
    }
    let seed = leaf(3, one.shape().dims(), false)?;
    let [one, two] = [one, two].map(|y| kiln_nn::grad(&y, &leaves, Some(&seed), false));
    for (a, b) in one?.iter().zip(&two?) {
        let (Some(a), Some(b)) = (a, b) else {
            panic!("{wanted:?}: a gradient is missing")
        };
        close("a gradient", products, a, b)?;
    }
    Ok(())
}

/// Arguments that either of the two ops refuses are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |dims: &[usize]| Tensor::zeros(backend, dims, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (x, w) = (zeros(&[1, 5, 5, 4]), zeros(&[6, 3, 3, 4]));
    let (conv, pool) = (Window::new([3, 3]), Window::new([2, 2]));
    let call = |x: &Tensor<B>, groups, pool: &Window| {
        x.conv_max_pool(&w, None, (&conv, groups), Activation::None, (pool, false))
    };
    refused!(call(&zeros(&[5, 5, 4]), 1, &pool), Error::Rank { .. });
    refused!(call(&x, 3, &pool), Error::InvalidArgument { argument: "groups", .. });
    refused!(
        call(&x, 1, &Window::new([4, 4])),
        Error::InvalidArgument { argument: "kernel", .. }
    );
    refused!(
        call(&x, 1, &pool.padding([2, 0])),
        Error::InvalidArgument {
            argument: "padding",
            ..
        }
    );
    refused!(call(&x, 1, &Window::new([2])), Error::Rank { .. });
}
