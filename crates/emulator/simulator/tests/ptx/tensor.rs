//! `mma.sync`, `ldmatrix` and `stmatrix`: products of small integers, which are exact in every format.

use crate::half::{BF16, F16};
use crate::kernel::{Device, module, shape};
use crate::table::Random;

/// Fragments as the PTX manual lays them out: row and column of element `e` of register `r` of lane `l`.
fn a_place(l: usize, r: usize, e: usize, packed: usize) -> (usize, usize) {
    (l / 4 + 8 * (r % 2), l % 4 * packed + e + r / 2 * 4 * packed)
}

fn b_place(l: usize, r: usize, e: usize, packed: usize) -> (usize, usize) {
    (l % 4 * packed + e + r * 4 * packed, l / 4)
}

fn c_place(l: usize, r: usize) -> (usize, usize) {
    (l / 4 + 8 * (r / 2), l % 4 * 2 + r % 2)
}

struct Matrices {
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
    c: Vec<Vec<f64>>,
}

fn matrices(k: usize) -> Matrices {
    let mut random = Random(k as u64 + 3);
    let mut matrix = |rows: usize, cols: usize| -> Vec<Vec<f64>> {
        (0..rows)
            .map(|_| (0..cols).map(|_| (random.next() % 9) as f64 - 4.0).collect())
            .collect()
    };
    Matrices {
        a: matrix(16, k),
        b: matrix(k, 8),
        c: matrix(16, 8),
    }
}

fn encode(ty: &str, x: f64) -> u32 {
    match ty {
        "f16" => F16.round(x, "rn") as u32,
        "bf16" => BF16.round(x, "rn") as u32,
        // Bits below TF32's mantissa are not read.
        "tf32" => (x as f32).to_bits() | 0x1abc,
        _ => (x as f32).to_bits(),
    }
}

fn product(m: &Matrices, k: usize) -> Vec<Vec<f64>> {
    let at = |i: usize, j: usize| m.c[i][j] + (0..k).map(|q| m.a[i][q] * m.b[q][j]).sum::<f64>();
    (0..16).map(|i| (0..8).map(|j| at(i, j)).collect()).collect()
}

#[test]
fn products() {
    let rows = [
        ("m16n8k16", 16, "bf16", "f32", "f32"),
        ("m16n8k16", 16, "f16", "f32", "f32"),
        ("m16n8k16", 16, "f16", "f16", "f16"),
        ("m16n8k16", 16, "f16", "f32", "f16"),
        ("m16n8k8", 8, "bf16", "f32", "f32"),
        ("m16n8k8", 8, "f16", "f32", "f32"),
        ("m16n8k8", 8, "f16", "f16", "f16"),
        ("m16n8k8", 8, "tf32", "f32", "f32"),
        ("m16n8k4", 4, "tf32", "f32", "f32"),
    ];
    for (shape_name, k, ty, d_ty, c_ty) in rows {
        let m = matrices(k);
        let packed = if ty == "tf32" { 1 } else { 2 };
        let (na, nb) = (16 * k / 32 / packed, 8 * k / 32 / packed);
        let count = |ty: &str| if ty == "f16" { 2 } else { 4 };
        let (nc, nd) = (count(c_ty), count(d_ty));
        let mut words = Vec::new();
        for l in 0..32 {
            let word = |f: &dyn Fn(usize) -> u32| (0..packed).fold(0, |w, e| w | f(e) << (16 * e));
            for r in 0..na {
                words.push(word(&|e| {
                    let (i, q) = a_place(l, r, e, packed);
                    encode(ty, m.a[i][q])
                }));
            }
            for r in 0..nb {
                words.push(word(&|e| {
                    let (q, j) = b_place(l, r, e, packed);
                    encode(ty, m.b[q][j])
                }));
            }
            let c = |r: usize| {
                let (i, j) = c_place(l, r);
                encode(c_ty, m.c[i][j])
            };
            for r in 0..nc {
                words.push(if nc == 2 { c(2 * r) | c(2 * r + 1) << 16 } else { c(r) });
            }
        }
        let total = na + nb + nc;
        let device = Device::new();
        let (input, output) = (device.upload(&words), device.upload(&vec![0u32; 32 * nd]));
        let loads: String = (0..total)
            .map(|n| format!("ld.global.u32 %r{}, [%rd2+{}];\n", 10 + n, 4 * n))
            .collect();
        let list = |start: usize, n: usize| {
            let names: Vec<String> = (start..start + n).map(|n| format!("%r{n}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let stores: String = (0..nd)
            .map(|n| format!("st.global.u32 [%rd3+{}], %r{};\n", 4 * n, 40 + n))
            .collect();
        let body = format!(
            "mul.wide.u32 %rd2, %r0, {};\nadd.u64 %rd2, %rd2, %rd0;\n{loads}\
             mma.sync.aligned.{shape_name}.row.col.{d_ty}.{ty}.{ty}.{c_ty} {}, {}, {}, {};\n\
             mul.wide.u32 %rd3, %r0, {};\nadd.u64 %rd3, %rd3, %rd1;\n{stores}",
            4 * total,
            list(40, nd),
            list(10, na),
            list(10 + na, nb),
            list(10 + na + nb, nc),
            4 * nd
        );
        device
            .launch(&module(2, "", &body), shape(1, 32), &[input.base, output.base], true)
            .expect("no fault");
        let found: Vec<u32> = device.read(&output);
        let wanted = product(&m, k);
        for l in 0..32 {
            for r in 0..4 {
                let (i, j) = c_place(l, r);
                let value = if nd == 2 {
                    F16.value(u64::from(found[2 * l + r / 2] >> (16 * (r % 2)) & 0xffff))
                } else {
                    f64::from(f32::from_bits(found[4 * l + r]))
                };
                assert_eq!(value, wanted[i][j], "{shape_name} {ty} {d_ty}: row {i}, column {j}");
            }
        }
    }
}

#[test]
fn matrices_are_loaded() {
    for (count, trans) in [(1usize, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
        let device = Device::new();
        // Shared halves are numbered; row n of all matrices lies at n * 16 bytes, in reverse order of the lanes.
        let output = device.upload(&vec![0u32; 32 * count]);
        let names: Vec<String> = (0..count).map(|n| format!("%r{}", 20 + n)).collect();
        let stores: String = (0..count)
            .map(|n| format!("st.global.u32 [%rd3+{}], %r{};\n", 4 * n, 20 + n))
            .collect();
        let fill: String = (0..8)
            .map(|n| {
                format!(
                    "mad.lo.u32 %r5, %r0, 8, {n};\ncvt.u16.u32 %h0, %r5;\nst.shared.u16 [%r4+{}], %h0;\n",
                    2 * n
                )
            })
            .collect();
        let body = format!(
            ".shared .align 16 .b8 s[512];\nmov.u32 %r3, s;\nshl.b32 %r4, %r0, 4;\nadd.u32 %r4, %r4, %r3;\n{fill}bar.sync 0;\n\
             sub.u32 %r6, 31, %r0;\nshl.b32 %r6, %r6, 4;\nadd.u32 %r6, %r6, %r3;\n\
             ldmatrix.sync.aligned.m8n8.x{count}{}.shared.b16 {{{}}}, [%r6];\nmul.wide.u32 %rd3, %r0, {};\n\
             add.u64 %rd3, %rd3, %rd0;\n{stores}",
            if trans { ".trans" } else { "" },
            names.join(", "),
            4 * count
        );
        device
            .launch(&module(1, "", &body), shape(1, 32), &[output.base], true)
            .expect("no fault");
        let found: Vec<u32> = device.read(&output);
        for l in 0..32 {
            for m in 0..count {
                let element = |e: usize| {
                    let (row, col) = if trans {
                        (2 * (l % 4) + e, l / 4)
                    } else {
                        (l / 4, 2 * (l % 4) + e)
                    };
                    ((31 - (8 * m + row)) * 8 + col) as u32
                };
                assert_eq!(
                    found[l * count + m],
                    element(0) | element(1) << 16,
                    "x{count} lane {l} matrix {m}"
                );
            }
        }
    }
}

#[test]
fn matrices_are_stored() {
    for (count, trans) in [(1usize, false), (2, false), (4, false), (1, true), (2, true), (4, true)] {
        let device = Device::new();
        let output = device.upload(&vec![0u32; 32 * 4]);
        // Lane l holds 64 * matrix + 2 * l and the number after it; row n of all matrices goes to n * 16 bytes, in reverse order
        // of the lanes.
        let names: Vec<String> = (0..count).map(|n| format!("%r{}", 20 + n)).collect();
        let values: String = (0..count)
            .map(|m| {
                format!(
                    "mad.lo.u32 %r{}, %r0, 0x20002, {};\n",
                    20 + m,
                    (64 * m) | (64 * m + 1) << 16
                )
            })
            .collect();
        let body = format!(
            ".shared .align 16 .b8 s[512];\nmov.u32 %r3, s;\nshl.b32 %r4, %r0, 4;\nadd.u32 %r4, %r4, %r3;\n\
             st.shared.v4.u32 [%r4], {{0, 0, 0, 0}};\nbar.warp.sync -1;\nsub.u32 %r6, 31, %r0;\nshl.b32 %r6, %r6, 4;\n\
             add.u32 %r6, %r6, %r3;\n{values}\
             stmatrix.sync.aligned.m8n8.x{count}{}.shared.b16 [%r6], {{{}}};\nbar.warp.sync -1;\n\
             ld.shared.v4.u32 {{%r30, %r31, %r32, %r33}}, [%r4];\nshl.b32 %r5, %r0, 4;\ncvt.u64.u32 %rd3, %r5;\n\
             add.u64 %rd3, %rd3, %rd0;\nst.global.v4.u32 [%rd3], {{%r30, %r31, %r32, %r33}};\n",
            if trans { ".trans" } else { "" },
            names.join(", "),
        );
        device
            .launch(&module(1, "", &body), shape(1, 32), &[output.base], true)
            .expect("no fault");
        let found: Vec<u16> = device.read(&output);
        for row in 0..32 {
            for col in 0..8 {
                let at = 31 - row;
                let (m, i, j) = if trans {
                    (at / 8, col, at % 8)
                } else {
                    (at / 8, at % 8, col)
                };
                let wanted = if m < count { 64 * m + 8 * i + j } else { 0 };
                assert_eq!(
                    usize::from(found[8 * row + col]),
                    wanted,
                    "x{count} row {row} column {col}"
                );
            }
        }
    }
}
