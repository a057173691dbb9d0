//! Logic, shifts, bit fields, selections.

use crate::table::check;

#[test]
fn logic() {
    check(&[
        ("and.b32 %d, %a, %b;", "b32", &["b32", "b32"], &|x| x[0] & x[1]),
        ("or.b64 %d, %a, %b;", "b64", &["b64", "b64"], &|x| x[0] | x[1]),
        ("xor.b16 %d, %a, %b;", "b16", &["b16", "b16"], &|x| x[0] ^ x[1]),
        ("not.b32 %d, %a;", "b32", &["b32"], &|x| !x[0]),
        ("cnot.b32 %d, %a;", "b32", &["b32"], &|x| u64::from(x[0] == 0)),
        ("and.pred %d, %a, %b;", "pred", &["pred", "pred"], &|x| x[0] & x[1]),
        ("or.pred %d, %a, %b;", "pred", &["pred", "pred"], &|x| x[0] | x[1]),
        ("xor.pred %d, %a, %b;", "pred", &["pred", "pred"], &|x| x[0] ^ x[1]),
        ("not.pred %d, %a;", "pred", &["pred"], &|x| x[0] ^ 1),
        ("mov.pred %d, %a;", "pred", &["pred"], &|x| x[0]),
        ("mov.f32 %d, %a;", "f32", &["f32"], &|x| x[0]),
        ("mov.u16 %d, %a;", "u16", &["u16"], &|x| x[0]),
        ("lop3.b32 %d, %a, %b, %c, 0xE8;", "b32", &["b32", "b32", "b32"], &|x| {
            x[0] & x[1] | x[0] & x[2] | x[1] & x[2]
        }),
        ("lop3.b32 %d, %a, %b, %c, 0x96;", "b32", &["b32", "b32", "b32"], &|x| {
            x[0] ^ x[1] ^ x[2]
        }),
        ("lop3.b32 %d, %a, %b, %c, 0x40;", "b32", &["b32", "b32", "b32"], &|x| {
            x[0] & x[1] & !x[2]
        }),
    ]);
}

#[test]
fn shifts() {
    let left = |x: u64, by: u64, bits: u64| if by >= bits { 0 } else { x << by };
    let right = |x: u64, by: u64, bits: u64| if by >= bits { 0 } else { x >> by };
    check(&[
        ("shl.b16 %d, %a, %b;", "b16", &["b16", "u32"], &|x| left(x[0], x[1], 16)),
        ("shl.b32 %d, %a, %b;", "b32", &["b32", "u32"], &|x| left(x[0], x[1], 32)),
        ("shl.b64 %d, %a, %b;", "b64", &["b64", "u32"], &|x| left(x[0], x[1], 64)),
        ("shr.u16 %d, %a, %b;", "u16", &["u16", "u32"], &|x| {
            right(x[0], x[1], 16)
        }),
        ("shr.b32 %d, %a, %b;", "b32", &["b32", "u32"], &|x| {
            right(x[0], x[1], 32)
        }),
        ("shr.u64 %d, %a, %b;", "u64", &["u64", "u32"], &|x| {
            right(x[0], x[1], 64)
        }),
        ("shr.s16 %d, %a, %b;", "s16", &["s16", "u32"], &|x| {
            (x[0] as i16 >> x[1].min(15)) as u64
        }),
        ("shr.s32 %d, %a, %b;", "s32", &["s32", "u32"], &|x| {
            (x[0] as i32 >> x[1].min(31)) as u64
        }),
        ("shr.s64 %d, %a, %b;", "s64", &["s64", "u32"], &|x| {
            (x[0] as i64 >> x[1].min(63)) as u64
        }),
        ("shf.l.wrap.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "u32"], &|x| {
            ((x[1] << 32 | x[0]) << (x[2] & 31)) >> 32
        }),
        ("shf.r.wrap.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "u32"], &|x| {
            (x[1] << 32 | x[0]) >> (x[2] & 31)
        }),
        ("shf.l.clamp.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "u32"], &|x| {
            ((x[1] << 32 | x[0]) << x[2].min(32)) >> 32
        }),
        ("shf.r.clamp.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "u32"], &|x| {
            (x[1] << 32 | x[0]) >> x[2].min(32)
        }),
    ]);
}

#[test]
fn counts_and_places() {
    let top = |x: u64| {
        if x == 0 {
            u64::MAX
        } else {
            63 - u64::from(x.leading_zeros())
        }
    };
    check(&[
        ("brev.b32 %d, %a;", "b32", &["b32"], &|x| {
            u64::from((x[0] as u32).reverse_bits())
        }),
        ("brev.b64 %d, %a;", "b64", &["b64"], &|x| x[0].reverse_bits()),
        ("popc.b32 %d, %a;", "u32", &["b32"], &|x| u64::from(x[0].count_ones())),
        ("popc.b64 %d, %a;", "u32", &["b64"], &|x| u64::from(x[0].count_ones())),
        ("clz.b32 %d, %a;", "u32", &["b32"], &|x| {
            u64::from((x[0] as u32).leading_zeros())
        }),
        ("clz.b64 %d, %a;", "u32", &["b64"], &|x| u64::from(x[0].leading_zeros())),
        ("bfind.u32 %d, %a;", "u32", &["u32"], &|x| top(x[0])),
        ("bfind.u64 %d, %a;", "u32", &["u64"], &|x| top(x[0])),
        ("bfind.s32 %d, %a;", "u32", &["s32"], &|x| {
            let x = x[0] as i32;
            top(u64::from(if x < 0 { !x } else { x } as u32))
        }),
        ("bfind.shiftamt.u32 %d, %a;", "u32", &["u32"], &|x| {
            if x[0] == 0 { u64::MAX } else { 31 - top(x[0]) }
        }),
        ("bfind.shiftamt.s64 %d, %a;", "u32", &["s64"], &|x| {
            let y = x[0] as i64;
            let y = if y < 0 { !y } else { y } as u64;
            if y == 0 { u64::MAX } else { 63 - top(y) }
        }),
        ("fns.b32 %d, %a, 0, 3;", "u32", &["b32"], &|x| {
            (0..32).filter(|k| x[0] >> k & 1 != 0).nth(2).unwrap_or(u64::MAX)
        }),
        ("fns.b32 %d, %a, 20, -2;", "u32", &["b32"], &|x| {
            (0..=20).rev().filter(|k| x[0] >> k & 1 != 0).nth(1).unwrap_or(u64::MAX)
        }),
        ("fns.b32 %d, %a, 7, 0;", "u32", &["b32"], &|x| {
            if x[0] >> 7 & 1 != 0 { 7 } else { u64::MAX }
        }),
    ]);
}

/// The field's definition in the PTX manual, bit by bit.
fn field(a: u64, at: u64, len: u64, bits: u64, signed: bool) -> u64 {
    let (at, len) = (at & 255, len & 255);
    let sign = if !signed || len == 0 {
        0
    } else {
        a >> (at + len - 1).min(bits - 1) & 1
    };
    (0..bits).fold(0, |d, k| {
        d | (if k < len && at + k < bits {
            a >> (at + k) & 1
        } else {
            sign
        }) << k
    })
}

#[test]
fn fields() {
    let insert = |x: &[u64], at: u64, len: u64, bits: u64| {
        (0..bits).fold(0, |d, k| {
            d | (if k >= at && k < at + len {
                x[0] >> (k - at)
            } else {
                x[1] >> k
            } & 1)
                << k
        })
    };
    check(&[
        ("bfe.u32 %d, %a, %b, %c;", "u32", &["u32", "u32", "u32"], &|x| {
            field(x[0], x[1], x[2], 32, false)
        }),
        ("bfe.s32 %d, %a, %b, %c;", "s32", &["s32", "u32", "u32"], &|x| {
            field(x[0], x[1], x[2], 32, true)
        }),
        ("bfe.u64 %d, %a, %b, %c;", "u64", &["u64", "u32", "u32"], &|x| {
            field(x[0], x[1], x[2], 64, false)
        }),
        ("bfe.s64 %d, %a, %b, %c;", "s64", &["s64", "u32", "u32"], &|x| {
            field(x[0], x[1], x[2], 64, true)
        }),
        ("bfi.b32 %d, %a, %b, %c, 7;", "b32", &["b32", "b32", "u32"], &|x| {
            insert(x, x[2] & 255, 7, 32)
        }),
        ("bfi.b32 %d, %a, %b, 5, %c;", "b32", &["b32", "b32", "u32"], &|x| {
            insert(x, 5, x[2] & 255, 32)
        }),
        ("bfi.b64 %d, %a, %b, %c, 33;", "b64", &["b64", "b64", "u32"], &|x| {
            insert(x, x[2] & 255, 33, 64)
        }),
    ]);
}

#[test]
fn permutations_of_bytes() {
    fn pick(x: &[u64], control: u64) -> u64 {
        let both = x[1] << 32 | x[0];
        (0..4).fold(0, |d, k| {
            let nibble = control >> (4 * k) & 15;
            let byte = both >> (8 * (nibble & 7)) & 255;
            d | (if nibble & 8 == 0 {
                byte
            } else if byte & 128 != 0 {
                255
            } else {
                0
            }) << (8 * k)
        })
    }
    check(&[
        ("prmt.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "b32"], &|x| {
            pick(x, x[2])
        }),
        ("prmt.b32.f4e %d, %a, %b, %c;", "b32", &["b32", "b32", "b32"], &|x| {
            (x[1] << 32 | x[0]) >> (8 * (x[2] & 3))
        }),
        ("prmt.b32.rc8 %d, %a, %b, %c;", "b32", &["b32", "b32", "b32"], &|x| {
            (x[0] >> (8 * (x[2] & 3)) & 255) * 0x0101_0101
        }),
        ("prmt.b32.rc16 %d, %a, %b, %c;", "b32", &["b32", "b32", "b32"], &|x| {
            (x[0] >> (16 * (x[2] & 1)) & 0xffff) * 0x1_0001
        }),
    ]);
}

#[test]
fn selections() {
    let f = |x: u64| f32::from_bits(x as u32);
    check(&[
        ("selp.b32 %d, %a, %b, %c;", "b32", &["b32", "b32", "pred"], &|x| {
            if x[2] != 0 { x[0] } else { x[1] }
        }),
        ("selp.f64 %d, %a, %b, %c;", "f64", &["f64", "f64", "pred"], &|x| {
            if x[2] != 0 { x[0] } else { x[1] }
        }),
        ("selp.u16 %d, %a, 9, %b;", "u16", &["u16", "pred"], &|x| {
            if x[1] != 0 { x[0] } else { 9 }
        }),
        ("slct.u32.s32 %d, %a, %b, %c;", "u32", &["u32", "u32", "s32"], &|x| {
            if x[2] as i32 >= 0 { x[0] } else { x[1] }
        }),
        ("slct.u64.f32 %d, %a, %b, %c;", "u64", &["u64", "u64", "f32"], &|x| {
            if f(x[2]) >= 0.0 { x[0] } else { x[1] }
        }),
        ("copysign.f32 %d, %a, %b;", "f32", &["f32", "f32"], &|x| {
            x[0] & 1 << 31 | x[1] & 0x7fff_ffff
        }),
        ("copysign.f64 %d, %a, %b;", "f64", &["f64", "f64"], &|x| {
            x[0] & 1 << 63 | x[1] & (u64::MAX >> 1)
        }),
    ]);
}

#[test]
fn packs_and_unpacks() {
    check(&[
        ("mov.b32 %d, {%a, %b};", "b32", &["b16", "b16"], &|x| x[0] | x[1] << 16),
        ("mov.b64 %d, {%a, %b};", "b64", &["b32", "b32"], &|x| x[0] | x[1] << 32),
        ("mov.b64 %d, {%a, %b, 7, %a};", "b64", &["b16", "b16"], &|x| {
            x[0] | x[1] << 16 | 7 << 32 | x[0] << 48
        }),
        ("{.reg .b16 t;\nmov.b32 {t, %d}, %a;}", "b16", &["b32"], &|x| x[0] >> 16),
        ("mov.b32 {%d, _}, %a;", "b16", &["b32"], &|x| x[0]),
        ("mov.b64 {_, %d}, %a;", "b32", &["b64"], &|x| x[0] >> 32),
        (
            "{.reg .b16 s, t, u;\nmov.b64 {s, t, u, %d}, %a;}",
            "b16",
            &["b64"],
            &|x| x[0] >> 48,
        ),
    ]);
}
