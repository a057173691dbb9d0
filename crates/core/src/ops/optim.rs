//! Optimizer updates: one call updates every parameter of a group, in place.
//!
//! Numbers that change from step to step are kept in a buffer on the device, so that a captured step reads new ones at
//! each replay. `scalars` is an f32 buffer (f64 for f64 parameters) `[lr, c1, c2, scale]`: the meaning of `c1` and `c2`
//! depends on the optimizer, and every gradient is first multiplied by `scale` (loss scale, clipping). Where `scale` is NaN
//! the update leaves parameters and state as they are: so the device decides whether there is one.

use super::Op;
use crate::{Result, Runtime};
use bytemuck::{Pod, Zeroable};

/// One parameter with its gradient and its optimizer state, all of equal length. State is f32 (f64 for f64). All parameters of a
/// call share their dtype.
#[derive(Debug)]
pub struct OptimSlot<'a, Buf> {
    /// The parameter, updated in place.
    pub param: &'a mut Buf,
    /// A copy of a parameter of f32, in bf16 or f16, for mixed precision: where the parameter is written, so is the copy, with the
    /// bits that a cast of the new parameter has.
    pub half: Option<&'a mut Buf>,
    /// The gradient.
    pub grad: &'a Buf,
    /// The optimizer's state buffers, in the order given at its update.
    pub state: Vec<&'a mut Buf>,
}

/// SGD, as `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct SgdParams {
    /// Momentum μ; 0 keeps no state.
    pub momentum: f64,
    /// Dampening of the gradient in the momentum buffer.
    pub dampening: f64,
    /// L2 penalty added to the gradient.
    pub weight_decay: f64,
    /// 1 for Nesterov momentum.
    pub nesterov: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<SgdParams>() == 32);

/// Adam and AdamW, as `torch.optim.Adam` and `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AdamParams {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// The constant added to the denominator.
    pub eps: f64,
    /// The weight decay.
    pub weight_decay: f64,
    /// 1 when weight decay shrinks the parameter directly (AdamW) rather than adding to the gradient.
    pub decoupled: u32,
    /// 1 to use the maximum of the second moments (AMSGrad).
    pub amsgrad: u32,
}
const _: () = assert!(size_of::<AdamParams>() == 40);

/// RMSprop, as `torch.optim.RMSprop`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct RmspropParams {
    /// Smoothing of the mean square.
    pub alpha: f64,
    /// The constant added to the denominator.
    pub eps: f64,
    /// L2 penalty added to the gradient.
    pub weight_decay: f64,
    /// Momentum; 0 keeps no momentum state.
    pub momentum: f64,
    /// 1 to subtract the squared mean gradient.
    pub centered: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<RmspropParams>() == 40);

/// Adagrad, as `torch.optim.Adagrad`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct AdagradParams {
    /// The constant added to the denominator.
    pub eps: f64,
    /// L2 penalty added to the gradient.
    pub weight_decay: f64,
}
const _: () = assert!(size_of::<AdagradParams>() == 16);

/// The limit of the norm of gradients.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct GradNormParams {
    /// The largest norm that gradients are to have, 0 or more; infinity for no limit.
    pub max_norm: f64,
}
const _: () = assert!(size_of::<GradNormParams>() == 8);

/// Optimizer updates of a backend.
pub trait OptimOps: Runtime {
    /// `g += wd·p; v = μ·v + (1−dampening)·g; p −= lr·(nesterov ? g + μ·v : v)`. State: `[v]` with momentum, else
    /// `[]`. `c1` is 1 at the first step (where `v = g`), else 0.
    fn sgd(&self, p: &SgdParams, scalars: &Self::Buffer, slots: &mut [OptimSlot<'_, Self::Buffer>]) -> Result<()> {
        let _ = (p, scalars, slots);
        self.unsupported(Op::Sgd)
    }

    /// `m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p −= lr/c1·m/(√v/c2 + eps)` with `c1 = 1−β₁ᵗ`, `c2 = √(1−β₂ᵗ)`.
    /// State: `[m, v]`, and `[m, v, v_max]` with AMSGrad.
    fn adam(&self, p: &AdamParams, scalars: &Self::Buffer, slots: &mut [OptimSlot<'_, Self::Buffer>]) -> Result<()> {
        let _ = (p, scalars, slots);
        self.unsupported(Op::Adam)
    }

    /// `s = α·s + (1−α)·g²; d = √max(s − a², 0) + eps (a the mean gradient, when centered); b = μ·b + g/d; p −= lr·b`.
    /// For a constant gradient `s − a²` is zero and may be rounded below zero, hence the maximum; a NaN stays NaN.
    /// State: `[s]`, then `[b]` with momentum, then `[a]` when centered.
    fn rmsprop(
        &self,
        p: &RmspropParams,
        scalars: &Self::Buffer,
        slots: &mut [OptimSlot<'_, Self::Buffer>],
    ) -> Result<()> {
        let _ = (p, scalars, slots);
        self.unsupported(Op::Rmsprop)
    }

    /// `s += g²; p −= lr·g/(√s + eps)`; `lr` already holds the decayed rate. State: `[s]`.
    fn adagrad(
        &self,
        p: &AdagradParams,
        scalars: &Self::Buffer,
        slots: &mut [OptimSlot<'_, Self::Buffer>],
    ) -> Result<()> {
        let _ = (p, scalars, slots);
        self.unsupported(Op::Adagrad)
    }

    /// `norm = √Σg²` over all gradients as one vector, and `factor = min(1, max_norm/(norm + 1e-6))`, by which they are to be multiplied
    /// (`torch.nn.utils.clip_grad_norm_`); the factor of a NaN is NaN. The gradients of a call share their dtype; `norm` and `factor` are
    /// one number of their accumulation dtype each.
    fn grad_norm(
        &self,
        p: &GradNormParams,
        grads: &[&Self::Buffer],
        norm: &mut Self::Buffer,
        factor: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, grads, norm, factor);
        self.unsupported(Op::GradNorm)
    }

    /// `g *= inverse` for every gradient, in place, and `found = 1` if any number is infinite or NaN after it; `found` stays as it
    /// is otherwise (PyTorch's `_amp_foreach_non_finite_check_and_unscale_`). The gradients of a call share their dtype; `inverse`
    /// is one number of their accumulation dtype, `found` one i32.
    fn unscale(&self, inverse: &Self::Buffer, grads: &mut [&mut Self::Buffer], found: &mut Self::Buffer) -> Result<()> {
        let _ = (inverse, grads, found);
        self.unsupported(Op::Unscale)
    }
}
