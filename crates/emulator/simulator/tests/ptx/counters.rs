//! The counters of launches whose numbers follow from the PTX by hand.

use kiln_simulator::memory::{Kind, Memory, copy};
use kiln_simulator::{Access, AccessClass, Counters, Launch, Options, Program, Spread, System, Traffic, run_counted};

use crate::kernel::{OPTIONS, module};

/// Blocks of which a device holds this many at one time.
const WAVE: u64 = 4;

/// What a kernel with this body does, which is the same on one thread and on two, and with the checker. `%rd0` is the address of
/// 64 KiB of zeros.
fn counted(blocks: u32, threads: u32, body: &str) -> Counters {
    let text = module(1, ".shared .align 16 .b8 tile[8192];\n", body);
    let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let kernel = program.kernel("k").expect("a kernel named k");
    let once = |workers, check| {
        let memory = Memory::new(1 << 24, true);
        let x = memory.allocate(0, 1 << 16, Kind::Device).expect("memory");
        let zeros = vec![0u8; 1 << 16];
        // SAFETY: both spans have 64 KiB.
        unsafe { copy(&memory, x.base, zeros.as_ptr() as u64, 1 << 16) };
        let launch = Launch {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            params: &x.base.to_le_bytes(),
            variables: &[],
            workspace: 0,
            system: &System::new(1 << 20),
        };
        let options = Options {
            check,
            resident: WAVE,
            ..OPTIONS
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
        let (result, counters) = pool.install(|| run_counted(&kernel, &launch, &memory.snapshot(), &options));
        let faults = result.err().unwrap_or_default();
        assert!(
            faults.iter().all(|f| check && f.kind.is_finding()),
            "{faults:?}\n{text}"
        );
        counters
    };
    let counters = once(1, false);
    assert_eq!(once(2, false), counters, "on two threads\n{text}");
    assert_eq!(once(1, true), counters, "in checker mode\n{text}");
    assert_eq!(once(2, true), counters, "in checker mode on two threads\n{text}");
    for access in &counters.accesses {
        assert!(access.traffic.parts >= access.traffic.minimum, "{access:?}\n{text}");
    }
    counters
}

fn traffic(requests: u64, parts: u64, minimum: u64, bytes: u64) -> Traffic {
    Traffic {
        requests,
        parts,
        minimum,
        bytes,
    }
}

fn spread(count: u64, sum: u64, min: u64, max: u64) -> Spread {
    Spread { count, sum, min, max }
}

/// The only access to global memory, or to shared memory.
fn only(counters: &Counters, shared: bool) -> Access {
    let found: Vec<_> = counters.accesses.iter().filter(|a| a.shared == shared).collect();
    let [access] = found[..] else { panic!("{found:?}") };
    access.clone()
}

/// One warp, whose lane `l` accesses byte `stride · l + offset` by an instruction on `[%rd10]`.
fn global(stride: u32, offset: u32, instruction: &str) -> Counters {
    let body = format!(
        "mul.lo.u32 %r10, %r2, {stride};\nadd.u32 %r10, %r10, {offset};\ncvt.u64.u32 %rd10, %r10;\n\
         add.u64 %rd10, %rd10, %rd0;\n{instruction}\n"
    );
    counted(1, 32, &body)
}

#[test]
fn sectors_of_a_warp() {
    let (one, two, four) = (
        "ld.global.u32 %r30, [%rd10];",
        "ld.global.v2.u32 {%r30, %r31}, [%rd10];",
        "ld.global.nc.v4.u32 {%r30, %r31, %r32, %r33}, [%rd10];",
    );
    for (stride, offset, load, wanted, lines) in [
        // 128, 256 and 512 bytes side by side: 4, 8 and 16 sectors of 32.
        (4, 0, one, traffic(1, 4, 4, 128), 1),
        (8, 0, two, traffic(1, 8, 8, 256), 2),
        (16, 0, four, traffic(1, 16, 16, 512), 4),
        // Every second word of 256 bytes: all their 8 sectors, of which 4 could hold what is read.
        (8, 0, one, traffic(1, 8, 4, 128), 2),
        // A word of each line: a sector each.
        (128, 0, one, traffic(1, 32, 4, 128), 32),
        // 128 bytes that begin 4 bytes late: a part of a fifth sector.
        (4, 4, one, traffic(1, 5, 4, 128), 2),
        // One sector late: 4 sectors, of two lines.
        (4, 32, one, traffic(1, 4, 4, 128), 2),
        // 16 bytes late, as rows of 8 values in half precision may begin: 512 bytes are parts of 17 sectors, of five lines.
        (16, 16, four, traffic(1, 17, 16, 512), 5),
        // All lanes at one word.
        (0, 64, one, traffic(1, 1, 1, 4), 1),
        // Bytes.
        (1, 0, "ld.global.u8 %r30, [%rd10];", traffic(1, 1, 1, 32), 1),
    ] {
        let counters = global(stride, offset, load);
        let access = only(&counters, false);
        assert_eq!(
            (access.class, access.traffic),
            (AccessClass::Load, wanted),
            "{stride} {offset} {load}"
        );
        assert_eq!(
            (counters.lines_read, counters.lines_written),
            (lines, 0),
            "{stride} {offset} {load}"
        );
    }
}

#[test]
fn stores_and_atomics_are_told_apart() {
    let store = global(8, 0, "st.global.u32 [%rd10], %r2;");
    assert_eq!(only(&store, false).traffic, traffic(1, 8, 4, 128));
    assert_eq!(
        (only(&store, false).class, store.lines_read, store.lines_written),
        (AccessClass::Store, 0, 2)
    );
    let atomic = global(4, 0, "red.global.add.u32 [%rd10], 1;");
    assert_eq!(only(&atomic, false).traffic, traffic(1, 4, 4, 128));
    assert_eq!(
        (only(&atomic, false).class, atomic.lines_read, atomic.lines_written),
        (AccessClass::Atomic, 1, 1)
    );
    // Of a guarded access, the lanes whose guard holds: 8 words.
    let some = global(4, 0, "setp.lt.u32 %p1, %r2, 8;\n@%p1 ld.global.u32 %r30, [%rd10];");
    assert_eq!(only(&some, false).traffic, traffic(1, 1, 1, 32));
    // A generic address counts for the memory it leads to; local memory and parameters for none.
    let generic = global(4, 0, "ld.u32 %r30, [%rd10];");
    assert_eq!(only(&generic, false).traffic, traffic(1, 4, 4, 128));
}

/// One warp, whose lane `l` accesses byte `stride · l` of shared memory by an instruction on `[%r12]`.
fn shared(stride: u32, instruction: &str) -> Traffic {
    let body = format!("mov.u32 %r10, tile;\nmad.lo.u32 %r12, %r2, {stride}, %r10;\n{instruction}\n");
    only(&counted(1, 32, &body), true).traffic
}

#[test]
fn wavefronts_of_a_warp() {
    let (one, two, four) = (
        "ld.shared.u32 %r30, [%r12];",
        "ld.shared.v2.u32 {%r30, %r31}, [%r12];",
        "ld.shared.v4.u32 {%r30, %r31, %r32, %r33}, [%r12];",
    );
    for (stride, access, wanted) in [
        // A word of each of 32 banks.
        (4, one, traffic(1, 1, 1, 128)),
        // Every second bank, twice.
        (8, one, traffic(1, 2, 1, 128)),
        // A column of a tile of 32 words a row: one bank.
        (128, one, traffic(1, 32, 1, 128)),
        // The same of a tile whose rows are padded by a word: bank (33 · l) % 32 = l.
        (132, one, traffic(1, 1, 1, 128)),
        // All lanes at one word.
        (0, one, traffic(1, 1, 1, 4)),
        // 8 bytes: half a warp at a time, which has each bank once.
        (8, two, traffic(1, 2, 2, 256)),
        // Of every second pair of banks: each twice.
        (16, two, traffic(1, 4, 2, 256)),
        // 16 bytes: a quarter at a time.
        (16, four, traffic(1, 4, 4, 512)),
        // Lanes of a quarter at banks 0 to 3, 8 · 4 times.
        (128, four, traffic(1, 32, 4, 512)),
        // Bytes and halves of one word are passed on at once.
        (1, "ld.shared.u8 %r30, [%r12];", traffic(1, 1, 1, 32)),
        (2, "st.shared.u16 [%r12], %h0;", traffic(1, 1, 1, 64)),
        (8, "st.shared.u32 [%r12], %r2;", traffic(1, 2, 1, 128)),
        // Atomic operations on one word come one after the other.
        (4, "red.shared.add.u32 [%r12], 1;", traffic(1, 1, 1, 128)),
        (0, "red.shared.add.u32 [%r12], 1;", traffic(1, 32, 1, 4)),
    ] {
        assert_eq!(shared(stride, access), wanted, "{stride} {access}");
    }
}

#[test]
fn rows_of_ldmatrix() {
    let x4 = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r30, %r31, %r32, %r33}, [%r12];";
    // Eight rows of 16 bytes at a time. Rows 64 bytes apart: banks 0 and 16 four times each.
    assert_eq!(shared(64, x4), traffic(1, 16, 4, 512));
    // 128 bytes apart: all at bank 0.
    assert_eq!(shared(128, x4), traffic(1, 32, 4, 512));
    // Padded to 144 bytes: bank (36 · r) % 32 = 4 · r.
    assert_eq!(shared(144, x4), traffic(1, 4, 4, 512));
    // 128 bytes apart, and of each row the 16 bytes whose place is the row's number, as an exclusive or gives them.
    let swizzle = "and.b32 %r13, %r2, 7;\nshl.b32 %r13, %r13, 4;\nxor.b32 %r12, %r12, %r13;\n";
    assert_eq!(shared(128, &format!("{swizzle}{x4}")), traffic(1, 4, 4, 512));
    // One and two matrices.
    let x2 = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r30, %r31}, [%r12];";
    assert_eq!(shared(16, x2), traffic(1, 2, 2, 256));
    let x1 = "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r30}, [%r12];";
    assert_eq!(shared(64, x1), traffic(1, 4, 1, 128));
}

#[test]
fn a_branch_that_splits_a_warp() {
    let before = counted(1, 32, "");
    let two = "setp.lt.u32 %p1, %r2, 8;\n@%p1 bra THEN;\nadd.u32 %r30, %r2, 1;\nbra.uni JOIN;\nTHEN:\nadd.u32 %r30, %r2, 2;\n\
               JOIN:\n";
    let counters = counted(1, 32, two);
    // setp and the branch by 32 lanes, then add and bra by 24, and the other add by 8. They meet again before `ret`.
    assert_eq!(counters.instructions, before.instructions + 5);
    assert_eq!(counters.active_lanes, before.active_lanes + 2 * 32 + 2 * 24 + 8);
    // The guard of the branch holds for 8 lanes.
    assert_eq!(counters.enabled_lanes, before.enabled_lanes + 32 + 8 + 2 * 24 + 8);
    assert_eq!((counters.branches, counters.split_branches), (2, 1));
    // Whole warps go different ways: nothing splits.
    let whole = counted(1, 64, &two.replace("%r2, 8", "%r2, 32"));
    assert_eq!((whole.branches, whole.split_branches), (3, 0));
    // Half a warp of 48 threads is not there.
    let half = counted(1, 48, "");
    assert_eq!(half.active_lanes, half.instructions / 2 * 48);
    assert_eq!((half.warps, half.blocks, half.wave), (2, 1, WAVE));
}

#[test]
fn trips_of_loops() {
    // Warp w goes round 3 + 2 · w times.
    let body = "shr.u32 %r10, %r2, 5;\nmad.lo.u32 %r10, %r10, 2, 3;\nROUND:\nsub.u32 %r10, %r10, 1;\n\
                setp.ne.u32 %p1, %r10, 0;\n@%p1 bra ROUND;\n";
    let counters = counted(3, 64, body);
    let [round] = &counters.loops[..] else {
        panic!("{counters:?}")
    };
    assert_eq!((round.label.as_str(), round.place.opcode.as_str()), ("ROUND", "bra"));
    assert_eq!(round.trips, spread(6, 3 * (3 + 5), 3, 5));
    assert_eq!((round.taken, round.instructions), (3 * (2 + 4), 3 * 3 * (3 + 5)));
    assert_eq!((counters.branches, counters.split_branches), (24, 0));

    // Lanes that leave at different times: the warp goes round as often as the last, and three branches split it.
    let lanes = body.replace(
        "shr.u32 %r10, %r2, 5;\nmad.lo.u32 %r10, %r10, 2, 3;",
        "and.b32 %r10, %r2, 3;\nadd.u32 %r10, %r10, 1;",
    );
    let counters = counted(1, 32, &lanes);
    assert_eq!(counters.loops[0].trips, spread(1, 4, 4, 4));
    assert_eq!(
        (counters.branches, counters.split_branches, counters.loops[0].taken),
        (4, 3, 3)
    );

    // An inner loop of 4 trips in an outer one of 3, which is left in its middle.
    let nested = "mov.u32 %r10, 0;\nOUTER:\nsetp.eq.u32 %p1, %r10, 3;\n@%p1 bra DONE;\nmov.u32 %r11, 0;\nINNER:\n\
                  add.u32 %r11, %r11, 1;\nsetp.lt.u32 %p2, %r11, 4;\n@%p2 bra INNER;\nadd.u32 %r10, %r10, 1;\nbra.uni OUTER;\n\
                  DONE:\n";
    let counters = counted(1, 32, nested);
    let [outer, inner] = &counters.loops[..] else {
        panic!("{counters:?}")
    };
    assert_eq!(
        (outer.label.as_str(), outer.trips, outer.taken),
        ("OUTER", spread(1, 3, 3, 3), 3)
    );
    assert_eq!(
        (inner.label.as_str(), inner.trips, inner.taken),
        ("INNER", spread(1, 12, 12, 12), 9)
    );
    assert_eq!((inner.place.inside, outer.place.inside), (Some(0), None));
    // Four of the test at the top, three each of mov, add and bra.
    assert_eq!((outer.instructions, inner.instructions), (2 * 4 + 3 * 3, 3 * 12));
}

#[test]
fn accesses_and_waits_name_their_loop() {
    let body = "mov.u32 %r10, 0;\nld.global.u32 %r30, [%rd0];\nROUND:\n.loc 1 7 0\nld.global.u32 %r31, [%rd0+4];\n\
                add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p1, %r10, 5;\n@%p1 bra ROUND;\n";
    let counters = counted(1, 32, body);
    let [before, inside] = &counters.accesses[..] else {
        panic!("{counters:?}")
    };
    assert_eq!((before.place.inside, before.traffic.requests), (None, 1));
    assert_eq!((inside.place.inside, inside.traffic.requests), (Some(0), 5));
    assert_eq!(
        (inside.place.opcode.as_str(), inside.place.source_line),
        ("ld.global.u32", 7)
    );
    assert_eq!(inside.place.line, before.place.line + 3);
}

/// A pipeline of copies, of 16 bytes by each lane, in which this many stages are under way at a wait.
fn pipeline(stages: u32) -> Counters {
    let issue = "add.u32 %r14, %r12, %r13;\ncp.async.cg.shared.global [%r14], [%rd10], 16;\ncp.async.commit_group;\n\
                 add.u64 %rd10, %rd10, 512;\nadd.u32 %r13, %r13, 512;\nand.b32 %r13, %r13, 2047;\n";
    let body = format!(
        "mov.u32 %r10, tile;\nmad.lo.u32 %r12, %r2, 16, %r10;\nmov.u32 %r13, 0;\nmul.wide.u32 %rd10, %r2, 16;\n\
         add.u64 %rd10, %rd10, %rd0;\n{}mov.u32 %r11, 0;\nROUND:\n{issue}cp.async.wait_group {};\nadd.u32 %r11, %r11, 1;\n\
         setp.lt.u32 %p1, %r11, 6;\n@%p1 bra ROUND;\ncp.async.wait_all;\n",
        issue.repeat(stages as usize - 1),
        stages - 1,
    );
    counted(1, 32, &body)
}

#[test]
fn bytes_in_flight_at_waits() {
    for stages in [2, 3] {
        let counters = pipeline(stages);
        let [inside, last] = &counters.waits[..] else {
            panic!("{counters:?}")
        };
        // A warp copies 512 bytes at a time. At each of 6 waits those of all stages are under way, and those of one end.
        let (all, left) = (u64::from(stages) * 512, u64::from(stages - 1) * 512);
        assert_eq!(inside.under_way, spread(6, 6 * all, all, all));
        assert_eq!(inside.left, spread(6, 6 * left, left, left));
        assert_eq!((inside.place.inside, last.place.inside), (Some(0), None));
        assert_eq!(
            (last.under_way, last.left),
            (spread(1, left, left, left), spread(1, 0, 0, 0))
        );
        let ring = |shared| {
            let found = counters
                .accesses
                .iter()
                .find(|a| a.shared == shared && a.place.inside == Some(0));
            found.map(|a| (a.class, a.traffic))
        };
        // 16 sectors, and four quarters of a warp.
        assert_eq!(ring(false), Some((AccessClass::Copy, traffic(6, 96, 96, 6 * 512))));
        assert_eq!(ring(true), Some((AccessClass::Copy, traffic(6, 24, 24, 6 * 512))));
    }
    // Bytes that a copy fills with zeros are not read: 4 of 16, and nothing.
    let part = |read| {
        let copy = format!(
            "mov.u32 %r10, tile;\nmad.lo.u32 %r12, %r2, 16, %r10;\ncp.async.cg.shared.global [%r12], [%rd10], 16, {read};\ncp.async.wait_all;"
        );
        global(16, 0, &copy)
    };
    assert_eq!(only(&part(4), false).traffic, traffic(1, 16, 4, 128));
    let nothing = part(0);
    assert!(nothing.accesses.iter().all(|a| a.shared) && nothing.lines_read == 0);
    assert_eq!(only(&nothing, true).traffic, traffic(1, 4, 4, 512));
}

#[test]
fn lines_of_blocks_and_waves() {
    // Ten blocks, of which four run at one time, read a line each and all write one.
    let body = "mul.wide.u32 %rd10, %r0, 4;\nadd.u64 %rd10, %rd10, %rd0;\nld.global.u32 %r30, [%rd10];\n\
                red.global.add.u32 [%rd0+32768], 1;\n";
    let counters = counted(10, 32, body);
    // The word that is changed is read too.
    assert_eq!(
        (counters.block_lines_read, counters.block_lines_written),
        (spread(10, 20, 2, 2), spread(10, 10, 1, 1))
    );
    assert_eq!(
        (counters.wave_lines_read, counters.wave_lines_written),
        (spread(3, 5 + 5 + 3, 3, 5), spread(3, 3, 1, 1))
    );
    assert_eq!((counters.lines_read, counters.lines_written), (11, 1));
}

#[test]
fn many_blocks_count_alike_on_any_number_of_threads() {
    // Long enough for other threads to help; each block reads a part of what the next reads.
    let body = "mov.u32 %r10, 0;\nROUND:\nadd.u32 %r11, %r0, %r10;\nand.b32 %r11, %r11, 8191;\nmul.wide.u32 %rd10, %r11, 4;\n\
                add.u64 %rd10, %rd10, %rd0;\nld.global.u32 %r30, [%rd10];\nadd.u32 %r10, %r10, 33;\n\
                setp.lt.u32 %p1, %r10, 660;\n@%p1 bra ROUND;\n";
    let counters = counted(200, 96, body);
    assert_eq!(counters.loops[0].trips, spread(600, 600 * 20, 20, 20));
    let Traffic {
        requests, parts, bytes, ..
    } = only(&counters, false).traffic;
    assert_eq!((requests, bytes), (12_000, 12_000 * 128));
    // One trip in eight begins at a sector; the others touch five.
    assert!((12_000 * 4..=12_000 * 5).contains(&parts));
    assert_eq!(counters.wave_lines_read.count, 50);
}

#[test]
fn a_launch_that_is_refused_counts_nothing() {
    let program = Program::load(&module(1, "", "")).unwrap();
    let memory = Memory::new(1 << 20, false);
    let launch = Launch {
        grid: [1, 1, 1],
        block: [2048, 1, 1],
        dynamic_shared: 0,
        params: &[0; 8],
        variables: &[],
        workspace: 0,
        system: &System::new(1 << 20),
    };
    let (result, counters) = run_counted(&program.kernel("k").unwrap(), &launch, &memory.snapshot(), &OPTIONS);
    assert!(result.is_err());
    assert_eq!((counters.instructions, counters.accesses.len()), (0, 0));
}
