//! Random tensors and dropout. Every number is Philox4x32-10 of (seed, stream, step, element): the same on every
//! device, and for any number of threads.

use crate::autograd::{Rule, RuleContext};
use crate::tensor::require_float;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::{Distribution, RandomParams};
use kiln_core::philox::Key;

fn draw<B: Backend>(
    backend: &B,
    op: &'static str,
    distribution: Distribution,
    parameters: (f64, f64),
    shape: &[usize],
    dtype: DType,
    (seed, stream): (u64, u32),
) -> Result<Tensor<B>> {
    let shape = Shape::new(shape)?;
    require_float(op, backend, dtype)?;
    let p = RandomParams::new(op, distribution, shape.size(), parameters, seed, stream)?;
    let step = backend.upload(&[0i32])?;
    let mut y = backend.alloc(dtype, shape.size())?;
    backend.random(&p, &step, &mut y)?;
    Ok(Tensor::from_buffer(backend, y, shape))
}

/// Dropout's gradient is dropout of the gradient with the same numbers.
struct Dropout<B: Backend> {
    p: RandomParams,
    step: Indices<B>,
}

impl<B: Backend> Rule<B> for Dropout<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        Ok(vec![Some(apply(&self.p, &self.step, cx.grad)?)])
    }
}

fn apply<B: Backend>(p: &RandomParams, step: &Indices<B>, x: &Tensor<B>) -> Result<Tensor<B>> {
    let mut y = x.alloc_like(*x.shape())?;
    x.backend().dropout(p, step.buffer(), x.buffer(), &mut y)?;
    Ok(
        Tensor::from_buffer(x.backend(), y, *x.shape()).record("dropout", &[x], || Dropout {
            p: *p,
            step: step.clone(),
        }),
    )
}

impl<B: Backend> Tensor<B> {
    /// Numbers uniform on `low ≤ x < high`. Tensors of one seed and stream have one beginning; independent ones take
    /// different streams.
    ///
    /// # Errors
    /// Bounds that are not finite or out of order, an integer dtype, a shape that overflows.
    pub fn uniform(
        backend: &B,
        shape: &[usize],
        dtype: DType,
        low: f64,
        high: f64,
        seed: u64,
        stream: u32,
    ) -> Result<Self> {
        draw(
            backend,
            "uniform",
            Distribution::Uniform,
            (low, high),
            shape,
            dtype,
            (seed, stream),
        )
    }

    /// Normal numbers.
    ///
    /// # Errors
    /// A mean that is not finite, a deviation that is negative or not finite, an integer dtype, a shape that overflows.
    pub fn normal(
        backend: &B,
        shape: &[usize],
        dtype: DType,
        mean: f64,
        std: f64,
        seed: u64,
        stream: u32,
    ) -> Result<Self> {
        draw(
            backend,
            "normal",
            Distribution::Normal,
            (mean, std),
            shape,
            dtype,
            (seed, stream),
        )
    }

    /// Normal numbers conditioned on lying within two deviations of the mean (`torch.nn.init.trunc_normal_` with those
    /// bounds; Keras's `TruncatedNormal`).
    ///
    /// # Errors
    /// As [`Tensor::normal`].
    pub fn truncated_normal(
        backend: &B,
        shape: &[usize],
        dtype: DType,
        mean: f64,
        std: f64,
        seed: u64,
        stream: u32,
    ) -> Result<Self> {
        let distribution = Distribution::TruncatedNormal;
        draw(
            backend,
            "truncated_normal",
            distribution,
            (mean, std),
            shape,
            dtype,
            (seed, stream),
        )
    }

    /// 1 with probability `p`, else 0 (`torch.bernoulli`).
    ///
    /// # Errors
    /// A probability outside `0..=1`, an integer dtype, a shape that overflows.
    pub fn bernoulli(backend: &B, shape: &[usize], dtype: DType, p: f64, seed: u64, stream: u32) -> Result<Self> {
        draw(
            backend,
            "bernoulli",
            Distribution::Bernoulli,
            (p, 0.0),
            shape,
            dtype,
            (seed, stream),
        )
    }

    /// Numbers uniform on `0 ≤ x < 1` (`torch.rand`).
    ///
    /// # Errors
    /// As [`Tensor::uniform`].
    pub fn rand(backend: &B, shape: &[usize], dtype: DType, seed: u64, stream: u32) -> Result<Self> {
        Self::uniform(backend, shape, dtype, 0.0, 1.0, seed, stream)
    }

    /// Standard normal numbers (`torch.randn`).
    ///
    /// # Errors
    /// As [`Tensor::normal`].
    pub fn randn(backend: &B, shape: &[usize], dtype: DType, seed: u64, stream: u32) -> Result<Self> {
        Self::normal(backend, shape, dtype, 0.0, 1.0, seed, stream)
    }

    /// Each element 0 with probability `p`, else divided by 1 − `p` (`torch.nn.functional.dropout`; Srivastava et al.
    /// 2014). `step` is a one-element i32 tensor that differs from call to call, the ticket of a layer's
    /// [`Counter`](crate::Counter); it stays on the device.
    ///
    /// # Errors
    /// A probability outside `0..=1`, a step that is not one i32.
    pub fn dropout(&self, p: f64, seed: u64, stream: u32, step: &Indices<B>) -> Result<Tensor<B>> {
        let params = RandomParams::new("dropout", Distribution::Bernoulli, self.size(), (p, 0.0), seed, stream)?;
        step.require("dropout", DType::I32)?;
        if step.size() != 1 {
            return Err(Error::invalid("dropout", "step", step.shape(), "one element"));
        }
        apply(&params, step, self)
    }
}

impl<B: Backend> Indices<B> {
    /// The numbers `0..n` in random order (`torch.randperm`): Fisher–Yates on the host, the same on every device.
    ///
    /// # Errors
    /// `n` above 2³¹ − 1, memory.
    pub fn permutation(backend: &B, n: usize, seed: u64, stream: u32) -> Result<Self> {
        if n > i32::MAX as usize {
            return Err(Error::invalid("permutation", "n", n, "at most 2147483647"));
        }
        let order: Vec<i32> = Key::new(seed, stream, 0)
            .permutation(n)
            .into_iter()
            .map(|i| i as i32)
            .collect();
        Self::from_slice(backend, &order, &[n])
    }
}
