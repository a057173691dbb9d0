//! Norms of gradients, computed on the device for every step and read together with the losses.

use crate::Values;
use crate::checkpoint::{Mean, NormState};
use kiln_core::{Backend, Result};
use kiln_nn::{Gradients, Module, Param, Tensor, no_grad};
use std::collections::BTreeMap;

/// The name of the norm of all gradients among measured values.
const NORM: &str = "grad_norm";

/// The norms of gradients that a run measures, from before they are clipped: every step on the device, captured or not. Their means over
/// the steps, and the largest, are values of the training beside the loss, in reports, in the history and in TensorBoard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GradNorm {
    /// None.
    #[default]
    Off,
    /// The Euclidean norm of all gradients as one vector, as `torch.nn.utils.clip_grad_norm_` returns it: its mean `grad_norm` and
    /// largest value `grad_norm_max`.
    Total,
    /// Beside it the mean norm of the gradients of each layer with parameters: `grad_norm/LAYER`.
    Layers,
}

/// The norms of the gradients of a step, on the device.
#[derive(Debug, Clone)]
pub(crate) struct StepNorms<B: Backend> {
    /// The norm of all gradients, then those of layers.
    values: Tensor<B>,
    /// The names of the latter.
    names: Vec<String>,
}

/// The name of the layer that a parameter of this name is in: the name of its module, and of a parameter of the model itself its own.
fn layer(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer)
}

/// The trainable parameters of each layer, in the order of the model.
fn layers<B: Backend, M: Module<B>>(model: &M) -> Vec<(String, Vec<&Param<B>>)> {
    let mut layers: Vec<(String, Vec<&Param<B>>)> = Vec::new();
    for (name, param) in model.named_parameters() {
        if !param.is_trainable() {
            continue;
        }
        match layers.last_mut().filter(|(last, _)| last == layer(&name)) {
            Some((_, params)) => params.push(param),
            None => layers.push((layer(&name).to_string(), vec![param])),
        }
    }
    layers
}

/// The norm of all gradients of the model's parameters and, if wanted, those of its layers; `None` if they are not wanted, or if there are
/// no gradients.
pub(crate) fn measure<B: Backend, M: Module<B>>(
    wanted: GradNorm,
    model: &M,
    grads: &Gradients<B>,
) -> Result<Option<StepNorms<B>>> {
    let any = |params: &[&Param<B>]| params.iter().any(|&p| grads.get(p).is_some());
    if wanted == GradNorm::Off || !any(&model.parameters()) {
        return Ok(None);
    }
    let total = grads.norm(model.parameters())?;
    let layers = match wanted {
        GradNorm::Layers => layers(model),
        _ => Vec::new(),
    };
    let (mut names, mut norms) = (Vec::new(), vec![total.reshape(&[1])?]);
    for (name, params) in layers.into_iter().filter(|(_, params)| any(params)) {
        norms.push(grads.norm(params)?.to_dtype(total.dtype())?.reshape(&[1])?);
        names.push(format!("{NORM}/{name}"));
    }
    let values = no_grad(|| Tensor::concat(&norms.iter().collect::<Vec<_>>(), 0))?;
    Ok(Some(StepNorms { values, names }))
}

/// The means of norms by name, and the largest norm of all gradients.
#[derive(Debug, Clone, Default)]
struct Spread {
    means: BTreeMap<String, Mean>,
    max: Option<f64>,
}

impl Spread {
    fn add(&mut self, name: &str, value: f64) {
        self.means.entry(name.to_string()).or_default().add(value, 1);
        if name == NORM {
            self.max = Some(self.max.map_or(value, |max| max.max(value)));
        }
    }

    fn values(&self) -> Values {
        let means = self.means.iter().map(|(name, mean)| (name.clone(), mean.value()));
        let max = self.max.map(|max| (format!("{NORM}_max"), max));
        means.chain(max).collect()
    }
}

/// The norms of the gradients of a phase, kept on the device until they are read.
pub(crate) struct Norms<B: Backend> {
    /// The norms of steps, and whether their tensor is one of `spare`.
    pending: Vec<(StepNorms<B>, bool)>,
    /// Tensors that hold copies of norms, reused after each read.
    spare: Vec<Tensor<B>>,
    epoch: Spread,
    window: Spread,
}

impl<B: Backend> Norms<B> {
    pub(crate) fn new() -> Self {
        Norms {
            pending: Vec::new(),
            spare: Vec::new(),
            epoch: Spread::default(),
            window: Spread::default(),
        }
    }

    /// Keeps the norms of a step. Nothing is read from the device.
    pub(crate) fn push(&mut self, norms: Option<StepNorms<B>>) {
        self.pending.extend(norms.map(|norms| (norms, false)));
    }

    /// As [`push`](Norms::push), for norms that the next replay overwrites: they are copied on the device.
    pub(crate) fn push_copy(&mut self, norms: Option<&StepNorms<B>>) -> Result<()> {
        let Some(StepNorms { values, names }) = norms else {
            return Ok(());
        };
        let same = |t: &Tensor<B>| (t.dtype(), t.shape()) == (values.dtype(), values.shape());
        let values = match self.spare.pop().filter(same) {
            Some(mut copy) => copy.assign(values).map(|()| copy)?,
            None => values.copy()?,
        };
        let names = names.clone();
        self.pending.push((StepNorms { values, names }, true));
        Ok(())
    }

    /// Allocates memory for `count` copies of norms like these.
    pub(crate) fn reserve(&mut self, count: usize, norms: Option<&StepNorms<B>>) -> Result<()> {
        let Some(norms) = norms else { return Ok(()) };
        while self.spare.len() < count {
            self.spare.push(norms.values.copy()?);
        }
        Ok(())
    }

    /// Reads the pending norms in one transfer. Those that are not finite are left out, as losses are.
    pub(crate) fn read(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let flat: Vec<&Tensor<B>> = self.pending.iter().map(|(norms, _)| &norms.values).collect();
        let mut read = Tensor::concat(&flat, 0)?.to_f64()?.into_iter();
        for (norms, copied) in self.pending.drain(..) {
            let names = std::iter::once(NORM).chain(norms.names.iter().map(String::as_str));
            for (name, value) in names.zip(&mut read).filter(|(_, value)| value.is_finite()) {
                self.window.add(name, value);
                self.epoch.add(name, value);
            }
            if copied {
                self.spare.push(norms.values);
            }
        }
        Ok(())
    }

    /// The number of pending norms, before a step.
    pub(crate) fn mark(&self) -> usize {
        self.pending.len()
    }

    /// Drops the norms of a step that is undone.
    pub(crate) fn rewind(&mut self, pending: usize) {
        self.pending.truncate(pending);
    }

    /// Norms that were read since the last report.
    pub(crate) fn report(&mut self) -> Values {
        std::mem::take(&mut self.window).values()
    }

    /// Norms that were read in this epoch.
    pub(crate) fn values(&self) -> Values {
        self.epoch.values()
    }

    /// Clears the norms for another epoch.
    pub(crate) fn reset(&mut self) {
        let copies = self.pending.drain(..).filter(|(_, copied)| *copied);
        self.spare.extend(copies.map(|(norms, _)| norms.values));
        (self.epoch, self.window) = (Spread::default(), Spread::default());
    }

    /// The norms as a part of a checkpoint; `None` if there are none. Pending ones have been read.
    pub(crate) fn state(&self) -> Option<NormState> {
        let any = !self.epoch.means.is_empty() || !self.window.means.is_empty();
        any.then(|| NormState {
            epoch: self.epoch.means.clone(),
            epoch_max: self.epoch.max,
            window: self.window.means.clone(),
            window_max: self.window.max,
        })
    }

    /// Continues from a checkpoint.
    pub(crate) fn restore(&mut self, state: Option<&NormState>) {
        let Some(state) = state else { return };
        self.epoch = Spread {
            means: state.epoch.clone(),
            max: state.epoch_max,
        };
        self.window = Spread {
            means: state.window.clone(),
            max: state.window_max,
        };
    }
}
