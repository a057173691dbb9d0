//! One interface for networks of images and networks of tokens.

use kiln_core::{Backend, Error, ModuleId, Result};
use kiln_nn::{Indices, Layer, Module, Tensor, Walk, WalkMut, Walkable, no_grad, predict};

/// A batch of inputs of a network.
#[derive(Clone, Debug)]
pub enum Input<B: Backend> {
    /// Images `[N, H, W, C]`.
    Images(Tensor<B>),
    /// Token ids `[N, T]`, i32.
    Tokens(Indices<B>),
}

/// A network of images or of tokens.
pub enum Net<B: Backend> {
    /// From images `[N, H, W, C]` to logits `[N, classes]`.
    Images(Box<dyn Layer<B>>),
    /// From token ids `[N, T]` to logits `[N, T, classes]`.
    Tokens(Box<dyn LanguageModel<B>>),
}

/// A network from token ids to the logits of the next token at every position.
pub trait LanguageModel<B: Backend>: Module<B> {
    /// Ids `[N, T]` to logits `[N, T, vocabulary]`.
    ///
    /// # Errors
    /// Ids that are not i32 or not `[N, T]`; more tokens than the [context](LanguageModel::context).
    fn forward(&self, ids: &Indices<B>) -> Result<Tensor<B>>;

    /// The largest number of tokens of a sequence.
    fn context(&self) -> usize;

    /// The backend of its parameters.
    fn backend(&self) -> &B;

    /// The logits `[vocabulary]` of the token after `tokens`, from the last of them that fit the context. The model must be in
    /// evaluation mode.
    ///
    /// # Errors
    /// No tokens, or one that is not in the vocabulary.
    fn next_logits(&self, tokens: &[i32]) -> Result<Vec<f32>> {
        let seen = &tokens[tokens.len().saturating_sub(self.context())..];
        if seen.is_empty() {
            return Err(Error::invalid(self.kind(), "tokens", "none", "at least one"));
        }
        no_grad(|| {
            let ids = Indices::from_slice(self.backend(), seen, &[1, seen.len()])?;
            self.forward(&ids)?.narrow(1, seen.len() - 1, 1)?.to_vec::<f32>()
        })
    }
}

impl<B: Backend> Net<B> {
    /// The logits of a batch.
    ///
    /// # Errors
    /// Images for a network of tokens or the reverse; the errors of the layers.
    pub fn forward(&self, x: &Input<B>) -> Result<Tensor<B>> {
        match (self, x) {
            (Net::Images(net), Input::Images(x)) => net.forward(x),
            (Net::Tokens(net), Input::Tokens(ids)) => net.forward(ids),
            (Net::Images(_), Input::Tokens(ids)) => {
                Err(Error::invalid("forward", "input", ids.shape(), "images [N, H, W, C]"))
            }
            (Net::Tokens(_), Input::Images(x)) => {
                Err(Error::invalid("forward", "input", x.shape(), "token ids [N, T]"))
            }
        }
    }

    /// The mean loss of a batch of a data loader, `[]`, and the logits. For images `[N, H, W, C]` it is the cross-entropy
    /// with the labels `[N]`; for windows of `T + 1` token ids, given as floats `[N, T + 1]`, the cross-entropy with the
    /// next token at each of the first `T` positions.
    ///
    /// # Errors
    /// Inputs of another shape; the errors of the layers.
    pub fn loss(&self, inputs: &Tensor<B>, labels: &Indices<B>) -> Result<(Tensor<B>, Tensor<B>)> {
        let (logits, labels) = match self {
            Net::Images(net) => (net.forward(inputs)?, labels.clone()),
            Net::Tokens(net) => {
                let [_, length @ 2..=usize::MAX] = *inputs.shape().dims() else {
                    return Err(Error::invalid("loss", "inputs", inputs.shape(), "windows [N, T + 1]"));
                };
                let ids = inputs.to_indices()?;
                let logits = net.forward(&ids.narrow(1, 0, length - 1)?)?;
                (logits, ids.narrow(1, 1, length - 1)?)
            }
        };
        Ok((logits.cross_entropy(&labels)?, logits))
    }

    /// The logits of all samples of `x`, `batch_size` at a time, without recording: [`kiln_nn::predict()`].
    ///
    /// # Errors
    /// As [`Net::forward`] and [`kiln_nn::predict()`].
    pub fn predict(&self, x: &Input<B>, batch_size: usize) -> Result<Tensor<B>> {
        match (self, x) {
            (Net::Images(net), Input::Images(x)) => net.predict(x, batch_size),
            (Net::Tokens(net), Input::Tokens(ids)) => predict(&**net, ids, batch_size, |ids| net.forward(ids)),
            _ => self.forward(x),
        }
    }
}

impl<B: Backend> Walkable<B> for Net<B> {
    fn kind(&self) -> &'static str {
        match self {
            Net::Images(net) => net.kind(),
            Net::Tokens(net) => net.kind(),
        }
    }
    fn module_id(&self) -> ModuleId {
        match self {
            Net::Images(net) => net.module_id(),
            Net::Tokens(net) => net.module_id(),
        }
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        match self {
            Net::Images(net) => net.walk(walk),
            Net::Tokens(net) => net.walk(walk),
        }
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        match self {
            Net::Images(net) => net.walk_mut(walk),
            Net::Tokens(net) => net.walk_mut(walk),
        }
    }
}
