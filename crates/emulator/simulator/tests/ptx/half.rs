//! f16 and bf16 arithmetic. The oracle rounds exact f64 results by choosing the nearest of all 65536 values.

use crate::table::check;

/// A format by its bits of exponent and mantissa.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    exponent: u32,
    mantissa: u32,
}

pub(crate) const F16: Format = Format {
    exponent: 5,
    mantissa: 10,
};
pub(crate) const BF16: Format = Format {
    exponent: 8,
    mantissa: 7,
};

impl Format {
    pub(crate) fn value(self, bits: u64) -> f64 {
        let bias = (1 << (self.exponent - 1)) - 1;
        let (e, m) = ((bits & 0x7fff) >> self.mantissa, bits & ((1 << self.mantissa) - 1));
        let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
        let unit = 2f64.powi(1 - bias - self.mantissa as i32);
        let largest = (1 << self.exponent) - 1;
        if e == largest {
            return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
        }
        let size = if e == 0 {
            m as f64 * unit
        } else {
            (m + (1 << self.mantissa)) as f64 * unit * 2f64.powi(e as i32 - 1)
        };
        sign * size
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// The nearest value, by bisection over the magnitudes; `mode` as in PTX.
    pub(crate) fn round(self, x: f64, mode: &str) -> u64 {
        let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
        if x.is_nan() {
            return 0x7fff;
        }
        let size = x.abs();
        if size.is_infinite() {
            return sign | self.infinity();
        }
        let (mut low, mut high) = (0, self.infinity());
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.value(middle) <= size {
                low = middle
            } else {
                high = middle
            }
        }
        let down = self.value(low);
        let up = if high == self.infinity() {
            down + (down - self.value(low - 1))
        } else {
            self.value(high)
        };
        let outward = match mode {
            "rn" => size - down > up - size || size - down == up - size && low & 1 == 1,
            "rz" => false,
            "rm" => sign != 0 && size > down,
            _ => sign == 0 && size > down,
        };
        sign | if outward { high } else { low }
    }
}

fn formats() -> [(&'static str, Format); 2] {
    [("f16", F16), ("bf16", BF16)]
}

#[test]
fn single() {
    for (ty, format) in formats() {
        let v = |x: u64| format.value(x);
        // Sums of bf16 far apart are not exact in f64; f64's rounding is then far from any tie.
        let r = |x: f64| format.round(x, "rn");
        let text = |name: &str, operands: &str| format!("{name}.{ty} {operands};");
        let two = "%d, %a, %b";
        check(&[
            (&text("add", two), ty, &[ty, ty], &|x| r(v(x[0]) + v(x[1]))),
            (&text("sub.rn", two), ty, &[ty, ty], &|x| r(v(x[0]) - v(x[1]))),
            (&text("mul", two), ty, &[ty, ty], &|x| r(v(x[0]) * v(x[1]))),
            (&text("fma.rn", "%d, %a, %b, %c"), ty, &[ty, ty, ty], &|x| {
                r(v(x[0]).mul_add(v(x[1]), v(x[2])))
            }),
            (&text("fma.rn.relu", "%d, %a, %b, %c"), ty, &[ty, ty, ty], &|x| {
                let y = v(x[0]).mul_add(v(x[1]), v(x[2]));
                if y < 0.0 && r(y) != 0x8000 { 0 } else { r(y) }
            }),
            (&text("neg", "%d, %a"), ty, &[ty], &|x| x[0] ^ 0x8000),
            (&text("abs", "%d, %a"), ty, &[ty], &|x| x[0] & 0x7fff),
            (&text("min", two), ty, &[ty, ty], &|x| extreme(x, v, true)),
            (&text("max", two), ty, &[ty, ty], &|x| extreme(x, v, false)),
            (&text("max.NaN", two), ty, &[ty, ty], &|x| {
                if v(x[0]).is_nan() || v(x[1]).is_nan() {
                    0x7fff
                } else {
                    extreme(x, v, false)
                }
            }),
            (&text("setp.lt", two), "pred", &[ty, ty], &|x| {
                (v(x[0]) < v(x[1])).into()
            }),
            (&text("setp.geu", two), "pred", &[ty, ty], &|x| {
                u64::from(v(x[0]) >= v(x[1]) || v(x[0]).is_nan() || v(x[1]).is_nan())
            }),
        ]);
    }
    let v = |x: u64| F16.value(x);
    check(&[
        ("ex2.approx.f16 %d, %a;", "f16", &["f16"], &|x| {
            F16.round(v(x[0]).exp2(), "rn")
        }),
        ("tanh.approx.f16 %d, %a;", "f16", &["f16"], &|x| {
            F16.round(v(x[0]).tanh(), "rn")
        }),
        ("ex2.approx.ftz.bf16 %d, %a;", "bf16", &["bf16"], &|x| {
            let z = |x: u64| if x & 0x7f80 == 0 { x & 0x8000 } else { x };
            z(BF16.round(BF16.value(z(x[0])).exp2(), "rn"))
        }),
        ("add.sat.f16 %d, %a, %b;", "f16", &["f16", "f16"], &|x| {
            let y = v(x[0]) + v(x[1]);
            F16.round(if y.is_nan() { 0.0 } else { y.clamp(0.0, 1.0) + 0.0 }, "rn")
        }),
    ]);
}

fn extreme(x: &[u64], v: impl Fn(u64) -> f64, least: bool) -> u64 {
    let key = |x: u64| (v(x), x & 0x8000 == 0);
    let first = if least {
        key(x[0]) <= key(x[1])
    } else {
        key(x[0]) >= key(x[1])
    };
    if v(x[1]).is_nan() || first { x[0] } else { x[1] }
}

#[test]
fn packed() {
    for (ty, format) in formats() {
        let v = |x: u64, k: u32| format.value(x >> (16 * k) & 0xffff);
        let pair = |f: &dyn Fn(u32) -> u64| f(0) | f(1) << 16;
        let wide = format!("{ty}x2");
        let w = wide.as_str();
        let text = |name: &str, operands: &str| format!("{name}.{w} {operands};");
        let two = "%d, %a, %b";
        let one = if ty == "f16" { 0x3c00 } else { 0x3f80 };
        let set = format!("set.gt.{w}.{w} %d, %a, %b;");
        let mask = format!("set.leu.u32.{w} %d, %a, %b;");
        let both = format!("setp.gt.{w} %d|%p7, %a, %b;");
        let second = format!("setp.gt.{w} %p7|%d, %a, %b;");
        let r = |x: f64| format.round(x, "rn");
        check(&[
            (&text("add", two), w, &[w, w], &|x| {
                pair(&|k| r(v(x[0], k) + v(x[1], k)))
            }),
            (&text("sub", two), w, &[w, w], &|x| {
                pair(&|k| r(v(x[0], k) - v(x[1], k)))
            }),
            (&text("mul", two), w, &[w, w], &|x| {
                pair(&|k| r(v(x[0], k) * v(x[1], k)))
            }),
            (&text("fma.rn", "%d, %a, %b, %c"), w, &[w, w, w], &|x| {
                pair(&|k| r(v(x[0], k).mul_add(v(x[1], k), v(x[2], k))))
            }),
            (&text("neg", "%d, %a"), w, &[w], &|x| x[0] ^ 0x8000_8000),
            (&text("abs", "%d, %a"), w, &[w], &|x| x[0] & 0x7fff_7fff),
            (&text("min", two), w, &[w, w], &|x| {
                pair(&|k| {
                    extreme(
                        &[x[0] >> (16 * k) & 0xffff, x[1] >> (16 * k) & 0xffff],
                        |x| format.value(x),
                        true,
                    )
                })
            }),
            (&set, w, &[w, w], &|x| {
                pair(&|k| if v(x[0], k) > v(x[1], k) { one } else { 0 })
            }),
            (&mask, "u32", &[w, w], &|x| {
                let above = |k| v(x[0], k) > v(x[1], k);
                pair(&|k| if above(k) { 0 } else { 0xffff })
            }),
            (&both, "pred", &[w, w], &|x| (v(x[0], 0) > v(x[1], 0)).into()),
            (&second, "pred", &[w, w], &|x| (v(x[0], 1) > v(x[1], 1)).into()),
        ]);
    }
}
