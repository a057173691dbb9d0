//! The cubic through four pixels.

use crate::{Backend, Result, Tensor};

/// Keys's cubic with a = −0.75 (Keys 1981) at a distance: up to 1 when `near`, from 1 to 2 otherwise.
pub(super) fn cubic<B: Backend>(x: &Tensor<B>, near: bool) -> Result<Tensor<B>> {
    const A: f64 = -0.75;
    // Horner's scheme, from the highest power.
    let [c3, c2, c1, c0] = match near {
        true => [A + 2.0, -(A + 3.0), 0.0, 1.0],
        false => [A, -5.0 * A, 8.0 * A, -4.0 * A],
    };
    let y = x.affine(c3, c2)?;
    let y = y.mul(x)?.add_scalar(c1)?;
    y.mul(x)?.add_scalar(c0)
}
