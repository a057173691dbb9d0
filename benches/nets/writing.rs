//! Greedy generation of text by a language model.

use crate::row::STEPS;
use crate::{Outcome, Work};
use kiln_core::{Error, Result};
use kiln_cpu::Cpu;
use kiln_models::Net;
use kiln_nn::{DType, Indices, Tensor, no_grad};

/// The tokens of the prompt and those that go on with it, as in `worker.py`.
const PROMPT: usize = 64;
const GENERATED: usize = 128;

/// Goes on with the first tokens of ids `[N, T]`; returns the largest logits of the first tokens, and the work to be timed.
pub(crate) fn load(net: Net<Cpu>, ids: Indices<Cpu>) -> Outcome<(Vec<f64>, Work)> {
    let prompt = ids.narrow(1, 0, PROMPT)?;
    let mut largest = Vec::new();
    write(&net, &prompt, STEPS, &mut |logits| {
        largest.push(logits.narrow(0, 0, 1)?.max(&[], false)?.to_dtype(DType::F32)?.item()?);
        Ok(())
    })?;
    Ok((
        largest,
        Box::new(move || write(&net, &prompt, GENERATED, &mut |_| Ok(()))),
    ))
}

/// Goes on with `prompt [N, T]` by the likeliest tokens; `tell` is told the logits `[N, vocabulary]` of each.
fn write(
    net: &Net<Cpu>,
    prompt: &Indices<Cpu>,
    count: usize,
    tell: &mut dyn FnMut(&Tensor<Cpu>) -> Result<()>,
) -> Result<()> {
    let none = || Error::invalid("bench", "network", "one that does not write", "a language model");
    let model = net.language_model().ok_or_else(none)?;
    no_grad(|| {
        let (mut cache, mut ids) = (model.cache(), prompt.clone());
        for _ in 0..count {
            let logits = model.next(&ids, &mut cache)?;
            tell(&logits)?;
            ids = logits.argmax(1, true)?;
        }
        Ok(())
    })
}
