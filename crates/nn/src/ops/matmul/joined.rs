//! Linear layers that read the same input, as one product.

use super::{Linear, check_bias};
use crate::autograd::{Cast, Rule, RuleContext, SavedInput, is_grad_enabled, no_grad, vjp};
use crate::ops::activation::Fused;
use crate::tensor::same_dtype;
use crate::{Activation, Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{Join, Op, Split};

/// The rule of several layers: the inputs are the input of all, then their weights, then their biases.
struct Joined<B: Backend> {
    x: SavedInput<B>,
    parameters: Vec<Tensor<B>>,
    /// The layer that all of them are together.
    whole: Linear<B>,
}

impl<B: Backend> Joined<B> {
    /// The parameters of all layers, and the first element of each in those of the whole.
    fn stretches(&self) -> Vec<(usize, &Tensor<B>)> {
        let parameters = &self.parameters;
        let (weights, biases) = parameters.split_at(parameters.len() / 2);
        let starts = |tensors: &[Tensor<B>]| {
            let next = |start: &mut usize, t: &Tensor<B>| Some(std::mem::replace(start, *start + t.size()));
            tensors.iter().scan(0, next).collect::<Vec<_>>()
        };
        let starts = [starts(weights), starts(biases)].concat();
        starts.into_iter().zip(parameters).collect()
    }
}

impl<B: Backend> Rule<B> for Joined<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() || cx.grad.size() == 0 {
            let x = self.x.tensor()?;
            let inputs: Vec<&Tensor<B>> = std::iter::once(&x).chain(&self.parameters).collect();
            return vjp(&inputs, cx.grad, |t| composed(&t[0], &t[1..]));
        }
        let (backend, layers) = (cx.grad.backend(), self.parameters.len() / 2);
        let any = |mut inputs: std::ops::Range<usize>| inputs.any(|i| cx.needs(i));
        let needs = [cx.needs(0), any(1..1 + layers), any(1 + layers..1 + 2 * layers)];
        let mut wholes = self.whole.fused_grads(needs, cx.grad, None, None)?.into_iter();
        let dx = wholes.next().flatten();
        let mut grads = vec![dx.map(|dx| dx.with(*self.x.shape(), None))];
        let wholes: Vec<Option<Tensor<B>>> = wholes.collect();
        let mut parts = Vec::new();
        for (i, (start, parameter)) in self.stretches().into_iter().enumerate() {
            let part = || Ok((start, parameter.alloc_like(*parameter.shape())?, *parameter.shape()));
            parts.push(cx.needs(1 + i).then(part).transpose()?);
        }
        let mut splits = Vec::new();
        for (whole, parts) in wholes.iter().zip(parts.chunks_mut(layers)) {
            if let Some(whole) = whole {
                let parts = parts.iter_mut().flatten().map(|(start, part, _)| (*start, part));
                splits.push(Split {
                    whole: whole.buffer(),
                    parts: parts.collect(),
                });
            }
        }
        backend.split(&mut splits)?;
        let parts = parts.into_iter();
        grads.extend(parts.map(|part| part.map(|(_, part, shape)| Tensor::from_buffer(backend, part, shape))));
        Ok(grads)
    }
}

/// The definition in other ops, of the input and the weights followed by the biases.
fn composed<B: Backend>(x: &Tensor<B>, parameters: &[Tensor<B>]) -> Result<Tensor<B>> {
    let (weights, biases) = parameters.split_at(parameters.len() / 2);
    let [weight, bias] = [weights, biases].map(|part| Tensor::concat(&part.iter().collect::<Vec<_>>(), 0));
    x.linear(&weight?, Some(&bias?), Activation::None)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The results of several linear layers for one input, side by side along the last dimension, as one product: [`Tensor::linear`] with
    /// the weights `[out, in]` and biases `[out]` of all of them one below the other. `[…, in]` to `[…, Σ out]`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, w) = (Tensor::ones(&cpu, &[2, 3], DType::F32)?, Tensor::ones(&cpu, &[2, 3], DType::F32)?);
    /// let [zeros, ones] = [0.0, 1.0].map(|b| Tensor::full(&cpu, &[2], DType::F32, b));
    /// let y = x.linear_joined(&[(&w, &zeros?), (&w, &ones?)])?;
    /// assert_eq!(y.narrow(0, 0, 1)?.to_vec::<f32>()?, [3.0, 3.0, 4.0, 4.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No layers; as [`Tensor::linear`].
    pub fn linear_joined(&self, layers: &[(&Tensor<B>, &Tensor<B>)]) -> Result<Tensor<B>> {
        const OP: &str = "linear_joined";
        if let Some(cast) = Cast::low() {
            let cast_layer =
                |(w, b): &(&Tensor<B>, &Tensor<B>)| Ok((cast.of(w)?.into_owned(), cast.of(b)?.into_owned()));
            let layers = layers.iter().map(cast_layer).collect::<Result<Vec<_>>>()?;
            return cast
                .of(self)?
                .linear_joined(&layers.iter().map(|(w, b)| (w, b)).collect::<Vec<_>>());
        }
        let Some((first, _)) = layers.first() else {
            return Err(Error::invalid(OP, "layers", "an empty list", "at least one"));
        };
        let mut outputs = 0;
        for (w, bias) in layers {
            if w.rank() != 2 || w.shape()[1] != first.shape()[first.rank() - 1] {
                return Err(Error::ShapeMismatch {
                    op: OP,
                    lhs: *first.shape(),
                    rhs: *w.shape(),
                });
            }
            same_dtype(OP, first, w)?;
            check_bias(OP, w, Some(bias), w.shape()[0])?;
            outputs += w.shape()[0];
        }
        let (weights, biases): (Vec<&Tensor<B>>, Vec<&Tensor<B>>) = layers.iter().copied().unzip();
        let empty = self.size() == 0 || weights.iter().any(|w| w.size() == 0);
        if empty || ![Op::Linear, Op::Join, Op::Split].into_iter().all(|op| first.has_op(op)) {
            let parameters: Vec<Tensor<B>> = weights.iter().chain(&biases).map(|&t| t.clone()).collect();
            return composed(self, &parameters);
        }
        let (inner, backend) = (first.shape()[1], first.backend());
        let shapes = [Shape::new(&[outputs, inner])?, Shape::new(&[outputs])?];
        let [mut w, mut b] = [first.alloc_like(shapes[0])?, first.alloc_like(shapes[1])?];
        let [of_w, of_b] = [&weights, &biases].map(|tensors| tensors.iter().map(|t| t.buffer()).collect());
        backend.join(&mut [
            Join {
                parts: of_w,
                whole: &mut w,
            },
            Join {
                parts: of_b,
                whole: &mut b,
            },
        ])?;
        let [w, b] =
            [(w, shapes[0]), (b, shapes[1])].map(|(buffer, shape)| Tensor::from_buffer(backend, buffer, shape));
        let y = no_grad(|| self.linear(&w, Some(&b), Activation::None))?.detach();
        let inputs = [&[self], &weights[..], &biases[..]].concat();
        let rows = self.size() / inner;
        let flat = Shape::new(&[rows, inner])?;
        Ok(y.record(OP, &inputs, || Joined {
            x: SavedInput::new(self),
            parameters: inputs[1..].iter().map(|&t| t.clone()).collect(),
            whole: Linear {
                x: SavedInput::new(self),
                flat,
                w,
                bias: true,
                fused: Fused::new::<B>(Activation::None, [None, None, None]),
            },
        }))
    }
}
