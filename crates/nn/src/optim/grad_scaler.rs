//! Dynamic scaling of a loss, so that gradients of half precision do not underflow.

use super::check;
use crate::{Backend, Gradients, Result, Tensor};

/// Multiplies a loss by a scale, so that gradients in f16 stay above 6·10⁻⁸, and finds the scale (`torch.amp.GradScaler`, with its
/// defaults): where a gradient overflows, the step is skipped and the scale shrinks; after `growth_interval` good steps it grows.
///
/// bf16 has the range of f32 and needs no scale.
///
/// ```
/// use kiln_nn::optim::{Adam, GradScaler, Optimizer};
/// use kiln_nn::{DType, Init, Layer, Tensor, autocast};
/// # use kiln_nn::layers::Linear;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 1)?;
/// # let x = Tensor::ones(&cpu, &[4, 3], DType::F32)?;
/// let (mut adam, mut scaler) = (Adam::new(1e-3), GradScaler::default());
/// for _ in 0..3 {
///     let loss = autocast(DType::F16, || model.forward(&x)?.square()?.mean(&[], false))?;
///     let mut grads = scaler.scale(&loss)?.backward()?;
///     let finite = scaler.unscale(&mut grads, model.parameters())?;
///     if finite {
///         grads.clip_norm(model.parameters(), 1.0)?;
///         adam.step(&mut model, &grads)?;
///     }
///     scaler.update(finite);
/// }
/// assert_eq!(scaler.state.good, 3);
/// # use kiln_nn::Module;
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GradScaler {
    /// The scale is multiplied by this after `growth_interval` steps without an overflow.
    pub growth_factor: f64,
    /// The scale is multiplied by this after an overflow.
    pub backoff_factor: f64,
    /// How many steps in a row without an overflow let the scale grow.
    pub growth_interval: u64,
    /// The scale and its history, which are saved and restored with a checkpoint.
    pub state: GradScalerState,
}

/// The state of a [`GradScaler`].
///
/// ```
/// use kiln_nn::optim::{GradScaler, GradScalerState};
/// let mut scaler = GradScaler::default();
/// scaler.update(false);
/// assert_eq!(scaler.state, GradScalerState { scale: 32768.0, good: 0, skipped: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerState {
    /// The scale of the next loss; 2¹⁶ at first.
    pub scale: f64,
    /// The number of steps without an overflow since the scale last changed.
    pub good: u64,
    /// The number of steps with an overflow so far.
    pub skipped: u64,
}

impl Default for GradScalerState {
    fn default() -> Self {
        GradScalerState {
            scale: 65536.0,
            good: 0,
            skipped: 0,
        }
    }
}

impl Default for GradScaler {
    fn default() -> Self {
        GradScaler {
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            state: GradScalerState::default(),
        }
    }
}

impl GradScaler {
    /// The loss times the scale.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// A scale, factor or interval outside its domain; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn scale<B: Backend>(&self, loss: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "grad_scaler";
        let (growth, backoff, scale) = (self.growth_factor, self.backoff_factor, self.state.scale);
        check(OP, "growth_factor", growth, growth > 1.0, "a finite number above 1")?;
        check(
            OP,
            "backoff_factor",
            backoff,
            backoff > 0.0 && backoff < 1.0,
            "0 < value < 1",
        )?;
        check(
            OP,
            "growth_interval",
            self.growth_interval as f64,
            self.growth_interval > 0,
            "1 or more",
        )?;
        check(OP, "scale", scale, scale > 0.0, "a finite number above 0")?;
        loss.mul_scalar(scale)
    }

    /// Divides the gradients by the scale; true if those of `parameters` are finite. Their norm is read back, which waits for the
    /// device.
    ///
    /// See the example of [`GradScaler`].
    ///
    /// # Errors
    /// No gradient of `parameters`; [`Error::OutOfMemory`](crate::Error::OutOfMemory), an error of the device.
    pub fn unscale<B: Backend>(
        &self,
        grads: &mut Gradients<B>,
        parameters: impl IntoIterator<Item = impl AsRef<Tensor<B>>>,
    ) -> Result<bool> {
        grads.scale(1.0 / self.state.scale)?;
        Ok(grads.norm(parameters)?.item()?.is_finite())
    }

    /// Grows or shrinks the scale after a step. A step that was not `finite` must have changed no parameter.
    ///
    /// See the example of [`GradScaler`].
    pub fn update(&mut self, finite: bool) {
        let state = &mut self.state;
        if !finite {
            (state.scale, state.good) = (state.scale * self.backoff_factor, 0);
            state.skipped += 1;
            return;
        }
        state.good += 1;
        if state.good >= self.growth_interval {
            let grown = state.scale * self.growth_factor;
            state.good = 0;
            // The largest scale is one that f32 holds.
            if grown <= f64::from(f32::MAX) {
                state.scale = grown;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use kiln_cpu::Cpu;

    #[test]
    fn the_scale_grows_after_good_steps_and_shrinks_after_an_overflow() {
        let mut scaler = GradScaler {
            growth_interval: 3,
            ..Default::default()
        };
        let mut seen = Vec::new();
        for finite in [true, true, true, false, true, true, false, false, true] {
            scaler.update(finite);
            seen.push(scaler.state.scale.log2());
        }
        assert_eq!(seen, [16.0, 16.0, 17.0, 16.0, 16.0, 16.0, 15.0, 14.0, 14.0]);
        assert_eq!((scaler.state.good, scaler.state.skipped), (1, 3));
        scaler.state.scale = 2f64.powi(127);
        (0..9).for_each(|_| scaler.update(true));
        assert_eq!(scaler.state.scale, 2f64.powi(127));
    }

    #[test]
    fn gradients_come_out_as_without_a_scale_and_an_overflow_is_found() -> Result<()> {
        let cpu = Cpu::poisoned();
        let x = Tensor::<Cpu>::from_slice(&cpu, &[1f32, -2.0], &[2])?.requires_grad();
        let loss = || x.square()?.sum(&[], false);
        let scaler = GradScaler::default();
        let mut grads = scaler.scale(&loss()?)?.backward()?;
        assert!(scaler.unscale(&mut grads, [&x])?);
        assert_eq!(grads.get(&x).expect("it has one").to_f64()?, [2.0, -4.0]);
        let half = x.detach().to_dtype(DType::F16)?.requires_grad();
        let mut grads = scaler
            .scale(&half.to_dtype(DType::F32)?.square()?.sum(&[], false)?)?
            .backward()?;
        assert!(
            !scaler.unscale(&mut grads, [&half])?,
            "2·65536 is above the largest f16"
        );
        let refused = GradScaler {
            backoff_factor: 1.0,
            ..Default::default()
        };
        let refused = refused.scale(&loss()?).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "grad_scaler: backoff_factor = 1, expected 0 < value < 1"
        );
        Ok(())
    }
}
