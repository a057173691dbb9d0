//! `wgmma.mma_async`: products of small integers, which are exact, for every number of columns, type, layout and transpose.

use kiln_simulator::FaultKind;

use crate::half::{BF16, F16};
use crate::kernel::{Device, Shape, module};
use crate::table::Random;

/// The ways in which a matrix lies in shared memory: bytes of a swizzle, or 16 for none.
const WIDTHS: [u64; 4] = [16, 32, 64, 128];

#[derive(Clone, Copy, Debug)]
struct Case {
    ty: &'static str,
    columns: usize,
    /// Of A and of B.
    width: [u64; 2],
    transpose: [bool; 2],
    negate: [bool; 2],
    keep: bool,
    /// True if A comes from registers.
    registers: bool,
}

impl Case {
    fn depth(&self) -> usize {
        32 / self.bytes()
    }

    fn bytes(&self) -> usize {
        if self.ty == "tf32" { 4 } else { 2 }
    }
}

/// A matrix of small integers, of which one dimension runs along k.
fn matrix(random: &mut Random, rows: usize, cols: usize) -> Vec<Vec<f64>> {
    let mut row = || (0..cols).map(|_| (random.next() % 9) as f64 - 4.0).collect();
    (0..rows).map(|_| row()).collect()
}

fn encode(ty: &str, x: f64) -> u32 {
    match ty {
        "f16" => F16.round(x, "rn") as u32,
        "bf16" => BF16.round(x, "rn") as u32,
        // Bits below TF32's mantissa are not read.
        _ => (x as f32).to_bits() | 0x1abc,
    }
}

/// One matrix as CUTLASS writes a canonical layout down: shapes and strides, then the swizzle of the address.
struct Canonical {
    start: u64,
    width: u64,
    leading: u64,
    stride: u64,
    transposed: bool,
    bytes: u64,
}

impl Canonical {
    /// The offset of an element by its place across (m or n) and along k.
    fn offset(&self, across: usize, k: usize) -> u64 {
        let (across, k) = (across as u64, k as u64);
        let (per, w) = (16 / self.bytes, self.width / 16);
        let elements = |n: u64| n * self.bytes;
        let plain = match (self.transposed, w) {
            // ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
            (true, 1) => {
                elements(across % per) + across / per * self.stride + elements(k % 8 * per) + k / 8 * self.leading
            }
            // ((T,w,m),(8,k)):((1,T,LBO),(wT,SBO))
            (true, _) => {
                let run = across / per;
                elements(across % per + run % w * per)
                    + run / w * self.leading
                    + elements(k % 8 * w * per)
                    + k / 8 * self.stride
            }
            // ((8,m),(T,2)):((1T,SBO),(1,LBO))
            (false, 1) => {
                elements(across % 8 * per) + across / 8 * self.stride + elements(k % per) + k / per * self.leading
            }
            // ((8,m),(T,2)):((wT,SBO),(1,T))
            (false, _) => elements(across % 8 * w * per) + across / 8 * self.stride + elements(k),
        };
        let place = self.start + plain;
        let bits = match self.width {
            16 => 0,
            32 => 1,
            64 => 3,
            _ => 7,
        };
        place ^ (place >> 7 & bits) << 4
    }

    fn descriptor(&self) -> u64 {
        let mode = match self.width {
            16 => 0,
            32 => 3,
            64 => 2,
            _ => 1,
        };
        self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | mode << 62
    }
}

/// A layout without overlaps whose distances between atoms have room left over.
fn canonical(case: &Case, side: usize, n: usize, start: u64) -> Canonical {
    let (width, bytes) = (case.width[n], case.bytes() as u64);
    let atom = 8 * width;
    let across = side as u64 * bytes;
    // Atoms lie one after the other along one of the two strides; the other passes over all of them.
    let (leading, stride) = match (case.transpose[n], width) {
        (true, 16) => (across / 16 * atom + 1024, atom),
        (true, _) => (atom + 1024, (across.div_ceil(width)) * (atom + 1024)),
        (false, 16) => (side as u64 / 8 * atom + 512, atom),
        (false, _) => (16, atom + 1024),
    };
    Canonical {
        start,
        width,
        leading,
        stride,
        transposed: case.transpose[n],
        bytes,
    }
}

fn number(f: impl Fn(usize) -> u32, packed: usize) -> u32 {
    (0..packed).fold(0, |word, e| word | f(e) << (16 * e))
}

/// Runs a product and compares it with the sums in f64.
fn check(case: Case, seed: u64) {
    let mut random = Random(seed + 11);
    let (n, depth, packed) = (case.columns, case.depth(), 4 / case.bytes());
    let a = matrix(&mut random, 64, depth);
    let b = matrix(&mut random, depth, n);
    let c = matrix(&mut random, 64, n);
    let mut image = vec![0u8; 128 << 10];
    let mut place = |layout: &Canonical, side: usize, value: &dyn Fn(usize, usize) -> f64| {
        let mut end = 0;
        for across in 0..side {
            for k in 0..depth {
                let at = layout.offset(across, k) as usize;
                let bits = encode(case.ty, value(across, k)).to_le_bytes();
                image[at..at + case.bytes()].copy_from_slice(&bits[..case.bytes()]);
                end = end.max(at + case.bytes());
            }
        }
        end
    };
    let of_a = canonical(&case, 64, 0, 1024);
    let end = place(&of_a, 64, &|row, k| a[row][k]);
    let of_b = canonical(&case, n, 1, (end as u64).next_multiple_of(1024));
    let end = place(&of_b, n, &|col, k| b[k][col]).next_multiple_of(16 * 128);

    let results = n / 2;
    // Row and column of register r of a thread, and of element e of register r of A.
    let of_result = |t: usize, r: usize| {
        let (warp, lane) = (t / 32, t % 32);
        (
            16 * warp + lane / 4 + 8 * (r / 2 % 2),
            8 * (r / 4) + 2 * (lane % 4) + r % 2,
        )
    };
    let in_a = |t: usize, r: usize, e: usize| {
        let (warp, lane) = (t / 32, t % 32);
        (
            16 * warp + lane / 4 + 8 * (r % 2),
            lane % 4 * packed + e + r / 2 * 4 * packed,
        )
    };
    let mut words = Vec::new();
    for t in 0..128 {
        words.extend((0..results).map(|r| {
            let (row, col) = of_result(t, r);
            (c[row][col] as f32).to_bits()
        }));
        words.extend((0..4).map(|r| {
            number(
                |e| {
                    let (row, k) = in_a(t, r, e);
                    encode(case.ty, a[row][k])
                },
                packed,
            )
        }));
    }
    let sign = |n: usize| if case.negate[n] { -1 } else { 1 };
    let transposes = match (case.ty, case.registers) {
        ("tf32", _) => String::new(),
        (_, true) => format!(", {}", u32::from(case.transpose[1])),
        _ => format!(", {}, {}", u32::from(case.transpose[0]), u32::from(case.transpose[1])),
    };
    let each = 4 * (results + 4);
    let list: Vec<String> = (0..results).map(|r| format!("%d{r}")).collect();
    let loads: String = (0..results)
        .map(|r| format!("ld.global.f32 %d{r}, [%rd10+{}];\n", 4 * r))
        .chain((0..4).map(|r| format!("ld.global.u32 %w{r}, [%rd10+{}];\n", 4 * (results + r))))
        .collect();
    let stores: String = (0..results)
        .map(|r| format!("st.global.f32 [%rd11+{}], %d{r};\n", 4 * r))
        .collect();
    let body = format!(
        ".reg .f32 %d<128>;\n.reg .b32 %w<4>;\nmov.u32 %r4, smem;\nshl.b32 %r5, %r2, 4;\nFILL:\ncvt.u64.u32 %rd9, %r5;\n\
         add.u64 %rd9, %rd9, %rd0;\nld.global.v4.u32 {{%r10,%r11,%r12,%r13}}, [%rd9];\nadd.u32 %r6, %r5, %r4;\n\
         st.shared.v4.u32 [%r6], {{%r10,%r11,%r12,%r13}};\nadd.u32 %r5, %r5, 2048;\nsetp.lt.u32 %p0, %r5, {end};\n\
         @%p0 bra FILL;\nfence.proxy.async.shared::cta;\nbar.sync 0;\nmul.wide.u32 %rd10, %r2, {each};\n\
         add.u64 %rd10, %rd10, %rd1;\n{loads}setp.eq.u32 %p1, {}, 1;\nwgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n{n}k{depth}.f32.{ty}.{ty} {{{}}}, {}, %rd4, %p1, {}, {}{transposes};\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmul.wide.u32 %rd11, %r2, {};\n\
         add.u64 %rd11, %rd11, %rd2;\n{stores}",
        u32::from(case.keep),
        list.join(", "),
        if case.registers { "{%w0, %w1, %w2, %w3}" } else { "%rd3" },
        sign(0),
        sign(1),
        4 * results,
        ty = case.ty,
    );
    let device = Device::new();
    let (image, words) = (device.upload(&image), device.upload(&words));
    let out = device.upload(&vec![0f32; 128 * results]);
    let params = [image.base, words.base, out.base, of_a.descriptor(), of_b.descriptor()];
    let shape = Shape {
        blocks: 1,
        threads: 128,
        dynamic: end as u32,
    };
    let ptx = module(5, ".extern .shared .align 1024 .b8 smem[];", &body);
    if let Err(fault) = device.launch(&ptx, shape, &params, seed.is_multiple_of(4)) {
        panic!("{fault}\n{case:?}\n{ptx}");
    }
    let found: Vec<f32> = device.read(&out);
    let signs = f64::from(sign(0) * sign(1));
    for t in 0..128 {
        for r in 0..results {
            let (row, col) = of_result(t, r);
            let sum: f64 = (0..depth).map(|k| a[row][k] * b[k][col]).sum();
            let wanted = signs * sum + if case.keep { c[row][col] } else { 0.0 };
            let found = f64::from(found[t * results + r]);
            assert_eq!(found, wanted, "{case:?}: row {row}, column {col}");
        }
    }
}

fn case(random: &mut Random, columns: usize) -> Case {
    let mut pick = |n: u64| random.next() >> 20 & (n - 1);
    let ty = ["bf16", "f16", "tf32", "bf16"][pick(4) as usize];
    let registers = pick(4) == 0;
    let flip = |n: u64| ty != "tf32" && n == 1;
    Case {
        ty,
        columns,
        width: [WIDTHS[pick(4) as usize], WIDTHS[pick(4) as usize]],
        transpose: [flip(pick(2)) && !registers, flip(pick(2))],
        negate: [pick(2) == 1, pick(2) == 1],
        keep: pick(2) == 1,
        registers,
    }
}

#[test]
fn products_of_every_number_of_columns() {
    let mut random = Random(5);
    for columns in (8..=256).step_by(8) {
        for _ in 0..2 {
            let seed = random.next() >> 8;
            check(case(&mut random, columns), seed);
        }
    }
}

#[test]
fn products_of_every_layout() {
    let mut seed = 0u64;
    for ty in ["bf16", "f16", "tf32"] {
        for width in WIDTHS {
            for sides in 0..8 {
                let (registers, transpose) = (sides & 4 != 0, [sides & 1 != 0, sides & 2 != 0]);
                if transpose[0] && registers || ty == "tf32" && transpose != [false; 2] {
                    continue;
                }
                seed += 1;
                let case = Case {
                    ty,
                    columns: [24, 64, 136][seed as usize % 3],
                    width: [width, WIDTHS[(seed / 2) as usize % 4]],
                    transpose,
                    negate: [seed.is_multiple_of(3), seed.is_multiple_of(5)],
                    keep: seed.is_multiple_of(2),
                    registers,
                };
                check(case, seed);
            }
        }
    }
}

const PRODUCT: &str =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, 1, 1, 1, 0, 0;\n";

/// A kernel with zeros in shared memory and descriptors of A and B in `%rd1` and `%rd2`.
fn outcome(threads: u32, body: &str, check: bool) -> Result<(), kiln_simulator::Fault> {
    let start = "mov.u32 %r4, smem;\nmov.u64 %rd1, 0x800400000;\nmov.u64 %rd2, 0x800400000;\nshl.b32 %r5, %r2, 4;\n\
                 add.u32 %r5, %r5, %r4;\nst.shared.v4.u32 [%r5], {0, 0, 0, 0};\nfence.proxy.async;\nbar.sync 0;\n\
                 wgmma.fence.sync.aligned;\n";
    let device = Device::new();
    let x = device.upload(&[0u32; 64]);
    let ptx = module(1, ".extern .shared .align 1024 .b8 smem[];", &format!("{start}{body}"));
    let shape = Shape {
        blocks: 1,
        threads,
        dynamic: 8192,
    };
    device.launch(&ptx, shape, &[x.base], check)
}

#[test]
fn all_threads_of_a_warpgroup_take_part() {
    for check in [false, true] {
        let refused = |threads: u32, body: &str, words: &str| {
            let fault = outcome(threads, body, check).expect_err(body);
            assert!(
                fault.kind == FaultKind::Warp && fault.message.contains(words),
                "{fault}\n{body}"
            );
        };
        outcome(128, PRODUCT, check).expect("no fault");
        outcome(384, PRODUCT, check).expect("no fault");
        // The second warpgroup alone.
        outcome(256, &format!("setp.ge.u32 %p0, %r2, 128;\n@%p0 {PRODUCT}"), check).expect("no fault");
        refused(96, PRODUCT, "four warps make a warpgroup");
        refused(
            192,
            &format!("setp.ge.u32 %p0, %r2, 128;\n@%p0 {PRODUCT}"),
            "four warps make a warpgroup",
        );
        refused(128, &format!("setp.ne.u32 %p0, %r2, 5;\n@%p0 {PRODUCT}"), "only lanes");
        refused(
            128,
            &format!("setp.lt.u32 %p0, %r2, 32;\n@%p0 exit;\n{PRODUCT}"),
            "whose warp 0 has lanes that have exited",
        );
        refused(
            128,
            &format!("setp.lt.u32 %p0, %r2, 64;\n@%p0 {PRODUCT}@!%p0 {PRODUCT}"),
            "waits at another one",
        );
        refused(
            128,
            &format!("cvt.u64.u32 %rd3, %r2;\nadd.u64 %rd1, %rd1, %rd3;\n{PRODUCT}"),
            "differ in a descriptor",
        );
        refused(
            128,
            &format!(
                "setp.lt.u32 %p0, %r2, 40;\n{}",
                PRODUCT.replace(" 1, 1, 1,", " %p0, 1, 1,")
            ),
            "differ in scale-d",
        );
        let waiting = format!("setp.lt.u32 %p0, %r2, 32;\n@%p0 bar.sync 1, 128;\n{PRODUCT}");
        let fault = outcome(128, &waiting, check).expect_err("a deadlock");
        assert!(
            fault.message.contains("wait for the other warps of their warpgroup"),
            "{fault}"
        );
    }
}

#[test]
fn matrices_lie_in_shared_memory() {
    for (descriptor, kind, words) in [
        ("0x8003fffff", FaultKind::IllegalAddress, "by a matrix descriptor"),
        (
            "0x3fff00400000",
            FaultKind::IllegalAddress,
            "of 8192 bytes of shared memory",
        ),
        ("0x2000800400000", FaultKind::Unsupported, "base offset"),
    ] {
        for register in ["%rd1", "%rd2"] {
            let eights = PRODUCT
                .replace("m64n8", "m64n16")
                .replace("%f3}", "%f3, %f4, %f5, %f6, %f7}");
            let body = format!("mov.u64 {register}, {descriptor};\n{eights}");
            let fault = outcome(128, &body, false).expect_err(&body);
            assert!(fault.kind == kind && fault.message.contains(words), "{fault}\n{body}");
        }
    }
}
