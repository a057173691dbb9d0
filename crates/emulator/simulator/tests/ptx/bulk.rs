//! `cp.async.bulk` and tensor maps.

use kiln_simulator::{Fault, FaultKind, Program, TensorMap};

use crate::kernel::{Device, Shape, fault, outcome, shape};
use crate::table::Random;

/// Bytes of shared memory that the kernels give back.
const BYTES: usize = 48 << 10;

/// Copies one box to shared memory, which is full of ones, and shared memory to the output.
fn kernel(rank: usize) -> String {
    let place: Vec<String> = (0..rank).map(|n| format!("%c{n}")).collect();
    let loads: String = (0..rank)
        .map(|n| format!("ld.param.u32 %c{n}, [place+{}];\n", 4 * n))
        .collect();
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n\
         .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 bytes, .param .align 4 .b8 place[20])\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<32>;\n.reg .b32 %c<5>;\n.reg .b64 %rd<16>;\n.shared .align 8 .b64 bar;\n\
         mov.u32 %r2, %tid.x;\nmov.u32 %r3, smem;\nld.param.u64 %rd1, [out];\nld.param.u32 %r4, [bytes];\n{loads}\
         shl.b32 %r5, %r2, 4;\nFILL:\nadd.u32 %r6, %r5, %r3;\nst.shared.v4.u32 [%r6], {{0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}};\n\
         add.u32 %r5, %r5, 512;\nsetp.lt.u32 %p0, %r5, {BYTES};\n@%p0 bra FILL;\nbar.sync 0;\nsetp.eq.u32 %p1, %r2, 0;\n\
         mov.b64 %rd2, map;\ncvta.param.u64 %rd3, %rd2;\n@!%p1 bra WAIT;\nprefetch.tensormap [%rd3];\n\
         mbarrier.init.shared::cta.b64 [bar], 1;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r4;\n\
         cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [smem], [%rd3, {{{}}}], [bar];\n\
         WAIT:\nbar.sync 0;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n@!%p2 bra AGAIN;\n\
         shl.b32 %r5, %r2, 4;\nBACK:\nadd.u32 %r6, %r5, %r3;\nld.shared.v4.u32 {{%r8, %r9, %r10, %r11}}, [%r6];\n\
         cvt.u64.u32 %rd4, %r5;\nadd.u64 %rd4, %rd4, %rd1;\nst.global.v4.u32 [%rd4], {{%r8, %r9, %r10, %r11}};\n\
         add.u32 %r5, %r5, 512;\nsetp.lt.u32 %p0, %r5, {BYTES};\n@%p0 bra BACK;\nret;\n}}\n",
        place.join(", ")
    )
}

fn launch(device: &Device, map: &[u8], out: u64, bytes: u32, place: &[i32]) -> Result<(), Fault> {
    let mut params = map.to_vec();
    params.extend(out.to_le_bytes());
    params.extend(bytes.to_le_bytes());
    params.extend(place.iter().flat_map(|c| c.to_le_bytes()));
    params.resize(160, 0);
    let text = kernel(place.len());
    let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let shape = Shape {
        blocks: 1,
        threads: 32,
        dynamic: BYTES as u32,
    };
    device.launch_bytes(&program.kernel("k").expect("a kernel named k"), shape, &params)
}

#[test]
fn boxes_are_copied_with_zeros_outside_and_a_swizzle() {
    let mut random = Random(77);
    let mut pick = |n: u64| (random.next() >> 16) % n;
    for round in 0..60 {
        let rank = 1 + round % 5;
        let element = [1u32, 2, 4, 8][pick(4) as usize];
        let swizzle = pick(4) as u8;
        let inner = [16 * (1 + pick(4) as u32), 32, 64, 128][usize::from(swizzle)];
        let mut boxes = vec![inner / element];
        let (mut sizes, mut strides) = (vec![1 + pick(2 * u64::from(inner / element))], Vec::new());
        let mut stride = (sizes[0] * u64::from(element)).next_multiple_of(16) + 16 * pick(3);
        for _ in 1..rank {
            boxes.push(1 + pick(4) as u32);
            sizes.push(1 + pick(5));
            strides.push(stride);
            stride *= sizes[sizes.len() - 1];
        }
        let len = stride.max(16) as usize;
        let content: Vec<u8> = (0..len).map(|_| pick(256) as u8).collect();
        let device = Device::new();
        let (tensor, out) = (device.upload(&content), device.upload(&vec![0u8; BYTES]));
        let map = TensorMap {
            address: tensor.base,
            element,
            sizes: sizes.clone(),
            strides: strides.clone(),
            boxes: boxes.clone(),
            swizzle,
        };
        let place: Vec<i32> = (0..rank)
            .map(|d| pick(sizes[d] + u64::from(boxes[d]) + 2) as i32 - boxes[d] as i32 - 1)
            .collect();
        let bytes = inner * boxes[1..].iter().product::<u32>();
        let encoded = map.encode().expect("a tensor map");
        launch(&device, &encoded, out.base, bytes, &place).unwrap_or_else(|e| panic!("{e}\n{map:?} at {place:?}"));
        let found: Vec<u8> = device.read(&out);
        let mut wanted: Vec<u8> = [0, 0x3c].repeat(BYTES / 2);
        for n in 0..bytes as usize {
            let (column, mut row) = (n % inner as usize, n / inner as usize);
            let at = i64::from(place[0]) + (column / element as usize) as i64;
            let mut from = at * i64::from(element) + (column % element as usize) as i64;
            let mut there = (0..sizes[0] as i64).contains(&at);
            for d in 1..rank {
                let at = i64::from(place[d]) + (row % boxes[d] as usize) as i64;
                row /= boxes[d] as usize;
                there &= (0..sizes[d] as i64).contains(&at);
                from += at * strides[d - 1] as i64;
            }
            // Chunks of 16 bytes change places by the number of their line of 128 bytes.
            let lines = [1, 2, 4, 8][usize::from(swizzle)];
            let to = n ^ (n / 128 % lines) << 4;
            wanted[to] = if there { content[from as usize] } else { 0 };
        }
        // The static barrier comes first, so that the box begins at an aligned offset behind it.
        assert!(found == wanted, "{map:?} at {place:?}");
    }
}

#[test]
fn wrong_maps_and_places_are_named() {
    let device = Device::new();
    let (tensor, out) = (device.upload(&[0u8; 4096]), device.upload(&vec![0u8; BYTES]));
    let map = TensorMap {
        address: tensor.base,
        element: 2,
        sizes: vec![64, 32],
        strides: vec![128],
        boxes: vec![64, 8],
        swizzle: 3,
    };
    let encode = |map: &TensorMap| map.encode().expect("a tensor map");
    launch(&device, &encode(&map), out.base, 1024, &[0, 24]).expect("no fault");
    let long = TensorMap {
        sizes: vec![64, 33],
        ..map.clone()
    };
    let deep = TensorMap {
        boxes: vec![64, 256],
        ..map.clone()
    };
    let other = TensorMap {
        sizes: vec![64, 32, 1],
        strides: vec![128, 4096],
        boxes: vec![64, 8, 1],
        ..map.clone()
    };
    for (map, bytes, kind, words) in [
        (vec![0; 128], 1024, FaultKind::IllegalAddress, "no tensor map"),
        (
            encode(&other).to_vec(),
            1024,
            FaultKind::IllegalAddress,
            "2 coordinates for a tensor map of 3 dimensions",
        ),
        (
            encode(&long).to_vec(),
            1024,
            FaultKind::IllegalAddress,
            "out-of-bounds read",
        ),
        // More bytes come than are expected, or fewer.
        (
            encode(&map).to_vec(),
            1008,
            FaultKind::Barrier,
            "wait for a phase of an mbarrier",
        ),
        (
            encode(&map).to_vec(),
            1040,
            FaultKind::Barrier,
            "wait for a phase of an mbarrier",
        ),
    ] {
        let fault = launch(&device, &map, out.base, bytes, &[0, 26]).expect_err(words);
        assert!(fault.kind == kind && fault.message.contains(words), "{fault}");
    }
    // 256 rows of 128 bytes are less than there is of shared memory.
    launch(&device, &encode(&deep), out.base, 32768, &[0, 0]).expect("no fault");
}

const SHARED: &str = ".file 1 \"case.cu\"\n.shared .align 8 .b64 bar;\n.shared .align 128 .b8 tile[256];\n";

/// A copy of 128 bytes in line 7 and a barrier; `BEFORE` and `AFTER` are what stands around its wait.
const COPY: &str = "
    setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r10, tile;
    and.b32 %r12, %r2, 31;
    mad.lo.u32 %r12, %r12, 4, %r10;
    @!%p1 bra START;
    mbarrier.init.shared::cta.b64 [bar], 1;
START:
    BEFORE
    bar.sync 0;
    @!%p1 bra REST;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    .loc 1 7 0
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd0+FROM], SIZE, [bar];
REST:
    WAIT
    AFTER
";
const WAIT: &str = "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;\n@!p bra WAIT;\n}\n";
const READ: &str = ".loc 1 9 0\nld.shared.u32 %r13, [%r12];\nadd.u32 %r13, %r13, 5;\nmul.wide.u32 %rd2, %r2, 4;\n\
                    add.u64 %rd2, %rd2, %rd0;\nst.global.u32 [%rd2+128], %r13;";

fn body(before: &str, wait: &str, after: &str) -> String {
    let body = COPY.replace("FROM", "0").replace("SIZE", "128");
    body.replace("BEFORE", before)
        .replace("    WAIT\n", wait)
        .replace("AFTER", after)
}

#[test]
fn bytes_are_copied() {
    let found = outcome::<u32>(shape(1, 32), 64, SHARED, &body("", WAIT, READ));
    assert_eq!(found[32..], [5; 32]);
    for (from, size, kind, words) in [
        ("4", "128", FaultKind::Misaligned, "multiples of 16"),
        ("0", "120", FaultKind::Misaligned, "multiples of 16"),
        (
            "0",
            "512",
            FaultKind::IllegalAddress,
            "out-of-bounds write of 512 bytes",
        ),
        ("192", "128", FaultKind::IllegalAddress, "across the end of allocation"),
    ] {
        let text = COPY.replace("FROM", from).replace("SIZE", size);
        let text = text
            .replace("BEFORE", "")
            .replace("    WAIT\n", WAIT)
            .replace("AFTER", "");
        let found = fault(shape(1, 32), 256, SHARED, &text, false).expect_err(&text);
        assert!(found.kind == kind && found.message.contains(words), "{found}");
    }
}

#[test]
fn the_checker_follows_copies() {
    let told = |body: &str, words: &[&str]| {
        let found = fault(shape(1, 64), 512, SHARED, body, true)
            .expect_err(body)
            .to_string();
        assert!(words.iter().all(|word| found.contains(word)), "{found}\n{body}");
    };
    let right = |body: &str| fault(shape(1, 64), 512, SHARED, body, true).unwrap_or_else(|e| panic!("{e}\n{body}"));
    right(&body("", WAIT, READ));
    told(&body("", "", READ), &["race", "case.cu:7", "case.cu:9"]);
    // The bytes are written over before the copy, in order and not.
    let put = ".loc 1 5 0\nsetp.lt.u32 %p2, %r2, 32;\n@%p2 st.shared.u32 [%r12], 1;\n";
    right(&body(put, WAIT, READ));
    told(
        &body("", "", &format!("{put}{WAIT}")),
        &["has not waited for its cp.async", "case.cu:5", "case.cu:7"],
    );
    right(&body("", WAIT, &format!("{READ}\nbar.sync 0;\n{put}")));
    // A read that the barrier does not order before the next copy.
    let again = "\nbar.sync 0;\n@!%p1 bra OVER;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;\n.loc 1 11 0\n\
                 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%rd0], 128, [bar];\nOVER:";
    right(&body("", WAIT, &format!("{READ}{again}")));
    told(
        &body("", WAIT, &format!("{READ}{}", again.replace("bar.sync 0;\n", ""))),
        &["race", "case.cu:9", "case.cu:11"],
    );
}
