//! Discrete Fourier transforms: every result against the sum that defines it.

use crate::{Array, Case, Rounding, check_with, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::Tensor;
use kiln_nn::ops::FftNorm;
use proptest::prelude::*;
use std::f64::consts::PI;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Complex,
    Real,
    InverseReal,
}

/// A transform along one or several axes of a tensor, which is complex unless its kind is `Real`.
#[derive(Clone, Debug)]
struct Transform {
    kind: Kind,
    inverse: bool,
    x: Array,
    /// Axes with the sizes that they are cut or filled to.
    axes: Vec<(usize, Option<usize>)>,
    negative: bool,
    norm: FftNorm,
}

/// e^(2πik/n), of an angle below half a turn.
fn root(k: usize, n: usize) -> (f64, f64) {
    let k = (k % n) as f64 - if 2 * (k % n) > n { n as f64 } else { 0.0 };
    let angle = 2.0 * PI * k / n as f64;
    (angle.cos(), angle.sin())
}

/// Σ x[j]·e^(∓2πijk/n) along an axis of a complex array, of `n` numbers.
fn sums(x: &Array, axis: usize, n: usize, inverse: bool) -> Array {
    let sign = if inverse { 1.0 } else { -1.0 };
    let roots: Vec<_> = (0..n).map(|k| root(k, n)).collect();
    let mut shape = x.shape.clone();
    shape[axis] = n;
    let part = x.shape.len() - 1;
    Array::from_fn(&shape, |at| {
        let mut from = at.to_vec();
        let mut read = |j: usize, p: usize| {
            from[axis] = j;
            from[part] = p;
            x.at(&from)
        };
        let term = |j: usize| {
            let (c, s) = roots[j * at[axis] % n];
            let (re, im, s) = (read(j, 0), read(j, 1), sign * s);
            if at[part] == 0 {
                re * c - im * s
            } else {
                re * s + im * c
            }
        };
        (0..n.min(x.shape[axis])).map(term).sum()
    })
}

/// The same array with `n` elements along an axis, cut or filled with zeros.
fn sized(x: &Array, axis: usize, n: usize) -> Array {
    let mut shape = x.shape.clone();
    shape[axis] = n;
    Array::from_fn(&shape, |at| if at[axis] < x.shape[axis] { x.at(at) } else { 0.0 })
}

impl Transform {
    fn size(&self, i: usize) -> usize {
        let (axis, n) = self.axes[i];
        let by_default = match self.kind {
            Kind::InverseReal if i + 1 == self.axes.len() => 2 * (self.x.shape[axis] - 1),
            _ => self.x.shape[axis],
        };
        n.unwrap_or(by_default)
    }

    /// The transform without a scale.
    fn unscaled(&self, x: &Array) -> Array {
        let last = self.axes.len() - 1;
        let mut y = match self.kind {
            Kind::Real => {
                let shape = [&x.shape[..], &[2]].concat();
                Array::from_fn(&shape, |at| match at.split_last() {
                    Some((0, from)) => x.at(from),
                    _ => 0.0,
                })
            }
            _ => x.clone(),
        };
        for (i, &(axis, _)) in self.axes.iter().enumerate() {
            let n = self.size(i);
            if self.kind != Kind::InverseReal || i < last {
                y = sums(&y, axis, n, self.inverse);
            }
        }
        let (axis, n) = (self.axes[last].0, self.size(last));
        match self.kind {
            Kind::Complex => y,
            Kind::Real => sized(&y, axis, n / 2 + 1),
            Kind::InverseReal => {
                let mut shape = y.shape.clone();
                shape.pop();
                shape[axis] = n;
                Array::from_fn(&shape, |at| {
                    let term = |k: usize| {
                        let mut from = at.to_vec();
                        from[axis] = k;
                        let read = |p: usize| y.at(&[&from[..], &[p]].concat());
                        let (c, s) = root(k * at[axis], n);
                        let once = k == 0 || 2 * k == n;
                        if once {
                            read(0) * c
                        } else {
                            2.0 * (read(0) * c - read(1) * s)
                        }
                    };
                    (0..y.shape[axis].min(n / 2 + 1)).map(term).sum()
                })
            }
        }
    }

    fn scale(&self) -> f64 {
        let n: usize = (0..self.axes.len()).map(|i| self.size(i)).product();
        match (self.norm, self.inverse) {
            (FftNorm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (FftNorm::Backward, true) | (FftNorm::Forward, false) => 1.0 / n as f64,
            _ => 1.0,
        }
    }
}

impl Case for Transform {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let (x, norm) = (&x[0], self.norm);
        let rank = self.x.shape.len() - usize::from(self.kind != Kind::Real);
        let signed = |axis: usize| axis as isize - if self.negative { rank as isize } else { 0 };
        if let [(axis, n)] = self.axes[..] {
            let axis = signed(axis);
            return match (self.kind, self.inverse) {
                (Kind::Complex, false) => x.fft(n, axis, norm),
                (Kind::Complex, true) => x.ifft(n, axis, norm),
                (Kind::Real, _) => x.rfft(n, axis, norm),
                (Kind::InverseReal, _) => x.irfft(n, axis, norm),
            };
        }
        let axes: Vec<isize> = self.axes.iter().map(|&(a, _)| signed(a)).collect();
        let sizes: Option<Vec<usize>> = self.axes.iter().map(|&(_, n)| n).collect();
        let sizes = sizes.as_deref();
        match (self.kind, self.inverse) {
            (Kind::Complex, false) => x.fftn(sizes, &axes, norm),
            (Kind::Complex, true) => x.ifftn(sizes, &axes, norm),
            (Kind::Real, _) => x.rfftn(sizes, &axes, norm),
            (Kind::InverseReal, _) => x.irfftn(sizes, &axes, norm),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let scale = self.scale();
        self.unscaled(&x[0]).map(|v| v * scale)
    }

    /// Every result is a sum of all numbers, each multiplied by a number of at most 1. In a convolution the transforms of n numbers
    /// are multiplied by those of a chirp, which are about √n.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        let n: usize = (0..self.axes.len()).map(|i| self.size(i)).product();
        let all: f64 = x[0].data.iter().map(|v| v.abs()).sum();
        let terms = want.map(|_| 2.0 * all * self.scale());
        Rounding::terms(24.0 * (n as f64).sqrt() + 24.0, terms)
    }
}

fn transforms(lengths: Vec<usize>, several: bool) -> impl Strategy<Value = Transform> {
    let kind = prop::sample::select(vec![Kind::Complex, Kind::Real, Kind::InverseReal]);
    let norm = prop::sample::select(vec![FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward]);
    let lengths = prop::collection::vec(prop::sample::select(lengths), 3);
    let flags = (
        any::<[bool; 3]>(),
        0usize..3,
        prop::collection::vec(1usize..7, 2),
        any::<bool>(),
    );
    (kind, norm, lengths, flags).prop_flat_map(
        move |(kind, norm, lengths, ([inverse, negative, resized], at, more, swapped))| {
            let mut shape: Vec<usize> = if several { lengths.clone() } else { more.clone() };
            let mut axes: Vec<(usize, Option<usize>)> = if several {
                let (a, b) = (at, (at + 1) % 3);
                vec![if swapped { b } else { a }, if swapped { a } else { b }]
                    .into_iter()
                    .map(|a| (a, None))
                    .collect()
            } else {
                shape.iter_mut().for_each(|d| *d = *d % 3 + 1);
                shape.insert(at, lengths[0]);
                vec![(at, None)]
            };
            if resized {
                for (i, (axis, n)) in axes.iter_mut().enumerate() {
                    *n = Some((shape[*axis] + more[i]).saturating_sub(3).max(1));
                }
            }
            if kind == Kind::InverseReal {
                let (axis, n) = axes[axes.len() - 1];
                if n.is_none() {
                    shape[axis] = shape[axis].max(2);
                }
            }
            if kind != Kind::Real {
                shape.push(2);
            }
            let inverse = match kind {
                Kind::Complex => inverse,
                kind => kind == Kind::InverseReal,
            };
            shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Transform {
                kind,
                inverse,
                x,
                axes: axes.clone(),
                negative,
                norm,
            })
        },
    )
}

/// Short transforms along one axis: of 1, of primes, of powers, cut and filled.
pub fn along_one_axis<B: Backend>(backend: &B) {
    let lengths = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12];
    check_with(24, backend, transforms(lengths, false));
}

/// Transforms along two of three axes.
pub fn along_several<B: Backend>(backend: &B) {
    check_with(16, backend, transforms(vec![1, 2, 3, 4], true));
}

/// Lengths of several factors, and primes beyond the largest factor.
pub fn of_any_length<B: Backend>(backend: &B) {
    let lengths = vec![61, 64, 66, 67, 71, 100, 125, 127, 128, 134, 169, 256, 289, 360];
    check_with(8, backend, transforms(lengths, false));
    // A long one by what is known of it: a wave has one bin, and bins stand in the order of their frequencies.
    let run = || -> Result<()> {
        for (n, bin) in [(4096usize, 1000usize), (2053, 1234), (7 * 7 * 7 * 3, 400)] {
            let wave: Vec<f64> = (0..n).flat_map(|j| <[f64; 2]>::from(root(j * bin, n))).collect();
            for (dtype, near) in [(DType::F32, 2e-5), (DType::F64, 2e-13)] {
                if !backend.supports_dtype(dtype) {
                    continue;
                }
                let x = Tensor::from_f64(backend, &wave, &[n, 2], dtype)?;
                let y = x.fft(None, 0, FftNorm::Forward)?;
                let bins = y.to_f64()?;
                let wrong = bins.iter().enumerate().find(|&(i, v)| {
                    let want = if i == 2 * bin { 1.0 } else { 0.0 };
                    (v - want).abs() > near
                });
                assert_eq!(wrong, None, "{n} {dtype}");
                let again = y.ifft(None, 0, FftNorm::Forward)?.to_f64()?;
                let off = again.iter().zip(&wave).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(off < 4.0 * near, "{n} {dtype}: {off:e}");
            }
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}

/// Bad arguments are typed errors, and tensors without elements have transforms.
pub fn refused<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        let norm = FftNorm::Backward;
        let x = Tensor::zeros(backend, &[3, 4, 2], DType::F32)?;
        let odd = Tensor::zeros(backend, &[3, 3], DType::F32)?;
        let scalar = Tensor::zeros(backend, &[], DType::F32)?;
        for bad in [&odd, &scalar] {
            refused!(bad.fft(None, 0, norm), Error::InvalidArgument { argument: "input", .. });
            refused!(
                bad.ifft(None, 0, norm),
                Error::InvalidArgument { argument: "input", .. }
            );
            refused!(
                bad.irfft(None, 0, norm),
                Error::InvalidArgument { argument: "input", .. }
            );
            refused!(
                bad.fftn(None, &[], norm),
                Error::InvalidArgument { argument: "input", .. }
            );
            refused!(
                bad.irfftn(None, &[], norm),
                Error::InvalidArgument { argument: "input", .. }
            );
        }
        for axis in [2, -3, isize::MAX, isize::MIN] {
            refused!(x.fft(None, axis, norm), Error::Axis { .. });
            refused!(x.irfft(None, axis, norm), Error::Axis { .. });
            refused!(x.ifftn(None, &[axis], norm), Error::Axis { .. });
        }
        refused!(x.rfft(None, 3, norm), Error::Axis { .. });
        refused!(scalar.rfft(None, 0, norm), Error::Axis { .. });
        refused!(
            scalar.rfftn(None, &[], norm),
            Error::InvalidArgument { argument: "axes", .. }
        );
        for n in [Some(0), None] {
            let none = Tensor::zeros(backend, &[2, 0, 2], DType::F32)?;
            refused!(none.fft(n, 1, norm), Error::InvalidArgument { argument: "n", .. });
            refused!(none.rfft(n, 1, norm), Error::InvalidArgument { argument: "n", .. });
            refused!(none.irfft(n, 1, norm), Error::InvalidArgument { argument: "n", .. });
        }
        refused!(
            x.narrow(1, 0, 1)?.irfft(None, 1, norm),
            Error::InvalidArgument { argument: "n", .. }
        );
        assert!(x.fft(Some(usize::MAX), 0, norm).is_err());
        assert!(x.irfft(Some(usize::MAX), 0, norm).is_err());
        refused!(
            x.fftn(None, &[0, -2], norm),
            Error::InvalidArgument { argument: "axes", .. }
        );
        refused!(
            x.fftn(Some(&[2]), &[0, 1], norm),
            Error::InvalidArgument { argument: "sizes", .. }
        );
        refused!(
            x.fftn(Some(&[2, 2, 2]), &[], norm),
            Error::InvalidArgument { argument: "sizes", .. }
        );
        let none = Tensor::zeros(backend, &[0, 4, 2], DType::F32)?;
        assert_eq!(none.fft(Some(67), 1, norm)?.shape().dims(), [0, 67, 2]);
        assert_eq!(none.irfft(None, 1, norm)?.shape().dims(), [0, 6]);
        // The last sizes are those of the last axes.
        assert_eq!(x.fftn(Some(&[5]), &[], norm)?.shape().dims(), [3, 5, 2]);
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
