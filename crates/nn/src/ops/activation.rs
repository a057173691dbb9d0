//! The activation of a fused op, applied by the op itself or as an op after it, and its gradient.

use super::elementwise::composed;
use crate::autograd::{RuleContext, Slope, is_grad_enabled};
use crate::{Backend, Result, Tensor};
use kiln_core::ops::{Activation, GradReads, Op, Unary, UnaryParams};

/// The activation of a fused op, divided: `inside` is applied by the backend's op, `behind` by an op of its own after it.
#[derive(Clone, Copy)]
pub(super) struct Fused {
    inside: Activation,
    behind: Activation,
}

impl Fused {
    /// When a gradient will be wanted, only activations whose derivative is a function of their output are applied
    /// inside: the others need their input, so they become ops of their own.
    pub(super) fn new<B: Backend>(f: Activation, inputs: [Option<&Tensor<B>>; 3]) -> Self {
        let tracked = is_grad_enabled() && inputs.iter().flatten().any(|t| t.is_tracked());
        let inside = !tracked || f == Activation::None || by_output(f).is_some();
        let (inside, behind) = if inside {
            (f, Activation::None)
        } else {
            (Activation::None, f)
        };
        Fused { inside, behind }
    }

    /// True if the backend's op applies the whole activation.
    pub(super) fn whole(self) -> bool {
        self.behind == Activation::None
    }

    /// The number of the inner activation in the op's parameters.
    pub(super) fn code(self) -> u32 {
        self.inside as u32
    }

    /// Applies the activation that the backend's op did not apply.
    pub(super) fn rest<B: Backend>(self, y: Tensor<B>) -> Result<Tensor<B>> {
        activate(self.behind, y)
    }

    /// True if [`activation_grad`] reads the op's output.
    pub(super) fn needs_output(self) -> bool {
        self.inside != Activation::None
    }

    /// True if the inner activation is a ReLU.
    pub(super) fn is_relu(self) -> bool {
        self.inside == Activation::Relu
    }

    /// The slope by which [`activation_grad`] multiplies.
    pub(super) fn slope<B: Backend>(self) -> Option<Slope<B>> {
        let f = self.inside;
        by_output(f).map(|_| Slope { f, input: None })
    }

    /// The function that is to be applied after the backend's op.
    pub(super) fn behind(self) -> Option<Unary> {
        self.behind.function()
    }
}

/// `f(x)` as an op of its own.
pub(crate) fn activate<B: Backend>(f: Activation, x: Tensor<B>) -> Result<Tensor<B>> {
    match f.function() {
        None => Ok(x),
        Some(f) => x.unary(f.function().name, f, &[]),
    }
}

/// The function if its derivative is a function of its output alone, as a ReLU's is: its output is positive exactly where
/// its input is.
fn by_output(f: Activation) -> Option<Unary> {
    f.function().filter(|f| f.function().reads == GradReads::Output)
}

/// The gradient of the inner activation's input, from the gradient of the op's output.
pub(super) fn activation_grad<B: Backend>(fused: Fused, cx: &RuleContext<'_, B>) -> Result<Tensor<B>> {
    let g = cx.grad;
    let f = match by_output(fused.inside) {
        Some(f) if !cx.slope_applied() => f,
        _ => return Ok(g.clone()),
    };
    slope(f, cx.output(), g)
}

/// `g` where `y` is positive, zero elsewhere.
pub(super) fn mask_relu_grad<B: Backend>(y: &Tensor<B>, g: &Tensor<B>) -> Result<Tensor<B>> {
    slope(Unary::Relu, y, g)
}

/// `g` times the derivative of `f`, from its output `y`.
fn slope<B: Backend>(f: Unary, y: &Tensor<B>, g: &Tensor<B>) -> Result<Tensor<B>> {
    if is_grad_enabled() || !g.has_op(Op::UnaryGrad) {
        return composed(f, [0.0, 0.0], [y, y, g]);
    }
    let p = UnaryParams::new(f, y.size(), 0.0, 0.0);
    let mut dx = y.alloc_like(*y.shape())?;
    let b = y.backend();
    b.unary_grad(&p, y.buffer(), y.buffer(), g.buffer(), &mut dx)?;
    Ok(Tensor::from_buffer(b, dx, *y.shape()))
}
