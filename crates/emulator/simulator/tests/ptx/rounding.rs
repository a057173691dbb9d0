//! Every direction of every operation, against exact arithmetic.
//!
//! A result is not computed again but judged: the exact value of the operation must lie between the result and its
//! neighbour on the right side. The side is the sign of an integer of thousands of bits, and nothing else is needed.

use crate::kernel::{Device, module, shape};
use crate::table::{Random, values};

/// Limbs of an integer: numbers have up to 2,100 bits, products of two and a scale of 4 are added up.
const LIMBS: usize = 72;

/// A signed integer, in two's complement.
#[derive(Clone)]
struct Integer([u64; LIMBS]);

/// A finite number: an integer number of units of `2^exponent`.
#[derive(Clone, Copy)]
struct Dyadic {
    size: i128,
    exponent: i32,
}

impl Dyadic {
    fn of(x: f64) -> Dyadic {
        assert!(x.is_finite());
        let field = (x.to_bits() >> 52 & 0x7ff) as i32;
        let size = (x.to_bits() & ((1 << 52) - 1)) as i128 | i128::from(field != 0) << 52;
        Dyadic {
            size: if x.is_sign_negative() { -size } else { size },
            exponent: field.max(1) - 1075,
        }
    }

    fn times(self, other: Dyadic) -> Dyadic {
        Dyadic {
            size: self.size * other.size,
            exponent: self.exponent + other.exponent,
        }
    }

    fn double(self) -> Dyadic {
        Dyadic {
            exponent: self.exponent + 1,
            ..self
        }
    }

    fn negated(self) -> Dyadic {
        Dyadic {
            size: -self.size,
            ..self
        }
    }
}

/// The sign of a sum.
fn sign(terms: &[Dyadic]) -> i32 {
    let mut total = Integer([0; LIMBS]);
    for term in terms {
        // The smallest product of two f64 is 2^-2148.
        let shift = (term.exponent + 2148) as usize;
        let mut limbs = [0; LIMBS];
        let size = term.size.unsigned_abs();
        for bit in 0..128 {
            if size >> bit & 1 == 1 {
                limbs[(shift + bit) / 64] |= 1 << ((shift + bit) % 64);
            }
        }
        let mut carry = term.size < 0;
        for (limb, to) in limbs.into_iter().zip(&mut total.0) {
            let limb = if term.size < 0 { !limb } else { limb };
            let (a, over) = to.overflowing_add(limb);
            let (b, again) = a.overflowing_add(u64::from(carry));
            *to = b;
            carry = over || again;
        }
    }
    if total.0[LIMBS - 1] >> 63 == 1 {
        -1
    } else {
        i32::from(total.0.iter().any(|limb| *limb != 0))
    }
}

/// An operation on up to three numbers.
type Operation = (&'static str, usize);
const OPERATIONS: [Operation; 7] = [
    ("add", 2),
    ("sub", 2),
    ("mul", 2),
    ("div", 2),
    ("fma", 3),
    ("rcp", 1),
    ("sqrt", 1),
];

/// The sign of twice the exact value minus `low` and `high`: on which side of their middle the exact value lies.
fn beside(name: &str, x: &[f64], low: Dyadic, high: Dyadic) -> i32 {
    let of = |k: usize| Dyadic::of(x[k]);
    let (minus_low, minus_high) = (low.negated(), high.negated());
    match name {
        "add" => sign(&[of(0).double(), of(1).double(), minus_low, minus_high]),
        "sub" => sign(&[of(0).double(), of(1).double().negated(), minus_low, minus_high]),
        "mul" => sign(&[of(0).times(of(1)).double(), minus_low, minus_high]),
        "fma" => sign(&[of(0).times(of(1)).double(), of(2).double(), minus_low, minus_high]),
        "div" | "rcp" => {
            let (a, b) = if name == "div" {
                (of(0), of(1))
            } else {
                (Dyadic::of(1.0), of(0))
            };
            // All terms are multiplied by the divisor, which may turn the sign.
            let signs = sign(&[a.double(), minus_low.times(b), minus_high.times(b)]);
            if b.size < 0 { -signs } else { signs }
        }
        _ => sign(&[
            of(0).double().double(),
            minus_low.times(low),
            minus_low.times(high).double(),
            minus_high.times(high),
        ]),
    }
}

/// A format: the step from a number to the next, and its largest number.
struct Format {
    up: fn(f64) -> f64,
    down: fn(f64) -> f64,
    largest: f64,
    /// The exponent of the first power of two that is too large.
    beyond: i32,
}

const F32: Format = Format {
    up: |x| f64::from((x as f32).next_up()),
    down: |x| f64::from((x as f32).next_down()),
    largest: f32::MAX as f64,
    beyond: 128,
};
const F64: Format = Format {
    up: f64::next_up,
    down: f64::next_down,
    largest: f64::MAX,
    beyond: 1024,
};

impl Format {
    /// A number of the format; an infinite one stands for the first power of two that is too large.
    fn dyadic(&self, x: f64) -> Dyadic {
        if x.is_finite() {
            return Dyadic::of(x);
        }
        Dyadic {
            size: if x > 0.0 { 1 } else { -1 },
            exponent: self.beyond,
        }
    }

    /// True if `found` is the exact value of the operation, rounded in a direction. The exact value is finite.
    fn holds(&self, name: &str, x: &[f64], mode: &str, found: f64) -> bool {
        let side = |low: f64, high: f64| beside(name, x, self.dyadic(low), self.dyadic(high));
        let exact = side(0.0, 0.0);
        if exact == 0 {
            return found == 0.0 && found.is_sign_negative() == self.zero(name, x, mode);
        }
        if found.is_nan() || found == 0.0 && found.is_sign_negative() != (exact < 0) {
            return false;
        }
        // Rounded down: the number is not above the value, and the next one is.
        let floor = || {
            let below = found != f64::INFINITY && (found == f64::NEG_INFINITY || side(found, found) >= 0);
            let next = if found == f64::NEG_INFINITY {
                -self.largest
            } else {
                (self.up)(found)
            };
            below && (next == f64::INFINITY || side(next, next) < 0)
        };
        let ceiling = || {
            let above = found != f64::NEG_INFINITY && (found == f64::INFINITY || side(found, found) <= 0);
            let next = if found == f64::INFINITY {
                self.largest
            } else {
                (self.down)(found)
            };
            above && (next == f64::NEG_INFINITY || side(next, next) > 0)
        };
        match mode {
            "rm" => floor(),
            "rp" => ceiling(),
            "rz" if exact > 0 => floor(),
            "rz" => ceiling(),
            _ => {
                let even = |x: f64| x.is_infinite() || self.even(x);
                let up = found == f64::INFINITY || {
                    let to = side(found, (self.up)(found));
                    to < 0 || to == 0 && even(found)
                };
                let down = found == f64::NEG_INFINITY || {
                    let to = side((self.down)(found), found);
                    to > 0 || to == 0 && even(found)
                };
                up && down
            }
        }
    }

    fn even(&self, x: f64) -> bool {
        if self.beyond == 128 {
            (x as f32).to_bits() & 1 == 0
        } else {
            x.to_bits() & 1 == 0
        }
    }

    /// True if an exact zero is negative.
    fn zero(&self, name: &str, x: &[f64], mode: &str) -> bool {
        let minus = |k: usize| x[k].is_sign_negative();
        let sum = |a: bool, b: bool, zeros: bool| if zeros && a == b { a } else { mode == "rm" };
        match name {
            "add" => sum(minus(0), minus(1), x[0] == 0.0),
            "sub" => sum(minus(0), !minus(1), x[0] == 0.0),
            "fma" => sum(minus(0) != minus(1), minus(2), x[2] == 0.0),
            "sqrt" => minus(0),
            _ => minus(0) != minus(1),
        }
    }
}

/// Operands: all pairs of the critical values, and many that are drawn so that results fall close to each end
/// of the range.
fn operands(single: bool, name: &str, count: usize) -> Vec<Vec<f64>> {
    let ty = if single { "f32" } else { "f64" };
    let number = |bits: u64| {
        if single {
            f64::from(f32::from_bits(bits as u32))
        } else {
            f64::from_bits(bits)
        }
    };
    let pool: Vec<f64> = values(ty).into_iter().map(number).collect();
    let mut random = Random(20 + count as u64);
    let (fraction, bias, fields) = if single { (23, 127, 255) } else { (52, 1023, 2047) };
    let mut draw = |exponent: i64| {
        let field = (exponent + bias).clamp(0, fields - 1) as u64;
        let bits = random.next();
        // Half of the fractions are short, so that there are exact results and ties.
        let short = if bits >> 62 & 1 == 1 {
            u64::MAX << (fraction - 3)
        } else {
            u64::MAX
        };
        let sign = (bits >> 63) << if single { 31 } else { 63 };
        number(sign | field << fraction | bits & short & ((1 << fraction) - 1))
    };
    let mut cases = Vec::new();
    match count {
        1 => cases.extend(pool.iter().map(|a| vec![*a])),
        2 => cases.extend(pool.iter().flat_map(|a| pool.iter().map(|b| vec![*a, *b]))),
        _ => {
            let mut pick = Random(5);
            let mut one = || pool[(pick.next() % pool.len() as u64) as usize];
            cases.extend((0..600).map(|_| vec![one(), one(), one()]));
        }
    }
    let mut random = Random(3);
    for n in 0..900 {
        let mut within = |least: i64, most: i64| least + (random.next() % (most - least) as u64) as i64;
        // Where the result should lie: anywhere, among the smallest numbers, or among the largest.
        let aim = match n % 3 {
            0 => within(-bias - fraction as i64, bias),
            1 => -bias - fraction as i64 + within(-4, fraction as i64 + 4),
            _ => bias - within(-2, 4),
        };
        let first = within(-bias, bias);
        let a = draw(if count == 1 { aim } else { first });
        let second = match name {
            "mul" | "fma" => aim - first,
            "div" => first - aim,
            // Sums are of numbers that are close to each other.
            _ => first + within(-fraction as i64 - 3, fraction as i64 + 3),
        };
        let b = draw(second);
        let c = draw(aim + within(-fraction as i64 - 3, 3));
        cases.push([a, b, c][..count].to_vec());
        if name == "fma" {
            // The third nearly cancels the product.
            cases.push(vec![a, b, -(a * b)]);
        }
    }
    if name == "fma" && single {
        cases.iter_mut().for_each(|x| x[2] = f64::from(x[2] as f32));
    }
    cases
}

/// Runs one instruction over all operands.
fn results(text: &str, single: bool, cases: &[Vec<f64>]) -> Vec<f64> {
    let device = Device::new();
    let (count, width) = (cases[0].len(), if single { 4 } else { 8 });
    let mut bytes = Vec::new();
    for x in cases.iter().flatten() {
        if single {
            bytes.extend((*x as f32).to_le_bytes());
        } else {
            bytes.extend(x.to_le_bytes());
        }
    }
    let (input, output) = (device.upload(&bytes), device.upload(&vec![0u8; width * cases.len()]));
    let ty = 8 * width;
    let loads: String = (0..count)
        .map(|k| format!("ld.global.f{ty} {}, [%rd10+{}];\n", ["%a", "%b", "%c"][k], k * width))
        .collect();
    let body = format!(
        ".reg .f{ty} %a, %b, %c, %d;\nsetp.ge.u32 %p0, %r0, {};\n@%p0 bra DONE;\nmul.wide.u32 %rd10, %r0, {};\n\
         add.u64 %rd10, %rd10, %rd0;\n{loads}{text}\nmul.wide.u32 %rd12, %r0, {width};\nadd.u64 %rd12, %rd12, %rd1;\n\
         st.global.f{ty} [%rd12], %d;\nDONE:\n",
        cases.len(),
        count * width
    );
    let (ptx, blocks) = (module(2, "", &body), cases.len().div_ceil(256) as u32);
    if let Err(fault) = device.launch(&ptx, shape(blocks, 256), &[input.base, output.base], false) {
        panic!("{fault}\n{ptx}");
    }
    if single {
        device.read::<f32>(&output).into_iter().map(f64::from).collect()
    } else {
        device.read(&output)
    }
}

fn every_direction(single: bool) {
    let (format, ty) = if single { (F32, "f32") } else { (F64, "f64") };
    for (name, count) in OPERATIONS {
        let cases = operands(single, name, count);
        let list = &"%a, %b, %c"[..4 * count - 2];
        for mode in ["rn", "rz", "rm", "rp"] {
            let text = format!("{name}.{mode}.{ty} %d, {list};");
            for (x, found) in cases.iter().zip(results(&text, single, &cases)) {
                let invalid = match name {
                    "div" => x[1] == 0.0,
                    "rcp" => x[0] == 0.0,
                    "sqrt" => x[0] < 0.0,
                    _ => false,
                };
                // Infinite results and NaN are the same in every direction; `float` has tests of them.
                if invalid || x.iter().any(|x| !x.is_finite()) {
                    continue;
                }
                assert!(format.holds(name, x, mode, found), "{text} of {x:?} gives {found:e}");
            }
        }
    }
}

#[test]
fn f32_in_every_direction() {
    every_direction(true);
}

#[test]
fn f64_in_every_direction() {
    every_direction(false);
    let tiny = [
        f64::from_bits(0x2415_a12b_be41_5ee0),
        f64::from_bits(0x11cf_4623_9a3e_1e85),
    ];
    assert_eq!(results("mul.rp.f64 %d, %a, %b;", false, &[tiny.to_vec()]), [5e-324]);
}

#[test]
fn the_judge_refuses_neighbours() {
    let x = [1.0, 3.0];
    let third = 1.0 / 3.0f64;
    assert!(F64.holds("div", &x, "rn", third) && F64.holds("div", &x, "rm", third));
    assert!(F64.holds("div", &x, "rp", third.next_up()) && !F64.holds("div", &x, "rp", third));
    assert!(!F64.holds("div", &x, "rn", third.next_up()) && !F64.holds("div", &x, "rz", third.next_up()));
    assert!(!F64.holds("mul", &[1e-200, 1e-200], "rp", 0.0) && F64.holds("mul", &[1e-200, 1e-200], "rm", 0.0));
    assert!(
        !F64.holds("mul", &[1e200, 1e200], "rm", f64::INFINITY)
            && F64.holds("mul", &[1e200, 1e200], "rn", f64::INFINITY)
    );
    assert!(F64.holds("sub", &x[..1].repeat(2), "rm", -0.0) && !F64.holds("sub", &x[..1].repeat(2), "rn", -0.0));
}
