//! Capsules: a step with a value that is not finite, as files from which it can be made again anywhere.

use crate::checkpoint::{TensorFile, contents};
use crate::run::Run;
use crate::twin::Given;
use crate::twin_check::recorded;
use crate::{Cause, Deviation, Output, Result, TrainError, Twin};
use kiln_core::{Backend, DType};
use kiln_data::{ArraysOf, Batch, Loaded, arrays_of};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::watch::{AnyTensor, OpCall, OpName, Pass, Watch};
use kiln_nn::weights::{Metadata, decode, encode};
use kiln_nn::{Entry, EntryMut, LoadOptions, Module, Shape, Walk, WalkMut, autocast, trace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names of the parts of a capsule's tensors.
const MODEL: &str = "model";
const BATCH: &str = "batch";

const FORMAT: &str = "kiln-capsule";
const VERSION: u32 = 1;

/// The contents of a capsule's JSON file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: String,
    version: u32,
    kiln: String,
    tensors: TensorFile,
    cause: Cause,
    /// The indices in the dataset of the batch's samples.
    samples: Vec<usize>,
    /// The parameters that the phase trains, by dotted name.
    trains: BTreeSet<String>,
    /// The dtype of mixed precision.
    autocast: Option<String>,
    /// The factor of the loss before the backward pass.
    scale: f64,
    /// The metadata of the run's weight files.
    metadata: Metadata,
}

/// A step of a run in which a value became NaN or infinite, or in which an op of the device differed from its
/// [`Twin`](crate::Twin): the batch, the model before the step with its buffers and random counters, the precision, and what was found.
/// A run with a folder writes one as `capsule-STEP.json` and `.safetensors` when it ends for it, leaves a step out, goes back
/// ([`TrainOptions::find_non_finite`](crate::TrainOptions::find_non_finite)) or warns ([`Twin::warn`](crate::Twin::warn)).
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{Arrays, Labelled, LabelledOn, Labels, Loader, LoaderOptions};
/// use kiln_nn::{DType, Init, Layer, Shape, Sequential, layers::{Flatten, Linear}, optim::Sgd};
/// use kiln_train::{Capsule, Output, RunFolder, TrainError, TrainOptions, Trainer};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let parent = std::env::temp_dir().join(format!("kiln-train-capsule-{}", std::process::id()));
/// let cpu = Cpu::new();
/// let net = || -> kiln_nn::Result<Sequential<Cpu>> {
///     let linear = Linear::new(&mut Init::new(&cpu, 0), 1, 2)?;
///     Ok(Sequential::new().push(Flatten::default()).push_named("fc", linear)?)
/// };
/// // exp(100) is infinite in f32, and is not in f64.
/// let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
///     let growth = batch.inputs.exp()?.mean(&[], false)?;
///     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?.mul(&growth)?))
/// };
/// let data = Arrays::new(Shape::new(&[1])?, vec![1.0, 100.0], Labels::Classes(vec![0, 1], 2))?;
/// let data = Loader::new(Arc::new(data), LoaderOptions { batch_size: 1, ..Default::default() })?;
/// let folder = RunFolder::create(parent.join("run"))?;
/// let mut trainer = Trainer::new(&cpu, TrainOptions::default()).folder(folder);
/// let error = trainer.fit(&mut net()?, &mut Sgd::new(0.1), step, &data, None).unwrap_err();
/// let TrainError::NonFiniteLoss { cause: Some(cause), .. } = &error else { panic!("{error}") };
///
/// let capsule = Capsule::open(cause.capsule.as_ref().unwrap())?;
/// let as_it_was = capsule.replay::<_, _, Labelled>(&cpu, &mut net()?, step, DType::F32)?;
/// let first = as_it_was.first_non_finite().unwrap();
/// assert_eq!(first.name.to_string(), "the forward pass of op `exp`");
/// let wide = capsule.replay::<_, _, Labelled>(&cpu, &mut net()?, step, DType::F64)?;
/// assert!(wide.first_non_finite().is_none() && wide.loss.is_finite());
/// # std::fs::remove_dir_all(parent)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Capsule {
    contents: Contents,
    /// The safetensors file.
    tensors: Vec<u8>,
}

impl Capsule {
    /// Reads a capsule: its JSON file, its safetensors file, or their name without an extension.
    ///
    /// # Errors
    /// [`TrainError::BadCapsule`] for a file that is damaged or no capsule, [`TrainError::File`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        /// The largest JSON file that is read.
        const LARGEST: u64 = 1 << 28;
        #[derive(Deserialize)]
        struct Version {
            format: String,
            version: u32,
        }
        let path = path.as_ref().with_extension("json");
        let bad = |reason: String| TrainError::BadCapsule {
            path: path.clone(),
            reason,
        };
        let text = contents(&path, LARGEST)?;
        let version: Version = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        if version.format != FORMAT || version.version != VERSION {
            let Version { format, version } = version;
            return Err(bad(format!(
                "it is {format:?} of version {version}, expected {FORMAT:?} of {VERSION}"
            )));
        }
        let contents_of: Contents = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
        let TensorFile { file, bytes, crc32 } = &contents_of.tensors;
        if Path::new(file).file_name().is_none_or(|name| name != &file[..]) {
            return Err(bad(format!("it names {file:?} as its tensors")));
        }
        let tensors = contents(&path.with_file_name(file), *bytes)?;
        if tensors.len() as u64 != *bytes || crc32fast::hash(&tensors) != *crc32 {
            return Err(bad(format!("the contents of {file} are not what was written")));
        }
        Ok(Capsule {
            contents: contents_of,
            tensors,
        })
    }

    /// The finding.
    pub fn cause(&self) -> &Cause {
        &self.contents.cause
    }

    /// The indices in the dataset of the batch's samples.
    pub fn samples(&self) -> &[usize] {
        &self.contents.samples
    }

    /// The metadata of the run's weight files: [`Trainer::metadata`](crate::Trainer::metadata).
    pub fn metadata(&self) -> &Metadata {
        &self.contents.metadata
    }

    /// The dtype of mixed precision that the step ran in, bf16 or f16.
    pub fn autocast(&self) -> Option<DType> {
        let named = self.contents.autocast.as_deref();
        [DType::BF16, DType::F16]
            .into_iter()
            .find(|dtype| named == Some(&dtype.to_string()))
    }

    /// Runs forward and backward of the step's batch again. `model` is made as for the run, on any backend, and gets the weights,
    /// buffers and random counters of before the step; `T` is the run's kind of batch and `step` the closure of the phase.
    ///
    /// With `F64`, model and batch are converted to f64, so that overflow and lost digits of f32 go away; with `F32` the precision is
    /// that of the run.
    ///
    /// # Errors
    /// [`TrainError::Weights`] for a model of other parameters, [`TrainError::Data`] for another kind of batch,
    /// [`TrainError::InvalidArgument`] for another dtype, and the errors of `step`.
    pub fn replay<B, M, T>(
        &self,
        backend: &B,
        model: &mut M,
        step: impl Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>>,
        dtype: DType,
    ) -> Result<Replay>
    where
        B: Backend,
        M: Module<B>,
        T: Batch,
    {
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(TrainError::invalid("dtype", dtype, "f32 or f64"));
        }
        if dtype == DType::F64 {
            model.to_dtype(dtype)?;
        }
        let tensors = self.prepare(backend, model)?;
        let mut arrays = StateDict::new();
        for (name, value) in tensors.part(BATCH).iter() {
            let value = match value {
                Value::Float(t) if dtype == DType::F64 => Value::Float(t.to_dtype(dtype)?),
                value => value.clone(),
            };
            arrays.insert(name, value);
        }
        let batch = T::from_arrays(&mut ArraysOf::new(&arrays))?;
        let mut loss = f64::NAN;
        let (passed, watch) = trace::ops(&*model, Stats::default(), || {
            let forward = || step(&*model, &batch);
            let output = match self.autocast().filter(|_| dtype == DType::F32) {
                Some(half) => autocast(half, forward)?,
                None => forward()?,
            };
            loss = output.loss.item()?;
            let scaled = match self.contents.scale {
                1.0 => output.loss,
                scale => output.loss.mul_scalar(scale)?,
            };
            scaled.backward().map(drop)
        });
        passed?;
        Ok(Replay { loss, ops: watch.0 })
    }

    /// Compares the ops of the step on a device with a twin: the check of [`Trainer::twin`](crate::Trainer::twin) again. `model` and
    /// `step` are those of [`replay`](Capsule::replay); with the device of the run the first op outside of its bound is that of the
    /// run, unless it was by chance. Returns it, and the number of ops that were compared.
    ///
    /// # Errors
    /// As [`replay`](Capsule::replay); [`TrainError::InvalidArgument`] for a twin of other batches or phases.
    pub fn compare<B, M, T>(
        &self,
        backend: &B,
        model: &mut M,
        step: impl Fn(&M, &T::On<B>) -> kiln_core::Result<Output<B>>,
        twin: &mut Twin,
    ) -> Result<(Option<Deviation>, usize)>
    where
        B: Backend,
        M: Module<B>,
        T: Batch,
    {
        let Contents {
            cause, trains, scale, ..
        } = &self.contents;
        if !twin.is_for::<T>() || !twin.has::<T>(&cause.phase) {
            let expected = "a twin for the batches and the phase of the capsule";
            return Err(TrainError::invalid("twin", "for others", expected));
        }
        let tensors = self.prepare(backend, model)?;
        let [state, batch] = [MODEL, BATCH].map(|part| encode(&tensors.part(part), &Metadata::new()));
        let given = Given {
            phase: &cause.phase,
            state: &state?,
            batch: &batch?,
            trains: trains.clone(),
            autocast: self.autocast(),
            scale: *scale,
        };
        let batch = T::from_arrays(&mut ArraysOf::new(&tensors.part(BATCH)))?;
        let model = &*model;
        let forward = || match given.autocast {
            Some(half) => autocast(half, || step(model, &batch)),
            None => step(model, &batch),
        };
        let recorded = recorded(model, &given, forward)?;
        twin.compare::<T>(&given, recorded)
    }

    /// Gives the model the state of before the step, and returns the tensors.
    fn prepare<B: Backend, M: Module<B>>(&self, backend: &B, model: &mut M) -> Result<StateDict<B>> {
        let (tensors, _) = decode(&self.tensors, backend)?;
        model.train();
        model.load_state_dict(&tensors.part(MODEL), LoadOptions::strict().allow_non_finite())?;
        model.walk_mut(&mut WalkMut::new(&mut |name, entry| {
            if let EntryMut::Param(p) = entry {
                p.set_trainable(self.contents.trains.contains(name));
            }
        }));
        Ok(tensors)
    }
}

impl std::fmt::Debug for Capsule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capsule")
            .field("cause", &self.contents.cause)
            .finish_non_exhaustive()
    }
}

/// The values of an op, or of the gradient of one.
#[derive(Debug, Clone, PartialEq)]
pub struct OpStats {
    /// The op.
    pub name: OpName,
    /// The shape of its output, or of the gradient.
    pub shape: Shape,
    /// The smallest value that is finite; infinite if there is none.
    pub min: f64,
    /// The largest value that is finite; minus infinity if there is none.
    pub max: f64,
    /// The number of values that are NaN.
    pub nan: usize,
    /// The number of values that are infinite.
    pub infinite: usize,
    /// True if values that are not finite arose here: a NaN from inputs without NaN, an infinity from finite inputs.
    pub arose: bool,
}

impl OpStats {
    /// The share of values that are NaN or infinite, from 0 to 1.
    pub fn share(&self) -> f64 {
        match self.shape.size() {
            0 => 0.0,
            size => (self.nan + self.infinite) as f64 / size as f64,
        }
    }
}

#[derive(Default)]
struct Stats(Vec<OpStats>);

impl Watch for Stats {
    fn op(&mut self, call: &OpCall<'_>) -> Option<Vec<f64>> {
        let mut stats = OpStats {
            name: call.name(),
            shape: *call.output.shape(),
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            nan: 0,
            infinite: 0,
            arose: false,
        };
        // A device that fails here fails again where the result is read, and the error is reported there.
        for value in call.output.to_f64().unwrap_or_default() {
            match value.is_finite() {
                true => (stats.min, stats.max) = (stats.min.min(value), stats.max.max(value)),
                false if value.is_nan() => stats.nan += 1,
                false => stats.infinite += 1,
            }
        }
        let mut inputs = call.inputs.iter().map(|&x: &&dyn AnyTensor| x.largest().unwrap_or(0.0));
        stats.arose = match (stats.nan, stats.infinite) {
            (0, 0) => false,
            (0, _) => call.op != "masked_fill" && inputs.all(f64::is_finite),
            _ => !inputs.any(f64::is_nan),
        };
        self.0.push(stats);
        None
    }
}

/// The result of [`Capsule::replay`].
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The loss.
    pub loss: f64,
    /// Every op of the forward and then of the backward pass, in order.
    pub ops: Vec<OpStats>,
}

impl Replay {
    /// True if the loss and all gradients are finite. Infinities on the way, such as those of a mask, do not count.
    pub fn is_finite(&self) -> bool {
        let mut gradients = self.ops.iter().filter(|op| op.name.pass == Pass::Backward);
        self.loss.is_finite() && gradients.all(|op| op.share() == 0.0)
    }

    /// The first op in which a value that is not finite arose, unless the step [is finite](Replay::is_finite); if there is none,
    /// the first with such a value, which then came from the batch or the weights.
    pub fn first_non_finite(&self) -> Option<&OpStats> {
        if self.is_finite() {
            return None;
        }
        let bad = |op: &&OpStats| op.share() > 0.0;
        self.ops
            .iter()
            .find(|op| op.arose)
            .or_else(|| self.ops.iter().find(bad))
    }
}

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// The names of the parameters that a phase trains. None of them is frozen at present.
    pub(crate) fn trained(&self, at: usize) -> BTreeSet<String> {
        let (phase, mut trained) = (&self.legs[at].phase, BTreeSet::new());
        self.model.walk(&mut Walk::new(&mut |name, entry| {
            if matches!(entry, Entry::Param(p) if p.is_trainable()) && phase.selects(name) {
                trained.insert(name.to_string());
            }
        }));
        trained
    }

    /// The factor of the loss of a batch of `samples` samples before the backward pass.
    pub(crate) fn loss_factor(&self, at: usize, samples: usize) -> Result<f64> {
        let weight = match self.trainer.options.accumulate {
            1 => 1.0,
            _ => samples as f64,
        };
        match &self.legs[at].scaler {
            Some(scaler) => Ok(weight * scaler.state()?.scale),
            None => Ok(weight),
        }
    }

    /// Writes the capsule of a batch with the model before it, if the run has a folder; returns its path.
    pub(crate) fn write_capsule(
        &self,
        at: usize,
        cause: &Cause,
        host: &Loaded<T>,
        before: StateDict<B>,
    ) -> Result<Option<PathBuf>> {
        let Some(folder) = &self.trainer.folder else {
            return Ok(None);
        };
        let mut tensors = StateDict::new();
        tensors.insert_part(MODEL, before);
        let arrays = arrays_of::<T, B>(&host.to_device(&self.trainer.backend)?);
        tensors.insert_part(BATCH, arrays);
        let tensors = encode(&tensors, &Metadata::new())?;
        let stem = format!("capsule-{:09}", cause.step);
        let contents = Contents {
            format: FORMAT.to_string(),
            version: VERSION,
            kiln: env!("CARGO_PKG_VERSION").to_string(),
            tensors: TensorFile {
                file: format!("{stem}.safetensors"),
                bytes: tensors.len() as u64,
                crc32: crc32fast::hash(&tensors),
            },
            cause: cause.clone(),
            samples: host.indices.clone(),
            trains: self.trained(at),
            autocast: self.trainer.options.autocast.map(|dtype| dtype.to_string()),
            scale: self.loss_factor(at, host.len())?,
            metadata: self.trainer.metadata.clone(),
        };
        let name = format!("{stem}.json");
        folder.write(&contents.tensors.file, &tensors)?;
        let encoded = serde_json::to_vec_pretty(&contents);
        let text = encoded.map_err(|e| kiln_files::FileError::io(&folder.file(&name), "encode")(e.into()))?;
        folder.write(&name, &text)?;
        Ok(Some(folder.file(&name)))
    }
}
