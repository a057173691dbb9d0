//! Batch norm.

use super::Layer;
use crate::autograd::recompute;
use crate::ops::{Behind, RunningStats};
use crate::{Backend, Counter, Error, Init, Mode, Module, Param, Result, State, Tensor, Walkable, trace};
use kiln_core::ModuleId;
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// True while running statistics are the equal means of all batches.
    static CUMULATIVE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` while the running statistics of batch norms become the equal means of all batches since their counter was 0, on this
/// thread: a momentum of `None` in PyTorch.
pub(crate) fn cumulative<R>(body: impl FnOnce() -> R) -> R {
    /// Ends it, also after a panic.
    struct End(bool);
    impl Drop for End {
        fn drop(&mut self) {
            CUMULATIVE.set(self.0);
        }
    }
    let _end = End(CUMULATIVE.replace(true));
    body()
}

/// Batch norm over the last dimension, the channels (Ioffe and Szegedy 2015; `torch.nn.BatchNorm1d`, `2d`, `3d`): one
/// layer for `[N, C]`, `[N, L, C]`, `[N, H, W, C]` and `[N, D, H, W, C]`.
///
/// In training it normalises by the batch and moves the running statistics towards it
/// (`running = (1 − momentum)·running + momentum·batch`, the variance unbiased); in evaluation it normalises by the
/// running statistics. Those are kept in f32 (f64 for f64) whatever the dtype of the layer.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::BatchNorm};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut norm = BatchNorm::new(&mut Init::new(&cpu, 0), 3)?;
/// let x = Tensor::full(&cpu, &[4, 8, 8, 3], DType::F32, 5.0)?;
/// assert_eq!(norm.forward(&x)?.max(&[], false)?.item()?, 0.0); // by the batch, whose mean is 5
/// norm.eval();
/// assert!(norm.forward(&x)?.max(&[], false)?.item()? > 4.0); // by the running mean, 0.5 after one batch
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct BatchNorm<B: Backend> {
    /// The scale `[C]`.
    pub weight: Option<Param<B>>,
    /// The shift `[C]`.
    pub bias: Option<Param<B>>,
    running_mean: Option<State<B>>,
    running_var: Option<State<B>>,
    num_batches_tracked: Option<Counter<B>>,
    mode: Mode,
    momentum: f64,
    eps: f64,
}

/// The options of a [`BatchNorm`].
///
/// See the example of [`BatchNorm::builder`].
#[derive(Clone, Copy, Debug)]
pub struct BatchNormBuilder<B> {
    channels: usize,
    momentum: f64,
    eps: f64,
    affine: bool,
    track: bool,
    backend: PhantomData<fn() -> B>,
}

#[compiled_once]
impl<B: Backend> BatchNorm<B> {
    /// Momentum 0.1, eps 1e-5, with scale and shift and running statistics.
    ///
    /// See the example of [`BatchNorm`].
    ///
    /// # Errors
    /// No channels, memory.
    pub fn new(init: &mut Init<B>, channels: usize) -> Result<Self> {
        Self::builder(channels).build(init)
    }

    /// A layer with options.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let options = BatchNorm::builder(3).momentum(0.01).eps(1e-3).affine(false).track_running_stats(true);
    /// let norm = options.build(init)?;
    /// assert_eq!(norm.num_parameters(), 0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn builder(channels: usize) -> BatchNormBuilder<B> {
        BatchNormBuilder {
            channels,
            momentum: 0.1,
            eps: 1e-5,
            affine: true,
            track: true,
            backend: PhantomData,
        }
    }

    /// The running mean and variance `[C]`, if tracked.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = BatchNorm::new(init, 2)?;
    /// norm.forward(&Tensor::full(&cpu, &[8, 2], DType::F32, 5.0)?)?;
    /// if let Some((mean, var)) = norm.running() {
    ///     assert_eq!(mean.to_vec::<f32>()?, [0.5, 0.5]); // 0.9·0 + 0.1·5
    ///     assert_eq!(var.to_vec::<f32>()?, [0.9, 0.9]);
    /// }
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn running(&self) -> Option<(Tensor<B>, Tensor<B>)> {
        Some((self.running_mean.as_ref()?.get(), self.running_var.as_ref()?.get()))
    }

    /// `relu(self.forward(x)? + residual)` as one op, as the blocks of residual networks have it, or `relu(self.forward(x)?)` without a
    /// residual (`torch.ao.nn.intrinsic.BNReLU2d`): the same values and gradients, with fewer passes over memory. In half precision the
    /// sum is rounded once in place of twice. [`Sequential`](crate::Sequential) does the same for a [`Relu`](super::Relu) behind a batch
    /// norm.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let (norm, same) = (BatchNorm::new(init, 3)?, BatchNorm::new(init, 3)?);
    /// let x = Tensor::rand(&cpu, &[2, 8, 8, 3], DType::F32, &mut Rng::new(0))?;
    /// let y = norm.forward_relu(&x, Some(&x))?;
    /// assert_eq!(y.to_f64()?, same.forward(&x)?.add(&x)?.relu()?.to_f64()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of the layer and of the addition.
    pub fn forward_relu(&self, x: &Tensor<B>, residual: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let behind = Behind { residual, relu: true };
        // Traces and checkpoints have the layer by itself.
        match trace::is_on() || recompute::selects(&[Walkable::<B>::module_id(self)]) {
            true => behind.of(self.forward(x)?),
            false => trace::run(self, None, x, |_, _| 0, || self.normalise(x, None, behind)),
        }
    }

    /// [`forward`](Layer::forward) of a tensor whose moments are given, and what is behind it.
    pub(super) fn forward_of_moments(
        &self,
        x: &Tensor<B>,
        moments: &Tensor<B>,
        behind: Behind<'_, B>,
    ) -> Result<Tensor<B>> {
        trace::run(self, None, x, |_, _| 0, || self.normalise(x, Some(moments), behind))
    }

    /// True if it normalises by the batch and keeps running statistics.
    pub(super) fn takes_moments(&self) -> bool {
        self.mode.is_training() && self.running_stats().is_some()
    }

    /// [`forward_relu`](BatchNorm::forward_relu) together with the layer `relu`, which is the ReLU.
    pub(super) fn forward_with(&self, relu: ModuleId, x: &Tensor<B>) -> Result<Tensor<B>> {
        let behind = Behind {
            residual: None,
            relu: true,
        };
        trace::run(
            self,
            Some((relu, "BatchNorm+Relu")),
            x,
            |_, _| 0,
            || self.normalise(x, None, behind),
        )
    }

    /// The function of this layer and what is behind it.
    fn normalise(&self, x: &Tensor<B>, moments: Option<&Tensor<B>>, behind: Behind<'_, B>) -> Result<Tensor<B>> {
        let affine = (self.weight.as_deref(), self.bias.as_deref());
        match (self.running_stats(), self.mode.is_training()) {
            (Some(running), true) => {
                let momentum = self.momentum(&running)?;
                x.batch_norm_train(moments, affine, self.eps, momentum, running, behind)
            }
            (Some(running), false) => {
                x.batch_norm_eval_then((&running.mean.get(), &running.var.get()), affine, self.eps, behind)
            }
            (None, _) => behind.of(x.batch_norm(affine.0, affine.1, self.eps)?.0),
        }
    }

    /// The weight of the next batch in the running statistics.
    fn momentum(&self, running: &RunningStats<'_, B>) -> Result<f64> {
        if !CUMULATIVE.get() {
            return Ok(self.momentum);
        }
        let batches = running.batches.get().to_vec::<i32>()?;
        Ok(1.0 / (f64::from(batches.first().copied().unwrap_or(0).max(0)) + 1.0))
    }

    /// The running statistics, if tracked.
    fn running_stats(&self) -> Option<RunningStats<'_, B>> {
        Some(RunningStats {
            mean: self.running_mean.as_ref()?,
            var: self.running_var.as_ref()?,
            batches: self.num_batches_tracked.as_ref()?,
        })
    }
}

#[compiled_once]
impl<B: Backend> BatchNormBuilder<B> {
    /// The weight of each batch in the running statistics, 0.1 by default: PyTorch's momentum, which is 1 minus Keras's.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = BatchNorm::builder(1).momentum(0.5).build(init)?;
    /// norm.forward(&Tensor::full(&cpu, &[8, 1], DType::F32, 4.0)?)?;
    /// assert_eq!(norm.running().map(|(mean, _)| mean.item()).transpose()?, Some(2.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// The number that is added to the variance; 1e-5 by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, Layer, Tensor, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = BatchNorm::builder(1).eps(3.0).build(init)?;
    /// let y = norm.forward(&Tensor::from_slice(&cpu, &[-1.0f32, 1.0], &[2, 1])?)?; // variance 1
    /// assert_eq!(y.to_vec::<f32>()?, [-0.5, 0.5]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// With or without scale and shift; with by default.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = BatchNorm::builder(3).affine(false).build(init)?;
    /// assert!(norm.weight.is_none() && norm.bias.is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn affine(mut self, affine: bool) -> Self {
        self.affine = affine;
        self
    }

    /// With or without running statistics; with by default. Without, evaluation normalises by the batch as well.
    ///
    /// ```
    /// # use kiln_nn::{Init, layers::BatchNorm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let norm = BatchNorm::builder(3).track_running_stats(false).build(init)?;
    /// assert!(norm.running().is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn track_running_stats(mut self, track: bool) -> Self {
        self.track = track;
        self
    }

    /// Makes the layer.
    ///
    /// See the example of [`BatchNorm::builder`].
    ///
    /// # Errors
    /// No channels, a momentum outside `0..=1`, an eps that is negative or not finite, memory.
    pub fn build(self, init: &mut Init<B>) -> Result<BatchNorm<B>> {
        const OP: &str = "batch_norm";
        if self.channels == 0 {
            return Err(Error::invalid(OP, "channels", 0, "at least 1"));
        }
        if !(0.0..=1.0).contains(&self.momentum) {
            return Err(Error::invalid(OP, "momentum", self.momentum, "a number from 0 to 1"));
        }
        super::check_eps(OP, self.eps)?;
        let shape = [self.channels];
        let state = |value| Tensor::full(init.backend(), &shape, init.state_dtype(), value).map(State::new);
        Ok(BatchNorm {
            weight: self.affine.then(|| init.constant(&shape, 1.0)).transpose()?,
            bias: self.affine.then(|| init.constant(&shape, 0.0)).transpose()?,
            running_mean: self.track.then(|| state(0.0)).transpose()?,
            running_var: self.track.then(|| state(1.0)).transpose()?,
            num_batches_tracked: self.track.then(|| Counter::new(init.backend())).transpose()?,
            mode: Mode::default(),
            momentum: self.momentum,
            eps: self.eps,
        })
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for BatchNorm<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.normalise(x, None, Behind::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use kiln_cpu::Cpu;

    /// As in PyTorch, an empty batch is counted and leaves the statistics where they were.
    #[test]
    fn an_empty_batch_moves_no_statistics() -> Result<()> {
        let mut norm = BatchNorm::new(&mut Init::new(&Cpu::poisoned(), 0), 3)?;
        let x = Tensor::zeros(&Cpu::poisoned(), &[0, 2, 3], DType::F32)?.requires_grad();
        for training in [true, false] {
            if training {
                norm.train()
            } else {
                norm.eval()
            }
            let y = norm.forward(&x)?;
            assert_eq!(y.shape().dims(), [0, 2, 3]);
            let grads = y.sum(&[], false)?.backward()?;
            for p in [&norm.weight, &norm.bias].into_iter().flatten() {
                assert_eq!(grads.get(p).map(Tensor::to_f64).transpose()?, Some(vec![0.0; 3]));
            }
        }
        let Some((mean, var)) = norm.running() else {
            panic!("statistics are tracked")
        };
        assert_eq!((mean.to_f64()?, var.to_f64()?), (vec![0.0; 3], vec![1.0; 3]));
        Ok(())
    }
}
