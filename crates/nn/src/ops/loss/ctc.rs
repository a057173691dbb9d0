//! Connectionist temporal classification.

use super::{Reduction, narrowed, widened};
use crate::autograd::{Rule, RuleContext, is_grad_enabled, vjp};
use crate::ops::reduce::acc_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::host;
use kiln_core::ops::{CtcParams, Op};

const OP: &str = "ctc_loss";

/// The options of [`Tensor::ctc_loss`], with PyTorch's defaults: blank 0, mean, infinite losses as they are.
///
/// ```
/// # use kiln_nn::{CtcLossOptions, Reduction};
/// let options = CtcLossOptions { zero_infinity: true, ..Default::default() };
/// assert_eq!((options.blank, options.reduction), (0, Reduction::Mean));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtcLossOptions {
    /// The class of the blank.
    pub blank: usize,
    /// The reduction of the losses of the sequences. The mean is that of each loss over the number of its labels, or over 1.
    pub reduction: Reduction,
    /// True to make infinite losses, of labels that their steps are too few for, 0, and their gradients.
    pub zero_infinity: bool,
}

/// The rule of the fused loss, whose output is the loss of each sequence in the accumulation dtype.
struct CtcLoss<B: Backend> {
    log_probs: Tensor<B>,
    /// Labels, steps and numbers of labels.
    targets: [Indices<B>; 3],
    alpha: Tensor<B>,
    p: CtcParams,
}

impl<B: Backend> Rule<B> for CtcLoss<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (x, [targets, times, lengths]) = (&self.log_probs, &self.targets);
        if is_grad_enabled() {
            return vjp(&[x], cx.grad, |t| composed(&t[0], targets, times, lengths, &self.p));
        }
        let mut dx = x.alloc_like(*x.shape())?;
        x.backend().ctc_loss_grad(
            &self.p,
            x.buffer(),
            targets.buffer(),
            times.buffer(),
            lengths.buffer(),
            self.alpha.buffer(),
            cx.grad.buffer(),
            &mut dx,
        )?;
        Ok(vec![Some(Tensor::from_buffer(x.backend(), dx, *x.shape()))])
    }
}

/// Labels and lengths on the host, which fit the parameters.
struct Host {
    labels: Vec<i32>,
    times: Vec<i32>,
    lengths: Vec<i32>,
}

impl Host {
    fn checked<B: Backend>(
        p: &CtcParams,
        targets: &Indices<B>,
        times: &Indices<B>,
        lengths: &Indices<B>,
    ) -> Result<Self> {
        let all = Host {
            labels: targets.to_vec()?,
            times: times.to_vec()?,
            lengths: lengths.to_vec()?,
        };
        let outside = |length: i32, most: u64| u64::try_from(length).map_or(true, |length| length > most);
        for n in 0..p.batch as usize {
            let (time, length, at) = (all.times[n], all.lengths[n], n as u64);
            if outside(time, p.time) {
                return Err(CtcParams::input_length_error(p.time, time.into(), at));
            }
            if outside(length, p.labels) {
                return Err(CtcParams::target_length_error(p.labels, length.into(), at));
            }
            for k in 0..length as u64 {
                let position = at * p.labels + k;
                let label = all.labels[position as usize];
                if outside(label, p.classes - 1) || label as u64 == p.blank {
                    return Err(CtcParams::label_error(p.classes, p.blank, label.into(), position));
                }
            }
        }
        Ok(all)
    }

    /// The class of state `s` of sequence `n`: blanks and labels in turns, and blanks beyond the labels.
    fn class(&self, p: &CtcParams, n: usize, s: usize) -> i32 {
        let label = s % 2 == 1 && s / 2 < self.lengths[n] as usize;
        if label {
            self.labels[n * p.labels as usize + s / 2]
        } else {
            p.blank as i32
        }
    }

    /// True if the label of state `s` may follow that before it without a blank between them.
    fn skips(&self, p: &CtcParams, n: usize, s: usize) -> bool {
        s % 2 == 1 && s > 1 && self.class(p, n, s) != self.class(p, n, s - 2)
    }
}

/// The logarithm that stands for that of 0: infinities would give NaN in gradients.
const NEVER: f64 = -1e30;

/// The definition of the fused loss in primitive ops, in which every step is one of the graph. Labels and lengths are read to the host.
fn composed<B: Backend>(
    log_probs: &Tensor<B>,
    targets: &Indices<B>,
    times: &Indices<B>,
    lengths: &Indices<B>,
    p: &CtcParams,
) -> Result<Tensor<B>> {
    let host = Host::checked(p, targets, times, lengths)?;
    let (backend, x) = (log_probs.backend(), widened(log_probs)?);
    let (time, batch, states) = (p.time as usize, p.batch as usize, p.states() as usize);
    let each = |f: &dyn Fn(usize, usize) -> f64| {
        let values = host::collect((0..batch * states).map(|i| f(i / states, i % states)))?;
        Tensor::from_f64(backend, &values, &[batch, states], x.dtype())
    };
    let classes = host::collect((0..batch * states).map(|i| host.class(p, i / states, i % states)))?;
    let classes = Indices::from_slice(backend, &classes, &[batch, states])?;
    // Without a step behind them, alignments are in the first blank.
    let mut alpha = each(&|_, s| if s == 0 { 0.0 } else { NEVER })?;
    let skips = each(&|n, s| if host.skips(p, n, s) { 0.0 } else { NEVER })?;
    let never = |count: usize| Tensor::full(backend, &[batch, count], x.dtype(), NEVER);
    let (one, two) = (never(1)?, never(states.min(2))?);
    for t in 0..time {
        let emitted = x.narrow(0, t, 1)?.squeeze(0)?.gather(-1, &classes)?.clamp_min(NEVER)?;
        let step = Tensor::concat(&[&one, &alpha.narrow(1, 0, states - 1)?], 1)?;
        let skip = Tensor::concat(&[&two, &alpha.narrow(1, 0, states.saturating_sub(2))?], 1)?.add(&skips)?;
        let moved = Tensor::stack(&[&alpha, &step, &skip], 0)?
            .logsumexp(&[0], false)?
            .add(&emitted)?;
        let alive = host::collect(host.times.iter().map(|time| u8::from(t < *time as usize)))?;
        let alive = Indices::from_slice(backend, &alive, &[batch, 1])?;
        alpha = Tensor::where_(&alive, &moved, &alpha)?;
    }
    let end = |back: i32| {
        let places = host::collect(host.lengths.iter().map(|length| (2 * length - back).max(0)))?;
        alpha
            .gather(-1, &Indices::from_slice(backend, &places, &[batch, 1])?)?
            .squeeze(-1)
    };
    let no_label = host::collect(host.lengths.iter().map(|length| u8::from(*length == 0)))?;
    let no_label = Indices::from_slice(backend, &no_label, &[batch])?;
    let ends = [&end(0)?, &end(1)?.masked_fill(&no_label, NEVER)?];
    let loss = Tensor::stack(&ends, 0)?.logsumexp(&[0], false)?.neg()?;
    // Adds nothing but the gradient of log-softmax behind it: p, for each class and step.
    let within = host::collect((0..time * batch).map(|i| f64::from(i / batch < host.times[i % batch] as usize)))?;
    let within = Tensor::from_f64(backend, &within, &[time, batch, 1], x.dtype())?;
    let sum = x.exp()?.mul(&within)?.sum(&[0, 2], false)?;
    let loss = loss.add(&sum.sub(&sum.detach())?)?;
    let infinite = loss.ge_scalar(-0.1 * NEVER)?;
    let infinity = if p.zero_infinity != 0 { 0.0 } else { f64::INFINITY };
    loss.masked_fill(&infinite, infinity)
}

/// Concatenated labels as rows `[N, S]`, read to the host and back: their lengths say where they are.
fn rows<B: Backend>(targets: &Indices<B>, lengths: &Indices<B>) -> Result<Indices<B>> {
    let (flat, counts) = (targets.to_vec::<i32>()?, lengths.to_vec::<i32>()?);
    let (mut from, mut most) = (0usize, 0usize);
    for (n, &count) in counts.iter().enumerate() {
        let count = usize::try_from(count).ok().filter(|count| from + count <= flat.len());
        let left = (flat.len() - from) as u64;
        let count = count.ok_or_else(|| CtcParams::target_length_error(left, counts[n].into(), n as u64))?;
        (from, most) = (from + count, most.max(count));
    }
    if from != flat.len() {
        let expected = format!("{from}, the sum of target_lengths");
        return Err(Error::invalid(
            OP,
            "targets",
            format!("{} labels", flat.len()),
            expected,
        ));
    }
    let mut all = host::repeat(0, counts.len().saturating_mul(most))?;
    let mut rest = &flat[..];
    for (row, &count) in all.chunks_exact_mut(most.max(1)).zip(&counts) {
        let (these, behind) = rest.split_at(count as usize);
        row[..these.len()].copy_from_slice(these);
        rest = behind;
    }
    Indices::from_slice(targets.backend(), &all, &[counts.len(), most])
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The CTC loss (`torch.nn.functional.ctc_loss`): log-probabilities `[T, N, C]`, labels `[N, S]`, of which each sequence uses the
    /// first `target_lengths[n]`, or all labels behind one another `[Σ target_lengths]`; `input_lengths` and `target_lengths` `[N]`. All
    /// indices are i32. A loss is infinite where the steps are too few for the labels and the blanks between equal ones; no labels
    /// are possible, and no steps for them.
    ///
    /// The gradient is PyTorch's, which takes log-probabilities to come from [`Tensor::log_softmax`]: it is that of the logits, and
    /// log-softmax leaves it as it is. It is 0 beyond the length of a sequence and NaN where the loss is infinite, without
    /// `zero_infinity`.
    ///
    /// Labels behind one another are read to the host, which a captured step cannot; rows of labels are not. Half precision is
    /// computed in f32 and rounded once.
    ///
    /// ```
    /// # use kiln_nn::{CtcLossOptions, DType, Indices, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// // Two steps of a blank or the label 1: three of the four alignments say 1.
    /// let log_probs = Tensor::zeros(&cpu, &[2, 1, 2], DType::F64)?.log_softmax(-1)?;
    /// let of = |v: &[i32], shape: &[usize]| Indices::from_slice(&cpu, v, shape);
    /// let loss = log_probs.ctc_loss(&of(&[1], &[1, 1])?, &of(&[2], &[1])?, &of(&[1], &[1])?, &CtcLossOptions::default())?;
    /// assert!((loss.item()? + 0.75f64.ln()).abs() < 1e-12);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Log-probabilities of another rank, labels or lengths of another batch or dtype, a blank that is no class; a length
    /// below 0, of more steps than T, or of more labels than there are; [`Error::IndexOutOfRange`] for a label that is no class, and
    /// [`Error::InvalidArgument`] for one that is the blank.
    pub fn ctc_loss(
        &self,
        targets: &Indices<B>,
        input_lengths: &Indices<B>,
        target_lengths: &Indices<B>,
        options: &CtcLossOptions,
    ) -> Result<Tensor<B>> {
        for indices in [targets, input_lengths, target_lengths] {
            indices.require(OP, DType::I32)?;
        }
        let targets = match targets.shape().rank() {
            1 => &rows(targets, target_lengths)?,
            _ => targets,
        };
        let (times, lengths) = (input_lengths, target_lengths);
        let p = CtcParams::new(
            self.shape(),
            targets.shape(),
            times.shape(),
            lengths.shape(),
            options.blank,
            options.zero_infinity,
        )?;
        let loss = match self.has_op(Op::CtcLoss) {
            true => self.fused_ctc_loss(&p, targets, times, lengths)?,
            false => composed(self, targets, times, lengths, &p)?,
        };
        let loss = match options.reduction {
            Reduction::Mean => loss.div(&lengths.clamp(1, i32::MAX)?.to_float(loss.dtype())?)?,
            _ => loss,
        };
        narrowed(&options.reduction.apply(&loss)?, self)
    }

    fn fused_ctc_loss(
        &self,
        p: &CtcParams,
        targets: &Indices<B>,
        times: &Indices<B>,
        lengths: &Indices<B>,
    ) -> Result<Tensor<B>> {
        let (backend, dtype) = (self.backend(), acc_dtype(self.dtype()));
        let shape = Shape::new(&[p.batch as usize])?;
        let states = Shape::new(&[p.batch as usize, p.time as usize, p.states() as usize])?;
        let (mut loss, mut alpha) = (
            backend.alloc(dtype, shape.size())?,
            backend.alloc(dtype, states.size())?,
        );
        let of = [targets, times, lengths].map(Indices::buffer);
        backend.ctc_loss(p, self.buffer(), of[0], of[1], of[2], &mut loss, &mut alpha)?;
        let loss = Tensor::from_buffer(backend, loss, shape);
        let rule = || CtcLoss {
            log_probs: self.clone(),
            targets: [targets, times, lengths].map(Clone::clone),
            alpha: Tensor::from_buffer(backend, alpha, states),
            p: *p,
        };
        Ok(loss.record(OP, &[self], rule))
    }
}
