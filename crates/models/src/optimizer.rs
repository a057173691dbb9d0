//! The table of optimizers with their options, by the names that recipes, command lines and files of settings use.

use kiln_core::Backend;
use kiln_nn::Optimizer;
use kiln_nn::optim::{Adadelta, Adagrad, Adam, AdamW, Adamax, ByName, Lamb, Lion, NAdam, RAdam, Rmsprop, Sgd};

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionValue {
    /// A number.
    Number(f64),
    /// Two numbers, such as the decays of two moments.
    Pair([f64; 2]),
    /// On or off.
    Flag(bool),
}

impl From<f64> for OptionValue {
    fn from(number: f64) -> Self {
        OptionValue::Number(number)
    }
}

impl From<[f64; 2]> for OptionValue {
    fn from(pair: [f64; 2]) -> Self {
        OptionValue::Pair(pair)
    }
}

impl From<bool> for OptionValue {
    fn from(flag: bool) -> Self {
        OptionValue::Flag(flag)
    }
}

/// Makes the struct of an optimizer's options from all that there are.
macro_rules! options {
    ($($(#[$doc:meta])* $option:ident: $type:ty,)*) => {
        /// An optimizer and its options. Those that are `None` have the optimizer's defaults.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct OptimizerOptions {
            /// The optimizer.
            pub kind: OptimizerKind,
            /// The learning rate.
            pub lr: f64,
            $($(#[$doc])* pub $option: Option<$type>,)*
        }

        impl OptimizerOptions {
            /// The default options of an optimizer, with a learning rate of 0.001.
            pub const fn of(kind: OptimizerKind) -> Self {
                OptimizerOptions { kind, lr: 1e-3, $($option: None,)* }
            }

            /// The options that are given, by name.
            pub fn given(&self) -> Vec<(&'static str, OptionValue)> {
                let all = [$(self.$option.map(|value| (stringify!($option), OptionValue::from(value)))),*];
                all.into_iter().flatten().collect()
            }

            /// These options with those that `over` gives in their place; optimizer and learning rate stay.
            pub fn with(self, over: &OptimizerOptions) -> Self {
                OptimizerOptions { $($option: over.$option.or(self.$option),)* ..self }
            }
        }
    };
}

options! {
    /// Momentum.
    momentum: f64,
    /// The part of a gradient that is not added to the momentum.
    dampening: f64,
    /// Nesterov's momentum.
    nesterov: bool,
    /// Weight decay.
    weight_decay: f64,
    /// The decays of both moments.
    betas: [f64; 2],
    /// The number added to the denominator.
    eps: f64,
    /// The largest second moment so far in the place of the last.
    amsgrad: bool,
    /// The smoothing of the mean square.
    alpha: f64,
    /// The variance in the place of the mean square.
    centered: bool,
    /// The decay of the averages.
    rho: f64,
    /// The decay of the learning rate by the number of the update.
    lr_decay: f64,
    /// The first value of the sum of squares.
    initial_accumulator: f64,
    /// How fast the momentum grows to its final value.
    momentum_decay: f64,
    /// Weight decay that shrinks the parameter directly.
    decoupled_weight_decay: bool,
}

/// Sets an option of an optimizer.
macro_rules! set {
    ($optimizer:ident, betas, $value:ident) => {
        $optimizer.betas($value[0], $value[1])
    };
    ($optimizer:ident, $option:tt, $value:ident) => {
        $optimizer.$option($value)
    };
}

/// Makes the enum of optimizers from rows `Name: "name" = Type { option: default, … }`.
macro_rules! optimizers {
    ($($(#[$doc:meta])* $kind:ident: $name:literal = $type:ident { $($option:tt: $default:expr),* };)*) => {
        /// An optimizer by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptimizerKind {
            $($(#[$doc])* $kind,)*
        }

        impl OptimizerKind {
            /// All optimizers.
            pub const ALL: [OptimizerKind; [$($name),*].len()] = [$(OptimizerKind::$kind),*];

            /// The optimizer's name on command lines: `adamw`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(OptimizerKind::$kind => $name,)*
                }
            }

            /// The names of the options that it takes, beside the learning rate.
            pub const fn options(self) -> &'static [&'static str] {
                match self {
                    $(OptimizerKind::$kind => &[$(stringify!($option)),*],)*
                }
            }
        }

        impl OptimizerOptions {
            /// These options with a value for each that the optimizer takes.
            pub fn resolved(self) -> Self {
                match self.kind {
                    $(OptimizerKind::$kind => OptimizerOptions {
                        $($option: self.$option.or(Some($default)),)*
                        ..self
                    },)*
                }
            }

            /// Makes the optimizer, with learning rates and weight decays of some parameters by their names.
            pub fn build_by_name<B: Backend>(self, by_name: &ByName) -> Box<dyn Optimizer<B>> {
                match self.kind {
                    $(OptimizerKind::$kind => {
                        let optimizer = $type::<B>::new(self.lr);
                        $(let optimizer = match self.$option {
                            Some(value) => set!(optimizer, $option, value),
                            None => optimizer,
                        };)*
                        Box::new(optimizer.groups(by_name.groups()))
                    })*
                }
            }
        }
    };
}

optimizers! {
    /// Stochastic gradient descent: [`Sgd`].
    Sgd: "sgd" = Sgd { momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false };
    /// [`Adam`].
    Adam: "adam" = Adam { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, amsgrad: false };
    /// Adam with decoupled weight decay: [`AdamW`].
    AdamW: "adamw" = AdamW { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01, amsgrad: false };
    /// [`Rmsprop`].
    Rmsprop: "rmsprop" = Rmsprop { alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false };
    /// [`Adagrad`].
    Adagrad: "adagrad" = Adagrad { lr_decay: 0.0, weight_decay: 0.0, initial_accumulator: 0.0, eps: 1e-10 };
    /// [`Adadelta`].
    Adadelta: "adadelta" = Adadelta { rho: 0.9, eps: 1e-6, weight_decay: 0.0 };
    /// [`Adamax`].
    Adamax: "adamax" = Adamax { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 };
    /// Adam with Nesterov's momentum: [`NAdam`].
    NAdam: "nadam" = NAdam {
        betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, momentum_decay: 4e-3, decoupled_weight_decay: false
    };
    /// Adam with a rectified variance: [`RAdam`].
    RAdam: "radam" = RAdam { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, decoupled_weight_decay: false };
    /// [`Lion`].
    Lion: "lion" = Lion { betas: [0.9, 0.99], weight_decay: 0.0 };
    /// [`Lamb`].
    Lamb: "lamb" = Lamb { betas: [0.9, 0.999], eps: 1e-6, weight_decay: 0.0 };
}

impl OptimizerKind {
    /// The optimizer with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }

    /// The optimizers that take an option.
    pub fn taking(option: &str) -> impl Iterator<Item = OptimizerKind> + '_ {
        let takes = move |kind: &OptimizerKind| kind.options().contains(&option);
        Self::ALL.into_iter().filter(takes)
    }
}

impl OptimizerOptions {
    /// These options, or the [default options](OptimizerOptions::of) of `asked` if that is another optimizer: options are chosen for one
    /// optimizer and do not apply to another.
    pub fn unless(self, asked: Option<OptimizerKind>) -> Self {
        match asked {
            Some(kind) if kind != self.kind => OptimizerOptions::of(kind),
            _ => self,
        }
    }

    /// The first option that is given although the optimizer does not take it.
    pub fn stranger(&self) -> Option<&'static str> {
        let given = self.given().into_iter().map(|(name, _)| name);
        given.into_iter().find(|name| !self.kind.options().contains(name))
    }

    /// Makes the optimizer.
    pub fn build<B: Backend>(self) -> Box<dyn Optimizer<B>> {
        self.build_by_name(&ByName::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_cpu::Cpu;
    use kiln_nn::layers::Linear;
    use kiln_nn::{Init, Layer, Module, Tensor};

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
            momentum: Some(0.9),
            weight_decay: Some(5e-4),
            ..OptimizerOptions::of(OptimizerKind::Sgd)
        };
        assert_eq!(own.unless(None), own);
        assert_eq!(own.unless(Some(OptimizerKind::Sgd)), own);
        let other = own.unless(Some(OptimizerKind::Rmsprop));
        assert_eq!(other, OptimizerOptions::of(OptimizerKind::Rmsprop));
        let over = OptimizerOptions {
            momentum: Some(0.5),
            ..OptimizerOptions::of(OptimizerKind::Adam)
        };
        let both = own.with(&over);
        assert_eq!(
            (both.kind, both.momentum, both.weight_decay),
            (OptimizerKind::Sgd, Some(0.5), Some(5e-4))
        );
        assert_eq!((both.stranger(), over.stranger()), (None, Some("momentum")));
        assert_eq!(
            OptimizerKind::taking("alpha").collect::<Vec<_>>(),
            [OptimizerKind::Rmsprop]
        );
    }

    /// The weights after three steps.
    fn trained(options: OptimizerOptions) -> Vec<f64> {
        let cpu = Cpu::new();
        let mut model = Linear::new(&mut Init::new(&cpu, 0), 3, 2).unwrap();
        let mut optimizer = options.build();
        let x = Tensor::from_slice(&cpu, &[0.5f32, -1.0, 2.0, 1.0, 0.25, -3.0], &[2, 3]).unwrap();
        for _ in 0..3 {
            let loss = model.forward(&x).unwrap().square().unwrap().mean(&[], false).unwrap();
            optimizer.step(&mut model, &loss.backward().unwrap()).unwrap();
        }
        let named = model.named_parameters();
        let weights = named.iter().flat_map(|(_, p)| p.tensor().to_f64().unwrap());
        weights.collect()
    }

    /// The defaults of the table are those of the optimizers, and every option reaches them.
    #[test]
    fn options_that_are_written_out_change_nothing_and_others_do() {
        for kind in OptimizerKind::ALL {
            let options = OptimizerOptions::of(kind);
            assert_eq!(trained(options), trained(options.resolved()), "{kind}");
            assert_eq!(options.resolved().given().len(), kind.options().len(), "{kind}");
            assert_eq!(options.resolved().stranger(), None, "{kind}");
        }
        let of = OptimizerOptions::of;
        let adam = of(OptimizerKind::Adam);
        let sgd = OptimizerOptions {
            momentum: Some(0.9),
            ..of(OptimizerKind::Sgd)
        };
        let rmsprop = of(OptimizerKind::Rmsprop);
        let adagrad = of(OptimizerKind::Adagrad);
        let changed = [
            (
                adam,
                OptimizerOptions {
                    betas: Some([0.5, 0.9]),
                    ..adam
                },
            ),
            (adam, OptimizerOptions { eps: Some(0.1), ..adam }),
            (
                adam,
                OptimizerOptions {
                    weight_decay: Some(0.1),
                    ..adam
                },
            ),
            (
                sgd,
                OptimizerOptions {
                    dampening: Some(0.5),
                    ..sgd
                },
            ),
            (
                sgd,
                OptimizerOptions {
                    nesterov: Some(true),
                    ..sgd
                },
            ),
            (
                rmsprop,
                OptimizerOptions {
                    alpha: Some(0.5),
                    ..rmsprop
                },
            ),
            (
                rmsprop,
                OptimizerOptions {
                    centered: Some(true),
                    ..rmsprop
                },
            ),
            (
                adagrad,
                OptimizerOptions {
                    lr_decay: Some(0.5),
                    ..adagrad
                },
            ),
            (
                adagrad,
                OptimizerOptions {
                    initial_accumulator: Some(0.5),
                    ..adagrad
                },
            ),
        ];
        for (before, after) in changed {
            assert_ne!(trained(before), trained(after), "{after:?}");
        }
    }
}
