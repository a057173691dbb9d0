//! The twin check: a micro-batch is run on another backend too, from the same weights, batch and random counters, and every op is
//! compared.

use crate::deviation::{Deviation, Recording, Seen, Twinned};
use crate::{Output, Result, TrainError};
use kiln_core::{Backend, DType, Error};
use kiln_data::{ArraysOf, Batch, arrays_of};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::watch::{OpName, Watch};
use kiln_nn::weights::decode;
use kiln_nn::{EntryMut, LoadOptions, Module, Tensor, WalkMut, autocast, trace};
use std::any::Any;
use std::collections::BTreeSet;

/// The closure of a phase, for a [`Twin`].
pub type TwinStep<C, N, T> = Box<dyn Fn(&N, &<T as Batch>::On<C>) -> kiln_core::Result<Output<C>>>;

/// A copy of the model on another backend, usually the CPU, with which the ops of the training device are compared from time to time.
///
/// Before every so many steps, the first micro-batch of the step is run op by op on the device, and on the twin from the same
/// weights, buffers, random counters and batch: forward and backward. Ops are paired by layer, name and order; where a backend
/// has a fused op and the other composes it, what both have is compared. Each op of the twin is given the inputs that the
/// device's op had, because its own results are replaced by the device's after they were compared: so an op is blamed for its own error
/// alone, and the rounding of ops before it, a ReLU or a largest value that falls the other way by it, are no error.
///
/// An op is outside of its bound if an element `d` of its result is further from the twin's result in f64, `r`, than rounding
/// explains:
///
/// ```text
/// |d − r| ≤ 16·(max |c − r| + u·√t·max |r|)
/// ```
///
/// `c` is the twin's result in the precision of the run, `u` the unit roundoff of the op's dtype, `t` an estimate of the number
/// of terms in a sum: so the device may round sixteen times as badly as the twin does, or as sums in any order do, and no more.
/// What is lost where half precision was asked for is in `c` as well; for the ten bits of TF32 see
/// [`unit_roundoff`](Twin::unit_roundoff).
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{Labelled, LabelledOn, Loader, LoaderOptions, Synthetic};
/// use kiln_nn::{Backend, Init, Layer, Sequential, layers::{Flatten, Linear}, optim::Sgd};
/// use kiln_train::{Output, TrainOptions, Trainer, Twin};
/// use std::sync::Arc;
///
/// fn net<B: Backend>(backend: &B) -> kiln_nn::Result<Sequential<B>> {
///     let linear = Linear::new(&mut Init::new(backend, 0), 9, 2)?;
///     Ok(Sequential::new().push(Flatten::default()).push(linear))
/// }
///
/// fn step<B: Backend>(model: &Sequential<B>, batch: &LabelledOn<B>) -> kiln_nn::Result<Output<B>> {
///     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// }
///
/// // Here the device is a CPU too.
/// let (device, cpu) = (Cpu::new(), Cpu::new());
/// let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// let twin = Twin::new::<_, _, Labelled>(&cpu, net, step)?.every(500);
/// let mut trainer = Trainer::new(&device, TrainOptions::default()).twin(twin);
/// trainer.fit(&mut net(&device)?, &mut Sgd::new(0.1), step, &data, None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Twin {
    pub(crate) every: u64,
    /// True if the run goes on after an op outside of its bound.
    pub(crate) warns: bool,
    /// The ops outside of their bounds that were told.
    pub(crate) told: BTreeSet<OpName>,
    unit: f64,
    /// A `Box<dyn TwinModel<T>>` for the kind `T` of batches.
    model: Box<dyn Any>,
}

impl Twin {
    /// A twin on `backend`, for the phase without a name. `build` makes the model as it was made for the device, of the same seed;
    /// it is called twice, for the precision of the run and for f64. `step` computes the loss, as for the device.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn new<C: Backend, N: Module<C> + 'static, T: Batch>(
        backend: &C,
        build: impl Fn(&C) -> kiln_core::Result<N>,
        step: impl Fn(&N, &T::On<C>) -> kiln_core::Result<Output<C>> + 'static,
    ) -> Result<Self> {
        Twin::of_phases::<C, N, T>(backend, build, vec![(String::new(), Box::new(step))])
    }

    /// As [`new`](Twin::new), for phases: each with its name and its closure. Phases that are not named here are not compared.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn of_phases<C: Backend, N: Module<C> + 'static, T: Batch>(
        backend: &C,
        build: impl Fn(&C) -> kiln_core::Result<N>,
        steps: Vec<(String, TwinStep<C, N, T>)>,
    ) -> Result<Self> {
        let [narrow, mut wide] = [false, true].map(|is_wide| build(backend).map(|model| Copy { model, is_wide }));
        if let Ok(wide) = &mut wide {
            wide.model.to_dtype(DType::F64)?;
        }
        let model: Box<dyn TwinModel<T>> = Box::new(OnBackend {
            backend: backend.clone(),
            narrow: narrow?,
            wide: wide?,
            steps,
        });
        Ok(Twin {
            every: 500,
            warns: false,
            told: BTreeSet::new(),
            unit: 0.0,
            model: Box::new(model),
        })
    }

    /// Compares before every `steps`-th step, the first one included; 500 unless it is set.
    pub fn every(mut self, steps: u64) -> Self {
        self.every = steps;
        self
    }

    /// Goes on after an op outside of its bound, with a warning ([`Warning::Twin`](crate::Warning::Twin)) for each such op, instead of
    /// ending the run.
    pub fn warn(mut self) -> Self {
        self.warns = true;
        self
    }

    /// Sets a unit roundoff for all ops, if it is larger than that of their dtype: 2⁻¹¹ where products round their operands to TF32.
    pub fn unit_roundoff(mut self, unit: f64) -> Self {
        self.unit = unit;
        self
    }

    /// True if the twin is for batches of this kind.
    pub(crate) fn is_for<T: Batch>(&self) -> bool {
        self.model.is::<Box<dyn TwinModel<T>>>()
    }

    /// Compares what was recorded on the device with the twin; the first op outside of its bound, and the number of ops compared.
    pub(crate) fn compare<T: Batch>(&mut self, given: &Given<'_>, device: Recording) -> Result<Compared> {
        match self.model.downcast_mut::<Box<dyn TwinModel<T>>>() {
            Some(model) => model.compare(given, device, self.unit),
            None => Ok((None, 0)),
        }
    }

    /// True if the twin has a closure for the phase.
    pub(crate) fn has<T: Batch>(&self, phase: &str) -> bool {
        let model = self.model.downcast_ref::<Box<dyn TwinModel<T>>>();
        model.is_some_and(|model| model.has(phase))
    }
}

impl std::fmt::Debug for Twin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Twin")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// The first op outside of its bound, and the number of ops that were compared.
type Compared = (Option<Deviation>, usize);

/// The state that a step starts from, in host memory.
pub(crate) struct Given<'g> {
    pub(crate) phase: &'g str,
    /// The model as a safetensors file.
    pub(crate) state: &'g [u8],
    /// The arrays of the batch as a safetensors file.
    pub(crate) batch: &'g [u8],
    /// The parameters that the phase trains.
    pub(crate) trains: BTreeSet<String>,
    /// The dtype of mixed precision.
    pub(crate) autocast: Option<DType>,
    /// The factor of the loss before the backward pass.
    pub(crate) scale: f64,
}

/// A twin on any backend.
trait TwinModel<T: Batch> {
    fn has(&self, phase: &str) -> bool;

    fn compare(&mut self, given: &Given<'_>, device: Recording, unit: f64) -> Result<Compared>;
}

struct OnBackend<C: Backend, N, T: Batch> {
    backend: C,
    narrow: Copy<N>,
    wide: Copy<N>,
    steps: Vec<(String, TwinStep<C, N, T>)>,
}

impl<C: Backend, N: Module<C>, T: Batch> TwinModel<T> for OnBackend<C, N, T> {
    fn has(&self, phase: &str) -> bool {
        self.steps.iter().any(|(name, _)| name == phase)
    }

    fn compare(&mut self, given: &Given<'_>, device: Recording, unit: f64) -> Result<Compared> {
        let Some((_, step)) = self.steps.iter().find(|(name, _)| name == given.phase) else {
            return Ok((None, 0));
        };
        let (state, _) = decode(given.state, &self.backend)?;
        let (arrays, _) = decode(given.batch, &self.backend)?;
        let batch = T::from_arrays(&mut ArraysOf::new(&arrays))?;
        // The ops that the twin has, and then their results from the device's inputs.
        let (passed, seen) = self
            .narrow
            .pass::<C, T, _>(&state, given, step, &batch, Seen::default());
        passed?;
        let twinned = Twinned::new(device, &seen, unit);
        let (passed, twinned) = self.narrow.pass::<C, T, _>(&state, given, step, &batch, twinned);
        passed?;
        let batch = T::from_arrays(&mut ArraysOf::new(&widened::<T, C>(&batch)?))?;
        match self.wide.pass::<C, T, _>(&state, given, step, &batch, twinned.in_f64()) {
            (Ok(()), compared) => Ok(compared.result()),
            // A closure that makes tensors of f32 itself cannot run in f64.
            (Err(TrainError::Tensor(error)), compared) if matches!(error.root(), Error::DTypeMismatch { .. }) => {
                Ok(compared.without_f64())
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// A model of the twin, of one dtype.
struct Copy<N> {
    model: N,
    is_wide: bool,
}

impl<N> Copy<N> {
    /// Runs forward and backward from the given state, under a watch.
    fn pass<C: Backend, T: Batch, W: Watch>(
        &mut self,
        state: &StateDict<C>,
        given: &Given<'_>,
        step: &TwinStep<C, N, T>,
        batch: &T::On<C>,
        watch: W,
    ) -> (Result<()>, W)
    where
        N: Module<C>,
    {
        self.model.train();
        let loaded = self
            .model
            .load_state_dict(state, LoadOptions::strict().allow_non_finite());
        if let Err(error) = loaded {
            return (Err(error.into()), watch);
        }
        self.model.walk_mut(&mut WalkMut::new(&mut |name, entry| {
            if let EntryMut::Param(p) = entry {
                p.set_trainable(given.trains.contains(name));
            }
        }));
        let (model, autocast_to) = (&self.model, given.autocast.filter(|_| !self.is_wide));
        let (passed, watch) = trace::ops(model, watch, || {
            let forward = || step(model, batch);
            let loss = match autocast_to {
                Some(half) => autocast(half, forward)?.loss,
                None => forward()?.loss,
            };
            given.backward(&loss)
        });
        (passed.map_err(TrainError::Tensor), watch)
    }
}

impl Given<'_> {
    /// The backward pass of a loss, scaled as on the device.
    pub(crate) fn backward<B: Backend>(&self, loss: &Tensor<B>) -> kiln_core::Result<()> {
        match self.scale {
            1.0 => loss.backward().map(drop),
            scale => loss.mul_scalar(scale)?.backward().map(drop),
        }
    }
}

/// The arrays of a batch on a device, floats in f64.
fn widened<T: Batch, B: Backend>(batch: &T::On<B>) -> Result<StateDict<B>> {
    let mut arrays = arrays_of::<T, B>(batch);
    for (name, value) in arrays_of::<T, B>(batch).iter() {
        if let Value::Float(t) = value {
            arrays.insert(name, Value::Float(t.to_dtype(DType::F64)?));
        }
    }
    Ok(arrays)
}
