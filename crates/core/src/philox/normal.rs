//! Normal numbers from Philox words, in individually rounded f32 operations.
//!
//! Each `+`, `-`, `*`, `/` and square root below rounds once to nearest even, in the order written; Rust never
//! contracts them. A CUDA kernel that writes the same steps with `__fadd_rn`, `__fmul_rn`, `__fdiv_rn`,
//! `__fsqrt_rn`, `__uint2float_rn` and `__int2float_rn` gives the same bits.

use super::Key;

/// c₀xⁿ + c₁xⁿ⁻¹ + … by Horner's rule.
#[inline(always)]
fn horner<const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[0];
    for &c in &c[1..] {
        y = y * x + c;
    }
    y
}

/// ln x for positive normal x (Cephes `logf`): relative error below 2⁻²³ away from 1, absolute below 2⁻²⁴ near it.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // x = m·2ᵉ with m in [√½, √2).
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
    let exponent = (shifted as i32 >> 23) as f32;
    let f = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    let z = f * f;
    let p = horner(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_7e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    let mut y = p * f * z;
    y += exponent * -2.121_944_4e-4;
    y += z * -0.5;
    f + y + exponent * 0.693_359_4
}

/// (cos, sin) of `turn`/2³² of a full turn. The reduction to an eighth of a turn is exact integer arithmetic; the
/// polynomials are those of Cephes `sinf` and `cosf`.
#[inline(always)]
fn cos_sin(turn: u32) -> (f32, f32) {
    let quadrant = turn.wrapping_add(1 << 29) >> 30;
    let rest = turn.wrapping_sub(quadrant << 30) as i32;
    // π/2 · 2⁻³⁰
    let x = rest as f32 * 1.462_918e-9;
    let z = x * x;
    let sin = horner(z, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]) * z * x + x;
    let cos = horner(z, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]) * z * z + z * -0.5 + 1.0;
    match quadrant & 3 {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    }
}

/// Two independent standard normal numbers from two words (Box & Muller 1958). The first word is mapped to the interval
/// `[2⁻³³, 1]`, so no result exceeds 6.77 in magnitude.
#[inline(always)]
pub fn normal_pair(first: u32, second: u32) -> (f32, f32) {
    let u = first as f32 * (1.0 / 4_294_967_296.0) + 1.0 / 8_589_934_592.0;
    // `max` catches a logarithm that rounds above 0 for u next to 1.
    let radius = (ln(u) * -2.0).max(0.0).sqrt();
    let (cos, sin) = cos_sin(second);
    (radius * cos, radius * sin)
}

/// A standard normal number conditioned on lying within two deviations. It inverts the distribution function with the
/// central branch of Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), which covers the interval.
#[inline(always)]
pub fn truncated_normal(word: u32) -> f32 {
    // v uniform on ±erf(√2)
    let v = word as i32 as f32 * (1.0 / 2_147_483_648.0) * 0.954_499_7;
    let w = -ln((1.0 - v) * (1.0 + v)) - 2.5;
    let p = horner(
        w,
        [
            2.810_226_4e-8,
            3.432_739_4e-7,
            -3.523_387_7e-6,
            -4.391_506_5e-6,
            2.185_808_7e-4,
            -1.253_725e-3,
            -4.177_681_6e-3,
            2.466_407_3e-1,
            1.501_409_4,
        ],
    );
    (p * v * std::f32::consts::SQRT_2).clamp(-2.0, 2.0)
}

impl Key {
    /// The four standard normal numbers of block `index`.
    #[inline]
    pub fn normal_block(&self, index: u64) -> [f32; 4] {
        let w = self.block(index);
        let (a, b) = normal_pair(w[0], w[1]);
        let (c, d) = normal_pair(w[2], w[3]);
        [a, b, c, d]
    }

    /// The standard normal number of one element.
    #[inline]
    pub fn normal(&self, element: u64) -> f32 {
        self.normal_block(element / 4)[(element % 4) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that cover the range evenly and reach its ends.
    fn words() -> impl Iterator<Item = u32> {
        let ends = [
            0,
            1,
            2,
            255,
            256,
            0x7fff_ffff,
            0x8000_0000,
            u32::MAX - 256,
            u32::MAX - 1,
            u32::MAX,
        ];
        (0..1 << 16).map(|i| (i as u32).wrapping_mul(0x9E37_79B9)).chain(ends)
    }

    #[test]
    fn logarithms_are_accurate() {
        for x in words().map(|w| w as f32 * (1.0 / 4_294_967_296.0) + 1.0 / 8_589_934_592.0) {
            let want = f64::from(x).ln();
            let error = (f64::from(ln(x)) - want).abs();
            assert!(
                error <= want.abs() * 2f64.powi(-23) + 2f64.powi(-26),
                "ln {x} = {}, off by {error}",
                ln(x)
            );
        }
    }

    #[test]
    fn angles_are_accurate() {
        for turn in words() {
            let (sin, cos) = (f64::from(turn) / 4_294_967_296.0 * std::f64::consts::TAU).sin_cos();
            let got = cos_sin(turn);
            let error = (f64::from(got.0) - cos).abs().max((f64::from(got.1) - sin).abs());
            assert!(error < 2f64.powi(-23), "turn {turn}: {got:?}, off by {error}");
        }
    }

    #[test]
    fn pairs_follow_box_and_muller() {
        for (first, second) in words().zip(words().skip(77)) {
            let u = (f64::from(first) + 0.5) / 4_294_967_296.0;
            let (sin, cos) = (f64::from(second) / 4_294_967_296.0 * std::f64::consts::TAU).sin_cos();
            let radius = (-2.0 * u.ln()).sqrt();
            let (a, b) = normal_pair(first, second);
            let error = (f64::from(a) - radius * cos)
                .abs()
                .max((f64::from(b) - radius * sin).abs());
            // Next to u = 1 an error of one rounding of u moves the radius by √(2·2⁻²⁴).
            let bound = if radius < 0.01 { 4e-4 } else { 1e-6 + 1.3e-7 / radius };
            assert!(
                error < bound,
                "({first}, {second}): ({a}, {b}), radius {radius}, off by {error}"
            );
        }
        assert!(normal_pair(0, 0).0 < 6.77 && normal_pair(0, 0).0 > 6.75);
        assert_eq!(normal_pair(u32::MAX, 0).0, 0.0);
    }

    /// The moments of 2¹⁸ numbers are within five standard errors of those of the distribution.
    #[test]
    fn moments_are_those_of_the_distributions() {
        let key = Key::new(3, 1, 4);
        let n = 1 << 18;
        let moment = |v: &[f32], k: i32| v.iter().map(|&v| f64::from(v).powi(k)).sum::<f64>() / v.len() as f64;
        let se = |variance: f64| 5.0 * (variance / n as f64).sqrt();
        let normal: Vec<f32> = (0..n / 4).flat_map(|b| key.normal_block(b)).collect();
        for (k, want, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let got = moment(&normal, k);
            assert!((got - want).abs() < se(variance), "normal: moment {k} is {got}");
        }
        // Neighbours come from one pair: their product must have mean 0.
        let product = normal.chunks(2).map(|p| f64::from(p[0] * p[1])).sum::<f64>() / (n / 2) as f64;
        assert!(product.abs() < se(2.0), "mean product of pairs is {product}");
        let truncated: Vec<f32> = (0..n).map(|i| truncated_normal(key.word(i))).collect();
        // Within ±2 the variance is 1 − 4φ(2)/(2Φ(2) − 1).
        let variance = 0.773_741_3;
        for (k, want, variance) in [(1, 0.0, variance), (2, variance, 1.0), (3, 0.0, 4.0)] {
            let got = moment(&truncated, k);
            assert!((got - want).abs() < se(variance), "truncated: moment {k} is {got}");
        }
        assert!(truncated.iter().all(|v| v.abs() <= 2.0) && truncated.iter().any(|v| v.abs() > 1.99));
    }

    /// Inverting and integrating again gives back the uniform number.
    #[test]
    fn truncation_inverts_the_distribution() {
        // erf by its Maclaurin series, fast for |x| ≤ √2.
        let erf = |x: f64| {
            let (mut term, mut sum) = (x, x);
            for k in 1..60 {
                term *= -x * x / k as f64;
                sum += term / (2 * k + 1) as f64;
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        };
        for word in words() {
            let want = f64::from(word as i32) / 2_147_483_648.0;
            let got = erf(f64::from(truncated_normal(word)) / std::f64::consts::SQRT_2) / erf(std::f64::consts::SQRT_2);
            assert!((got - want).abs() < 5e-7, "word {word}: {want} became {got}");
        }
    }
}
