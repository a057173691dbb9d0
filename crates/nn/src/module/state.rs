//! Buffers: values that belong to a model but do not train, and that a forward pass may update.

use crate::{Backend, DType, Indices, Result, Tensor};
use kiln_core::ops::{Op, Unary, UnaryParams};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// A buffer of floats that `forward(&self)` may update in place, such as a running mean (`register_buffer` in PyTorch).
///
/// ```
/// # use kiln_nn::{Backend, DType, Module, State, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// /// Counts the samples that pass by.
/// #[derive(Module)]
/// struct Seen<B: Backend> {
///     samples: State<B>,
/// }
/// let seen = Seen { samples: State::new(Tensor::zeros(&cpu, &[], DType::F32)?) };
/// seen.samples.add(&Tensor::full(&cpu, &[], DType::F32, 16.0)?)?;
/// assert_eq!(seen.state_dict().float("samples").map(|t| t.item()).transpose()?, Some(16.0));
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct State<B: Backend>(Mutex<Tensor<B>>);

/// Locks a mutex even if it is poisoned: the lock is held only during calls that leave the value valid, so a panic cannot have
/// left it half-changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[compiled_once]
impl<B: Backend> State<B> {
    /// A buffer that starts with the values of `tensor`.
    ///
    /// ```
    /// # use kiln_nn::{State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// assert_eq!(state.get().to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn new(tensor: Tensor<B>) -> Self {
        State(Mutex::new(tensor.detach()))
    }

    /// The present values. No copy is made: the memory is shared until the next update.
    ///
    /// See the example of [`State::new`].
    pub fn get(&self) -> Tensor<B> {
        locked(&self.0).clone()
    }

    /// Overwrites the values in place.
    ///
    /// ```
    /// # use kiln_nn::{DType, State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// state.assign(&Tensor::zeros(&cpu, &[2], DType::F32)?)?;
    /// assert_eq!(state.get().to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor of another shape or dtype.
    pub fn assign(&self, values: &Tensor<B>) -> Result<()> {
        locked(&self.0).assign(values)
    }

    /// Adds `values` in place, unrecorded: a running sum.
    ///
    /// ```
    /// # use kiln_nn::{DType, State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// state.add(&Tensor::ones(&cpu, &[2], DType::F32)?)?;
    /// assert_eq!(state.get().to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor of another shape or dtype.
    pub fn add(&self, values: &Tensor<B>) -> Result<()> {
        let mut present = locked(&self.0);
        if present.shape() != values.shape() || present.dtype() != values.dtype() {
            // `assign` returns the error.
            return present.assign(values);
        }
        let backend = present.backend().clone();
        backend.accumulate(values.buffer(), present.buffer_mut()?)
    }

    /// Sets every element to `value`, in place.
    ///
    /// ```
    /// # use kiln_nn::{State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// state.fill(7.0)?;
    /// assert_eq!(state.get().to_vec::<f32>()?, [7.0, 7.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An error of the device.
    pub fn fill(&self, value: f64) -> Result<()> {
        let mut present = locked(&self.0);
        let backend = present.backend().clone();
        backend.fill(value, present.buffer_mut()?)
    }

    /// Calls `look` with the tensor, without sharing its memory.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Tensor<B>) -> R) -> R {
        look(&locked(&self.0))
    }

    /// Calls `change` with the tensor, to change it in place.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut Tensor<B>) -> R) -> R {
        change(&mut locked(&self.0))
    }

    /// Moves the buffer's values `s` towards `values` in place: `s = (1 − rate)·s + rate·values`, unrecorded.
    ///
    /// ```
    /// # use kiln_nn::{State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// state.blend(&Tensor::from_slice(&cpu, &[3.0f32, 6.0], &[2])?, 0.5)?;
    /// assert_eq!(state.get().to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor of another shape or dtype.
    pub fn blend(&self, values: &Tensor<B>, rate: f64) -> Result<()> {
        let mut present = locked(&self.0);
        if present.shape() != values.shape() || present.dtype() != values.dtype() {
            // `assign` returns the error, before anything is computed.
            return present.assign(values);
        }
        let backend = present.backend().clone();
        let affine = |a: f64| UnaryParams::new(Unary::Affine, values.size(), a, 0.0);
        let (mut kept, mut moved) = (values.alloc_like(*values.shape())?, values.alloc_like(*values.shape())?);
        backend.unary(&affine(1.0 - rate), present.buffer(), &mut kept)?;
        backend.unary(&affine(rate), values.buffer(), &mut moved)?;
        backend.accumulate(&moved, &mut kept)?;
        backend.copy(&kept, present.buffer_mut()?)
    }

    /// Converts to another float dtype.
    ///
    /// ```
    /// # use kiln_nn::{DType, Module, State, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut state = State::new(Tensor::from_slice(&cpu, &[1.0f32, 2.0], &[2])?);
    /// state.to_dtype(DType::F64)?;
    /// assert_eq!(state.get().dtype(), DType::F64);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype that the backend does not compute in.
    pub fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        let tensor = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if tensor.dtype() != dtype {
            *tensor = tensor.to_dtype(dtype)?;
        }
        Ok(())
    }
}

/// A one-element i32 counter on the device: the number of times that a random layer has drawn. It is saved with the model, so a
/// resumed run draws the same numbers as one that was not interrupted.
///
/// ```
/// use kiln_nn::Counter;
/// # let cpu = kiln_cpu::Cpu::new();
/// let counter = Counter::new(&kiln_cpu::Cpu::new())?;
/// assert_eq!(counter.tick()?.to_vec::<i32>()?, [0]);
/// assert_eq!(counter.tick()?.to_vec::<i32>()?, [1]);
/// assert_eq!(counter.get().to_vec::<i32>()?, [2]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Counter<B: Backend> {
    count: Mutex<Indices<B>>,
    /// The result of the next tick, if that tick was [made ahead](Counter::tick_ahead).
    ready: Mutex<Option<Indices<B>>>,
}

#[compiled_once]
impl<B: Backend> Counter<B> {
    /// A counter at 0.
    ///
    /// See the example of [`Counter`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn new(backend: &B) -> Result<Self> {
        Ok(Counter {
            count: Mutex::new(Indices::from_slice(backend, &[0i32], &[])?),
            ready: Mutex::new(None),
        })
    }

    /// Returns the present count, `[]` of i32, and adds one to the counter, all on the device. The result is the `step`
    /// argument of a random op.
    ///
    /// See the example of [`Counter`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn tick(&self) -> Result<Indices<B>> {
        if let Some(ticket) = locked(&self.ready).take() {
            return Ok(ticket);
        }
        let mut counter = locked(&self.count);
        let (backend, shape) = (counter.backend().clone(), *counter.shape());
        let mut ticket = backend.alloc(DType::I32, 1)?;
        backend.tick(counter.buffer_mut()?, &mut ticket)?;
        Ok(Indices::from_buffer(&backend, ticket, shape))
    }

    /// Makes the next tick of several counters now, by one op ([`tick_each`](kiln_core::ops::RandomOps::tick_each)).
    pub(crate) fn tick_ahead(counters: &[&Counter<B>]) -> Result<()> {
        let waiting = counters.iter().enumerate().filter(|(i, counter)| {
            let before = counters[..*i].iter().any(|other| std::ptr::eq(*other, **counter));
            !before && locked(&counter.ready).is_none()
        });
        let waiting: Vec<&Counter<B>> = waiting.map(|(_, counter)| *counter).collect();
        let mut counts: Vec<_> = waiting.iter().map(|counter| locked(&counter.count)).collect();
        let Some(first) = counts.first() else { return Ok(()) };
        let (backend, shape) = (first.backend().clone(), *first.shape());
        if !backend.supports(Op::TickEach, DType::I32) {
            return Ok(());
        }
        let tickets = counts.iter().map(|_| backend.alloc(DType::I32, 1));
        let mut tickets = tickets.collect::<Result<Vec<_>>>()?;
        let counts = counts.iter_mut().map(|count| count.buffer_mut());
        let mut counts = counts.collect::<Result<Vec<_>>>()?;
        backend.tick_each(&mut counts, &mut tickets.iter_mut().collect::<Vec<_>>())?;
        for (counter, ticket) in waiting.iter().zip(tickets) {
            *locked(&counter.ready) = Some(Indices::from_buffer(&backend, ticket, shape));
        }
        Ok(())
    }

    /// The present count, `[]` of i32. The memory is shared until the next tick.
    ///
    /// See the example of [`Counter`].
    pub fn get(&self) -> Indices<B> {
        locked(&self.count).clone()
    }

    /// Takes another count in its memory.
    pub(crate) fn replace(&mut self, count: Indices<B>) {
        self.count = Mutex::new(count);
    }

    /// Calls `change` with the count, to change it in place.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut Indices<B>) -> R) -> R {
        *locked(&self.ready) = None;
        change(&mut locked(&self.count))
    }

    /// Calls `look` with the count, without sharing its memory.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&Indices<B>) -> R) -> R {
        look(&locked(&self.count))
    }

    /// Sets the count.
    ///
    /// ```
    /// # use kiln_nn::{Counter, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let counter = Counter::new(&cpu)?;
    /// counter.assign(&Indices::from_slice(&cpu, &[41i32], &[])?)?;
    /// assert_eq!(counter.tick()?.to_vec::<i32>()?, [41]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An integer tensor of another shape or dtype.
    pub fn assign(&self, count: &Indices<B>) -> Result<()> {
        let mut counter = locked(&self.count);
        count.require("assign", DType::I32)?;
        *locked(&self.ready) = None;
        if count.shape() != counter.shape() {
            return Err(crate::Error::ShapeMismatch {
                op: "assign",
                lhs: *counter.shape(),
                rhs: *count.shape(),
            });
        }
        let backend = counter.backend().clone();
        backend.copy(count.buffer(), counter.buffer_mut()?)
    }
}

/// The mode of a layer that behaves differently in training and in evaluation; training by default.
///
/// ```
/// # use kiln_nn::{Backend, DType, Init, Layer, Mode, Module, Result, Tensor, layers::Linear};
/// #[derive(Module)]
/// struct Louder<B: Backend> {
///     inner: Linear<B>,
///     mode: Mode,
/// }
///
/// impl<B: Backend> Layer<B> for Louder<B> {
///     fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
///         let y = self.inner.forward(x)?;
///         if self.mode.is_training() { y.mul_scalar(2.0) } else { Ok(y) }
///     }
/// }
///
/// # let cpu = kiln_cpu::Cpu::new();
/// # let x = Tensor::ones(&cpu, &[4], DType::F32)?;
/// let mut layer = Louder { inner: Linear::new(&mut Init::new(&cpu, 0), 4, 1)?, mode: Mode::default() };
/// let in_training = layer.forward(&x)?.item()?;
/// layer.eval();
/// assert_eq!(layer.forward(&x)?.item()?, in_training / 2.0);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    training: bool,
    pinned: bool,
}

impl Default for Mode {
    fn default() -> Self {
        Mode {
            training: true,
            pinned: false,
        }
    }
}

impl Mode {
    /// True if the layer is training.
    ///
    /// See the example of [`Mode`].
    pub fn is_training(self) -> bool {
        self.training
    }

    /// Switches between training and evaluation, unless evaluation is pinned.
    ///
    /// ```
    /// # use kiln_nn::Mode;
    /// let mut mode = Mode::default();
    /// mode.set_training(false);
    /// assert!(!mode.is_training());
    /// ```
    pub fn set_training(&mut self, training: bool) {
        self.training = training && !self.pinned;
    }

    /// Switches to evaluation for good, or lets the mode change again: it stays in evaluation until it is set.
    ///
    /// ```
    /// # use kiln_nn::Mode;
    /// let mut mode = Mode::default();
    /// mode.pin_eval(true);
    /// mode.set_training(true);
    /// assert!(!mode.is_training());
    /// mode.pin_eval(false);
    /// mode.set_training(true);
    /// assert!(mode.is_training());
    /// ```
    pub fn pin_eval(&mut self, pinned: bool) {
        self.pinned = pinned;
        self.training = self.training && !pinned;
    }
}

/// A buffer of its own with the same values: it shares the memory until one of the two changes.
impl<B: Backend> Clone for State<B> {
    fn clone(&self) -> Self {
        State::new(self.get())
    }
}

/// A counter of its own with the same count: it shares the memory until one of the two counts.
impl<B: Backend> Clone for Counter<B> {
    fn clone(&self) -> Self {
        Counter {
            count: Mutex::new(self.get()),
            ready: Mutex::new(locked(&self.ready).clone()),
        }
    }
}

impl<B: Backend> fmt::Debug for State<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = locked(&self.0);
        write!(f, "State({}, {})", tensor.shape(), tensor.dtype())
    }
}

impl<B: Backend> fmt::Debug for Counter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counter")
    }
}
