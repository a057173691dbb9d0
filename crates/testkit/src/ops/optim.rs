//! Updates of the optimizers that backends have kernels for, against their papers' formulas on single numbers.

mod clipped;
mod skipped;

pub use clipped::clipped;
pub use skipped::left_out;

use crate::array::Array;
use crate::bounded::Bounded;
use crate::run::each;
use crate::{assert_close, shapes};
use kiln_core::{Backend, DType, Result};
use kiln_nn::optim::{Adagrad, Adam, AdamW, Group, Rmsprop, Sgd};
use kiln_nn::{Gradients, Optimizer, Param, Tensor};
use proptest::prelude::*;
use std::fmt::Debug;

/// Runs of each optimizer.
const RUNS: u32 = 32;

/// An optimizer with its options, and the formula of its update.
trait Formula: Clone + Debug {
    /// The optimizer, whose parameters of odd numbers are `group`.
    fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>>;

    /// The names of a parameter's state, and what it starts with.
    fn states(&self) -> Vec<(&'static str, f64)>;

    /// The parameter after the step. Updates the state.
    fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded;
}

/// The numbers of one element's update. Steps `t` are counted from 1; the gradient `g` has been scaled.
struct Step {
    p: Bounded,
    g: Bounded,
    lr: f64,
    weight_decay: f64,
    t: i32,
    dtype: DType,
}

impl Step {
    /// A number of the formula, in the precision of the arithmetic.
    fn c(&self, value: f64) -> Bounded {
        Bounded::constant(value, self.dtype)
    }

    /// The gradient with its L2 penalty.
    fn penalized(&self) -> Bounded {
        self.g + self.c(self.weight_decay) * self.p
    }

    /// `decay·mean + (1 − decay)·x`.
    fn mean(&self, decay: f64, mean: Bounded, x: Bounded) -> Bounded {
        self.c(decay) * mean + self.c(1.0 - decay) * x
    }

    /// `p − lr·direction`.
    fn descended(&self, direction: Bounded) -> Bounded {
        self.p - self.c(self.lr) * direction
    }
}

/// Steps over several parameters. Those of odd numbers are in a group with a rate and a weight decay of its own.
#[derive(Clone, Debug)]
struct Run<F> {
    formula: F,
    params: Vec<Array>,
    /// The rate of each step and its gradient of every parameter.
    steps: Vec<(f64, Vec<Array>)>,
    grad_scale: f64,
    /// Weight decays of parameters of even and of odd numbers.
    weight_decay: [f64; 2],
    lr_factor: f64,
}

impl<F: Formula> Run<F> {
    /// Names and final values of parameters and states, by the formula.
    fn expected(&self, stored: DType) -> Vec<(String, Vec<Bounded>)> {
        let dtype = if stored == DType::F64 { DType::F64 } else { DType::F32 };
        let states = self.formula.states();
        let mut found = Vec::new();
        for (i, start) in self.params.iter().enumerate() {
            let mut ends = vec![Vec::new(); 1 + states.len()];
            for (j, &p) in start.data.iter().enumerate() {
                let mut p = Bounded::exact(p, dtype);
                let mut state: Vec<_> = states.iter().map(|s| Bounded::constant(s.1, dtype)).collect();
                for (t, (lr, grads)) in (1..).zip(&self.steps) {
                    let scale = Bounded::constant(self.grad_scale, dtype);
                    let step = Step {
                        p,
                        g: scale * Bounded::exact(grads[i].data[j], dtype),
                        lr: lr * [1.0, self.lr_factor][i % 2],
                        weight_decay: self.weight_decay[i % 2],
                        t,
                        dtype,
                    };
                    p = self.formula.step(&step, &mut state);
                    if stored != dtype {
                        p = p.rounded(stored);
                    }
                }
                ends[0].push(p);
                ends[1..].iter_mut().zip(state).for_each(|(end, s)| end.push(s));
            }
            let names = states.iter().map(|(name, _)| format!("{i}.{name}"));
            found.extend(std::iter::once(i.to_string()).chain(names).zip(ends));
        }
        found
    }

    /// Compares the optimizer's parameters of `dtype`, and its states, with the formula's.
    fn prove<B: Backend>(&self, backend: &B, dtype: DType) -> Result<()> {
        let tensor = |a: &Array| Tensor::from_f64(backend, &a.data, &a.shape, dtype);
        let params = self.params.iter().map(|p| Ok(Param::new(tensor(p)?)));
        let mut params: Vec<Param<B>> = params.collect::<Result<_>>()?;
        let odd = Group::new(|name| name.parse().is_ok_and(|i: usize| i % 2 == 1))
            .lr_factor(self.lr_factor)
            .weight_decay(self.weight_decay[1]);
        let mut optimizer = self.formula.optimizer::<B>(self.weight_decay[0], odd);
        optimizer.set_grad_scale(self.grad_scale);
        for (lr, grads) in &self.steps {
            optimizer.set_lr(*lr);
            let mut given = Gradients::default();
            for (param, grad) in params.iter().zip(grads) {
                given.insert(param, tensor(grad)?)?;
            }
            optimizer.step(&mut params, &given)?;
        }
        let state = optimizer.state_dict()?;
        for (name, want) in self.expected(dtype) {
            let got = match name.parse::<usize>() {
                Ok(i) => params[i].to_f64()?,
                Err(_) => state.float(&name).map_or(Ok(vec![]), |s| s.to_f64())?,
            };
            let (values, bounds): (Vec<_>, Vec<_>) = want.iter().map(|b| (b.value, b.error)).unzip();
            assert_close(&format!("{dtype} {name} of {self:?}"), &got, &values, &bounds);
        }
        Ok(())
    }
}

/// Runs of the optimizers that `formulas` draws, in every dtype of the backend.
fn check<B: Backend, F: Formula>(backend: &B, formulas: impl Strategy<Value = F>) {
    let sizes = prop::collection::vec((1..5usize, shapes::dim()).prop_map(|(a, b)| [a, b]), 0..5);
    let options = (
        prop::sample::select(vec![1.0, 0.5, 1.0 / 1024.0]),
        prop::sample::select(vec![[0.0, 0.1], [0.01, 0.0]]),
        prop::sample::select(vec![1.0, 0.1]),
    );
    let rates = prop::collection::vec(prop::sample::select(vec![0.1, 0.02, 0.0]), 1..5);
    let runs = (formulas, sizes, rates, options).prop_flat_map(|(formula, sizes, rates, options)| {
        let all = move || sizes.iter().map(values).collect::<Vec<_>>();
        let steps: Vec<_> = rates.into_iter().map(|lr| (Just(lr), all())).collect();
        (all(), steps).prop_map(move |(params, steps)| Run {
            formula: formula.clone(),
            params,
            steps,
            grad_scale: options.0,
            weight_decay: options.1,
            lr_factor: options.2,
        })
    });
    each(RUNS, runs, |run| {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            if backend.supports_dtype(dtype) {
                run.prove(backend, dtype)
                    .unwrap_or_else(|e| panic!("{dtype} {run:?}: {e}"));
            }
        }
    });
}

/// Numbers from −2 to 2 in 64ths, which every dtype holds exactly.
fn values(shape: &[usize; 2]) -> impl Strategy<Value = Array> + use<> {
    let shape = *shape;
    prop::collection::vec(-128i8..=127, shape[0] * shape[1])
        .prop_map(move |v| Array::new(&shape, v.into_iter().map(|x| f64::from(x) / 64.0).collect()))
}

/// `torch.optim.SGD`.
#[derive(Clone, Debug)]
struct SgdOptions {
    momentum: f64,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
}

impl Formula for SgdOptions {
    fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>> {
        let sgd = Sgd::new(0.0).momentum(self.momentum).dampening(self.dampening);
        let sgd = sgd.nesterov(self.nesterov).maximize(self.maximize);
        Box::new(sgd.weight_decay(weight_decay).group(group))
    }

    fn states(&self) -> Vec<(&'static str, f64)> {
        let all = vec![("momentum_buffer", 0.0)];
        if self.momentum == 0.0 { vec![] } else { all }
    }

    fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded {
        let penalty = u.c(u.weight_decay) * u.p;
        let g = if self.maximize { penalty - u.g } else { penalty + u.g };
        let [v] = state else { return u.descended(g) };
        *v = match u.t {
            1 => g,
            _ => u.c(self.momentum) * *v + u.c(1.0 - self.dampening) * g,
        };
        u.descended(if self.nesterov { g + u.c(self.momentum) * *v } else { *v })
    }
}

/// Adam (Kingma and Ba 2015), AMSGrad (Reddi et al. 2018) and AdamW (Loshchilov and Hutter 2019).
#[derive(Clone, Debug)]
struct AdamOptions {
    betas: [f64; 2],
    eps: f64,
    amsgrad: bool,
    decoupled: bool,
}

impl Formula for AdamOptions {
    fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>> {
        let ([first, second], eps, amsgrad) = (self.betas, self.eps, self.amsgrad);
        if self.decoupled {
            let adam = AdamW::new(0.0).betas(first, second).eps(eps).amsgrad(amsgrad);
            return Box::new(adam.weight_decay(weight_decay).group(group));
        }
        let adam = Adam::new(0.0).betas(first, second).eps(eps).amsgrad(amsgrad);
        Box::new(adam.weight_decay(weight_decay).group(group))
    }

    fn states(&self) -> Vec<(&'static str, f64)> {
        let all = [("exp_avg", 0.0), ("exp_avg_sq", 0.0), ("max_exp_avg_sq", 0.0)];
        all[..2 + usize::from(self.amsgrad)].to_vec()
    }

    fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded {
        let (p, g) = match self.decoupled {
            true => (u.p * (u.c(1.0) - u.c(u.lr) * u.c(u.weight_decay)), u.g),
            false => (u.p, u.penalized()),
        };
        state[0] = u.mean(self.betas[0], state[0], g);
        state[1] = u.mean(self.betas[1], state[1], g * g);
        if self.amsgrad {
            state[2] = state[2].max(state[1]);
        }
        let [c1, c2] = self.betas.map(|beta| 1.0 - beta.powi(u.t));
        let spread = state[state.len() - 1].sqrt() / u.c(c2.sqrt()) + u.c(self.eps);
        p - u.c(u.lr) / u.c(c1) * (state[0] / spread)
    }
}

/// `torch.optim.RMSprop`.
#[derive(Clone, Debug)]
struct RmspropOptions {
    alpha: f64,
    eps: f64,
    momentum: f64,
    centered: bool,
}

impl Formula for RmspropOptions {
    fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>> {
        let rmsprop = Rmsprop::new(0.0).alpha(self.alpha).eps(self.eps);
        let rmsprop = rmsprop.momentum(self.momentum).centered(self.centered);
        Box::new(rmsprop.weight_decay(weight_decay).group(group))
    }

    fn states(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![("square_avg", 0.0)];
        all.extend((self.momentum != 0.0).then_some(("momentum_buffer", 0.0)));
        all.extend(self.centered.then_some(("grad_avg", 0.0)));
        all
    }

    fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded {
        let g = u.penalized();
        let last = state.len() - 1;
        state[0] = u.mean(self.alpha, state[0], g * g);
        let mut variance = state[0];
        if self.centered {
            state[last] = u.mean(self.alpha, state[last], g);
            variance = (variance - state[last] * state[last]).max(u.c(0.0));
        }
        let mut direction = g / (variance.sqrt() + u.c(self.eps));
        if self.momentum != 0.0 {
            direction = u.c(self.momentum) * state[1] + direction;
            state[1] = direction;
        }
        u.descended(direction)
    }
}

/// Adagrad (Duchi, Hazan and Singer 2011), as `torch.optim.Adagrad`.
#[derive(Clone, Debug)]
struct AdagradOptions {
    lr_decay: f64,
    eps: f64,
    initial: f64,
}

impl Formula for AdagradOptions {
    fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>> {
        let adagrad = Adagrad::new(0.0).lr_decay(self.lr_decay).eps(self.eps);
        let adagrad = adagrad.initial_accumulator(self.initial);
        Box::new(adagrad.weight_decay(weight_decay).group(group))
    }

    fn states(&self) -> Vec<(&'static str, f64)> {
        vec![("sum", self.initial)]
    }

    fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded {
        let g = u.penalized();
        state[0] = state[0] + g * g;
        let lr = u.lr / (1.0 + f64::from(u.t - 1) * self.lr_decay);
        u.p - u.c(lr) * (g / (state[0].sqrt() + u.c(self.eps)))
    }
}

/// SGD, with and without momentum, dampening, Nesterov's momentum and maximising.
pub fn sgd<B: Backend>(backend: &B) {
    let momenta = vec![
        (0.0, 0.0, false),
        (0.9, 0.0, false),
        (0.9, 0.5, false),
        (0.5, 0.0, true),
    ];
    let options = (prop::sample::select(momenta), any::<bool>());
    let formulas = options.prop_map(|((momentum, dampening, nesterov), maximize)| SgdOptions {
        momentum,
        dampening,
        nesterov,
        maximize,
    });
    check(backend, formulas);
}

/// Adam and AdamW, with and without AMSGrad.
pub fn adam<B: Backend>(backend: &B) {
    let betas = prop::sample::select(vec![[0.9, 0.999], [0.5, 0.9], [0.0, 0.99]]);
    let options = (betas, prop::sample::select(vec![1e-8, 1e-3]), any::<[bool; 2]>());
    let formulas = options.prop_map(|(betas, eps, [amsgrad, decoupled])| AdamOptions {
        betas,
        eps,
        amsgrad,
        decoupled,
    });
    check(backend, formulas);
}

/// RMSprop, with and without momentum and centering.
pub fn rmsprop<B: Backend>(backend: &B) {
    let momentum = prop::sample::select(vec![0.0, 0.9]);
    let options = (prop::sample::select(vec![0.99, 0.5]), momentum, any::<bool>());
    let formulas = options.prop_map(|(alpha, momentum, centered)| RmspropOptions {
        alpha,
        // Where a centered variance cancels to nothing, eps alone bounds the error of the quotient.
        eps: if centered { 0.1 } else { 1e-8 },
        momentum,
        centered,
    });
    check(backend, formulas);
}

/// Adagrad, with and without a decaying rate and a first sum of squares.
pub fn adagrad<B: Backend>(backend: &B) {
    let choices = [vec![0.0, 0.1], vec![1e-10, 1e-3], vec![0.0, 0.25]].map(prop::sample::select);
    let formulas = choices.prop_map(|[lr_decay, eps, initial]| AdagradOptions { lr_decay, eps, initial });
    check(backend, formulas);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reference;

    /// SGD that is told another momentum than the formula, by a part in 100,000.
    #[derive(Clone, Debug)]
    struct Wrong(SgdOptions);

    impl Formula for Wrong {
        fn optimizer<B: Backend>(&self, weight_decay: f64, group: Group) -> Box<dyn Optimizer<B>> {
            let momentum = 1.00001 * self.0.momentum;
            SgdOptions { momentum, ..self.0 }.optimizer(weight_decay, group)
        }

        fn states(&self) -> Vec<(&'static str, f64)> {
            self.0.states()
        }

        fn step(&self, u: &Step, state: &mut [Bounded]) -> Bounded {
            self.0.step(u, state)
        }
    }

    #[test]
    #[should_panic(expected = "formula: Wrong")]
    fn a_momentum_that_is_a_little_off_is_found() {
        let (dampening, nesterov, maximize) = (0.0, false, false);
        check(
            &Reference,
            Just(Wrong(SgdOptions {
                momentum: 0.9,
                dampening,
                nesterov,
                maximize,
            })),
        );
    }
}
