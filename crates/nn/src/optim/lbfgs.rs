//! L-BFGS: steps along an estimate of Newton's direction, made of the last gradients.

mod line_search;
mod state;

use super::{check, check_positive};
use crate::module::{ParamId, StateDict};
use crate::{Backend, DType, Error, Module, Param, Result, Tensor, no_grad};
use line_search::{Point, strong_wolfe};
use state::{Change, Last, OP, State, dot};
use std::fmt;

/// The loss and its gradient, as one vector, where the parameters have these values.
type Evaluate<'a, B> = dyn FnMut(&[Tensor<B>]) -> Result<(f64, Tensor<B>)> + 'a;

/// L-BFGS, for losses that are the same each time: no dropout, every sample at once (Liu and Nocedal 1989; `torch.optim.LBFGS`).
/// A step makes several iterations, and evaluates the loss as often as it needs. Everything is kept as vectors of all trainable
/// parameters, in f32, or in f64 if one of them is f64: `2·history_size` of them. It is no [`Optimizer`](super::Optimizer), whose step
/// takes gradients: a trainer cannot run it.
///
/// ```
/// use kiln_nn::optim::Lbfgs;
/// # use kiln_nn::{DType, Init, Layer, Tensor, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::from_slice(&cpu, &[0f32, 1.0, 2.0, 3.0], &[4, 1])?;
/// let y = Tensor::from_slice(&cpu, &[1f32, 3.0, 5.0, 7.0], &[4, 1])?;
/// let mut model = Linear::new(&mut Init::new(&cpu, 0), 1, 1)?;
/// let mut lbfgs = Lbfgs::new(1.0).strong_wolfe(true);
/// let first = lbfgs.step(&mut model, |model| model.forward(&x)?.sub(&y)?.square()?.mean(&[], false))?;
/// assert!(first > 0.0);
/// assert!((model.weight.item()? - 2.0).abs() < 1e-3 && (model.bias.as_ref().unwrap().item()? - 1.0).abs() < 1e-3);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
pub struct Lbfgs<B: Backend> {
    lr: f64,
    max_iter: usize,
    max_eval: Option<usize>,
    tolerance_grad: f64,
    tolerance_change: f64,
    history_size: usize,
    strong_wolfe: bool,
    maximize: bool,
    state: State<B>,
    /// The parameters that the state belongs to; known from the first step on, or from the first one after a state was loaded.
    params: Vec<(String, ParamId)>,
}

impl<B: Backend> fmt::Debug for Lbfgs<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.state;
        write!(
            f,
            "{OP}(lr {}, {} iterations, {} evaluations)",
            self.lr, state.iterations, state.evaluations
        )
    }
}

#[compiled_once]
impl<B: Backend> Lbfgs<B> {
    /// The defaults of `torch.optim.LBFGS` with this learning rate, which is 1 there: the length of every iteration but the very
    /// first, or where a line search begins.
    ///
    /// See the example of [`Lbfgs`].
    pub fn new(lr: f64) -> Self {
        Lbfgs {
            lr,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history_size: 100,
            strong_wolfe: false,
            maximize: false,
            state: State::default(),
            params: Vec::new(),
        }
    }

    /// Sets the largest number of iterations of a step, by default 20.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn max_iter(mut self, max_iter: usize) -> Self {
        self.max_iter = max_iter;
        self
    }

    /// Sets the number of evaluations after which a step makes no other iteration, by default 5/4 of its iterations.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn max_eval(mut self, max_eval: usize) -> Self {
        self.max_eval = Some(max_eval);
        self
    }

    /// Sets the largest element of a gradient that ends a step, by default 1e-7.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn tolerance_grad(mut self, tolerance: f64) -> Self {
        self.tolerance_grad = tolerance;
        self
    }

    /// Sets the change of the loss, and of every parameter, that ends a step, by default 1e-9.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn tolerance_change(mut self, tolerance: f64) -> Self {
        self.tolerance_change = tolerance;
        self
    }

    /// Sets how many changes of the gradient are kept, by default 100.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn history_size(mut self, history_size: usize) -> Self {
        self.history_size = history_size;
        self
    }

    /// Looks along each direction for a length that satisfies the strong Wolfe conditions (`line_search_fn="strong_wolfe"`). Without it,
    /// which is the default, each length is the learning rate.
    ///
    /// See the example of [`Lbfgs`].
    pub fn strong_wolfe(mut self, search: bool) -> Self {
        self.strong_wolfe = search;
        self
    }

    /// Climbs instead of descending.
    ///
    /// ```
    /// use kiln_nn::optim::Lbfgs;
    /// # use kiln_nn::{DType, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut x = Param::new(Tensor::zeros(&cpu, &[1], DType::F64)?);
    /// // The highest point of −(x − 3)².
    /// let mut lbfgs = Lbfgs::new(1.0).maximize(true);
    /// lbfgs.step(&mut x, |x| x.sub_scalar(3.0)?.square()?.neg()?.sum(&[], false))?;
    /// assert!((x.item()? - 3.0).abs() < 1e-9);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn maximize(mut self, maximize: bool) -> Self {
        self.maximize = maximize;
        self
    }

    /// The learning rate.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn lr(&self) -> f64 {
        self.lr
    }

    /// Sets the learning rate of the steps to come.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    /// The number of iterations of all steps.
    ///
    /// See the example of [`Lbfgs::evaluations`].
    pub fn iterations(&self) -> u64 {
        self.state.iterations
    }

    /// The number of evaluations of the loss in all steps.
    ///
    /// ```
    /// use kiln_nn::optim::Lbfgs;
    /// # use kiln_nn::{DType, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let mut x = Param::new(Tensor::zeros(&cpu, &[1], DType::F64)?);
    /// let mut lbfgs = Lbfgs::new(0.5)
    ///     .max_iter(4)
    ///     .max_eval(100)
    ///     .history_size(3)
    ///     .tolerance_grad(0.0)
    ///     .tolerance_change(0.0);
    /// lbfgs.set_lr(lbfgs.lr() / 2.0);
    /// lbfgs.step(&mut x, |x| x.sub_scalar(3.0)?.square()?.sum(&[], false))?;
    /// // The last iteration moves without another look at the loss.
    /// assert_eq!((lbfgs.iterations(), lbfgs.evaluations()), (4, 4));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn evaluations(&self) -> u64 {
        self.state.evaluations
    }

    /// Moves the trainable parameters of `model` to where `loss`, a scalar, is lower; returns what it was before. `loss` is called
    /// several times, with other parameters each time.
    ///
    /// See the example of [`Lbfgs`].
    ///
    /// # Errors
    /// Options outside their domain; a loss or a gradient that is not finite (in a line search a loss may be infinite, and is
    /// stepped back from); [`Error::MissingGradient`] for a trainable parameter that the loss does not depend on;
    /// [`Error::OtherParameter`] for a model other than the one that the state belongs to; whatever `loss` returns. Nothing has
    /// changed then, but for the model's buffers.
    pub fn step<M: Module<B> + ?Sized>(
        &mut self,
        model: &mut M,
        mut loss: impl FnMut(&M) -> Result<Tensor<B>>,
    ) -> Result<f64> {
        self.check()?;
        let start = self.start(model.named_parameters())?;
        if start.is_empty() {
            return loss(model)?.item();
        }
        let before = self.state.clone();
        let wide = start.iter().any(|x| x.dtype() == DType::F64);
        let (dtype, maximize) = (if wide { DType::F64 } else { DType::F32 }, self.maximize);
        let moved = self.minimize(start.clone(), &mut |x| {
            set(model.named_parameters_mut(), x)?;
            let y = loss(model)?;
            let (f, grads) = (y.item()?, y.backward()?);
            let mut flat = Vec::new();
            for (name, param) in model.named_parameters() {
                if param.is_trainable() {
                    let missing = || Error::MissingGradient { parameter: name };
                    let grad = grads.get(param).ok_or_else(missing)?;
                    flat.push(grad.detach().to_dtype(dtype)?.reshape(&[grad.size()])?);
                }
            }
            let flat = Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)?;
            Ok(if maximize { (-f, flat.neg()?) } else { (f, flat) })
        });
        let (first, x) = moved.inspect_err(|_| self.state = before).or_else(|e| {
            set(model.named_parameters_mut(), &start)?;
            Err(e)
        })?;
        set(model.named_parameters_mut(), &x)?;
        Ok(if maximize { -first } else { first })
    }

    fn check(&self) -> Result<()> {
        check_positive(OP, "lr", self.lr)?;
        check_positive(OP, "tolerance_grad", self.tolerance_grad)?;
        check_positive(OP, "tolerance_change", self.tolerance_change)?;
        let counts = [
            ("max_iter", self.max_iter),
            ("max_eval", self.most_evaluations()),
            ("history_size", self.history_size),
        ];
        let mut counts = counts.into_iter();
        counts.try_for_each(|(argument, n)| check(OP, argument, n as f64, n > 0, "1 or more"))
    }

    fn most_evaluations(&self) -> usize {
        self.max_eval.unwrap_or(self.max_iter.saturating_mul(5) / 4)
    }

    /// The values of the trainable parameters, which have to be those that the state belongs to.
    fn start(&mut self, params: Vec<(String, &Param<B>)>) -> Result<Vec<Tensor<B>>> {
        let params: Vec<_> = params.into_iter().filter(|(_, p)| p.is_trainable()).collect();
        let size: usize = params.iter().map(|(_, p)| p.size()).sum();
        if let Some(last) = &self.state.last {
            let known = self.params.iter().zip(&params);
            let other = known.filter(|(known, (name, p))| known.0 == *name && known.1 != p.identity());
            if let Some((_, (name, _))) = other.into_iter().next() {
                return Err(Error::OtherParameter {
                    op: OP,
                    parameter: name.clone(),
                });
            }
            let names = self.params.iter().map(|(name, _)| name);
            let same = self.params.is_empty() || names.eq(params.iter().map(|(name, _)| name));
            if !same || size != last.grad.size() {
                let found = format!("{} trainable parameters of {size} values", params.len());
                let expected = format!("those of the step before, of {} values", last.grad.size());
                return Err(Error::invalid(OP, "model", found, expected));
            }
        }
        self.params = params.iter().map(|(name, p)| (name.clone(), p.identity())).collect();
        Ok(params.iter().map(|(_, p)| p.detach()).collect())
    }

    /// The iterations of a step, from `x`: the first loss and where they lead.
    fn minimize(&mut self, mut x: Vec<Tensor<B>>, evaluate: &mut Evaluate<'_, B>) -> Result<(f64, Vec<Tensor<B>>)> {
        let (mut f, mut grad) = evaluate(&x)?;
        let first = finite("loss", f)?;
        let (mut evals, most) = (1, self.most_evaluations());
        self.state.evaluations += 1;
        if largest(&grad)? <= self.tolerance_grad {
            return Ok((first, x));
        }
        for iteration in 1..=self.max_iter {
            let fresh = self.state.iterations == 0;
            self.state.iterations += 1;
            let direction = no_grad(|| self.direction(&grad))?;
            let mut t = self.lr;
            if fresh {
                t *= (1.0 / no_grad(|| grad.abs()?.sum(&[], false)?.item())?).min(1.0);
            }
            let slope = finite("gradient", dot(&grad, &direction)?.item()?)?;
            let before = f;
            let last = Last {
                direction: direction.clone(),
                grad: grad.clone(),
                t,
            };
            let kept = self.state.last.insert(last);
            if slope > -self.tolerance_change {
                break;
            }
            let mut steepest = f64::INFINITY;
            if self.strong_wolfe {
                let most = most.saturating_sub(evals);
                let start = Point { t: 0.0, f, slope, grad };
                let extent = (largest(&direction)?, self.tolerance_change);
                let at = &mut |t: f64| {
                    let (f, grad) = evaluate(&moved(&x, t, &direction)?)?;
                    let slope = dot(&grad, &direction)?.item()?;
                    if f.is_nan() || (f.is_finite() && slope.is_nan()) {
                        finite("loss", f)?;
                        finite("gradient", slope)?;
                    }
                    Ok(Point { t, f, slope, grad })
                };
                let (found, more) = strong_wolfe(&start, t, extent, most, at)?;
                (t, f, grad) = (found.t, finite("loss", found.f)?, found.grad);
                kept.t = t;
                x = moved(&x, t, &direction)?;
                evals += more;
                self.state.evaluations += more as u64;
                steepest = largest(&grad)?;
            } else {
                x = moved(&x, t, &direction)?;
                // Where it is random, the loss of the end is of no use to the next step.
                if iteration < self.max_iter {
                    (f, grad) = evaluate(&x)?;
                    finite("loss", f)?;
                    evals += 1;
                    self.state.evaluations += 1;
                    steepest = largest(&grad)?;
                }
            }
            let ended = evals >= most
                || steepest <= self.tolerance_grad
                || t.abs() * largest(&direction)? <= self.tolerance_change
                || (f - before).abs() < self.tolerance_change;
            if ended {
                break;
            }
        }
        Ok((first, x))
    }

    /// The gradient multiplied by the negative of an estimate of the inverse Hessian, after the last iteration has joined what the
    /// estimate is made of.
    fn direction(&mut self, grad: &Tensor<B>) -> Result<Tensor<B>> {
        let Some(last) = &self.state.last else {
            return grad.neg();
        };
        let (y, s) = (grad.sub(&last.grad)?, last.direction.mul_scalar(last.t)?);
        let product = dot(&y, &s)?;
        if product.item()? > 1e-10 {
            if self.state.history.len() >= self.history_size {
                self.state.history.pop_front();
            }
            self.state.history.push_back(Change {
                grad: y,
                step: s,
                ro: product.reciprocal()?,
            });
        }
        let mut q = grad.neg()?;
        let mut shares = Vec::new();
        for change in self.state.history.iter().rev() {
            let share = dot(&change.step, &q)?.mul(&change.ro)?;
            q = q.sub(&change.grad.mul(&share)?)?;
            shares.push(share);
        }
        if let Some(newest) = self.state.history.back() {
            let scale = dot(&newest.grad, &newest.step)?.div(&dot(&newest.grad, &newest.grad)?)?;
            q = q.mul(&scale)?;
        }
        for (change, share) in self.state.history.iter().zip(shares.iter().rev()) {
            let own = dot(&change.grad, &q)?.mul(&change.ro)?;
            q = q.add(&change.step.mul(&share.sub(&own)?)?)?;
        }
        Ok(q)
    }

    /// Everything the next step depends on beside the model and the options: the numbers of iterations (`n_iter`) and evaluations
    /// (`func_evals`), the last direction `d`, its length `t` and the gradient before it (`prev_flat_grad`), the changes of gradients
    /// and the steps that they belong to (`old_dirs.{i}`, `old_stps.{i}`), and `lr`; numbers as the bits of an f64 in two i32.
    /// Empty before the first iteration.
    ///
    /// ```
    /// use kiln_nn::optim::Lbfgs;
    /// # use kiln_nn::{DType, Param, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut x = Param::new(Tensor::zeros(&cpu, &[1], DType::F64)?);
    /// # let loss = |x: &Param<_>| x.sub_scalar(3.0)?.square()?.sum(&[], false);
    /// let mut lbfgs = Lbfgs::new(0.5).max_iter(3);
    /// lbfgs.step(&mut x, loss)?;
    /// let mut resumed = Lbfgs::new(1.0).max_iter(3);
    /// resumed.load_state_dict(&lbfgs.state_dict()?)?;
    /// assert_eq!((resumed.lr(), resumed.iterations()), (0.5, lbfgs.iterations()));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Memory that could not be had.
    pub fn state_dict(&self) -> Result<StateDict<B>> {
        self.state.save(self.lr)
    }

    /// Continues from a saved state.
    ///
    /// See the example of [`Lbfgs::state_dict`].
    ///
    /// # Errors
    /// Entries that are missing, unknown, or not what this optimizer saves. Nothing has changed then.
    pub fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()> {
        let (loaded, lr) = State::load(state, self.lr)?;
        (self.lr, self.state, self.params) = (lr, loaded, Vec::new());
        Ok(())
    }
}

/// The largest magnitude; refused if it is not finite.
fn largest<B: Backend>(v: &Tensor<B>) -> Result<f64> {
    if v.size() == 0 {
        return Ok(0.0);
    }
    finite("gradient", no_grad(|| v.abs()?.max(&[], false)?.item())?)
}

fn finite(argument: &'static str, value: f64) -> Result<f64> {
    check(OP, argument, value, true, "a finite number").map(|()| value)
}

/// Parts of `direction`, multiplied by `t`, added to what they belong to.
fn moved<B: Backend>(x: &[Tensor<B>], t: f64, direction: &Tensor<B>) -> Result<Vec<Tensor<B>>> {
    let mut from = 0;
    let one = |x: &Tensor<B>| {
        let own = direction.narrow(0, from, x.size())?.reshape(x.shape())?;
        from += x.size();
        let wide = x.to_dtype(direction.dtype())?;
        wide.add(&own.mul_scalar(t)?)?.to_dtype(x.dtype())
    };
    no_grad(|| x.iter().map(one).collect())
}

/// Gives the trainable parameters these values.
fn set<B: Backend>(params: Vec<(String, &mut Param<B>)>, x: &[Tensor<B>]) -> Result<()> {
    let trained = params.into_iter().filter(|(_, p)| p.is_trainable());
    trained.zip(x).try_for_each(|((_, p), x)| p.assign(x))
}
