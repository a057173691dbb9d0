//! The state of a run as a checkpoint, and back.

use super::manifest::{Manifest, MetricState, PhaseState, ProgressState, TensorFile};
use super::store::Checkpoint;
use crate::run::Run;
use crate::{Clip, Result, TrainError};
use kiln_core::Backend;
use kiln_data::{Batch, Loader};
use kiln_nn::module::StateDict;
use kiln_nn::weights::{Snapshot, decode};
use kiln_nn::{LoadOptions, Module, lora};
use std::collections::{BTreeMap, BTreeSet};

/// The names of the parts of a checkpoint's tensors.
const MODEL: &str = "model";
const OPTIMIZER: &str = "optimizer";
const AVERAGE: &str = "average";
const METRIC: &str = "metric";

impl<'a, 'p, B: Backend, M: Module<B>, T: Batch> Run<'a, 'p, B, M, T> {
    /// What has to be the same when the run goes on from a checkpoint, by name.
    pub(crate) fn identity<D: Default + Send + 'static>(&self, train: &Loader<D, T>) -> BTreeMap<String, String> {
        let options = &self.trainer.options;
        let clip = match options.clip {
            None => "none".to_string(),
            Some(Clip::Norm(limit)) => format!("norm {limit}"),
            Some(Clip::Value(limit)) => format!("value {limit}"),
        };
        let phases = self
            .legs
            .iter()
            .map(|leg| format!("{}/{}", leg.phase.name, leg.phase.every));
        let metrics = self.trainer.metrics.iter().map(|m| m.name());
        let loader = train.options();
        let entries = [
            ("batches", train.batches().to_string()),
            ("samples", train.samples().to_string()),
            ("batch_size", loader.batch_size.to_string()),
            ("shuffle", loader.shuffle.to_string()),
            ("loader_seed", loader.seed.to_string()),
            ("accumulate", options.accumulate.to_string()),
            ("clip", clip),
            (
                "average",
                options
                    .average
                    .map_or("none".to_string(), |average| average.to_string()),
            ),
            ("phases", phases.collect::<Vec<_>>().join(", ")),
            ("metrics", metrics.collect::<Vec<_>>().join(", ")),
        ];
        // Checkpoints of runs in the model's own precision do not name it.
        let precision = options.autocast.map(|dtype| ("precision", dtype.to_string()));
        let frozen: Vec<String> = options.freeze.iter().map(ToString::to_string).collect();
        let frozen = (!frozen.is_empty()).then(|| ("frozen", frozen.join(", ")));
        let names = self.trainer.host_states.names();
        let host_state = (!names.is_empty()).then_some(("host_state", names));
        entries
            .into_iter()
            .chain(precision)
            .chain(frozen)
            .chain(host_state)
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    }

    /// The state of the run between two steps: the manifest, without the history, and the tensors. The pending losses have been read.
    pub(crate) fn snapshot(&self) -> Result<(Manifest, Snapshot)> {
        let mut tensors = StateDict::new();
        tensors.insert_part(MODEL, lora::state_dict(&*self.model));
        let mut phases = Vec::new();
        for (i, leg) in self.legs.iter().enumerate() {
            let state = leg.phase.optimizer.state_dict()?;
            let lr = (state.iter().next().is_none()).then(|| leg.phase.optimizer.lr());
            tensors.insert_part(&format!("{OPTIMIZER}.{i}"), state);
            phases.push(PhaseState {
                name: leg.phase.name.clone(),
                attempts: leg.attempts,
                scaler: match &leg.scaler {
                    Some(scaler) if self.trainer.options.scales() => Some(scaler.state()?.into()),
                    _ => None,
                },
                plateau: leg.plateau.as_ref().map(|p| p.state.into()),
                lr,
                norms: leg.norms.state(),
                ..leg.losses.state()
            });
        }
        let mut metrics = Vec::new();
        for (i, (metric, running)) in self.trainer.metrics.iter().zip(&self.running).enumerate() {
            let (state, sums) = running.state(&self.trainer.backend)?;
            tensors.insert_part(&format!("{METRIC}.{i}"), sums);
            metrics.push(MetricState {
                name: metric.name(),
                ..state
            });
        }
        if let Some(averaged) = &self.averaged {
            tensors.insert_part(AVERAGE, averaged.state_dict());
        }
        let manifest = Manifest {
            format: Manifest::FORMAT.to_string(),
            version: Manifest::VERSION,
            kiln: env!("CARGO_PKG_VERSION").to_string(),
            tensors: TensorFile::default(),
            run: self.identity.clone(),
            step: self.step,
            updates: self.updates,
            skipped_in_a_row: self.skipped_in_a_row,
            lr_factor: self.lr_factor,
            epoch: self.epoch,
            at: self.at_epoch.clone(),
            averaged: self.averaged.as_ref().map_or(0, |a| a.updates()),
            phases,
            metrics,
            progress: ProgressState {
                best: self.progress.best,
                stale: self.progress.stale,
            },
            host_state: self.trainer.host_states.encode()?,
            history: Vec::new(),
        };
        Ok((manifest, tensors.snapshot()?))
    }

    /// Continues from a checkpoint. Nothing of the run has been changed if the checkpoint is of another run.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let manifest = &checkpoint.manifest;
        let names: BTreeSet<&String> = self.identity.keys().chain(manifest.run.keys()).collect();
        for name in names {
            let [saved, now] = [&manifest.run, &self.identity].map(|run| run.get(name));
            if saved != now {
                let shown = |value: Option<&String>| value.cloned().unwrap_or_else(|| "none".to_string());
                return Err(TrainError::OtherRun {
                    name: name.replace('_', " "),
                    saved: shown(saved),
                    now: shown(now),
                });
            }
        }
        let (tensors, _) = decode(&checkpoint.tensors, &self.trainer.backend)?;
        self.restore_state(manifest, &tensors)?;
        self.warnings.extend(checkpoint.warnings.iter().cloned());
        Ok(())
    }

    /// Continues from a state of this run.
    pub(crate) fn restore_state(&mut self, manifest: &Manifest, tensors: &StateDict<B>) -> Result<()> {
        let options = LoadOptions::strict().allow_non_finite();
        lora::load_state_dict(&mut *self.model, &tensors.part(MODEL), options)?;
        for (i, (leg, state)) in self.legs.iter_mut().zip(&manifest.phases).enumerate() {
            leg.phase
                .optimizer
                .load_state_dict(&tensors.part(&format!("{OPTIMIZER}.{i}")))?;
            if let Some(lr) = state.lr {
                leg.phase.optimizer.set_lr(lr);
            }
            leg.attempts = state.attempts;
            leg.losses.restore(state);
            leg.norms.restore(state.norms.as_ref());
            if let (Some(scaler), Some(saved)) = (&mut leg.scaler, state.scaler) {
                scaler.set_state(saved.into())?;
            }
            if let (Some(plateau), Some(saved)) = (&mut leg.plateau, state.plateau) {
                plateau.state = saved.into();
            }
        }
        for (i, (running, state)) in self.running.iter_mut().zip(&manifest.metrics).enumerate() {
            running.restore(state, &tensors.part(&format!("{METRIC}.{i}")))?;
        }
        self.restore_average(&tensors.part(AVERAGE), manifest.averaged)?;
        self.step = manifest.step;
        self.updates = manifest.updates;
        self.skipped_in_a_row = manifest.skipped_in_a_row;
        self.lr_factor = manifest.lr_factor;
        self.epoch = manifest.epoch;
        self.at_epoch = manifest.at.clone();
        self.progress.best = manifest.progress.best;
        self.progress.stale = manifest.progress.stale;
        self.trainer.host_states.decode(&manifest.host_state)
    }
}
