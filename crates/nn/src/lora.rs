//! Fine-tuning by low-rank additions to the linear layers of a net and to the packed projections of attention, all else staying as it is (Hu et al., "LoRA: Low-Rank Adaptation of
//! Large Language Models", 2021; `LoraConfig` and `get_peft_model` of Hugging Face's peft).

use crate::layers::{Linear, Lora, MultiheadAttention};
use crate::module::{EntryMut, NamePattern, StateDict, entries, entries_mut};
use crate::weights::WeightsError;
use crate::{Backend, Entry, Error, Init, LoadOptions, Module, Param, Result, WalkMut, Walkable};

const OP: &str = "lora";

/// The options of low-rank additions. By default every linear layer has one, and the packed projections of every
/// [`MultiheadAttention`], under its name, as in peft; `alpha` is `r`, and there is no dropout.
///
/// ```
/// use kiln_nn::lora::{self, LoraOptions};
/// use kiln_nn::{Init, Module, Sequential, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut net = Sequential::new().push_named("body", Linear::new(init, 8, 8)?)?.push_named("head", Linear::new(init, 8, 2)?)?;
/// let options = LoraOptions { target_modules: vec!["body".parse()?], ..LoraOptions::new(2) };
/// assert_eq!(options.adapt(init, &mut net)?, ["body"]);
/// assert_eq!(net.num_trainable(), 2 * 8 + 8 * 2); // the rest is frozen
/// assert_eq!(lora::state_dict(&net).names().collect::<Vec<_>>(), ["body.lora_A.weight", "body.lora_B.weight"]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LoraOptions {
    /// The rank.
    pub r: usize,
    /// `lora_alpha`: the addition is multiplied by `alpha / r`.
    pub alpha: f64,
    /// `lora_dropout`: the probability that an element of an addition's input is zeroed in training.
    pub dropout: f64,
    /// The layers that have an addition, by patterns of their dotted names or of the last parts of these; all linear layers if there
    /// are no patterns.
    pub target_modules: Vec<NamePattern>,
}

impl LoraOptions {
    /// Additions of this rank to every linear layer.
    ///
    /// See the example of [`LoraOptions`].
    pub fn new(r: usize) -> Self {
        LoraOptions {
            r,
            alpha: r as f64,
            dropout: 0.0,
            target_modules: Vec::new(),
        }
    }

    /// True if the layer of this name has an addition.
    fn targets(&self, name: &str) -> bool {
        let last = name.rsplit('.').next().unwrap_or(name);
        self.target_modules.is_empty()
            || (self.target_modules.iter()).any(|pattern| pattern.matches(name) || pattern.matches(last))
    }

    /// Gives linear layers of `model` their additions, with initial values of `init`, and freezes all else. Returns the names of these
    /// layers, in the order of the model.
    ///
    /// See the example of [`LoraOptions`].
    ///
    /// # Errors
    /// A rank of 0, an `alpha` that is not finite, a probability outside `0..=1`, a pattern that no linear layer has, a model that has
    /// additions already, memory.
    pub fn adapt<B: Backend, M: Walkable<B> + ?Sized>(&self, init: &mut Init<B>, model: &mut M) -> Result<Vec<String>> {
        if self.r == 0 {
            return Err(Error::invalid(OP, "r", 0, "at least 1"));
        }
        if !self.alpha.is_finite() {
            return Err(Error::invalid(OP, "alpha", self.alpha, "a finite number"));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(Error::invalid(OP, "dropout", self.dropout, "a number from 0 to 1"));
        }
        if is_adapted(model) {
            return Err(Error::invalid(
                OP,
                "model",
                "one with low-rank additions",
                "one without",
            ));
        }
        let mut names = Vec::new();
        layers(model, &mut |name, _, _| {
            names.push(name.to_string());
            Ok(())
        })?;
        if names.is_empty() {
            return Err(Error::invalid(OP, "model", "one without linear layers", "at least one"));
        }
        for pattern in &self.target_modules {
            let alone = LoraOptions {
                target_modules: vec![pattern.clone()],
                ..self.clone()
            };
            if !names.iter().any(|name| alone.targets(name)) {
                let mut known: Vec<&str> = names.iter().map(|n| n.rsplit('.').next().unwrap_or(n)).collect();
                known.sort_unstable();
                known.dedup();
                let expected = format!("linear layers of the model, whose names end with {}", known.join(", "));
                return Err(Error::invalid(OP, "target_modules", pattern, expected));
            }
        }
        let mut adapted = Vec::new();
        for (_, entry) in entries_mut(model) {
            if let EntryMut::Param(p) = entry {
                p.set_trainable(false);
            }
        }
        layers(model, &mut |name, weight, lora| {
            if self.targets(name) {
                let shape = [weight.shape()[0], weight.shape()[1]];
                let scaling = self.alpha / self.r as f64;
                *lora = Some(Box::new(Lora::new(init, shape, self.r, scaling, self.dropout)?));
                adapted.push(name.to_string());
            }
            Ok(())
        })?;
        Ok(adapted)
    }
}

/// A function of a layer's name, its weight and its addition.
type Each<'e, B> = &'e mut dyn FnMut(&str, &mut Param<B>, &mut Option<Box<Lora<B>>>) -> Result<()>;

/// Calls `each` with every layer that may have an addition.
fn layers<B: Backend, M: Walkable<B> + ?Sized>(model: &mut M, each: Each<'_, B>) -> Result<()> {
    let mut result = Ok(());
    model.walk_mut(&mut WalkMut::layers(&mut |name, layer| {
        if result.is_err() {
            return;
        }
        if let Some(linear) = layer.downcast_mut::<Linear<B>>() {
            result = each(name, &mut linear.weight, &mut linear.lora);
        } else if let Some(attention) = layer.downcast_mut::<MultiheadAttention<B>>() {
            result = each(name, &mut attention.in_proj_weight, &mut attention.lora);
        }
    }));
    result
}

/// True for the name of an entry of an addition.
fn is_addition(name: &str) -> bool {
    name.split('.').any(|part| part.starts_with("lora_"))
}

/// True if a layer of `model` has an addition.
///
/// See the example of [`LoraOptions`].
pub fn is_adapted<B: Backend, M: Walkable<B> + ?Sized>(model: &M) -> bool {
    entries(model).iter().any(|(name, _)| is_addition(name))
}

/// Adds the additions of all layers to their weights, so that a forward pass costs what it cost without them (`merge_adapter`).
/// Additions that train are to be taken away again first.
///
/// ```
/// # use kiln_nn::lora::{LoraOptions, merge, remove, unmerge};
/// # use kiln_nn::{Init, Module, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut layer = Linear::new(init, 8, 4)?;
/// LoraOptions::new(2).adapt(init, &mut layer)?;
/// merge(&mut layer)?;
/// unmerge(&mut layer)?;
/// remove(&mut layer)?; // merged for good
/// assert_eq!(layer.named_parameters().len(), 2);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn merge<B: Backend, M: Walkable<B> + ?Sized>(model: &mut M) -> Result<()> {
    merged(model, true)
}

/// Takes the additions away from the weights again (`unmerge_adapter`); the weights are what they were up to rounding.
///
/// See the example of [`merge`].
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn unmerge<B: Backend, M: Walkable<B> + ?Sized>(model: &mut M) -> Result<()> {
    merged(model, false)
}

/// Adds the additions to the weights and removes them: the model is an ordinary one again (`merge_and_unload`). All its parameters
/// stay frozen.
///
/// See the example of [`merge`].
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn remove<B: Backend, M: Walkable<B> + ?Sized>(model: &mut M) -> Result<()> {
    merge(model)?;
    layers(model, &mut |_, _, lora| {
        *lora = None;
        Ok(())
    })
}

fn merged<B: Backend, M: Walkable<B> + ?Sized>(model: &mut M, merged: bool) -> Result<()> {
    layers(model, &mut |_, weight, lora| match lora {
        Some(lora) => lora.merge_into(weight, merged),
        None => Ok(()),
    })
}

/// The entries of a model that are saved: all of them, or of a model with additions those alone, with what else trains, buffers and
/// counters. Frozen parameters are those of the model that it was made of.
///
/// See the example of [`LoraOptions`].
pub fn state_dict<B: Backend, M: Walkable<B> + ?Sized>(model: &M) -> StateDict<B> {
    let mut dict = StateDict::of(model);
    if is_adapted(model) {
        for name in left_out(model) {
            dict.remove(&name);
        }
    }
    dict
}

/// The parameters that [`state_dict`] leaves out.
fn left_out<B: Backend, M: Walkable<B> + ?Sized>(model: &M) -> Vec<String> {
    let frozen = entries(model).into_iter().filter_map(|(name, entry)| match entry {
        Entry::Param(p) if !p.is_trainable() && !is_addition(&name) => Some(name),
        _ => None,
    });
    frozen.collect()
}

/// Loads what [`state_dict`] has made of a model with the same additions, or of one without.
///
/// ```
/// # use kiln_nn::lora::{self, LoraOptions};
/// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut layer = Linear::new(init, 8, 4)?;
/// let whole = lora::state_dict(&layer);
/// assert!(lora::load_state_dict(&mut layer, &whole, LoadOptions::strict()).is_ok());
/// LoraOptions::new(2).adapt(init, &mut layer)?;
/// let additions = lora::state_dict(&layer);
/// assert_eq!(additions.len(), 2);
/// lora::load_state_dict(&mut layer, &additions, LoadOptions::strict())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WeightsError::Misfit`] for additions of other layers or of another rank; nothing has changed then.
pub fn load_state_dict<B: Backend, M: Module<B> + ?Sized>(
    model: &mut M,
    dict: &StateDict<B>,
    options: LoadOptions,
) -> std::result::Result<(), WeightsError> {
    let mut whole = dict.clone();
    if is_adapted(model) {
        let own = StateDict::of(model);
        for name in left_out(model) {
            if let (None, Some(value)) = (dict.get(&name), own.get(&name)) {
                whole.insert(name, value.clone());
            }
        }
    }
    model.load_state_dict(&whole, options).map(|_| ())
}
