//! One instruction over many operands.

use crate::kernel::{Device, module, shape};

/// One row of a table: the instruction with `%d`, `%a`, `%b` and `%c`, its destination's and its sources' types, and
/// the function on bits that it computes.
pub(crate) type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a dyn Fn(&[u64]) -> u64);

fn size(ty: &str) -> usize {
    match ty {
        "pred" => 4,
        _ if ty.ends_with("16x2") => 4,
        _ => {
            ty.trim_start_matches(|c: char| !c.is_ascii_digit())
                .parse::<usize>()
                .expect("a type")
                / 8
        }
    }
}

/// Critical values of a type, and some ordinary ones.
pub(crate) fn values(ty: &str) -> Vec<u64> {
    let mut random = Random(7 + ty.len() as u64);
    let mut values: Vec<u64> = match ty {
        "f32" => [
            0.0f32,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            -2.5,
            3.0e38,
            -3.0e38,
            1.0e-38,
            1.0e-45,
            -1.1e-41,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            16_777_217.0,
            2_147_483_648.0,
            -2_147_483_904.0,
            4.0e9,
            65504.0,
            65520.0,
            6.0e-8,
            3.3378e-6,
            0.1,
            -0.333_333_34,
            1.0e10,
            256.0,
            -129.0,
            255.5,
        ]
        .iter()
        .map(|x| u64::from(x.to_bits()))
        .collect(),
        "f64" => [
            0.0f64,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.5,
            -3.5,
            1.0e308,
            -1.0e308,
            1.0e-308,
            5.0e-324,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            9.3e18,
            -9.3e18,
            1.9e19,
            4.3e9,
            -2.2e9,
            0.1,
            1.0 / 3.0,
            65520.0,
            1.0e-8,
            1.000_000_059_604_644_8,
            256.0,
            -0.7,
        ]
        .iter()
        .map(|x| x.to_bits())
        .collect(),
        "f16" => vec![
            0, 0x8000, 0x3c00, 0xbc00, 0x3555, 0x7bff, 0xfbff, 0x0400, 0x0001, 0x83ff, 0x7c00, 0xfc00, 0x7e00, 0x4248,
            0x5640, 0x3800, 0xc100, 0x6400,
        ],
        "bf16" => vec![
            0, 0x8000, 0x3f80, 0xbf80, 0x3eab, 0x7f7f, 0xff7f, 0x0080, 0x0001, 0x807f, 0x7f80, 0xff80, 0x7fc0, 0x4049,
            0x4348, 0x3f00, 0xc020, 0x4780,
        ],
        "pred" => return vec![0, 1],
        _ => {
            let bits = 8 * size(ty) as u32;
            let all = u64::MAX >> (64 - bits);
            let top = 1u64 << (bits - 1);
            vec![
                0,
                1,
                2,
                3,
                5,
                7,
                31,
                32,
                33,
                127,
                128,
                255,
                all,
                all - 1,
                top,
                top - 1,
                top + 1,
                all / 3,
                64,
                0x1234 & all,
            ]
        }
    };
    for _ in 0..10 {
        let bits = random.next();
        let mask = u64::MAX >> (64 - 8 * size(ty));
        // Random bits of a float are often huge; these are not.
        values.push(match ty {
            "f32" => u64::from((((bits >> 40) as f32) / 65536.0 - 100.0).to_bits()),
            "f64" => ((bits >> 11) as f64 / 1e12 - 4000.0).to_bits(),
            _ => bits & mask,
        });
    }
    values
}

/// Numbers by xorshift.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// All combinations of up to two operands' values; a sample of those of three.
fn combinations(types: &[&str]) -> Vec<Vec<u64>> {
    let pools: Vec<Vec<u64>> = types.iter().map(|ty| values(ty)).collect();
    match pools.as_slice() {
        [] => vec![vec![]; 70],
        [a] => a.iter().map(|x| vec![*x]).collect(),
        [a, b] => a.iter().flat_map(|x| b.iter().map(|y| vec![*x, *y])).collect(),
        pools => {
            let mut random = Random(99);
            let pick = |pool: &Vec<u64>, random: &mut Random| pool[(random.next() % pool.len() as u64) as usize];
            (0..1500)
                .map(|_| pools.iter().map(|p| pick(p, &mut random)).collect())
                .collect()
        }
    }
}

fn load(register: &str, ty: &str, place: usize) -> String {
    match ty {
        "pred" => format!("ld.global.u32 %r9, [%rd10+{place}];\nsetp.ne.u32 {register}, %r9, 0;\n"),
        _ => format!("ld.global.b{} {register}, [%rd10+{place}];\n", 8 * size(ty)),
    }
}

fn declare(register: &str, ty: &str) -> String {
    let ty = match ty {
        "pred" => "pred".to_string(),
        _ => format!("b{}", 8 * size(ty)),
    };
    format!(".reg .{ty} {register};\n")
}

/// True if two results are the same; any NaN equals any other.
fn same(ty: &str, found: u64, wanted: u64) -> bool {
    let half = |x: u64, exponent: u64| x & 0x7fff > exponent;
    let pair = |exponent: u64| {
        (0..2).all(|k| {
            let (f, w) = (found >> (16 * k) & 0xffff, wanted >> (16 * k) & 0xffff);
            f == w || half(f, exponent) && half(w, exponent)
        })
    };
    found == wanted
        || match ty {
            "f32" => f32::from_bits(found as u32).is_nan() && f32::from_bits(wanted as u32).is_nan(),
            "f64" => f64::from_bits(found).is_nan() && f64::from_bits(wanted).is_nan(),
            "f16" => half(found, 0x7c00) && half(wanted, 0x7c00),
            "bf16" => half(found, 0x7f80) && half(wanted, 0x7f80),
            "f16x2" => pair(0x7c00),
            "bf16x2" => pair(0x7f80),
            _ => false,
        }
}

/// Checks every row. Each lane of several warps has other operands; the last warp is not full.
pub(crate) fn check(rows: &[Row<'_>]) {
    for (text, dst, srcs, formula) in rows {
        let cases = combinations(srcs);
        let device = Device::new();
        let input: Vec<u64> = cases
            .iter()
            .flat_map(|c| c.iter().copied().chain([0; 4]).take(4))
            .collect();
        let (input, output) = (
            device.upload(&input),
            device.upload(&vec![0xdead_beef_u64; cases.len()]),
        );
        let names = ["%a", "%b", "%c", "%e"];
        let mut body = declare("%d", dst);
        let mut loads = String::new();
        for (k, ty) in srcs.iter().enumerate() {
            body += &declare(names[k], ty);
            loads += &load(names[k], ty, 8 * k);
        }
        let store = match *dst {
            "pred" => "selp.u32 %r9, 1, 0, %d;\nst.global.u32 [%rd12], %r9;\n".to_string(),
            ty => format!("st.global.b{} [%rd12], %d;\n", 8 * size(ty)),
        };
        body += &format!(
            "setp.ge.u32 %p0, %r0, {};\n@%p0 bra DONE;\nmul.wide.u32 %rd10, %r0, 32;\nadd.u64 %rd10, %rd10, %rd0;\n\
             {loads}\n{text}\nmul.wide.u32 %rd12, %r0, 8;\nadd.u64 %rd12, %rd12, %rd1;\n{store}DONE:\n",
            cases.len()
        );
        let ptx = module(2, "", &body);
        let blocks = cases.len().div_ceil(96) as u32;
        if let Err(fault) = device.launch(&ptx, shape(blocks, 96), &[input.base, output.base], false) {
            panic!("{fault}\n{ptx}");
        }
        let found: Vec<u64> = device.read(&output);
        for (case, found) in cases.iter().zip(found) {
            let bits = 8 * size(dst);
            let mask = u64::MAX >> (64 - bits);
            let (found, wanted) = (found & mask, formula(case) & mask);
            assert!(
                same(dst, found, wanted),
                "{text}: of {case:x?} came {found:#x}, not {wanted:#x}"
            );
        }
    }
}
