//! Random tensors and dropout. Every number is Philox4x32-10 of (seed, stream, step, element): the same on every
//! device, and for any number of threads.

use super::reduce::acc_dtype;
use crate::autograd::{Rule, RuleContext, no_grad};
use crate::tensor::require_float;
use crate::{Backend, DType, Error, Indices, Result, Rng, Shape, Stream, Tensor};
use kiln_core::host;
use kiln_core::ops::{Distribution, Op, RandomParams};
use kiln_core::philox::Key;

/// A tensor of `distribution` with its parameters, for the op of that name.
pub(crate) fn draw<B: Backend>(
    backend: &B,
    (op, distribution, parameters): (&'static str, Distribution, (f64, f64)),
    shape: &[usize],
    dtype: DType,
    key: Key,
) -> Result<Tensor<B>> {
    let shape = Shape::new(shape)?;
    require_float(op, backend, dtype)?;
    let p = RandomParams::new(op, distribution, shape.size(), parameters, key.seed, key.stream)?;
    let step = backend.upload(&[key.step as i32])?;
    let mut y = backend.alloc(dtype, shape.size())?;
    backend.random(&p, &step, &mut y)?;
    Ok(Tensor::from_buffer(backend, y, shape))
}

/// The rule of dropout: the gradient gets dropout with the same random numbers.
struct Dropout<B: Backend> {
    p: RandomParams,
    step: Indices<B>,
}

impl<B: Backend> Rule<B> for Dropout<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(drop_at(&self.p, &self.step, cx.grad)?)])
    }
}

/// Dropout of the call that `step` belongs to.
pub(super) fn drop_at<B: Backend>(p: &RandomParams, step: &Indices<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let y = if x.has_op(Op::Dropout) {
        let mut y = x.alloc_like(*x.shape())?;
        x.backend().dropout(p, step.buffer(), x.buffer(), &mut y)?;
        Tensor::from_buffer(x.backend(), y, *x.shape())
    } else {
        no_grad(|| composed(p, step, x))?
    };
    Ok(y.record("dropout", &[x], || Dropout {
        p: *p,
        step: step.clone(),
    }))
}

/// The definition: `x/(1 − p)` where a number that is 0 with the probability is 1, else 0.
fn composed<B: Backend>(p: &RandomParams, step: &Indices<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let backend = x.backend();
    let marks = RandomParams::new("dropout", Distribution::Kept, x.size(), (p.a, 0.0), p.seed, p.stream)?;
    let mut kept = backend.alloc(acc_dtype(x.dtype()), x.size())?;
    backend.random(&marks, step.buffer(), &mut kept)?;
    let dropped = Tensor::from_buffer(backend, kept, *x.shape()).lt_scalar(1.0)?;
    let wide = x.to_dtype(acc_dtype(x.dtype()))?;
    // At a probability of 1 everything is dropped, and the factor 1/(1 − p) would be infinite.
    let kept = if p.a < 1.0 {
        wide.mul_scalar(1.0 / (1.0 - p.a))?
    } else {
        wide
    };
    kept.masked_fill(&dropped, 0.0)?.to_dtype(x.dtype())
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Numbers uniform on `low ≤ x < high` (`torch.Tensor.uniform_`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::uniform(&cpu, &[100], DType::F32, -1.0, 1.0, &mut Rng::new(0))?;
    /// assert!(x.to_f64()?.iter().all(|x| (-1.0..1.0).contains(x)));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Bounds that are not finite or out of order, an integer dtype, a shape that overflows.
    pub fn uniform(backend: &B, shape: &[usize], dtype: DType, low: f64, high: f64, rng: &mut Rng) -> Result<Self> {
        let what = ("uniform", Distribution::Uniform, (low, high));
        draw(backend, what, shape, dtype, rng.next_key())
    }

    /// Normal numbers of mean `mean` and standard deviation `std` (`torch.normal`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::normal(&cpu, &[10_000], DType::F32, 5.0, 2.0, &mut Rng::new(0))?;
    /// assert!((x.mean(&[], false)?.item()? - 5.0).abs() < 0.2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A mean that is not finite, a deviation that is negative or not finite, an integer dtype, a shape that overflows.
    pub fn normal(backend: &B, shape: &[usize], dtype: DType, mean: f64, std: f64, rng: &mut Rng) -> Result<Self> {
        let what = ("normal", Distribution::Normal, (mean, std));
        draw(backend, what, shape, dtype, rng.next_key())
    }

    /// Normal numbers conditioned on lying within two standard deviations of the mean (`torch.nn.init.trunc_normal_` with those
    /// bounds; Keras's `TruncatedNormal`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::truncated_normal(&cpu, &[1000], DType::F32, 0.0, 0.02, &mut Rng::new(0))?;
    /// assert!(x.abs()?.max(&[], false)?.item()? <= 0.0401);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::normal`].
    pub fn truncated_normal(
        backend: &B,
        shape: &[usize],
        dtype: DType,
        mean: f64,
        std: f64,
        rng: &mut Rng,
    ) -> Result<Self> {
        let what = ("truncated_normal", Distribution::TruncatedNormal, (mean, std));
        draw(backend, what, shape, dtype, rng.next_key())
    }

    /// 1 with probability `p`, else 0 (`torch.bernoulli`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::bernoulli(&cpu, &[1000], DType::F32, 0.25, &mut Rng::new(0))?;
    /// assert!((x.mean(&[], false)?.item()? - 0.25).abs() < 0.1);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A probability outside `0..=1`, an integer dtype, a shape that overflows.
    pub fn bernoulli(backend: &B, shape: &[usize], dtype: DType, p: f64, rng: &mut Rng) -> Result<Self> {
        let what = ("bernoulli", Distribution::Bernoulli, (p, 0.0));
        draw(backend, what, shape, dtype, rng.next_key())
    }

    /// Numbers uniform on `0 ≤ x < 1` (`torch.rand`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::rand(&cpu, &[2, 3], DType::F32, &mut Rng::new(42))?;
    /// let again = Tensor::rand(&cpu, &[2, 3], DType::F32, &mut Rng::new(42))?;
    /// assert_eq!(x.to_vec::<f32>()?, again.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::uniform`].
    pub fn rand(backend: &B, shape: &[usize], dtype: DType, rng: &mut Rng) -> Result<Self> {
        Self::uniform(backend, shape, dtype, 0.0, 1.0, rng)
    }

    /// Standard normal numbers (`torch.randn`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::randn(&cpu, &[10_000], DType::F32, &mut Rng::new(0))?;
    /// assert!((x.std(&[], 1, false)?.item()? - 1.0).abs() < 0.1);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::normal`].
    pub fn randn(backend: &B, shape: &[usize], dtype: DType, rng: &mut Rng) -> Result<Self> {
        Self::normal(backend, shape, dtype, 0.0, 1.0, rng)
    }

    /// Each element 0 with probability `p`, rounded to a multiple of 2⁻¹⁶, else divided by 1 − `p`
    /// (`torch.nn.functional.dropout`; Srivastava et al. 2014). The generator counts on the host, so this cannot be part of a captured step; a
    /// [`Dropout`](crate::layers::Dropout) layer can.
    ///
    /// ```
    /// # use kiln_nn::{DType, Rng, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[100], DType::F32)?;
    /// let y = x.dropout(0.5, &mut Rng::new(0))?;
    /// assert!(y.to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A probability outside `0..=1`.
    pub fn dropout(&self, p: f64, rng: &mut Rng) -> Result<Tensor<B>> {
        let key = rng.next_key();
        let p = dropped(p, self.size(), key)?;
        let step = Indices::from_slice(self.backend(), &[key.step as i32], &[])?;
        drop_at(&p, &step, self)
    }

    /// As [`Tensor::dropout`], for use in custom layers: the random numbers are those of the layer's stream
    /// ([`Init::next_stream`](crate::Init::next_stream)) at `step`, a one-element i32 tensor that
    /// [`Counter::tick`](crate::Counter::tick) returns, different for every call. It stays on the device.
    ///
    /// ```
    /// # use kiln_nn::{Counter, DType, Init, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (stream, calls) = (Init::new(&cpu, 0).next_stream(), Counter::new(&cpu)?);
    /// let x = Tensor::ones(&cpu, &[100], DType::F32)?;
    /// let first = x.dropout_at(0.5, stream, &calls.tick()?)?;
    /// let second = x.dropout_at(0.5, stream, &calls.tick()?)?;
    /// assert_ne!(first.to_vec::<f32>()?, second.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A probability outside `0..=1`, a step that is not one i32.
    pub fn dropout_at(&self, p: f64, stream: Stream, step: &Indices<B>) -> Result<Tensor<B>> {
        let p = dropped(p, self.size(), stream.key(0))?;
        check_step("dropout", step)?;
        drop_at(&p, step, self)
    }

    /// Standard normal numbers, for use in custom layers: as [`Tensor::randn`], but drawn from the layer's stream
    /// ([`Init::next_stream`](crate::Init::next_stream)) at `step`, a one-element i32 tensor that
    /// [`Counter::tick`](crate::Counter::tick) returns, different for every call. It stays on the device.
    ///
    /// ```
    /// # use kiln_nn::{Counter, DType, Init, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (stream, calls) = (Init::new(&cpu, 0).next_stream(), Counter::new(&cpu)?);
    /// let first = Tensor::randn_at(&cpu, &[4], DType::F32, stream, &calls.tick()?)?;
    /// let second = Tensor::randn_at(&cpu, &[4], DType::F32, stream, &calls.tick()?)?;
    /// assert_ne!(first.to_vec::<f32>()?, second.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::randn`]; a step that is not one i32.
    pub fn randn_at(
        backend: &B,
        shape: &[usize],
        dtype: DType,
        stream: Stream,
        step: &Indices<B>,
    ) -> Result<Tensor<B>> {
        const OP: &str = "randn";
        let (shape, key) = (Shape::new(shape)?, stream.key(0));
        require_float(OP, backend, dtype)?;
        check_step(OP, step)?;
        let p = RandomParams::new(OP, Distribution::Normal, shape.size(), (0.0, 1.0), key.seed, key.stream)?;
        let mut y = backend.alloc(dtype, shape.size())?;
        backend.random(&p, step.buffer(), &mut y)?;
        Ok(Tensor::from_buffer(backend, y, shape))
    }
}

/// Refuses a step that is not one i32.
fn check_step<B: Backend>(op: &'static str, step: &Indices<B>) -> Result<()> {
    step.require(op, DType::I32)?;
    match step.size() {
        1 => Ok(()),
        _ => Err(Error::invalid(op, "step", step.shape(), "one element")),
    }
}

fn dropped(p: f64, size: usize, key: Key) -> Result<RandomParams> {
    RandomParams::new("dropout", Distribution::Kept, size, (p, 0.0), key.seed, key.stream)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Draws `count` entries of the last axis with probabilities in proportion to these weights (`torch.multinomial`): weights
    /// `[…, K]` to i32 indices `[…, count]`. Without replacement an entry is drawn once at most. Drawn as the largest of
    /// the logarithms with Gumbel noise (Vieira 2014).
    ///
    /// ```
    /// # use kiln_nn::{Rng, Tensor};
    /// let weights = Tensor::from_slice(&kiln_cpu::Cpu::new(), &[0f32, 3.0, 1.0], &[3])?;
    /// let mut drawn = weights.multinomial(2, false, &mut Rng::new(0))?.to_vec::<i32>()?;
    /// drawn.sort();
    /// assert_eq!(drawn, [1, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A scalar, weights that are negative or not finite, fewer weights other than 0 than are drawn: one with replacement, `count`
    /// without.
    pub fn multinomial(&self, count: usize, replacement: bool, rng: &mut Rng) -> Result<Indices<B>> {
        const OP: &str = "multinomial";
        let Some((&classes, batch)) = self.shape().split_last() else {
            return Err(Error::Rank {
                op: OP,
                expected: "1 or more",
                rank: 0,
            });
        };
        no_grad(|| {
            let weights = self.detach().to_dtype(acc_dtype(self.dtype()))?;
            let needed = if replacement { count.min(1) } else { count };
            let values = weights.to_f64()?;
            if let Some(bad) = values.iter().find(|w| !(**w >= 0.0 && w.is_finite())) {
                return Err(Error::invalid(OP, "weights", bad, "finite numbers, 0 or more"));
            }
            let above = |row: &[f64]| row.iter().filter(|w| **w > 0.0).count();
            let least = match classes {
                0 => Some(0).filter(|_| !batch.contains(&0)),
                _ => values.chunks(classes).map(above).min(),
            };
            if let Some(least) = least.filter(|&least| least < needed) {
                let found = format!("a row with {least} above 0");
                return Err(Error::invalid(
                    OP,
                    "weights",
                    found,
                    format!("at least {needed} above 0 in each row"),
                ));
            }
            let draws = if replacement { count } else { 1 };
            let shape = [batch, &[draws, classes]].concat();
            let uniform = Tensor::rand(self.backend(), &shape, weights.dtype(), rng)?;
            // Above 0, or a weight could lose to those of 0.
            let gumbel = uniform.clamp_min(1e-30)?.log()?.neg()?.log()?.neg()?;
            let keys = weights.log()?.unsqueeze(-2)?.add(&gumbel)?;
            match replacement {
                true if count == 0 => Indices::from_slice(self.backend(), &[0i32; 0], &[batch, &[0]].concat()),
                true => keys.argmax(-1, false),
                false => keys.squeeze(-2)?.top_k(count, -1, true).map(|(_, drawn)| drawn),
            }
        })
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The numbers `0..n` in random order (`torch.randperm`): Fisher–Yates on the host, the same on every device.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Rng};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let order = Indices::permutation(&cpu, 10, &mut Rng::new(0))?;
    /// let mut sorted = order.to_vec::<i32>()?;
    /// sorted.sort();
    /// assert_eq!(sorted, (0..10).collect::<Vec<_>>());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// `n` above 2³¹ − 1, memory of the host or of the device.
    pub fn permutation(backend: &B, n: usize, rng: &mut Rng) -> Result<Self> {
        let Some(end) = i32::try_from(n).ok() else {
            return Err(Error::invalid("permutation", "n", n, "at most 2147483647"));
        };
        // The allocation comes first: if it fails, the shuffle would be wasted.
        let mut y = backend.alloc(DType::I32, n)?;
        let mut order = host::collect(0..end)?;
        rng.next_key().shuffle(&mut order);
        backend.write(&order, &mut y)?;
        Ok(Self::from_buffer(backend, y, Shape::new(&[n])?))
    }
}
