//! Dynamic scaling of a loss, so that gradients of half precision do not underflow, decided on the device.

use super::clip::{multiply, not_finite};
use super::{Applied, Optimizer, check};
use crate::autograd::no_grad;
use crate::tensor::NodeId;
use crate::{Backend, DType, Error, Gradients, Indices, Module, Result, StorageSnapshot, Tensor};
use std::collections::BTreeSet;
use std::fmt;

const OP: &str = "grad_scaler";

/// The largest number of f32: what is above it is infinite.
const LARGEST: f64 = f32::MAX as f64;

/// Multiplies a loss by a scale, so that gradients in f16 stay above 6·10⁻⁸, and finds the scale (`torch.amp.GradScaler`, with its
/// defaults): where a gradient overflows, the update changes nothing and the scale shrinks; after
/// [`growth_interval`](GradScaler::growth_interval) good updates it grows.
///
/// Scale, counts and the decision are on the device and nothing is read back, so a step with a scaler can be captured. bf16 has the
/// range of f32 and needs no scale; [`without_scale`](GradScaler::without_scale) then still keeps an update out that is not finite.
///
/// ```
/// use kiln_nn::optim::{Adam, GradScaler};
/// use kiln_nn::{DType, Init, Layer, Tensor, autocast};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// let (mut adam, mut scaler) = (Adam::new(1e-3), GradScaler::new(&cpu)?);
/// for _ in 0..3 {
///     let loss = autocast(DType::F16, || model.forward(&x)?.square()?.mean(&[], false))?;
///     let mut grads = scaler.scale(&loss)?.backward()?;
///     scaler.unscale(&mut grads, model.parameters())?;
///     grads.clip_norm(model.parameters(), 1.0)?;
///     scaler.step(&mut adam, &mut model, &grads)?;
///     scaler.update()?;
/// }
/// assert_eq!(scaler.state()?.good, 3);
/// # use kiln_nn::Module;
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct GradScaler<B: Backend> {
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u64,
    /// The scale `[1]` in f32; `None` if losses are not scaled.
    scale: Option<Tensor<B>>,
    /// i32 `[2]`: the numbers of good updates since the scale changed, and of updates left out.
    counts: Indices<B>,
    /// i32 `[1]`: 1 if the last [`unscale`](GradScaler::unscale) found something that is not finite.
    found_inf: Indices<B>,
    unscaled: bool,
}

impl<B: Backend> fmt::Debug for GradScaler<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradScaler")
            .field("growth_factor", &self.growth_factor)
            .field("backoff_factor", &self.backoff_factor)
            .field("growth_interval", &self.growth_interval)
            .field("scales", &self.scale.is_some())
            .finish_non_exhaustive()
    }
}

/// The state of a [`GradScaler`], as the host reads and sets it.
///
/// ```
/// use kiln_nn::optim::{GradScaler, GradScalerState};
/// let scaler = GradScaler::new(&kiln_cpu::Cpu::new())?;
/// assert_eq!(scaler.state()?, GradScalerState { scale: 65536.0, good: 0, skipped: 0 });
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerState {
    /// The scale of the next loss, a number of f32; 2¹⁶ at first, and always 1 without a scale.
    pub scale: f64,
    /// The number of updates without an overflow since the scale last changed.
    pub good: u64,
    /// The number of updates with an overflow so far.
    pub skipped: u64,
}

/// The parameters' places in graphs, in order.
fn ids<B: Backend>(parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>) -> BTreeSet<NodeId> {
    parameters.into_iter().filter_map(|p| p.as_ref().id()).collect()
}

impl<B: Backend> GradScaler<B> {
    /// A scaler with PyTorch's defaults: a scale of 2¹⁶ that doubles after 2000 good updates and halves after an overflow.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(backend: &B) -> Result<Self> {
        let scale = Tensor::full(backend, &[1], DType::F32, 65536.0)?;
        Ok(GradScaler {
            scale: Some(scale),
            ..GradScaler::without_scale(backend)?
        })
    }

    /// One that does not scale: losses stay as they are, and updates whose gradients are not finite change nothing.
    ///
    /// ```
    /// # use kiln_nn::{DType, Param, Tensor};
    /// use kiln_nn::optim::{GradScaler, Sgd};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut weight = Param::new(Tensor::ones(&cpu, &[2], DType::F32)?);
    /// let (mut sgd, mut scaler) = (Sgd::new(0.1), GradScaler::without_scale(&cpu)?);
    /// let mut grads = weight.div_scalar(0.0)?.sum(&[], false)?.backward()?;
    /// scaler.unscale(&mut grads, [&weight])?;
    /// scaler.step(&mut sgd, &mut weight, &grads)?;
    /// scaler.update()?;
    /// assert_eq!(weight.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert_eq!(scaler.state()?.skipped, 1);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn without_scale(backend: &B) -> Result<Self> {
        Ok(GradScaler {
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            scale: None,
            counts: Indices::full(backend, &[2], 0i32)?,
            found_inf: Indices::full(backend, &[1], 0i32)?,
            unscaled: false,
        })
    }

    /// Sets what the scale is multiplied by after good updates, by default 2.
    ///
    /// See the example of [`GradScaler::growth_interval`].
    pub fn growth_factor(mut self, factor: f64) -> Self {
        self.growth_factor = factor;
        self
    }

    /// Sets what the scale is multiplied by after an overflow, by default 0.5.
    ///
    /// See the example of [`GradScaler::growth_interval`].
    pub fn backoff_factor(mut self, factor: f64) -> Self {
        self.backoff_factor = factor;
        self
    }

    /// Sets how many updates in a row without an overflow let the scale grow, by default 2000.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// use kiln_nn::optim::GradScaler;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut scaler = GradScaler::new(&cpu)?.growth_interval(2).growth_factor(4.0).backoff_factor(0.25);
    /// # let x = Tensor::ones(&cpu, &[], DType::F32)?.requires_grad();
    /// for _ in 0..2 {
    ///     let mut grads = scaler.scale(&x.square()?)?.backward()?;
    ///     scaler.unscale(&mut grads, [&x])?;
    ///     scaler.update()?;
    /// }
    /// assert_eq!(scaler.state()?.scale, 4.0 * 65536.0);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn growth_interval(mut self, updates: u64) -> Self {
        self.growth_interval = updates;
        self
    }

    fn check(&self) -> Result<()> {
        let (growth, backoff) = (self.growth_factor, self.backoff_factor);
        check(OP, "growth_factor", growth, growth > 1.0, "a finite number above 1")?;
        let inside = backoff > 0.0 && backoff < 1.0;
        check(OP, "backoff_factor", backoff, inside, "0 < value < 1")?;
        let interval = self.growth_interval;
        let inside = (1..=i32::MAX as u64).contains(&interval);
        check(OP, "growth_interval", interval as f64, inside, "1 to 2³¹ − 1")
    }

    /// The loss times the scale: in f32, or f64 for a loss of f64. Without a scale, the loss.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// A factor or an interval outside its domain; [`Error::OutOfMemory`].
    pub fn scale(&self, loss: &Tensor<B>) -> Result<Tensor<B>> {
        self.check()?;
        let Some(scale) = &self.scale else {
            return Ok(loss.clone());
        };
        let wide = if loss.dtype() == DType::F64 {
            DType::F64
        } else {
            DType::F32
        };
        loss.to_dtype(wide)?.mul(&scale.reshape(())?.to_dtype(wide)?)
    }

    /// Divides the gradients of `parameters` by the scale, and finds out on the device whether all of them are finite. Clip them
    /// after it, not before.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// No gradient of `parameters`; [`Error::OutOfMemory`], an error of the device.
    pub fn unscale(
        &mut self,
        grads: &mut Gradients<B>,
        parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>,
    ) -> Result<()> {
        self.unscale_and_check(grads, parameters, &[])
    }

    /// As [`unscale`](GradScaler::unscale); `values`, such as the loss, have to be finite too.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// use kiln_nn::optim::GradScaler;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::ones(&cpu, &[], DType::F32)?.requires_grad();
    /// let mut scaler = GradScaler::without_scale(&cpu)?;
    /// let loss = x.add_scalar(f64::INFINITY)?; // its gradient is 1
    /// let mut grads = loss.backward()?;
    /// scaler.unscale_and_check(&mut grads, [&x], &[&loss])?;
    /// assert_eq!(scaler.found_inf().to_vec::<i32>()?, [1]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`unscale`](GradScaler::unscale).
    pub fn unscale_and_check(
        &mut self,
        grads: &mut Gradients<B>,
        parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>,
        values: &[&Tensor<B>],
    ) -> Result<()> {
        let ids = ids(parameters);
        if !ids.iter().any(|&id| grads.by_id(id).is_some()) {
            let expected = "at least one parameter with a gradient";
            return Err(Error::invalid(
                "unscale",
                "parameters",
                "none with a gradient",
                expected,
            ));
        }
        let backend = self.counts.backend().clone();
        no_grad(|| {
            let inverse = match &self.scale {
                Some(scale) => scale.reciprocal()?,
                None => Tensor::ones(&backend, &[1], DType::F32)?,
            };
            let mut found = Indices::full(&backend, &[1], 0i32)?;
            multiply(grads, &ids, &inverse, &mut found)?;
            for value in values {
                found = found.maximum(&not_finite(&value.detach())?)?;
            }
            backend.copy(found.buffer(), self.found_inf.buffer_mut()?)
        })?;
        self.unscaled = true;
        Ok(())
    }

    /// Updates the model, unless [`unscale`](GradScaler::unscale) has found something that is not finite: then, decided on the
    /// device, parameters, the optimizer's state and its number of steps stay as they are.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// Gradients that were not unscaled since the last [`update`](GradScaler::update); those of
    /// [`Optimizer::apply_if_finite`](super::Optimizer::apply_if_finite).
    pub fn step(
        &self,
        optimizer: &mut (impl Optimizer<B> + ?Sized),
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
    ) -> Result<()> {
        if !self.unscaled {
            return Err(Error::invalid(OP, "gradients", "scaled", "`unscale` before each step"));
        }
        optimizer.prepare(model)?;
        let applied: Applied = optimizer.apply_if_finite(model, grads, &self.found_inf)?;
        optimizer.count(&applied);
        Ok(())
    }

    /// Grows or shrinks the scale after an update and counts it, on the device.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// As [`scale`](GradScaler::scale); [`Error::OutOfMemory`].
    pub fn update(&mut self) -> Result<()> {
        self.check()?;
        let interval = self.growth_interval as i32;
        let (growth, backoff) = (self.growth_factor, self.backoff_factor);
        no_grad(|| {
            let bad = self.found_inf.to_mask()?;
            let skipped = self.counts.narrow(0, 1, 1)?.add(&self.found_inf)?;
            let good = self.counts.narrow(0, 0, 1)?.add(1)?.masked_fill(&bad, 0)?;
            let due = good.ge(interval)?;
            if let Some(scale) = &mut self.scale {
                // The largest scale is one that f32 holds.
                let grown = scale.mul_scalar(growth)?;
                let grown = Tensor::where_(&grown.le_scalar(LARGEST)?, &grown, scale)?;
                let next = Tensor::where_(&due, &grown, scale)?;
                let next = Tensor::where_(&bad, &scale.mul_scalar(backoff)?, &next)?;
                scale.assign(&next)?;
            }
            let counts = Indices::concat(&[&good.masked_fill(&due, 0)?, &skipped], 0)?;
            let backend = counts.backend().clone();
            backend.copy(counts.buffer(), self.counts.buffer_mut()?)
        })?;
        self.unscaled = false;
        Ok(())
    }

    /// What the last [`unscale`](GradScaler::unscale) has found: i32 `[1]`, 1 if the update was left out, else 0.
    ///
    /// See the example of [`GradScaler::unscale_and_check`].
    pub fn found_inf(&self) -> &Indices<B> {
        &self.found_inf
    }

    /// Reads scale and counts, which waits for the device.
    ///
    /// See the example of [`GradScalerState`].
    ///
    /// # Errors
    /// An error of the device.
    pub fn state(&self) -> Result<GradScalerState> {
        let counts = self.counts.to_vec::<i32>()?;
        let count = |i: usize| counts.get(i).map_or(0, |&n| u64::try_from(n).unwrap_or(0));
        Ok(GradScalerState {
            scale: self.scale.as_ref().map_or(Ok(1.0), Tensor::item)?,
            good: count(0),
            skipped: count(1),
        })
    }

    /// Sets scale and counts, as from a checkpoint.
    ///
    /// ```
    /// use kiln_nn::optim::{GradScaler, GradScalerState};
    /// let mut scaler = GradScaler::new(&kiln_cpu::Cpu::new())?;
    /// let state = GradScalerState { scale: 1024.0, good: 7, skipped: 6 };
    /// scaler.set_state(state)?;
    /// assert_eq!(scaler.state()?, state);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A scale that is not finite or not above 0, counts of 2³¹ and more. Nothing has changed then.
    pub fn set_state(&mut self, state: GradScalerState) -> Result<()> {
        let scale = state.scale as f32;
        check(OP, "scale", f64::from(scale), scale > 0.0, "a finite number above 0")?;
        let count = |argument, n: u64| i32::try_from(n).map_err(|_| Error::invalid(OP, argument, n, "0 to 2³¹ − 1"));
        let counts = [count("good", state.good)?, count("skipped", state.skipped)?];
        if let Some(to) = &mut self.scale {
            to.write(&[scale])?;
        }
        self.counts.write(&counts)
    }

    /// Adds where scale and counts lie, for a captured step.
    ///
    /// ```
    /// use kiln_nn::StorageSnapshot;
    /// use kiln_nn::optim::GradScaler;
    /// let (scaler, mut storage) = (GradScaler::new(&kiln_cpu::Cpu::new())?, StorageSnapshot::new());
    /// scaler.storage(&mut storage);
    /// assert!(storage.fixed());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn storage(&self, storage: &mut StorageSnapshot) {
        self.scale.iter().for_each(|s| storage.tensor(s));
        storage.indices(&self.counts);
        storage.indices(&self.found_inf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;

    /// An update of `x`, whose gradient is the scale, or infinite.
    fn update(scaler: &mut GradScaler<Cpu>, x: &Tensor<Cpu>, finite: bool) -> Result<()> {
        let loss = if finite {
            x.clone()
        } else {
            x.mul_scalar(f64::INFINITY)?
        };
        let mut grads = scaler.scale(&loss)?.backward()?;
        scaler.unscale(&mut grads, [x])?;
        scaler.update()
    }

    #[test]
    fn the_scale_grows_after_good_steps_and_shrinks_after_an_overflow() -> Result<()> {
        let cpu = Cpu::poisoned();
        let x = Tensor::<Cpu>::ones(&cpu, &[], DType::F32)?.requires_grad();
        let mut scaler = GradScaler::new(&cpu)?.growth_interval(3);
        let mut seen = Vec::new();
        for finite in [true, true, true, false, true, true, false, false, true] {
            update(&mut scaler, &x, finite)?;
            seen.push(scaler.state()?.scale.log2());
        }
        assert_eq!(seen, [16.0, 16.0, 17.0, 16.0, 16.0, 16.0, 15.0, 14.0, 14.0]);
        let state = scaler.state()?;
        assert_eq!((state.good, state.skipped), (1, 3));
        let scale = 2f64.powi(127);
        scaler.set_state(GradScalerState { scale, ..state })?;
        (0..9).try_for_each(|_| update(&mut scaler, &x, true))?;
        assert_eq!(scaler.state()?.scale, scale, "a scale that f32 does not hold");
        Ok(())
    }

    #[test]
    fn gradients_come_out_as_without_a_scale_and_an_overflow_is_found() -> Result<()> {
        let cpu = Cpu::poisoned();
        let x = Tensor::<Cpu>::from_slice(&cpu, &[1f32, -2.0], &[2])?.requires_grad();
        let loss = || x.square()?.sum(&[], false);
        let mut scaler = GradScaler::new(&cpu)?;
        let mut grads = scaler.scale(&loss()?)?.backward()?;
        scaler.unscale(&mut grads, [&x])?;
        assert_eq!(scaler.found_inf().to_vec::<i32>()?, [0]);
        assert_eq!(grads.get(&x).expect("it has one").to_f64()?, [2.0, -4.0]);
        let half = x.detach().to_dtype(DType::F16)?.requires_grad();
        let loss = half.to_dtype(DType::F32)?.square()?.sum(&[], false)?;
        let mut grads = scaler.scale(&loss)?.backward()?;
        scaler.unscale(&mut grads, [&half])?;
        assert_eq!(
            scaler.found_inf().to_vec::<i32>()?,
            [1],
            "2·65536 is above the largest f16"
        );
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_refused() -> Result<()> {
        let cpu = Cpu::poisoned();
        let mut x = crate::Param::new(Tensor::<Cpu>::ones(&cpu, &[], DType::F32)?);
        let refused = GradScaler::new(&cpu)?.backoff_factor(1.0).scale(&x).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "grad_scaler: backoff_factor = 1, expected 0 < value < 1"
        );
        let mut scaler = GradScaler::new(&cpu)?;
        let mut grads = scaler.scale(&x.square()?)?.backward()?;
        let mut sgd = crate::optim::Sgd::new(0.5);
        let refused = scaler.step(&mut sgd, &mut x, &grads).unwrap_err();
        assert!(refused.to_string().contains("`unscale` before each step"), "{refused}");
        scaler.unscale(&mut grads, [&x])?;
        scaler.step(&mut sgd, &mut x, &grads)?;
        assert_eq!(x.item()?, 0.0);
        let none = scaler.unscale(&mut Gradients::default(), [&x]).unwrap_err();
        assert!(none.to_string().contains("at least one parameter"), "{none}");
        for scale in [0.0, f64::NAN, 1e300] {
            let state = GradScalerState {
                scale,
                good: 0,
                skipped: 0,
            };
            assert!(scaler.set_state(state).is_err(), "{scale}");
        }
        assert_eq!(scaler.state()?.scale, 65536.0);
        Ok(())
    }
}
