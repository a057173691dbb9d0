//! `[optimizer]`: the optimizer of an update and its options.

use super::common::named;
use super::names::{self, NameRules, Rules};
use super::values::{Betas, Positive, Rate, Share};
use crate::error::{Error, Result};
use clap::Args;
use kiln_models::{OptimizerKind, OptimizerOptions, PhaseOptions, ScheduleKind};
use serde::{Deserialize, Serialize};

/// `[optimizer]`: the optimizer and its learning rate.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OptimizerConfig {
    /// Optimizer [default: that of the model]
    #[arg(id = "optimizer", long = "optimizer", value_name = "NAME", value_parser = named::<OptimizerKind>(OptimizerKind::ALL.map(OptimizerKind::name)))]
    pub(crate) name: Option<OptimizerKind>,

    /// Learning rate, the largest of a schedule [default: that of the model; 0.001 with another optimizer]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(crate) lr: Option<Rate>,

    /// Schedule of the learning rate over the run [default: that of the model]
    #[arg(long, value_name = "NAME", value_parser = named::<ScheduleKind>(ScheduleKind::ALL.map(ScheduleKind::name)))]
    pub(crate) schedule: Option<ScheduleKind>,

    /// Multiply the learning rate of the parameters that a pattern of names matches, such as 'layer1=0.1'; may be repeated, the
    /// first pattern that matches counts
    #[arg(long, value_name = "PATTERN=FACTOR")]
    pub(crate) lr_for: Option<Vec<Rules>>,

    /// Weight decay of the parameters that a pattern of names matches, such as '*.bias=0'; may be repeated, the first pattern that
    /// matches counts
    #[arg(long, value_name = "PATTERN=DECAY")]
    pub(crate) decay_for: Option<Vec<Rules>>,

    /// Momentum [default: that of the model's own optimizer, else 0]
    #[arg(long, value_name = "M", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) momentum: Option<Rate>,

    /// Part of a gradient that is not added to the momentum [default: 0]
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) dampening: Option<Rate>,

    /// Nesterov's momentum
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = OPTIONS)]
    pub(crate) nesterov: Option<bool>,

    /// Weight decay [default: that of the model's own optimizer, else the optimizer's]
    #[arg(long, value_name = "W", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) weight_decay: Option<Rate>,

    /// Decays of both moments, such as 0.5,0.999 [default: 0.9,0.999; lion 0.9,0.99]
    #[arg(long, value_name = "B1,B2", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) betas: Option<Betas>,

    /// Number added to the denominator [default: 1e-8; adagrad 1e-10, adadelta and lamb 1e-6]
    #[arg(long, value_name = "EPS", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) eps: Option<Rate>,

    /// The largest second moment so far in the place of the last
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = OPTIONS)]
    pub(crate) amsgrad: Option<bool>,

    /// Smoothing of the mean square [default: 0.99]
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) alpha: Option<Share>,

    /// The variance in the place of the mean square
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = OPTIONS)]
    pub(crate) centered: Option<bool>,

    /// Decay of both mean squares [default: 0.9]
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) rho: Option<Share>,

    /// Decay of the learning rate by the number of the update [default: 0]
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) lr_decay: Option<Rate>,

    /// First value of the sum of squares [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) initial_accumulator: Option<Rate>,

    /// How fast the momentum grows to its final value [default: 0.004]
    #[arg(long, value_name = "D", allow_negative_numbers = true, help_heading = OPTIONS)]
    pub(crate) momentum_decay: Option<Positive>,

    /// Weight decay that shrinks parameters directly instead of adding to the gradient
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true, help_heading = OPTIONS)]
    pub(crate) decoupled_weight_decay: Option<bool>,
}

/// The heading of the options that some optimizers take; an optimizer that does not take one refuses it.
const OPTIONS: &str = "Options of optimizers";

/// Reads and writes the options of `OptimizerConfig` as those of the table of optimizers: one row for each.
macro_rules! options {
    ($($option:ident),*) => {
        impl OptimizerConfig {
            /// The options that are given, for an optimizer.
            fn options(&self, kind: OptimizerKind) -> OptimizerOptions {
                OptimizerOptions {
                    $($option: self.$option.map(Into::into),)*
                    ..OptimizerOptions::of(kind)
                }
            }

            /// All options of an update as they are recorded: with them a run does not depend on defaults.
            pub(super) fn of(phase: &PhaseOptions, rules: &NameRules) -> Self {
                let optimizer = phase.optimizer.resolved();
                OptimizerConfig {
                    name: Some(optimizer.kind),
                    // Every value was in its range before.
                    lr: optimizer.lr.try_into().ok(),
                    schedule: Some(phase.schedule),
                    lr_for: names::given(&rules.lr_for),
                    decay_for: names::given(&rules.decay_for),
                    $($option: optimizer.$option.and_then(|value| value.try_into().ok()),)*
                }
            }
        }
    };
}

options!(
    momentum,
    dampening,
    nesterov,
    weight_decay,
    betas,
    eps,
    amsgrad,
    alpha,
    centered,
    rho,
    lr_decay,
    initial_accumulator,
    momentum_decay,
    decoupled_weight_decay
);

impl OptimizerConfig {
    /// True if no setting is given.
    pub(super) fn is_empty(&self) -> bool {
        let table = serde_json::to_value(self).unwrap_or_default();
        table
            .as_object()
            .is_none_or(|table| table.values().all(|value| value.is_null()))
    }

    /// Puts the settings that are given into those of an update.
    ///
    /// # Errors
    /// An option that the optimizer does not take.
    pub(super) fn apply(&self, phase: &mut PhaseOptions) -> Result<()> {
        let own = phase.optimizer.unless(self.name);
        let options = OptimizerOptions {
            lr: self.lr.map_or(own.lr, Rate::get),
            ..own.with(&self.options(own.kind))
        };
        if let Some(option) = options.stranger() {
            let kinds: Vec<&str> = OptimizerKind::taking(option).map(OptimizerKind::name).collect();
            return Err(
                Error::usage(format!("{} takes no --{}", options.kind, option.replace('_', "-"))).help(format!(
                    "its options are {}; {option} is one of {}",
                    options.kind.options().join(", "),
                    kinds.join(", ")
                )),
            );
        }
        phase.optimizer = options;
        phase.schedule = self.schedule.unwrap_or(phase.schedule);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_models::ScheduleKind;

    /// An option of the table that has no setting, or a setting that reaches no option, would be lost here.
    #[test]
    fn every_option_is_a_setting_that_is_read_back() {
        for kind in OptimizerKind::ALL {
            let phase = PhaseOptions {
                name: "",
                every: 1,
                optimizer: OptimizerOptions::of(kind).resolved(),
                schedule: ScheduleKind::Cosine,
                shares: None,
            };
            let config = OptimizerConfig::of(&phase, &NameRules::default());
            let table = serde_json::to_value(&config).unwrap();
            for option in kind.options() {
                assert!(!table[option].is_null(), "{kind}: {option} in {table}");
            }
            let config: OptimizerConfig = serde_json::from_value(table).unwrap();
            let mut again = PhaseOptions {
                optimizer: OptimizerOptions::of(OptimizerKind::Sgd),
                ..phase
            };
            config.apply(&mut again).unwrap();
            assert_eq!(again, phase);
        }
    }

    #[test]
    fn an_option_of_another_optimizer_is_refused() {
        let config = OptimizerConfig {
            alpha: 0.5.try_into().ok(),
            ..Default::default()
        };
        let mut phase = PhaseOptions {
            name: "",
            every: 1,
            optimizer: OptimizerOptions::of(OptimizerKind::Adam),
            schedule: ScheduleKind::Constant,
            shares: None,
        };
        let error = config.apply(&mut phase).unwrap_err();
        assert_eq!(error.message, "adam takes no --alpha");
        assert!(error.help.unwrap().contains("one of rmsprop"));
    }
}
