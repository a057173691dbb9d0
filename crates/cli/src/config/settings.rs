//! Settings with every default filled in.

use super::common::{DataArgs, DeviceArgs};
use super::lora::Lora;
use super::names::{self, GradNormKind, NameRules, Names, Rules};
use super::non_finite::OnNan;
use super::optimizer::OptimizerConfig;
use super::placement::Placement;
use super::precision::Precision;
use super::run::{CheckpointConfig, PhaseConfig, RunConfig};
use super::twin::Every;
use crate::device::DeviceOptions;
use crate::error::{Error, Result};
use kiln_core::Backend;
use kiln_data::TokenizerChoice;
use kiln_files::shown;
use kiln_models::{Model, PhaseOptions, Update};
use kiln_train::Checkpoints;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a run: those that are given, else those of the model's recipe.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) model: Model,
    pub(crate) data: DataArgs,
    pub(crate) workers: usize,
    pub(crate) data_on_device: Placement,
    pub(crate) epochs: u64,
    pub(crate) batch: usize,
    /// Samples of a batch in validation.
    pub(crate) valid_batch: usize,
    /// The updates of a step, in order; one without a name if there is one.
    pub(crate) phases: Vec<PhaseOptions>,
    /// The learning rates and weight decays by names, for each of them.
    pub(crate) rules: Vec<NameRules>,
    pub(crate) clip_norm: Option<f64>,
    pub(crate) accumulate: usize,
    pub(crate) precision: Precision,
    /// The weights that the run starts from.
    pub(crate) init_from: Option<PathBuf>,
    pub(crate) lora: Option<Lora>,
    pub(crate) freeze: Vec<Names>,
    pub(crate) recompute: Vec<Names>,
    pub(crate) recompute_activations: bool,
    pub(crate) log_grad_norm: Option<GradNormKind>,
    pub(crate) ema: Option<f64>,
    pub(crate) swa: Option<u64>,
    pub(crate) update_bn: Option<bool>,
    pub(crate) overfit_batches: Option<usize>,
    pub(crate) patience: Option<u64>,
    pub(crate) max_steps: Option<u64>,
    pub(crate) nan: Option<OnNan>,
    pub(crate) twin: Option<Every>,
    pub(crate) skip_nan: Option<u64>,
    pub(crate) nan_lr: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) device: DeviceArgs,
    pub(crate) no_capture: bool,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) out: Option<PathBuf>,
    pub(crate) tensorboard: bool,
    pub(crate) report: bool,
    pub(crate) log_every: usize,
}

impl Settings {
    /// The options of [`with_device`](crate::device::with_device).
    pub(crate) fn device_options(&self) -> DeviceOptions {
        let mut options = self.device.options();
        options.arithmetic.tf32 = self.precision == Precision::Tf32;
        options
    }

    /// Fills in the defaults.
    pub(crate) fn of(config: RunConfig) -> Result<Self> {
        let Some(model) = config.model else {
            let names = Model::ALL.map(Model::name).join(", ");
            return Err(Error::usage("<MODEL> is missing").help(format!("one of {names}; see `kiln train --help`")));
        };
        let recipe = model.recipe();
        let phases = phases(model, &config)?;
        if config.ema.is_some() && config.swa.is_some() {
            return Err(Error::usage("--ema and --swa are two averages of the weights").help("choose one of them"));
        }
        if config.nan_lr.is_some() && config.nan != Some(OnNan::Rollback) {
            return Err(Error::usage("--nan-lr is for runs that go back").help("add --nan rollback, or leave it out"));
        }
        if config.update_bn.is_some() && config.ema.is_none() && recipe.ema.is_none() && config.swa.is_none() {
            return Err(Error::usage("--update-bn is for averaged weights").help("add --swa or --ema, or leave it out"));
        }
        if config.lora.is_some() {
            if config.init_from.is_none() {
                return Err(Error::usage("--lora adapts trained weights").help("name them with --init-from"));
            }
            if config.ema.is_some() || config.swa.is_some() || config.twin.is_some() {
                return Err(Error::usage("--lora goes with none of --ema, --swa and --twin").help("leave these out"));
            }
        }
        let ema = match (config.ema, &config.swa, &config.lora) {
            (Some(decay), ..) => Some(decay.get()),
            (None, None, None) => recipe.ema,
            (None, ..) => None,
        };
        let checkpoints = Checkpoints::default();
        let batch = config.batch.map_or(recipe.batch.into(), |n| n.get()) as usize;
        Ok(Settings {
            model,
            data: config.data,
            workers: config.workers.map_or(recipe.workers as u64, |n| n.get()) as usize,
            data_on_device: config.data_on_device.unwrap_or_default(),
            epochs: config.epochs.map_or(recipe.epochs, |n| n.get()),
            batch,
            valid_batch: match config.valid_batch {
                Some(n) => n.get() as usize,
                None => batch.max(recipe.valid_batch as usize),
            },
            rules: rules(&config.optimizer, &config.phases, &phases),
            phases,
            clip_norm: config.clip_norm.map(|n| n.get()).or(recipe.clip_norm),
            accumulate: config.accumulate.map_or(1, |n| n.get()) as usize,
            precision: config.precision.unwrap_or_default(),
            init_from: config.init_from,
            lora: config.lora,
            freeze: config.freeze.unwrap_or_default(),
            recompute: config.recompute.unwrap_or_default(),
            recompute_activations: config.recompute_activations.unwrap_or_default(),
            log_grad_norm: config.log_grad_norm,
            ema,
            swa: config.swa.map(|n| n.get()),
            update_bn: config.update_bn,
            overfit_batches: config.overfit_batches.map(|n| n.get() as usize),
            patience: config.patience.map(|n| n.get()),
            max_steps: config.max_steps.map(|n| n.get()),
            nan: config.nan,
            twin: config.twin,
            skip_nan: config.skip_nan.map(|n| n.get()),
            nan_lr: config.nan_lr.map(|f| f.get()),
            seed: config.seed.unwrap_or_default(),
            device: config.device,
            no_capture: config.no_capture.unwrap_or_default(),
            checkpoints: Checkpoints {
                every_steps: config.checkpoint.steps.map(|n| n.get()),
                every: match config.checkpoint.minutes {
                    Some(minutes) => Some(Duration::try_from_secs_f64(60.0 * minutes.get()).unwrap_or(Duration::MAX)),
                    None => checkpoints.every,
                },
                keep: config.checkpoint.keep.map_or(checkpoints.keep as u64, |n| n.get()) as usize,
            },
            out: config.out,
            tensorboard: config.tensorboard.unwrap_or_default(),
            report: config.report.unwrap_or_default(),
            log_every: config.log_every.map_or(100, |n| n.get()) as usize,
        })
    }

    /// Optimizers and schedules of a run of so many steps, in the order of the phases.
    pub(crate) fn updates<B: Backend>(&self, steps: u64) -> Vec<Update<B>> {
        let update = |(phase, rules): (&PhaseOptions, &NameRules)| Update {
            optimizer: phase.optimizer.build_by_name(&rules.by_name()),
            schedule: phase.schedule.build(phase.optimizer.lr, steps / phase.every),
            every: phase.every,
        };
        let updates = self.phases.iter().zip(&self.rules).map(update).collect();
        Update::shared(&self.phases, updates)
    }

    /// The number of the phase of this name.
    pub(crate) fn phase(&self, name: &str) -> Result<usize> {
        let at = self
            .phases
            .iter()
            .position(|phase| phase.name == name && !name.is_empty());
        at.ok_or_else(|| no_phase(self.model, name))
    }

    /// These settings as the record of the run, on the device of this name: with them the run can be repeated and resumed. Paths
    /// are absolute, and the folder of the run is not part of them.
    pub(crate) fn config(&self, device: &str) -> RunConfig {
        // Every value was in its range before.
        fn kept<T: TryFrom<u64>>(number: u64) -> Option<T> {
            number.try_into().ok()
        }
        fn real<T: TryFrom<f64>>(number: f64) -> Option<T> {
            number.try_into().ok()
        }
        let path = self.data.path.as_ref();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        RunConfig {
            model: Some(self.model),
            data: DataArgs {
                path: path.map(absolute),
                tokenizer: self.data.tokenizer.as_ref().map(|choice| match choice {
                    TokenizerChoice::File(path) => TokenizerChoice::File(absolute(path)),
                    learned => learned.clone(),
                }),
                ..self.data.clone()
            },
            workers: kept(self.workers as u64),
            data_on_device: Some(self.data_on_device),
            epochs: kept(self.epochs),
            batch: kept(self.batch as u64),
            valid_batch: kept(self.valid_batch as u64),
            optimizer: match &self.phases[..] {
                [whole] if whole.name.is_empty() => OptimizerConfig::of(whole, &self.rules[0]),
                _ => OptimizerConfig::default(),
            },
            phases: self
                .phases
                .iter()
                .zip(&self.rules)
                .filter(|(phase, _)| !phase.name.is_empty())
                .map(|(phase, rules)| {
                    let config = PhaseConfig {
                        every: kept(phase.every),
                        optimizer: match phase.shares {
                            Some(_) => OptimizerConfig::default(),
                            None => OptimizerConfig::of(phase, rules),
                        },
                    };
                    (phase.name.to_string(), config)
                })
                .collect(),
            clip_norm: self.clip_norm.and_then(real),
            accumulate: kept(self.accumulate as u64),
            precision: Some(self.precision),
            init_from: self.init_from.as_ref().map(absolute),
            lora: self.lora.clone(),
            freeze: names::given(&self.freeze),
            recompute: names::given(&self.recompute),
            recompute_activations: Some(self.recompute_activations),
            log_grad_norm: self.log_grad_norm,
            ema: self.ema.and_then(real),
            swa: self.swa.and_then(kept),
            update_bn: self.update_bn,
            overfit_batches: self.overfit_batches.and_then(|n| kept(n as u64)),
            patience: self.patience.and_then(kept),
            max_steps: self.max_steps.and_then(kept),
            nan: self.nan,
            twin: self.twin,
            skip_nan: self.skip_nan.and_then(kept),
            nan_lr: self.nan_lr.and_then(real),
            seed: Some(self.seed),
            device: DeviceArgs {
                name: device.parse().ok(),
                ..self.device.clone()
            },
            no_capture: Some(self.no_capture),
            checkpoint: CheckpointConfig {
                steps: self.checkpoints.every_steps.and_then(kept),
                minutes: self
                    .checkpoints
                    .every
                    .and_then(|every| real(every.as_secs_f64() / 60.0)),
                keep: kept(self.checkpoints.keep as u64),
            },
            out: None,
            tensorboard: Some(self.tensorboard),
            report: Some(self.report),
            log_every: kept(self.log_every as u64),
        }
    }
}

/// The error for a name that is none of the model's phases.
fn no_phase(model: Model, name: &str) -> Error {
    let names: Vec<&str> = model.recipe().phases.iter().map(|phase| phase.name).collect();
    let error = Error::usage(format!("{model} has no phase `{}`", shown(name)));
    match names.is_empty() {
        true => error.help("its step is one update: its settings are those of [optimizer]"),
        false => error.help(format!("its phases are {}", names.join(", "))),
    }
}

/// The settings of a model's updates: `[phases.NAME.optimizer]` goes before `[optimizer]`, that before the recipe.
fn phases(model: Model, config: &RunConfig) -> Result<Vec<PhaseOptions>> {
    let mut phases = model.recipe().phases();
    if let Some(name) = config
        .phases
        .keys()
        .find(|name| !phases.iter().any(|p| p.name == *name))
    {
        return Err(no_phase(model, name));
    }
    for at in 0..phases.len() {
        let (before, rest) = phases.split_at_mut(at);
        let phase = &mut rest[0];
        let own = config.phases.get(phase.name);
        phase.every = own.and_then(|own| own.every).map_or(phase.every, |n| n.get());
        let owner = before.iter().find(|other| phase.shares == Some(other.name));
        if let Some(owner) = owner {
            if own.is_some_and(|own| !own.optimizer.is_empty()) {
                let name = phase.name;
                return Err(Error::usage(format!("{name} has the optimizer of {}", owner.name))
                    .help(format!("give its settings to [phases.{}.optimizer]", owner.name)));
            }
            (phase.optimizer, phase.schedule) = (owner.optimizer, owner.schedule);
            continue;
        }
        config.optimizer.apply(phase)?;
        if let Some(own) = own {
            own.optimizer.apply(phase)?;
        }
    }
    Ok(phases)
}

/// The rates and decays by names of each update: those of its own table, else those of `[optimizer]`.
fn rules(all: &OptimizerConfig, own: &BTreeMap<String, PhaseConfig>, phases: &[PhaseOptions]) -> Vec<NameRules> {
    let of = |phase: &PhaseOptions| {
        let own = own.get(phase.name).map(|own| &own.optimizer);
        let first = |get: fn(&OptimizerConfig) -> &Option<Vec<Rules>>| {
            let given = own.and_then(|own| get(own).clone()).or_else(|| get(all).clone());
            given.unwrap_or_default()
        };
        NameRules {
            lr_for: first(|config| &config.lr_for),
            decay_for: first(|config| &config.decay_for),
        }
    };
    phases.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::record;

    #[test]
    fn a_record_gives_the_settings_again() {
        for model in Model::ALL {
            let config = RunConfig {
                model: Some(model),
                data: DataArgs {
                    synthetic: 20.try_into().ok(),
                    ..Default::default()
                },
                ..Default::default()
            };
            let first = Settings::of(config).unwrap().config("cpu");
            let again = Settings::of(first.clone()).unwrap().config("cpu");
            assert_eq!(record(&first), record(&again));
            assert_eq!(record(&first)["device"]["name"], "cpu");
        }
    }
}
