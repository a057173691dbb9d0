//! Random tensors and dropout.

use crate::{Array, Case, Rounding, check, refused, shapes};
use kiln_core::philox::{drop_below, normal_pair, truncated_normal, uniform};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::{Indices, Init, Rng, Tensor};
use proptest::prelude::*;

const SEED: u64 = 0x1234_5678_9abc_def0;

/// Every distribution gives the bits of `kiln_core::philox`, at sizes around a Philox block and around a launch.
pub fn distributions<B: Backend>(backend: &B) {
    // A draw whose position sets both the stream and the step.
    let rng = || Rng::at(SEED, (9 << 32) + 5);
    let key = rng().next_key();
    let normal = |i: u64| {
        let w = key.block(i / 4);
        let (a, b) = if i % 4 < 2 {
            normal_pair(w[0], w[1])
        } else {
            normal_pair(w[2], w[3])
        };
        if i.is_multiple_of(2) { a } else { b }
    };
    let run = || -> Result<()> {
        for n in [0usize, 1, 3, 4, 5, 1023, 1025, 40_009] {
            let (shape, f32) = ([n], DType::F32);
            let all = |f: &dyn Fn(u64) -> f32| (0..n as u64).map(f).collect::<Vec<f32>>();
            let got = Tensor::uniform(backend, &shape, f32, -1.0, 3.0, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&|i| -1.0 + 4.0 * uniform(key.word(i))));
            let got = Tensor::rand(backend, &shape, f32, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&|i| uniform(key.word(i))));
            let got = Tensor::normal(backend, &shape, f32, 0.5, 2.0, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&|i| 0.5 + 2.0 * normal(i)));
            let got = Tensor::randn(backend, &shape, f32, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&normal));
            let got = Tensor::truncated_normal(backend, &shape, f32, 1.0, 0.25, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&|i| 1.0 + 0.25 * truncated_normal(key.word(i))));
            let got = Tensor::bernoulli(backend, &shape, f32, 0.3, &mut rng())?.to_vec::<f32>()?;
            assert_eq!(got, all(&|i| f32::from(u8::from(uniform(key.word(i)) < 0.3))));
            let got = Indices::permutation(backend, n, &mut rng())?.to_vec::<i32>()?;
            assert!(got.iter().map(|&i| i as usize).eq(key.permutation(n).unwrap()));
        }
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}

#[derive(Clone, Debug)]
struct Dropout {
    x: Array,
    p: f64,
    step: u32,
}

impl Case for Dropout {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].dropout(self.p, &mut Rng::at(SEED, u64::from(self.step)))
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let key = Rng::at(SEED, u64::from(self.step)).next_key();
        let kept = |i: usize| key.half(i as u64) >= drop_below(self.p);
        let data = x[0].data.iter().enumerate();
        let data = data.map(|(i, v)| if kept(i) { v / (1.0 - self.p) } else { 0.0 });
        Array::new(&x[0].shape, data.collect())
    }

    /// The roundings of the factor 1/(1 − p) and of the product with it.
    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::relative(3.0, want)
    }
}

/// Dropout drops the elements that its key determines, in values and in gradients.
pub fn dropout<B: Backend>(backend: &B) {
    let p = prop::sample::select(vec![0.0, 0.25, 0.5, 0.75, 1.0]);
    let cases = (shapes::shape(3), p, any::<u32>())
        .prop_flat_map(|(shape, p, step)| shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Dropout { x, p, step }));
    check(backend, cases);
}

/// Probabilities outside 0 to 1, bounds out of order, negative standard deviations, and NaN are typed errors.
pub fn bad_input<B: Backend>(backend: &B) {
    let (nan, inf, f32) = (f64::NAN, f64::INFINITY, DType::F32);
    let run = || -> Result<()> {
        let x = Tensor::ones(backend, &[2, 3], f32)?;
        let (rng, stream) = (&mut Rng::new(0), Init::new(backend, 0).next_stream());
        for p in [-0.1, 1.5, nan, inf] {
            refused!(x.dropout(p, rng), Error::InvalidArgument { op: "dropout", .. });
            refused!(
                Tensor::bernoulli(backend, &[2], f32, p, rng),
                Error::InvalidArgument { .. }
            );
        }
        let (two, mask) = (
            Indices::from_slice(backend, &[0, 1], &[2])?,
            Indices::from_slice(backend, &[0u8], &[])?,
        );
        refused!(
            x.dropout_at(0.5, stream, &two),
            Error::InvalidArgument { argument: "step", .. }
        );
        refused!(x.dropout_at(0.5, stream, &mask), Error::UnsupportedDType { .. });
        for (low, high) in [(1.0, 0.0), (nan, 1.0), (0.0, inf), (-3e38, 3e38), (0.0, 1e300)] {
            refused!(
                Tensor::uniform(backend, &[2], f32, low, high, rng),
                Error::InvalidArgument { .. }
            );
        }
        for (mean, std) in [(0.0, -1.0), (nan, 1.0), (0.0, nan), (inf, 1.0)] {
            refused!(
                Tensor::normal(backend, &[2], f32, mean, std, rng),
                Error::InvalidArgument { .. }
            );
            refused!(
                Tensor::truncated_normal(backend, &[2], f32, mean, std, rng),
                Error::InvalidArgument { .. }
            );
        }
        refused!(
            Tensor::rand(backend, &[usize::MAX, 2], f32, rng),
            Error::TooLarge { .. }
        );
        refused!(Tensor::rand(backend, &[1; 9], f32, rng), Error::Rank { .. });
        refused!(
            Tensor::randn(backend, &[2], DType::I32, rng),
            Error::UnsupportedDType { .. }
        );
        refused!(
            Indices::permutation(backend, 1 << 31, rng),
            Error::InvalidArgument { .. }
        );
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("{e}"));
}
