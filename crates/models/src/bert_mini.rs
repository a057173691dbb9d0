//! A small BERT, trained on masked words.

use crate::bert::{self, BertConfig};
use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind, masked};
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::Init;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a BERT of four layers, which fills in masked words of the tokens of --tokenizer wordpiece:N",
    input: Input::tokens(&[128]),
    output: OutputKind::Vocabulary(BertConfig::MINI.vocabulary),
    values: masked::VALUES,
    monitor: masked::MONITOR,
    parameters: BertConfig::MINI.parameters(),
    recipe: Recipe {
        data: DataKind::Text,
        normalise: None,
        augment: &[],
        epochs: 10,
        batch: 32,
        valid_batch: 32,
        optimizer: OptimizerOptions {
            lr: 5e-4,
            weight_decay: Some(0.01),
            eps: Some(1e-6),
            ..OptimizerOptions::of(OptimizerKind::AdamW)
        },
        schedule: ScheduleKind::WarmupCosine,
        phases: &[],
        clip_norm: Some(1.0),
        ema: None,
        workers: 1,
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(init: Init<B>, sizes: NetSizes) -> Result<masked::Task<B>> {
    bert::task_of(
        init,
        BertConfig {
            vocabulary: sizes.outputs,
            ..BertConfig::MINI
        },
    )
}
