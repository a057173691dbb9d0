//! A small transformer for pairs of texts.

use crate::transformer::{ENDS, Seq2Seq, Seq2SeqConfig};
use crate::{Card, Input, NetSizes, OptimizerKind, OptimizerOptions, OutputKind, Recipe, ScheduleKind};
use crate::{task, translation};
use kiln_core::{Backend, Result};
use kiln_data::DataKind;
use kiln_nn::Init;

/// The network's row of the table of models.
pub(crate) const CARD: Card = Card {
    description: "a small encoder-decoder that writes a text for a text: translation, or spelling learned from any text",
    input: Input::pairs(&[128]),
    output: OutputKind::Translation(Seq2SeqConfig::SMALL.vocabulary - ENDS),
    values: translation::VALUES,
    monitor: translation::MONITOR,
    parameters: Seq2SeqConfig::SMALL.parameters(),
    recipe: Recipe {
        data: DataKind::Pairs,
        normalise: None,
        augment: &[],
        epochs: 8,
        batch: 64,
        valid_batch: 64,
        optimizer: OptimizerOptions {
            lr: 1e-3,
            betas: Some([0.9, 0.98]),
            eps: Some(1e-9),
            ..OptimizerOptions::of(OptimizerKind::Adam)
        },
        schedule: ScheduleKind::WarmupCosine,
        phases: &[],
        clip_norm: Some(1.0),
        ema: None,
        workers: 1,
    },
};

/// The network with its task.
pub(crate) fn task<B: Backend>(
    init: Init<B>,
    sizes: NetSizes,
) -> Result<task::Task<B, Seq2Seq<B>, translation::Pairs>> {
    let config = Seq2SeqConfig {
        vocabulary: sizes.outputs.saturating_add(ENDS),
        ..Seq2SeqConfig::SMALL
    };
    Ok(translation::task(Seq2Seq::new(init, config)?))
}
