//! The operands of a forward pass.

use crate::epilogue::Epilogue;

/// The operands of `y = f(x ⋆ w + bias)`.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a, A> {
    /// Images `[N, D, H, W, C]`.
    pub(crate) x: &'a [A],
    /// Weights `[O, kernel…, C/groups]`.
    pub(crate) w: &'a [A],
    /// The bias, one number an output, and f.
    pub(crate) epilogue: Epilogue<'a, A>,
}
