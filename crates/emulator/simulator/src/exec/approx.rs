//! `ex2` and `lg2`, in f64 without calls or branches, so that 32 lanes become vector code. The error is far below half
//! an ulp of f32, to which they are rounded.

/// Coefficients of `2^r` on ±1/2: `ln(2)^k / k!`.
const EXP2: [f64; 12] = {
    let mut table = [1.0; 12];
    let mut k = 1;
    while k < 12 {
        table[k] = table[k - 1] * std::f64::consts::LN_2 / k as f64;
        k += 1;
    }
    table
};

/// `2^x`.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    // Outside, the result is zero or infinite in f32.
    let clamped = f64::from(if x > 200.0 { 200.0 } else { x });
    let clamped = if clamped < -200.0 { -200.0 } else { clamped };
    let magic = 6_755_399_441_055_744.0;
    let shifted = clamped + magic;
    let n = shifted - magic;
    let r = clamped - n;
    let mut p = EXP2[11];
    let mut k = 11;
    while k > 0 {
        k -= 1;
        p = p * r + EXP2[k];
    }
    // The low bits of `shifted` are n.
    let scale = f64::from_bits(shifted.to_bits().wrapping_shl(52).wrapping_add(1023 << 52));
    let y = (p * scale) as f32;
    if x.is_nan() { f32::NAN } else { y }
}

/// The binary logarithm.
#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    let wide = f64::from(x);
    let bits = wide.to_bits();
    // Mantissa in [sqrt(1/2), sqrt(2)).
    let shifted = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let exponent = (shifted as i64 >> 52) as i32;
    let m = f64::from_bits(bits.wrapping_sub(((exponent as i64) << 52) as u64));
    let t = (m - 1.0) / (m + 1.0);
    let t2 = t * t;
    // atanh(t) = t + t^3/3 + t^5/5 + …; |t| < 0.172.
    let mut p = 1.0 / 21.0;
    let mut k = 10;
    while k > 0 {
        k -= 1;
        p = p * t2 + 1.0 / (2 * k + 1) as f64;
    }
    let y = (f64::from(exponent) + 2.0 * std::f64::consts::LOG2_E * t * p) as f32;
    let y = if x == f32::INFINITY { f32::INFINITY } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}
