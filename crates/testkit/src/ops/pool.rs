//! Poolings.

use super::matmul::magnitudes;
use crate::array::unravel;
use crate::{Array, Case, Rounding, check, check_with, shapes};
use kiln_core::ops::{Padding, Window};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

/// One spatial dimension of a windowed pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Max,
    Average { count_include_pad: bool },
    Divided { divisor: isize },
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) kind: Kind,
    pub(super) ceil_mode: bool,
    pub(super) axes: Vec<Axis>,
    pub(super) x: Array,
}

impl Axis {
    /// The number of elements from the first tap of a window to its last, both included.
    fn extent(&self) -> usize {
        (self.kernel - 1) * self.dilation + 1
    }

    /// The number of positions by which a window may extend past the end.
    fn hang(&self, ceil_mode: bool) -> usize {
        if ceil_mode { self.stride - 1 } else { 0 }
    }

    fn output(&self, ceil_mode: bool) -> usize {
        let room = self.size + 2 * self.padding + self.hang(ceil_mode) - self.extent();
        let out = room / self.stride + 1;
        // The last window must start inside the input or the padding before it.
        if ceil_mode && (out - 1) * self.stride >= self.size + self.padding {
            out - 1
        } else {
            out
        }
    }
}

impl Pool {
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
            padding: Padding::Explicit(spread(0, &|a| a.padding)),
        }
    }
}

/// What a window reads.
struct Taps {
    /// The elements of the input, without those of the padding.
    values: Vec<f64>,
    /// The number of positions in the input or its padding.
    padded: f64,
}

impl Pool {
    /// The shape of the result.
    fn output(&self, x: &Array) -> Vec<usize> {
        let mut shape = x.shape.clone();
        for (d, a) in shape[1..].iter_mut().zip(&self.axes) {
            *d = a.output(self.ceil_mode);
        }
        shape
    }

    /// What the window of result `at` reads.
    fn taps(&self, x: &Array, at: &[usize]) -> Taps {
        let rank = self.axes.len();
        let kernel: Vec<usize> = self.axes.iter().map(|a| a.kernel).collect();
        let (mut values, mut padded) = (Vec::new(), 0.0);
        for t in 0..kernel.iter().product() {
            let tap = unravel(t, &kernel);
            // Positions are counted from the start of the padding.
            let from_pad: Vec<usize> = (0..rank)
                .map(|i| at[i + 1] * self.axes[i].stride + tap[i] * self.axes[i].dilation)
                .collect();
            let in_padded = (0..rank).all(|i| from_pad[i] < self.axes[i].size + 2 * self.axes[i].padding);
            padded += f64::from(u8::from(in_padded));
            let inside: Option<Vec<usize>> = (0..rank)
                .map(|i| {
                    from_pad[i]
                        .checked_sub(self.axes[i].padding)
                        .filter(|&p| p < self.axes[i].size)
                })
                .collect();
            if let Some(inside) = inside {
                values.push(x.at(&[&at[..1], &inside, &at[rank + 1..]].concat()));
            }
        }
        Taps { values, padded }
    }

    /// The least difference between the largest and the second largest element of a window: infinite if no window has two.
    pub(super) fn margin(&self, x: &Array) -> f64 {
        self.least(x, |values| match *values {
            [first, second, ..] => first - second,
            _ => f64::INFINITY,
        })
    }

    /// The least difference between the largest element of a window and the next smaller one: infinite if no window has two values.
    pub(super) fn distance(&self, x: &Array) -> f64 {
        self.least(x, |values| {
            let differences = values.iter().map(|value| values[0] - value);
            differences.filter(|d| *d > 0.0).fold(f64::INFINITY, f64::min)
        })
    }

    /// The least value of a function of the elements of a window, from the largest down.
    fn least(&self, x: &Array, f: impl Fn(&[f64]) -> f64) -> f64 {
        let all = Array::from_fn(&self.output(x), |at| {
            let mut values = self.taps(x, at).values;
            values.sort_by(|a, b| b.total_cmp(a));
            f(&values)
        });
        all.data.into_iter().fold(f64::INFINITY, f64::min)
    }
}

impl Case for Pool {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let window = self.window();
        match self.kind {
            Kind::Max => x[0].max_pool(&window, self.ceil_mode),
            Kind::Average { count_include_pad } => x[0].avg_pool(&window, self.ceil_mode, count_include_pad),
            Kind::Divided { divisor } => x[0].avg_pool_by(&window, self.ceil_mode, divisor),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        Array::from_fn(&self.output(&x[0]), |at| {
            let Taps { values, padded } = self.taps(&x[0], at);
            let (sum, real) = (values.iter().sum::<f64>(), values.len() as f64);
            let largest = values.into_iter().fold(f64::NEG_INFINITY, f64::max);
            match self.kind {
                Kind::Max => largest,
                Kind::Average {
                    count_include_pad: true,
                } => sum / padded,
                Kind::Average { .. } => sum / real,
                Kind::Divided { divisor } => sum / divisor as f64,
            }
        })
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let taps: usize = self.axes.iter().map(|a| a.kernel).product();
        match self.kind {
            Kind::Max => Rounding::exact(want),
            Kind::Average { .. } => Rounding::terms(taps as f64 + 1.0, self.oracle(&magnitudes(x))),
            // A mean multiplied by its count.
            Kind::Divided { .. } => {
                let terms = self.oracle(&magnitudes(x)).map(f64::abs);
                Rounding::terms(taps as f64 + 6.0, terms)
            }
        }
    }
}

fn axis(dilated: bool) -> impl Strategy<Value = Axis> {
    (1usize..8, 1usize..5, 1usize..4, 0usize..3, 1usize..3).prop_map(
        move |(size, kernel, stride, padding, dilation)| {
            let padding = padding.min(kernel / 2);
            let dilation = if dilated { dilation } else { 1 };
            Axis {
                size,
                kernel,
                stride,
                padding,
                dilation,
            }
        },
    )
}

fn pool(kind: impl Strategy<Value = Kind>, dilated: bool) -> impl Strategy<Value = Pool> {
    let batch = prop_oneof![1 => Just(0usize), 5 => 1usize..3];
    let channels = prop_oneof![6 => 1usize..4, 1 => Just(17usize), 1 => Just(33usize)];
    let axes = prop::collection::vec(axis(dilated), 1..=3);
    (kind, any::<bool>(), axes, batch, channels).prop_flat_map(|(kind, ceil_mode, mut axes, batch, channels)| {
        for a in &mut axes {
            // With two taps, a dilated window could have none inside of a smaller input.
            let least = a
                .extent()
                .saturating_sub(2 * a.padding + a.hang(ceil_mode))
                .max(a.dilation);
            a.size = a.size.max(least);
        }
        let mut shape = vec![batch];
        shape.extend(axes.iter().map(|a| a.size));
        shape.push(channels);
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Pool {
            kind,
            ceil_mode,
            axes: axes.clone(),
            x,
        })
    })
}

/// Max pooling with padding, ceil mode, dilation and any kernel and stride.
pub fn max_pool<B: Backend>(backend: &B) {
    check(backend, pool(Just(Kind::Max), true));
}

/// Average pooling, with the padding counted or not.
pub fn avg_pool<B: Backend>(backend: &B) {
    let kind = any::<bool>().prop_map(|count_include_pad| Kind::Average { count_include_pad });
    check(backend, pool(kind, false));
}

/// Sums of windows divided by a number.
pub fn avg_pool_by<B: Backend>(backend: &B) {
    let divisor = prop::sample::select(vec![1isize, 2, 7, -3, 1000]);
    let kind = divisor.prop_map(|divisor| Kind::Divided { divisor });
    check_with(24, backend, pool(kind, false));
}

/// Adaptive pooling; `output` of `None` stands for the global mean.
#[derive(Clone, Debug)]
struct Adaptive {
    output: Option<Vec<usize>>,
    max: bool,
    x: Array,
}

impl Case for Adaptive {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match &self.output {
            Some(output) if self.max => x[0].adaptive_max_pool(output),
            Some(output) => x[0].adaptive_avg_pool(output),
            None => x[0].global_avg_pool(),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let x = &x[0];
        let rank = x.shape.len() - 2;
        let size = &x.shape[1..=rank];
        let output = self.output.clone().unwrap_or(vec![1; rank]);
        let (batch, channels) = (x.shape[0], x.shape[rank + 1]);
        let mut y = Array::from_fn(&[&[batch][..], &output, &[channels]].concat(), |at| {
            let (mut sum, mut count, mut largest) = (0.0, 0.0, f64::NEG_INFINITY);
            for n in 0..size.iter().product() {
                let p = unravel(n, size);
                let inside = (0..rank).all(|i| {
                    let (o, s, t) = (at[i + 1], size[i], output[i]);
                    p[i] >= o * s / t && p[i] < ((o + 1) * s).div_ceil(t)
                });
                if inside {
                    let value = x.at(&[&at[..1], &p, &at[rank + 1..]].concat());
                    count += 1.0;
                    sum += value;
                    largest = largest.max(value);
                }
            }
            if self.max { largest } else { sum / count }
        });
        if self.output.is_none() {
            y.shape = vec![batch, channels];
        }
        y
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        if self.max {
            return Rounding::exact(want);
        }
        let shape = &self.x.shape;
        let positions: usize = shape[1..shape.len() - 1].iter().product();
        Rounding::terms(positions as f64 + 1.0, self.oracle(&magnitudes(x)))
    }
}

/// Adaptive max pooling, by cells that overlap and cells of one element.
pub fn adaptive_max_pool<B: Backend>(backend: &B) {
    let axes = prop::collection::vec((1usize..8, 1usize..5), 1..=3);
    let strategy = (axes, 0usize..3, 1usize..4).prop_flat_map(|(axes, batch, channels)| {
        let (size, output): (Vec<usize>, Vec<usize>) = axes.into_iter().unzip();
        let x = shapes::values(&[&[batch][..], &size, &[channels]].concat(), -2.0, 2.0);
        x.prop_map(move |x| Adaptive {
            output: Some(output.clone()),
            max: true,
            x,
        })
    });
    check_with(16, backend, strategy);
}

/// Adaptive and global average pooling.
pub fn adaptive_avg_pool<B: Backend>(backend: &B) {
    let batch = prop_oneof![1 => Just(0usize), 5 => 1usize..3];
    let channels = prop_oneof![6 => 1usize..4, 1 => Just(17usize)];
    let axes = prop::collection::vec((1usize..8, 1usize..5), 1..=3);
    let strategy = (axes, batch, channels, any::<bool>()).prop_flat_map(|(axes, batch, channels, global)| {
        let (size, output): (Vec<usize>, Vec<usize>) = axes.into_iter().unzip();
        let output = (!global).then_some(output);
        shapes::values(&[&[batch][..], &size, &[channels]].concat(), -2.0, 2.0).prop_map(move |x| Adaptive {
            output: output.clone(),
            max: false,
            x,
        })
    });
    check(backend, strategy);
}

/// NaN counts as the largest element; of equal elements the first is the one that is indexed and gets the gradient.
///
/// # Panics
/// When a value, an index or a gradient differs.
pub fn ties_and_nan<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let values = [1.0, 1.0, f32::NAN, 5.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let x = Tensor::from_slice(backend, &values, &[1, 2, 3, 1])?.requires_grad();
        let (y, index) = x.max_pool_with_indices(&Window::new([2, 1]), false)?;
        assert_eq!(index.to_vec::<i32>()?, [3, 1, 2]);
        let y = y.to_vec::<f32>()?;
        assert!(y[0] == 5.0 && y[1] == 1.0 && y[2].is_nan(), "{y:?}");
        let equal = Tensor::from_slice(backend, &[2f32; 4], &[1, 4, 1])?.requires_grad();
        let y = equal.max_pool(&Window::new([3]), false)?;
        let seed = Tensor::from_slice(backend, &[1f32, 10.0], &[1, 2, 1])?;
        let grads = kiln_nn::grad(&y, &[&equal], Some(&seed), false)?;
        let g = grads[0].as_ref().expect("max pooling has a gradient").to_vec::<f32>()?;
        assert_eq!(g, [1.0, 10.0, 0.0, 0.0]);
        Ok(())
    };
    run().expect("valid calls");
}

/// Kernels far larger than their input cover all of it and take no longer; kernels with too many taps to count are refused.
fn huge_kernels<B: Backend>(backend: &B) -> Result<()> {
    let x = Tensor::from_slice(backend, &[3f32, -1.0, 2.0, 8.0, 4.0, 2.0], &[1, 3, 2, 1])?.requires_grad();
    let volume = Tensor::zeros(backend, &[1, 2, 2, 2, 1], DType::F32)?;
    for k in [i32::MAX as usize, i32::MAX as usize - 1] {
        for (window, rows) in [
            (Window::new([k, 1]).same(), 3),
            (Window::new([k, 1]).padding([k / 2, 0]), 3 + (k + 1) % 2),
        ] {
            let y = x.max_pool(&window, false)?;
            assert_eq!(y.to_vec::<f32>()?, [4.0, 8.0].repeat(rows), "{window:?}");
            let seed = Tensor::from_slice(backend, &vec![1f32; 2 * rows], &[1, rows, 2, 1])?;
            let grads = kiln_nn::grad(&y, &[&x], Some(&seed), false)?;
            let g = grads[0].as_ref().expect("max pooling has a gradient").to_vec::<f32>()?;
            let all = rows as f32;
            assert_eq!(g, [0.0, 0.0, 0.0, all, all, 0.0], "{window:?}");
            let y = x.avg_pool(&window, false, false)?;
            assert_eq!(y.to_vec::<f32>()?, [3.0, 3.0].repeat(rows), "{window:?}");
            let y = x.avg_pool(&window, false, true)?.to_vec::<f32>()?;
            assert!(y.iter().all(|y| (0.0..1e-8).contains(y)), "{window:?}: {y:?}");
        }
        let uncounted = |found: Result<Tensor<B>>| match found {
            Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, "kernel"),
            other => panic!("kernel {k}: {other:?}"),
        };
        for window in [Window::new([k, k]), Window::new([k, 2])] {
            for window in [window, window.same(), window.padding([k / 2, 1])] {
                uncounted(x.max_pool(&window, false));
                uncounted(x.avg_pool(&window, false, true));
            }
        }
        let cube = Window::new([k, k, k]);
        for window in [cube, cube.same(), cube.padding([k / 2, k / 2, k / 2])] {
            uncounted(volume.max_pool(&window, true));
            uncounted(volume.avg_pool(&window, true, true));
        }
    }
    Ok(())
}

/// Arguments that do not fit are typed errors that name them.
///
/// # Panics
/// When an argument is accepted, or refused with another error.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |shape: &[usize]| Tensor::zeros(backend, shape, DType::F32).expect("small tensor");
    huge_kernels(backend).expect("valid calls");
    let x = zeros(&[1, 5, 5, 2]);
    let plain = Window::new([2, 2]);
    let invalid = |window: &Window, name: &str| {
        for found in [
            x.max_pool(window, false),
            x.max_pool(window, true),
            x.avg_pool(window, false, true),
        ] {
            match found {
                Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    };
    invalid(&Window::new([6, 2]), "kernel");
    invalid(&Window::new([0, 2]), "kernel");
    invalid(&Window::new([usize::MAX, 2]), "kernel");
    invalid(&Window::new([8, 2]).stride([3, 1]), "kernel");
    invalid(&plain.stride([0, 1]), "stride");
    invalid(&plain.stride([usize::MAX, 1]), "stride");
    invalid(&plain.dilation([0, 1]), "dilation");
    invalid(&plain.dilation([usize::MAX, 1]), "dilation");
    invalid(&plain.padding([2, 0]), "padding");
    invalid(&plain.padding([usize::MAX, 0]), "padding");
    invalid(&Window { rank: 4, ..plain }, "spatial rank");
    let dilated = x.avg_pool(&plain.dilation([2, 2]), false, true);
    assert!(
        matches!(
            dilated,
            Err(Error::InvalidArgument {
                argument: "dilation",
                ..
            })
        ),
        "{dilated:?}"
    );
    let by_nothing = x.avg_pool_by(&plain, false, 0);
    assert!(
        matches!(
            by_nothing,
            Err(Error::InvalidArgument {
                argument: "divisor",
                ..
            })
        ),
        "{by_nothing:?}"
    );
    for rank in (0..=6).filter(|&r| r != 4) {
        let other = zeros(&vec![3; rank]);
        assert!(
            matches!(other.max_pool(&plain, false), Err(Error::Rank { .. })),
            "rank {rank}"
        );
        assert!(
            matches!(other.avg_pool(&plain, false, true), Err(Error::Rank { .. })),
            "rank {rank}"
        );
        assert!(
            matches!(other.adaptive_avg_pool(&[1, 1]), Err(Error::Rank { .. })),
            "rank {rank}"
        );
        if !(3..=5).contains(&rank) {
            assert!(
                matches!(other.global_avg_pool(), Err(Error::Rank { .. })),
                "rank {rank}"
            );
        }
    }
    for output in [&[][..], &[0, 1], &[1, 1, 1, 1], &[usize::MAX, 1]] {
        for found in [x.adaptive_avg_pool(output), x.adaptive_max_pool(output)] {
            assert!(
                matches!(found, Err(Error::InvalidArgument { .. })),
                "{output:?}: {found:?}"
            );
        }
    }
    let empty = zeros(&[1, 0, 5, 2]);
    assert!(matches!(
        empty.max_pool(&Window::new([1, 1]), false),
        Err(Error::InvalidArgument { .. })
    ));
    assert!(matches!(empty.global_avg_pool(), Err(Error::InvalidArgument { .. })));
    // Batches without images and images without channels are no error.
    let none = zeros(&[0, 5, 5, 2])
        .max_pool(&plain, false)
        .expect("a zero batch is a batch");
    assert_eq!(none.shape().dims(), [0, 4, 4, 2]);
    let none = zeros(&[1, 5, 5, 0])
        .avg_pool(&plain, false, true)
        .expect("no channels, no work");
    assert_eq!(none.shape().dims(), [1, 4, 4, 0]);
}
