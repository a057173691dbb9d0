//! Convolutions and transposed convolutions.

use super::matmul::{activate, activated, activated_slope, magnitudes};
use crate::array::unravel;
use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::ops::{Activation, Padding, Window};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// One spatial dimension: input size, kernel, stride, dilation, padding, output padding.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
    extra: usize,
}

impl Axis {
    fn extent(&self) -> usize {
        (self.kernel - 1) * self.dilation + 1
    }
}

#[derive(Clone, Debug)]
pub(super) struct Conv {
    axes: Vec<Axis>,
    pub(super) groups: usize,
    same: bool,
    transposed: bool,
    pub(super) f: Activation,
    x: Array,
    w: Array,
    bias: Option<Array>,
}

impl Conv {
    /// The number of products that a result is the sum of.
    pub(super) fn terms(&self) -> usize {
        let taps: usize = self.axes.iter().map(|a| a.kernel).product();
        taps * self.x.shape[self.axes.len() + 1] / self.groups
    }

    pub(super) fn window(&self) -> Window {
        let spread = |fill, f: &dyn Fn(&Axis) -> usize| {
            let mut out = [fill; 3];
            for (o, a) in out[3 - self.axes.len()..].iter_mut().zip(&self.axes) {
                *o = f(a);
            }
            out
        };
        Window {
            rank: self.axes.len(),
            kernel: spread(1, &|a| a.kernel),
            stride: spread(1, &|a| a.stride),
            dilation: spread(1, &|a| a.dilation),
            padding: if self.same {
                Padding::Same
            } else {
                Padding::Explicit(spread(0, &|a| a.padding))
            },
        }
    }

    /// Output size and padding before, for each dimension.
    pub(super) fn output(&self) -> Vec<(usize, usize)> {
        let one = |a: &Axis| match (self.transposed, self.same) {
            (true, _) => (
                (a.size - 1) * a.stride + a.extent() + a.extra - 2 * a.padding,
                a.padding,
            ),
            (false, false) => ((a.size + 2 * a.padding - a.extent()) / a.stride + 1, a.padding),
            (false, true) => {
                let out = a.size.div_ceil(a.stride);
                let reach = out.saturating_sub(1) * a.stride + a.extent();
                (out, reach.saturating_sub(a.size) / 2)
            }
        };
        self.axes.iter().map(one).collect()
    }
}

impl Case for Conv {
    fn inputs(&self) -> Vec<Array> {
        [Some(&self.x), Some(&self.w), self.bias.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let window = self.window();
        if !self.transposed {
            return x[0].conv(&x[1], x.get(2), &window, self.groups, self.f);
        }
        let mut extra = [0; 3];
        for (o, a) in extra[3 - self.axes.len()..].iter_mut().zip(&self.axes) {
            *o = a.extra;
        }
        x[0].conv_transpose(&x[1], x.get(2), &window, extra, self.groups, self.f)
    }

    /// A product for each tap and channel, and their sum. Winograd's algorithm, which a backend may use for undilated
    /// windows of three taps, has an error of 4e-6 of the root mean square of all results (measured in the documentation
    /// of kiln-cpu's `winograd`), whatever the terms of a result are.
    ///
    /// A transposed convolution rounds before its bias and again before its activation.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        const WINOGRAD: f64 = 4e-6 * (1 << 24) as f64;
        let sums = Conv {
            f: Activation::None,
            ..self.clone()
        };
        let steps = self.terms() as f64 + 2.0;
        let mut magnitude = sums.oracle(&magnitudes(x));
        if self.axes.len() >= 2 && self.axes.iter().rev().take(2).all(|a| a.kernel == 3) {
            let plain = sums.oracle(x).data;
            let square = plain.iter().map(|y| y * y).sum::<f64>() / plain.len() as f64;
            let more = WINOGRAD * square.sqrt() / steps;
            magnitude = magnitude.map(|m| m + more);
        }
        let stored = [self.bias.is_some(), self.f != Activation::None];
        let stored = stored.into_iter().filter(|&s| s && self.transposed).count();
        activated(self.f, steps, magnitude, want).stored(stored as f64)
    }

    fn slope_terms(&self, x: &[Array]) -> f64 {
        activated_slope(self.f, x)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let (input, w, rank) = (&x[0], &x[1], self.axes.len());
        let output = self.output();
        let kernel = &w.shape[1..=rank];
        let per_last = w.shape[rank + 1];
        let channels = if self.transposed {
            per_last * self.groups
        } else {
            w.shape[0]
        };
        let mut shape = vec![input.shape[0]];
        shape.extend(output.iter().map(|o| o.0));
        shape.push(channels);
        let mut y = Array::zeros(&shape);
        // The window slides over the output, or over the input if transposed. `at` is its position, `other` the element
        // at a tap.
        let slides = if self.transposed { &input.shape } else { &shape }.clone();
        let (narrow, per_out) = (w.shape[0] / self.groups, per_last);
        for n in 0..slides.iter().product() {
            let at = unravel(n, &slides);
            let (image, o) = (at[0], at[rank + 1]);
            for t in 0..kernel.iter().product() {
                let tap = unravel(t, kernel);
                let met: Option<Vec<usize>> = (0..rank)
                    .map(|i| {
                        let a = &self.axes[i];
                        let limit = if self.transposed { output[i].0 } else { a.size };
                        (at[i + 1] * a.stride + tap[i] * a.dilation)
                            .checked_sub(output[i].1)
                            .filter(|&p| p < limit)
                    })
                    .collect();
                let Some(met) = met else { continue };
                for i in 0..per_out {
                    let other = [&[image][..], &met, &[o / narrow * per_out + i]].concat();
                    let weight = w.at(&[&[o][..], &tap, &[i]].concat());
                    if self.transposed {
                        *y.at_mut(&other) += input.at(&at) * weight;
                    } else {
                        *y.at_mut(&at) += input.at(&other) * weight;
                    }
                }
            }
        }
        let out = y.clone();
        Array::from_fn(&shape, |at| {
            let bias = x.get(2).map_or(0.0, |b| b.at(&at[rank + 1..]));
            activate(self.f, out.at(at) + bias)
        })
    }
}

fn axis(transposed: bool) -> impl Strategy<Value = Axis> {
    // An image may be empty apart from its padding.
    let size = (1usize..6, 0usize..12).prop_map(move |(size, empty)| if empty == 0 && !transposed { 0 } else { size });
    (size, 1usize..4, 1usize..4, 1usize..3, 0usize..3, 0usize..3).prop_map(
        move |(size, kernel, stride, dilation, padding, extra)| {
            let mut a = Axis {
                size,
                kernel,
                stride,
                dilation,
                padding,
                extra: extra.min(stride.max(dilation) - 1),
            };
            if transposed {
                // At least one output is left.
                a.padding = padding.min(((size - 1) * stride + a.extent() + a.extra - 1) / 2);
            } else {
                a.size = size.max(a.extent().saturating_sub(2 * padding));
            }
            a
        },
    )
}

/// Geometry with mostly few channels, so that many cases are small enough for numeric gradients.
pub(super) fn conv_case(transposed: bool) -> impl Strategy<Value = Conv> {
    let channels = || prop_oneof![8 => 1usize..3, 1 => Just(5usize), 1 => Just(17usize)];
    let groups = prop_oneof![3 => Just(1usize), 2 => 2usize..4];
    let batch = prop_oneof![1 => Just(0usize), 5 => 1usize..3];
    let axes = prop::collection::vec(axis(transposed), 1..=3);
    let f = prop_oneof![Just(Activation::None), prop::sample::select(Activation::ALL.to_vec())];
    (axes, batch, groups, (channels(), channels()), any::<[bool; 3]>(), f).prop_flat_map(
        move |(axes, batch, groups, (per_in, per_out), [same, bias, depthwise], f)| {
            let (per_in, per_out) = if depthwise && groups > 1 {
                (1, 1)
            } else {
                (per_in, per_out)
            };
            let image = |first: usize, f: fn(&Axis) -> usize, last: usize| {
                let mut shape = vec![first];
                shape.extend(axes.iter().map(f));
                shape.push(last);
                shape
            };
            let x = shapes::values(&image(batch, |a| a.size, per_in * groups), -1.0, 1.0);
            let (first, last) = if transposed {
                (per_in, per_out)
            } else {
                (per_out, per_in)
            };
            let w = shapes::values(&image(first * groups, |a| a.kernel, last), -1.0, 1.0);
            let bias = match bias {
                true => shapes::values(&[per_out * groups], -1.0, 1.0).prop_map(Some).boxed(),
                false => Just(None).boxed(),
            };
            (Just(axes), x, w, bias).prop_map(move |(axes, x, w, bias)| Conv {
                axes,
                groups,
                same: same && !transposed,
                transposed,
                f,
                x,
                w,
                bias,
            })
        },
    )
}

/// Convolutions in one to three dimensions with stride, padding, dilation, groups, bias and activation.
pub fn conv<B: Backend>(backend: &B) {
    check(backend, conv_case(false));
}

/// Transposed convolutions with output padding.
pub fn conv_transpose<B: Backend>(backend: &B) {
    check(backend, conv_case(true));
}

/// Arguments that do not fit are typed errors that name them.
///
/// # Panics
/// When an argument is accepted, or refused with another error.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).expect("small tensor");
    let (x, w) = (zeros(&[1, 5, 5, 4]), zeros(&[6, 3, 3, 4]));
    let plain = Window::new([3, 3]);
    let call =
        |x: &Tensor<B>, w: &Tensor<B>, window: &Window, groups| x.conv(w, None, window, groups, Activation::None);
    let back = |w: &Tensor<B>, window: &Window, extra, groups| {
        x.conv_transpose(w, None, window, extra, groups, Activation::None)
    };
    let invalid = |found: Result<Tensor<B>>, name: &str| match found {
        Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
        other => panic!("{name}: {other:?}"),
    };
    let mismatch = |found: Result<Tensor<B>>| assert!(matches!(found, Err(Error::ShapeMismatch { .. })), "{found:?}");
    // A batch without images is no error.
    let none = call(&zeros(&[0, 5, 5, 4]), &w, &plain, 1).expect("a zero batch is a batch");
    assert_eq!(none.shape().dims(), [0, 3, 3, 6]);
    invalid(call(&zeros(&[1, 2, 2, 4]), &w, &plain, 1), "kernel");
    invalid(call(&x, &w, &plain.stride([0, 1]), 1), "stride");
    invalid(call(&x, &w, &plain.dilation([1, 0]), 1), "dilation");
    invalid(call(&x, &w, &plain, 3), "groups");
    invalid(call(&x, &w, &plain, 0), "groups");
    invalid(call(&x, &w, &plain.stride([usize::MAX, 1]), 1), "stride");
    invalid(call(&x, &w, &plain.dilation([usize::MAX, 1]), 1), "dilation");
    invalid(call(&x, &w, &plain.padding([usize::MAX, 1]), 1), "padding");
    invalid(
        call(&zeros(&[1, 5, 5, 0]), &zeros(&[6, 3, 3, 4]), &plain, 1),
        "in_channels",
    );
    invalid(call(&zeros(&[1, 2, 5, 0]), &zeros(&[6, 3, 3, 0]), &plain, 1), "kernel");
    invalid(call(&x, &zeros(&[0, 3, 3, 4]), &plain, 1), "out_channels");
    invalid(call(&x, &zeros(&[6, 0, 3, 4]), &Window::new([0, 3]), 1), "kernel");
    invalid(call(&x, &w, &Window { rank: 7, ..plain }, 1), "spatial rank");
    invalid(call(&x, &w, &Window { rank: 0, ..plain }, 1), "spatial rank");
    invalid(
        call(&zeros(&[1, 5, 4]), &zeros(&[6, 3, 4]), &Window { rank: 1, ..plain }, 1),
        "window",
    );
    mismatch(call(&x, &zeros(&[6, 3, 3, 3]), &plain, 1));
    mismatch(call(&x, &w, &Window::new([3, 1]), 1));
    mismatch(x.conv(&w, Some(&zeros(&[5])), &plain, 1, Activation::None));
    let half = Tensor::zeros(backend, &[6, 3, 3, 4], DType::F16).expect("small tensor");
    assert!(matches!(call(&x, &half, &plain, 1), Err(Error::DTypeMismatch { .. })));
    // The padded image has 2⁶⁰ positions, more than can be addressed.
    let far = plain.padding([1 << 29, 1 << 29]);
    assert!(matches!(call(&x, &w, &far, 1), Err(Error::TooLarge { .. })));
    for rank in (0..=6).filter(|&r| r != 4) {
        let other = zeros(&vec![3; rank]);
        assert!(
            matches!(call(&other, &w, &plain, 1), Err(Error::Rank { .. })),
            "input of rank {rank}"
        );
        assert!(
            matches!(call(&x, &other, &plain, 1), Err(Error::Rank { .. })),
            "weight of rank {rank}"
        );
        assert!(
            matches!(back(&other, &plain, [0; 3], 1), Err(Error::Rank { .. })),
            "weight of rank {rank}"
        );
    }
    // Kernels whose sizes fit 31 bits, but whose number of taps does not.
    let (volume, w5) = (zeros(&[1, 2, 2, 2, 4]), zeros(&[6, 1, 1, 1, 4]));
    for k in [i32::MAX as usize, i32::MAX as usize - 1] {
        for window in [Window::new([k, k]), Window::new([2, k])] {
            invalid(call(&x, &w, &window, 1), "kernel");
            invalid(call(&x, &w, &window.same(), 1), "kernel");
            invalid(call(&x, &w, &window.padding([k / 2, k / 2]), 1), "kernel");
            invalid(back(&w, &window, [0; 3], 1), "kernel");
        }
        let window = Window::new([k, k, k]);
        for window in [window, window.same(), window.padding([k / 2, k / 2, k / 2])] {
            invalid(call(&volume, &w5, &window, 1), "kernel");
        }
    }
    let w = zeros(&[4, 3, 3, 2]);
    invalid(back(&w, &plain, [0, 1, 0], 1), "output_padding");
    invalid(back(&w, &plain, [1, 0, 0], 1), "output_padding");
    invalid(back(&w, &plain, [usize::MAX, 0, 0], 1), "output_padding");
    invalid(back(&w, &plain.padding([9, 9]), [0; 3], 1), "padding");
    invalid(back(&w, &plain.same(), [0; 3], 1), "padding");
    invalid(back(&w, &plain.stride([0, 1]), [0; 3], 1), "stride");
    invalid(back(&w, &plain, [0; 3], 0), "groups");
    invalid(back(&w, &plain, [0; 3], 3), "groups");
    mismatch(back(&zeros(&[5, 3, 3, 2]), &plain, [0; 3], 1));
    let none = zeros(&[0, 5, 5, 4]).conv_transpose(&w, None, &plain, [0; 3], 1, Activation::None);
    assert_eq!(none.map(|y| y.shape().to_vec()), Ok(vec![0, 7, 7, 2]));
}
