//! Optimizers by name, with the options of recipes and command lines.

use kiln_core::Backend;
use kiln_nn::Optimizer;
use kiln_nn::optim::{Adagrad, Adam, AdamW, ByName, Rmsprop, Sgd};

/// An optimizer by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Stochastic gradient descent: [`Sgd`].
    Sgd,
    /// [`Adam`].
    Adam,
    /// Adam with decoupled weight decay: [`AdamW`].
    AdamW,
    /// [`Rmsprop`].
    Rmsprop,
    /// [`Adagrad`].
    Adagrad,
}

impl OptimizerKind {
    /// All optimizers.
    pub const ALL: [OptimizerKind; 5] = [
        OptimizerKind::Sgd,
        OptimizerKind::Adam,
        OptimizerKind::AdamW,
        OptimizerKind::Rmsprop,
        OptimizerKind::Adagrad,
    ];

    /// The optimizer's name on command lines: `adamw`.
    pub const fn name(self) -> &'static str {
        match self {
            OptimizerKind::Sgd => "sgd",
            OptimizerKind::Adam => "adam",
            OptimizerKind::AdamW => "adamw",
            OptimizerKind::Rmsprop => "rmsprop",
            OptimizerKind::Adagrad => "adagrad",
        }
    }

    /// The optimizer with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }

    /// True for optimizers with a momentum option.
    pub const fn has_momentum(self) -> bool {
        matches!(self, OptimizerKind::Sgd | OptimizerKind::Rmsprop)
    }
}

/// An optimizer and its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerOptions {
    /// The optimizer.
    pub kind: OptimizerKind,
    /// The learning rate.
    pub lr: f64,
    /// The momentum, for optimizers that [have one](OptimizerKind::has_momentum).
    pub momentum: f64,
    /// Weight decay; `None` is the optimizer's default.
    pub weight_decay: Option<f64>,
    /// The decays of both moments of Adam and AdamW; `None` is their default.
    pub betas: Option<[f64; 2]>,
}

impl OptimizerOptions {
    /// The default options of an optimizer: a learning rate of 0.001, no momentum, its default weight decay.
    pub const fn of(kind: OptimizerKind) -> Self {
        OptimizerOptions {
            kind,
            lr: 1e-3,
            momentum: 0.0,
            weight_decay: None,
            betas: None,
        }
    }

    /// These options, or the [default options](OptimizerOptions::of) of `asked` if that is another optimizer: learning
    /// rate, momentum and weight decay are chosen for one optimizer and do not apply to another.
    pub fn unless(self, asked: Option<OptimizerKind>) -> Self {
        match asked {
            Some(kind) if kind != self.kind => OptimizerOptions::of(kind),
            _ => self,
        }
    }

    /// Makes the optimizer.
    pub fn build<B: Backend>(self) -> Box<dyn Optimizer<B>> {
        self.build_by_name(&ByName::new())
    }

    /// As [`build`](OptimizerOptions::build), with learning rates and weight decays of some parameters by their names.
    pub fn build_by_name<B: Backend>(self, by_name: &ByName) -> Box<dyn Optimizer<B>> {
        let OptimizerOptions {
            kind,
            lr,
            momentum,
            weight_decay,
            betas,
        } = self;
        let [first, second] = betas.unwrap_or([0.9, 0.999]);
        macro_rules! decayed {
            ($optimizer:expr) => {
                match weight_decay {
                    Some(decay) => Box::new($optimizer.weight_decay(decay).groups(by_name.groups())),
                    None => Box::new($optimizer.groups(by_name.groups())),
                }
            };
        }
        match kind {
            OptimizerKind::Sgd => decayed!(Sgd::new(lr).momentum(momentum)),
            OptimizerKind::Adam => decayed!(Adam::new(lr).betas(first, second)),
            OptimizerKind::AdamW => decayed!(AdamW::new(lr).betas(first, second)),
            OptimizerKind::Rmsprop => decayed!(Rmsprop::new(lr).momentum(momentum)),
            OptimizerKind::Adagrad => decayed!(Adagrad::new(lr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in OptimizerKind::ALL {
            assert_eq!(OptimizerKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(OptimizerKind::from_name("Adam"), None);
    }

    #[test]
    fn options_belong_to_their_optimizer() {
        let own = OptimizerOptions {
            lr: 0.1,
            momentum: 0.9,
            weight_decay: Some(5e-4),
            ..OptimizerOptions::of(OptimizerKind::Sgd)
        };
        assert_eq!(own.unless(None), own);
        assert_eq!(own.unless(Some(OptimizerKind::Sgd)), own);
        let other = own.unless(Some(OptimizerKind::Rmsprop));
        assert_eq!(other, OptimizerOptions::of(OptimizerKind::Rmsprop));
    }
}
