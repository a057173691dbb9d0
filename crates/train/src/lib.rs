//! The training loop of Kiln, generic over the backend, with metrics, history, callbacks, early stopping, and weight files
//! that are written atomically.
//!
//! A run takes a model, an optimizer, data, and a closure that computes the loss:
//!
//! ```
//! use kiln_cpu::Cpu;
//! use kiln_data::{LabelledOn, Loader, LoaderOptions, Subset, ToFloat, mnist};
//! use kiln_nn::layers::{Flatten, Linear};
//! use kiln_nn::{Init, Layer, Sequential, optim::Adam};
//! use kiln_train::{Accuracy, Output, TrainOptions, Trainer, evaluate};
//! use std::sync::Arc;
//!
//! let cpu = Cpu::new();
//! let mut init = Init::new(&cpu, 0);
//! let mut model = Sequential::new().push(Flatten::default()).push(Linear::new(&mut init, 28 * 28, 10)?);
//!
//! let digits = mnist::embedded()?;
//! let first = Subset::new(digits.train, (0..1280).collect())?;
//! let options = LoaderOptions { shuffle: true, ..Default::default() };
//! let train = Loader::new(Arc::new(first), options)?.with_transform(ToFloat);
//! let test = Loader::new(Arc::new(digits.test), LoaderOptions::default())?.with_transform(ToFloat);
//!
//! let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
//!     let logits = model.forward(&batch.inputs)?;
//!     Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
//! };
//! let mut trainer = Trainer::new(&cpu, TrainOptions::default()).metric(Accuracy::new());
//! trainer.fit(&mut model, &mut Adam::new(1e-2), step, &train, None)?;
//! let measured = evaluate(&cpu, &mut model, &step, &test, &mut [&mut Accuracy::new()])?;
//! assert!(measured.values["accuracy"] > 0.8, "{measured:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A run is a pure function of its seeds, with the same bits on any number of threads. Nothing is read back from the
//! device inside a step: losses and metrics stay there and are read together, every [`TrainOptions::log_every`] batches
//! and at the end of an epoch. On a backend that can record a step and replay it ([`TrainOptions::capture`]), forward,
//! backward, clipping, update and metrics are a single launch.
//!
//! Steps that repeat allocate no tensors: the backend's allocator serves them from its cache, apart from the scratch
//! buffers of threads, of which there are as many as were ever needed at once. Memory on the host outside that
//! allocator, such as the nodes of the graph or packed panels of a matrix product, is not counted.

mod average;
mod averaging;
mod buffers;
mod callback;
mod capsule;
mod capture;
mod cause;
mod checkpoint;
mod claim;
mod control;
mod csv;
mod deviation;
mod error;
mod evaluate;
mod explain;
mod explained;
mod find;
mod find_batch;
mod find_lr;
mod fit;
mod folder;
mod freeze;
mod grad_norm;
mod group;
mod history;
mod host_state;
mod journal;
mod keep;
mod kept;
mod left;
mod losses;
mod metrics;
mod monitor;
mod obey;
mod options;
mod output;
mod phase;
mod reading;
mod record;
mod recording;
mod report;
mod rescue;
mod rewind;
mod run;
mod step;
mod trainer;
mod twin;
mod twin_check;
mod undo;
mod update_bn;
mod verdict;
mod warning;
mod weights;

pub use average::Average;
pub use callback::{Callback, Flow, Plan, StepInfo, StopHandle};
pub use capsule::{Capsule, OpStats, Replay};
pub use cause::{Cause, Place};
pub use checkpoint::{Checkpoint, Manifest};
pub use control::Control;
pub use deviation::Deviation;
pub use error::{Result, TrainError};
pub use evaluate::{Evaluation, Validation, evaluate};
pub use find_batch::{BatchCurve, BatchLimit, BatchPoint, BatchRange, find_batch};
pub use find_lr::{LrCurve, LrPoint, LrRange, find_lr, find_lr_of_phase};
pub use folder::RunFolder;
pub use freeze::check_by_name;
pub use grad_norm::GradNorm;
pub use history::History;
pub use journal::{Event, JournalEntry};
pub use kiln_files::write_atomic;
pub use metrics::{
    Accuracy, AveragePrecision, BitsPerCharacter, ClassAverage, ClassScores, Confusion, ConfusionMatrix, Detection,
    DetectionEval, DetectionSummary, Edits, Entity, EntityF1, ErrorRate, F1, FBeta, FeatureStatistics, FrechetDistance,
    GroundTruth, Mae, MeanAveragePrecision, Metric, Mse, Perplexity, Precision, R2, Recall, Reduction, Rmse, RocAuc,
    Running, TopK, average_precision, character_edits, edit_distance, edits, entities, frechet_distance,
    mean_absolute_error, mean_squared_error, one_vs_rest, perplexity, r2_score, roc_auc, squad_scores, word_edits,
};
pub use monitor::{Goal, Monitor};
pub use options::{Checkpoints, Clip, NonFinite, TrainOptions};
pub use output::{Output, Value};
pub use phase::Phase;
pub use reading::{Over, Reading};
pub use record::{EpochRecord, Execution, Values};
pub use report::{End, Report, TwinReport};
pub use trainer::Trainer;
pub use twin::{Twin, TwinStep};
pub use update_bn::update_bn;
pub use warning::Warning;
pub use weights::save_weights;
