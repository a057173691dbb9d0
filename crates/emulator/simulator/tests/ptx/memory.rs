//! Loads, stores, address spaces, parameters, variables, asynchronous copies.

use crate::kernel::{Device, Shape, module, outcome, shape};

/// `%rd1` = the output's address of this thread's 32-bit place.
const MINE: &str = "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\n";

#[test]
fn sizes_and_signs() {
    let bytes: Vec<u8> = (0..64).map(|k| (k * 37 + 200) as u8).collect();
    let at = |k: usize, n: usize| (0..n).rev().fold(0u64, |x, b| x << 8 | u64::from(bytes[k * n + b]));
    type Widen = fn(u64) -> u64;
    let rows: [(&str, &str, usize, Widen); 13] = [
        ("ld.global.u8 %r5", "", 1, |x| x),
        ("ld.global.s8 %r5", "", 1, |x| x as i8 as u32 as u64),
        ("ld.global.nc.u16 %r5", "", 2, |x| x),
        ("ld.global.s16 %r5", "", 2, |x| x as i16 as u32 as u64),
        ("ld.global.ca.u32 %r5", "", 4, |x| x),
        ("ld.volatile.global.u32 %r5", "", 4, |x| x),
        ("ld.u8 %h0", "cvt.u32.u16 %r5, %h0;", 1, |x| x),
        ("ld.s8 %h0", "cvt.s32.s16 %r5, %h0;", 1, |x| x as i8 as u32 as u64),
        ("ld.relaxed.gpu.global.s32 %rd5", "cvt.u32.u64 %r5, %rd5;", 4, |x| x),
        ("ldu.global.u32 %r5", "", 4, |x| x),
        ("ldu.u16 %r5", "", 2, |x| x),
        ("ldu.global.s8 %r5", "", 1, |x| x as i8 as u32 as u64),
        ("ldu.global.v2.u16 {%h0, %h1}", "mov.b32 %r5, {%h0, %h1};", 4, |x| x),
    ];
    for (load, after, size, widen) in rows {
        let device = Device::new();
        let (input, output) = (device.upload(&bytes), device.upload(&[0u32; 16]));
        let body = format!(
            "mul.wide.u32 %rd2, %r0, {size};\nadd.u64 %rd2, %rd2, %rd0;\n{load}, [%rd2];\n{after}\n\
             mul.wide.u32 %rd3, %r0, 4;\nadd.u64 %rd3, %rd3, %rd1;\nst.global.u32 [%rd3], %r5;"
        );
        device
            .launch(&module(2, "", &body), shape(1, 16), &[input.base, output.base], true)
            .expect("no fault");
        let wanted: Vec<u32> = (0..16).map(|k| widen(at(k, size)) as u32).collect();
        assert_eq!(device.read::<u32>(&output), wanted, "{load}");
    }
}

#[test]
fn cache_hints_change_no_value() {
    // `discard` leaves its bytes undefined until they are written, so it takes the output's.
    let rows = [
        "prefetch.global.L1 [%rd2];",
        "prefetch.global.L2 [%rd2+4];",
        "prefetch.L1 [%rd2];",
        "prefetch.global.L2::evict_last [%rd2];",
        "prefetchu.L1 [%rd2];",
        "applypriority.global.L2::evict_normal [%rd0], 128;",
        "applypriority.L2::evict_normal [%rd0], 128;",
        "discard.global.L2 [%rd1], 128;",
        "@%p0 discard.L2 [%rd1], 128;",
    ];
    let values: Vec<u32> = (0..32).map(|k| k * 0x0101_0107 + 3).collect();
    for hint in rows {
        let device = Device::new();
        let (input, output) = (device.upload(&values), device.upload(&[0u32; 32]));
        let body = format!(
            "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd2, %rd1;\nadd.u64 %rd2, %rd2, %rd0;\n\
             setp.eq.u32 %p0, %r0, 0;\nmov.u32 %r5, 9;\n{hint}\nld.global.u32 %r6, [%rd2];\nadd.u32 %r6, %r6, %r5;\n\
             st.global.u32 [%rd3], %r6;"
        );
        device
            .launch(&module(2, "", &body), shape(1, 32), &[input.base, output.base], true)
            .unwrap_or_else(|fault| panic!("{hint}: {fault}"));
        let wanted: Vec<u32> = values.iter().map(|v| v + 9).collect();
        assert_eq!(device.read::<u32>(&output), wanted, "{hint}");
        assert_eq!(device.read::<u32>(&input), values, "{hint}");
    }
}

#[test]
fn narrow_stores_leave_their_neighbours() {
    let body = "mul.wide.u32 %rd1, %r0, 8;\nadd.u64 %rd1, %rd1, %rd0;\nmov.u32 %r5, -1;\nst.global.u8 [%rd1+1], %r5;\n\
                mov.u16 %h0, 0x1234;\nst.global.b16 [%rd1+4], %h0;\nst.u8 [%rd1+7], %h0;";
    assert_eq!(
        outcome::<u64>(shape(1, 33), 33, "", body),
        vec![0x3400_1234_0000_ff00; 33]
    );
}

#[test]
fn vectors() {
    let device = Device::new();
    let input: Vec<u32> = (0..256).map(|k| k * k + 1).collect();
    let (input, output) = (device.upload(&input), device.upload(&[0u32; 256]));
    // Each thread reverses four words; 40 of them, so that the second warp is not full.
    let body = "mul.wide.u32 %rd2, %r0, 16;\nadd.u64 %rd3, %rd2, %rd0;\nadd.u64 %rd4, %rd2, %rd1;\n\
                ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];\nst.global.v2.u32 [%rd4], {%r8, %r7};\n\
                st.global.v2.b32 [%rd4+8], {%r6, %r5};";
    device
        .launch(&module(2, "", body), shape(2, 20), &[input.base, output.base], true)
        .expect("no fault");
    let found: Vec<u32> = device.read(&output);
    let wanted = |k: usize| {
        (if k < 160 {
            (k / 4 * 4 + 3 - k % 4) as u32
        } else {
            return 0;
        })
        .pow(2)
            + 1
    };
    assert_eq!(found, (0..256).map(wanted).collect::<Vec<_>>());
}

#[test]
fn shared_memory_of_three_kinds() {
    let declarations = ".shared .align 4 .b8 table[256];\n.extern .shared .align 16 .b8 dynamic[];";
    // Through a name, through a generic address, and through dynamic memory behind both static variables.
    let body = format!(
        ".shared .align 4 .u32 own[64];\n{MINE}mov.u32 %r3, own;\nshl.b32 %r4, %r2, 2;\nadd.u32 %r5, %r3, %r4;\n\
         st.shared.u32 [%r5], %r2;\nmov.u64 %rd2, table;\ncvta.shared.u64 %rd3, %rd2;\ncvt.u64.u32 %rd4, %r4;\n\
         add.u64 %rd3, %rd3, %rd4;\nmul.lo.u32 %r6, %r2, 10;\nst.u32 [%rd3], %r6;\nmov.u32 %r7, dynamic;\n\
         add.u32 %r7, %r7, %r4;\nmul.lo.u32 %r6, %r2, 100;\nst.shared.u32 [%r7], %r6;\nbar.sync 0;\n\
         xor.b32 %r8, %r4, 252;\nadd.u32 %r9, %r3, %r8;\nld.shared.u32 %r10, [%r9];\n\
         cvta.to.shared.u64 %rd5, %rd3;\ncvt.u32.u64 %r11, %rd5;\nld.shared.u32 %r12, [%r11];\n\
         mov.u32 %r13, dynamic;\nadd.u32 %r13, %r13, %r8;\nld.shared.u32 %r14, [%r13];\n\
         add.u32 %r10, %r10, %r12;\nadd.u32 %r10, %r10, %r14;\nisspacep.shared %p0, %rd3;\n\
         isspacep.shared %p1, %rd1;\n@!%p0 mov.u32 %r10, 0;\n@%p1 mov.u32 %r10, 1;\nst.global.u32 [%rd1], %r10;"
    );
    let found = outcome::<u32>(
        Shape {
            blocks: 2,
            threads: 64,
            dynamic: 256,
        },
        128,
        declarations,
        &body,
    );
    let wanted: Vec<u32> = (0..128)
        .map(|k| k % 64)
        .map(|t| (63 - t) + 10 * t + 100 * (63 - t))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn local_memory_is_each_lanes_own() {
    let body = format!(
        ".local .align 8 .b8 depot[32];\n{MINE}mov.u64 %rd2, depot;\ncvta.local.u64 %rd3, %rd2;\nst.u32 [%rd3+4], %r0;\n\
         st.local.u32 [%rd2+8], 7;\nst.local.u32 [depot+12], 9;\nand.b32 %r3, %r0, 1;\nmul.wide.u32 %rd4, %r3, 4;\n\
         add.u64 %rd4, %rd4, %rd2;\nld.local.u32 %r4, [%rd4+4];\nld.u32 %r5, [%rd3+12];\nadd.u32 %r4, %r4, %r5;\n\
         st.global.u32 [%rd1], %r4;"
    );
    let found = outcome::<u32>(shape(1, 40), 40, "", &body);
    assert_eq!(
        found,
        (0..40)
            .map(|k| 9 + if k % 2 == 0 { k } else { 7 })
            .collect::<Vec<u32>>()
    );
}

#[test]
fn parameters_of_every_size() {
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u8 small, .param .u16 half,\n\
               .param .align 8 .b8 record[24], .param .u64 .ptr .align 1 out)\n{\n.reg .b16 %h<4>;\n.reg .b32 %r<9>;\n\
               .reg .b64 %rd<9>;\nld.param.s8 %r0, [small];\nld.param.u16 %h1, [half];\n\
               ld.param.v2.u32 {%r1, %r2}, [record+8];\nld.param.u64 %rd0, [out];\nmov.b64 %rd1, record;\n\
               mov.u32 %r3, %tid.x;\nmul.wide.u32 %rd2, %r3, 4;\nadd.u64 %rd1, %rd1, %rd2;\nld.param.u32 %r4, [%rd1+16];\n\
               cvt.u32.u16 %r5, %h1;\nst.global.v4.u32 [%rd0], {%r0, %r5, %r1, %r2};\nadd.u64 %rd0, %rd0, %rd2;\n\
               st.global.u32 [%rd0+16], %r4;\nret;\n}\n";
    let program = kiln_simulator::Program::load(ptx).expect("a program");
    let kernel = program.kernel("k").expect("a kernel");
    let offsets: Vec<(u32, u32)> = kernel.params().iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(
        (offsets, kernel.param_bytes()),
        (vec![(0, 1), (2, 2), (8, 24), (32, 8)], 40)
    );
    let device = Device::new();
    let out = device.upload(&[0u32; 6]);
    let mut bytes = vec![0xfe, 0, 0x34, 0x12, 0, 0, 0, 0];
    bytes.extend((1u32..=6).flat_map(u32::to_le_bytes));
    bytes.extend(out.base.to_le_bytes());
    device.launch_bytes(&kernel, shape(1, 2), &bytes).expect("no fault");
    assert_eq!(device.read::<u32>(&out), [0xffff_fffe, 0x1234, 3, 4, 5, 6]);
}

#[test]
fn variables_of_a_module() {
    let declarations = ".const .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};\n\
                        .global .align 4 .u32 counter = 5;\n.global .align 4 .f32 scale[2] = {0f40000000, 0f40400000};\n\
                        .global .align 8 .u64 there = generic(scale)+4;\n.global .align 4 .b8 zeros[8];";
    let body = format!(
        "{MINE}and.b32 %r3, %r0, 1;\nmul.wide.u32 %rd2, %r3, 4;\nmov.u64 %rd3, table;\nadd.u64 %rd3, %rd3, %rd2;\n\
         ld.const.u32 %r4, [%rd3];\nld.global.u32 %r5, [counter];\nld.global.u64 %rd4, [there];\nld.f32 %f0, [%rd4];\n\
         cvt.rni.u32.f32 %r6, %f0;\nld.const.u32 %r7, [table+4];\nld.global.u32 %r8, [zeros+4];\nadd.u32 %r4, %r4, %r5;\n\
         mad.lo.u32 %r4, %r6, 100, %r4;\nmad.lo.u32 %r4, %r7, 1000, %r4;\nadd.u32 %r4, %r4, %r8;\nst.global.u32 [%rd1], %r4;"
    );
    let found = outcome::<u32>(shape(1, 4), 4, declarations, &body);
    assert_eq!(found, [2306, 2307, 2306, 2307]);
}

const STAGE: &str = ".shared .align 16 .b8 stage[512];";

/// Each thread copies 4 words; the words that it reads before and after the wait are the output.
fn staged(copy: &str, between: &str) -> Vec<u32> {
    let device = Device::new();
    let (input, output) = (
        device.upload(&(1..=128u32).collect::<Vec<_>>()),
        device.upload(&[0u32; 64]),
    );
    let body = format!(
        "mul.wide.u32 %rd2, %r0, 16;\nadd.u64 %rd3, %rd0, %rd2;\nmov.u32 %r3, stage;\nshl.b32 %r4, %r0, 4;\n\
         add.u32 %r4, %r4, %r3;\nst.shared.v4.u32 [%r4], {{%r3, %r3, %r3, %r3}};\nsetp.gt.u32 %p0, %r0, 1;\n{copy}\n\
         ld.shared.u32 %r5, [%r4+12];\n{between}\nld.shared.u32 %r6, [%r4+12];\nmul.wide.u32 %rd4, %r0, 8;\n\
         add.u64 %rd4, %rd4, %rd1;\nst.global.v2.u32 [%rd4], {{%r5, %r6}};"
    );
    device
        .launch(
            &module(2, STAGE, &body),
            shape(1, 32),
            &[input.base, output.base],
            false,
        )
        .expect("no fault");
    device.read(&output)
}

#[test]
fn asynchronous_copies_come_with_their_wait() {
    let last: Vec<u32> = (1..=32).map(|t| 4 * t).collect();
    let interleaved = |second: &dyn Fn(usize) -> u32| {
        (0..64)
            .map(|k| if k % 2 == 0 { 0 } else { second(k / 2) })
            .collect::<Vec<_>>()
    };
    let copy = "cp.async.cg.shared.global [%r4], [%rd3], 16;\n";
    let all = interleaved(&|t| last[t]);
    assert_eq!(staged(copy, "cp.async.wait_all;"), all);
    assert_eq!(
        staged(&format!("{copy}cp.async.commit_group;"), "cp.async.wait_group 0;"),
        all
    );
    // One group may still be under way, and so may a copy that no group holds.
    assert_eq!(
        staged(&format!("{copy}cp.async.commit_group;"), "cp.async.wait_group 1;"),
        interleaved(&|_| 0)
    );
    assert_eq!(staged(copy, "cp.async.wait_group 0;"), interleaved(&|_| 0));
    // Fewer bytes fill up with zeros; a true predicate reads nothing.
    let part = "cp.async.ca.shared.global [%r4+8], [%rd3+8], 8, 4;\n";
    assert_eq!(staged(part, "cp.async.wait_all;"), interleaved(&|_| 0));
    let ignore = "cp.async.ca.shared.global [%r4+12], [%rd3+12], 4, %p0;\n";
    assert_eq!(
        staged(ignore, "cp.async.wait_all;"),
        interleaved(&|t| if t > 1 { 0 } else { last[t] })
    );
    // A guard leaves lanes out.
    let guarded = "@%p0 cp.async.ca.shared.global [%r4+12], [%rd3+12], 4;\n";
    assert_eq!(
        staged(guarded, "cp.async.wait_all;"),
        interleaved(&|t| if t > 1 { last[t] } else { 0 })
    );
}
