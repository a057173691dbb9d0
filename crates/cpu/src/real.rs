//! What row kernels need of an accumulator beside [`Math`].

use crate::math::Math;
use std::ops::AddAssign;

/// An accumulation type as sums, maxima and softmax use it.
pub(crate) trait Real: Math + AddAssign + Default {
    const NEG_INFINITY: Self;
    const INFINITY: Self;
    fn is_nan(self) -> bool;
    /// eˣ in a form that loops vectorise, where there is one.
    fn fast_exp(self) -> Self;
}

impl Real for f32 {
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;
    const INFINITY: f32 = f32::INFINITY;
    #[inline(always)]
    fn is_nan(self) -> bool {
        f32::is_nan(self)
    }
    #[inline(always)]
    fn fast_exp(self) -> f32 {
        exp_f32(self)
    }
}

impl Real for f64 {
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;
    const INFINITY: f64 = f64::INFINITY;
    #[inline(always)]
    fn is_nan(self) -> bool {
        f64::is_nan(self)
    }
    #[inline(always)]
    fn fast_exp(self) -> f64 {
        self.exp()
    }
}

/// eˣ without branches or calls, so that loops over it become vector code.
///
/// Cody and Waite's reduction x = n·ln 2 + r with the polynomial of Cephes' `expf`; 2ⁿ is applied in two halves, which
/// keeps subnormal results and overflow right. Within 2 units in the last place.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to an integer and leaves it in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let low = if x < -104.0 { -104.0 } else { x };
    let x = if low > 89.0 { 89.0 } else { low };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5e-1;
    let y = (p * r * r + r) + 1.0;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// 2ⁿ for n within the normal exponents.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_f64() {
        let mut worst = 0.0f64;
        for i in -1_040_000..890_000 {
            let x = i as f32 * 1e-4;
            let (got, want) = (f64::from(exp_f32(x)), f64::from(x).exp());
            if want > f64::from(f32::MAX) {
                assert_eq!(got, f64::INFINITY, "exp({x})");
                continue;
            }
            let unit = (want * f64::from(f32::EPSILON)).max(2f64.powi(-149));
            worst = worst.max((got - want).abs() / unit);
        }
        assert!(worst <= 2.0, "{worst} units in the last place");
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert!(exp_f32(f32::NAN).is_nan());
    }
}
