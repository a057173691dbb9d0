//! Dropout.

use super::Layer;
use crate::{Backend, Counter, DropoutDraw, Error, Init, Mode, Module, Result, Stream, Tensor};

/// Zeroes each element with probability `p` in training and divides the others by 1 − `p`; the identity in evaluation
/// (`torch.nn.Dropout`; Srivastava et al. 2014).
///
/// The random numbers are a pure function of the seed, the layer's stream, the number of draws before, and the element.
/// That number is a counter on the device which is saved with the model (`step`), so a resumed run draws the same
/// numbers as one that was not interrupted.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Dropout};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut dropout = Dropout::new(&mut Init::new(&cpu, 0), 0.5)?;
/// let x = Tensor::ones(&cpu, &[8], DType::F32)?;
/// assert!(dropout.forward(&x)?.to_vec::<f32>()?.iter().all(|&y| y == 0.0 || y == 2.0));
/// dropout.eval();
/// assert_eq!(dropout.forward(&x)?.to_vec::<f32>()?, [1.0; 8]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Module)]
pub struct Dropout<B: Backend> {
    p: f64,
    stream: Stream,
    mode: Mode,
    step: Counter<B>,
}

#[compiled_once]
impl<B: Backend> Dropout<B> {
    /// Dropout with probability `p`. Takes a random stream of `init`.
    ///
    /// See the example of [`Dropout`].
    ///
    /// # Errors
    /// A probability outside `0..=1`, memory.
    pub fn new(init: &mut Init<B>, p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::invalid("dropout", "p", p, "a probability from 0 to 1"));
        }
        Ok(Dropout {
            p,
            stream: init.next_stream(),
            mode: Mode::default(),
            step: Counter::new(init.backend())?,
        })
    }

    /// The dropout of the next call, for ops that apply it to one of their operands, such as [`Tensor::residual_norm`]; `None` if the
    /// layer zeroes nothing.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Module, Tensor, layers::Dropout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut dropout = Dropout::new(&mut Init::new(&cpu, 0), 1.0)?;
    /// let (x, y) = (Tensor::ones(&cpu, &[3], DType::F32)?, Tensor::ones(&cpu, &[3], DType::F32)?);
    /// assert_eq!(x.residual_add(&y, dropout.draw()?.as_ref())?.to_vec::<f32>()?, [1.0; 3]);
    /// dropout.eval();
    /// assert!(dropout.draw()?.is_none());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the backend.
    pub fn draw(&self) -> Result<Option<DropoutDraw<B>>> {
        if !self.is_active() {
            return Ok(None);
        }
        Ok(Some(DropoutDraw {
            p: self.p,
            stream: self.stream,
            step: self.step.tick()?,
        }))
    }

    /// Counts the next call of several layers now, by one op, where each of them would otherwise count by an op of its own: for a network
    /// that runs them all. They draw the same numbers.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Dropout};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let make = || Dropout::new(&mut Init::new(&cpu, 0), 0.5);
    /// let (a, b, x) = (make()?, make()?, Tensor::ones(&cpu, &[9], DType::F32)?);
    /// Dropout::count_ahead([&a])?;
    /// assert_eq!(a.forward(&x)?.to_vec::<f32>()?, b.forward(&x)?.to_vec::<f32>()?);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the backend.
    pub fn count_ahead<'a>(layers: impl IntoIterator<Item = &'a Dropout<B>>) -> Result<()>
    where
        B: 'a,
    {
        let active = layers.into_iter().filter(|layer| layer.is_active());
        Counter::tick_ahead(&active.map(|layer| &layer.step).collect::<Vec<_>>())
    }

    /// True if the layer zeroes elements: in training, unless `p` is 0.
    pub(super) fn is_active(&self) -> bool {
        self.mode.is_training() && self.p != 0.0
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for Dropout<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        if !self.is_active() {
            return Ok(x.clone());
        }
        x.dropout_at(self.p, self.stream, &self.step.tick()?)
    }
}
