//! Blocks that wait for each other.

use std::time::Duration;

use kiln_simulator::{Fault, FaultKind, Launch, Options, Program, System, WORKSPACE, run};

use crate::kernel::{Device, OPTIONS, first, module};

/// The shape and the options of a launch.
struct Wanted {
    blocks: u32,
    threads: u32,
    resident: u64,
    watchdog: Duration,
    check: bool,
}

const WANTED: Wanted = Wanted {
    blocks: 2,
    threads: 1,
    resident: 64,
    watchdog: Duration::from_secs(120),
    check: false,
};

/// Runs a body over an array of `out` zeros, on `host` threads of the host.
fn on(host: usize, wanted: &Wanted, out: usize, declarations: &str, body: &str) -> Result<Vec<u32>, Fault> {
    let device = Device::new();
    let array = device.upload(&vec![0u32; out]);
    let workspace = device.upload(&[WORKSPACE as u32, 0]);
    let ptx = module(1, declarations, body);
    let program = Program::load(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let kernel = program.kernel("k").expect("a kernel named k");
    let launch = Launch {
        grid: [wanted.blocks, 1, 1],
        block: [wanted.threads, 1, 1],
        dynamic_shared: 0,
        params: &array.base.to_le_bytes(),
        variables: &[],
        system: &System::new(1 << 20),
        workspace: workspace.base,
    };
    let options = Options {
        check: wanted.check,
        resident: wanted.resident,
        watchdog: Some(wanted.watchdog),
        ..OPTIONS
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(host)
        .build()
        .expect("threads");
    pool.install(|| run(&kernel, &launch, &device.memory.snapshot(), &options))
        .map_err(first)?;
    Ok(device.read(&array))
}

/// `%rd2` is the place of the block's number in the array, and `%r4` the number of blocks.
const PLACE: &str =
    "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %nctaid.x;\nmul.wide.u32 %rd2, %r3, 4;\nadd.u64 %rd2, %rd2, %rd0;\n";

#[test]
fn a_block_waits_for_the_next() {
    // The last block sets its flag; every other one waits for the flag after it, and sets its own.
    let body = format!(
        "{PLACE}add.u32 %r5, %r3, 1;\nsetp.eq.u32 %p0, %r5, %r4;\n@%p0 bra SET;\nWAIT:\nld.volatile.global.u32 %r6, [%rd2+4];\n\
         setp.eq.u32 %p1, %r6, 0;\n@%p1 bra WAIT;\nSET:\nadd.u32 %r6, %r6, 1;\n@%p0 mov.u32 %r6, 7;\n\
         membar.gl;\nst.volatile.global.u32 [%rd2], %r6;"
    );
    for host in [1, 3] {
        for blocks in [2, 40] {
            let wanted = Wanted { blocks, ..WANTED };
            let found = on(host, &wanted, blocks as usize, "", &body).expect("no fault");
            let each: Vec<u32> = (0..blocks).map(|b| 7 + blocks - 1 - b).collect();
            assert_eq!(found, each, "{blocks} blocks on {host} threads");
        }
    }
}

#[test]
fn a_block_whose_threads_wait_in_turns() {
    // Between two looks at the flag, which only the first thread takes, all threads of the block meet.
    let body = format!(
        "{PLACE}.shared .align 4 .b8 seen[4];\nmov.u32 %r5, seen;\nsetp.eq.u32 %p0, %r3, 1;\n@%p0 bra SET;\n\
         WAIT:\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra MEET;\nld.volatile.global.u32 %r6, [%rd0+4];\nst.shared.u32 [%r5], %r6;\n\
         MEET:\nbar.sync 0;\nld.shared.u32 %r7, [%r5];\nbar.sync 0;\nsetp.eq.u32 %p1, %r7, 0;\n@%p1 bra WAIT;\n\
         st.global.u32 [%rd0], %r7;\nbra END;\nSET:\nst.volatile.global.u32 [%rd0+4], 5;\nEND:"
    );
    let wanted = Wanted { threads: 96, ..WANTED };
    for host in [1, 2] {
        assert_eq!(on(host, &wanted, 2, "", &body).expect("no fault"), [5, 5], "{host}");
    }
}

/// The PTX of `cooperative_groups::grid_group::sync`, with `%rd9` for the barrier in the workspace.
const WORK: &str =
    "mov.u32 %r20, %envreg1;\nmov.u32 %r21, %envreg2;\nmov.b64 %rd9, {%r21, %r20};\nadd.u64 %rd9, %rd9, 4;\n";

fn grid_sync(label: &str) -> String {
    format!(
        "barrier.sync 0;\nsetp.ne.u32 %p6, %r2, 0;\n@%p6 bra {label}DONE;\nsetp.eq.u32 %p7, %r3, 0;\nmov.u32 %r22, 1;\n\
         sub.u32 %r23, 0x80000001, %r4;\n@%p7 mov.u32 %r22, %r23;\natom.add.release.gpu.u32 %r24, [%rd9], %r22;\n\
         {label}WAIT:\nld.acquire.gpu.u32 %r25, [%rd9];\nxor.b32 %r25, %r25, %r24;\nsetp.ge.s32 %p7, %r25, 0;\n\
         @%p7 bra {label}WAIT;\n{label}DONE:\nbarrier.sync 0;\n"
    )
}

#[test]
fn a_cooperative_grid_meets() {
    // In every round each block takes the sum of its neighbours of the round before; two arrays take turns.
    let (first, second) = (grid_sync("A"), grid_sync("B"));
    let body = format!(
        "{PLACE}{WORK}mov.u32 %r10, 0;\nadd.u32 %r11, %r3, 1;\nrem.u32 %r11, %r11, %r4;\nmul.wide.u32 %rd3, %r11, 4;\n\
         add.u64 %rd3, %rd3, %rd0;\nmul.wide.u32 %rd4, %r4, 4;\nadd.u64 %rd5, %rd2, %rd4;\nadd.u64 %rd6, %rd3, %rd4;\n\
         setp.ne.u32 %p2, %r2, 0;\n@!%p2 st.global.u32 [%rd2], %r3;\nROUND:\n{first}@%p2 bra ONE;\nld.global.u32 %r12, [%rd2];\n\
         ld.global.u32 %r13, [%rd3];\nadd.u32 %r12, %r12, %r13;\nst.global.u32 [%rd5], %r12;\nONE:\n{second}@%p2 bra TWO;\n\
         ld.global.u32 %r12, [%rd5];\nld.global.u32 %r13, [%rd6];\nadd.u32 %r12, %r12, %r13;\nst.global.u32 [%rd2], %r12;\nTWO:\n\
         add.u32 %r10, %r10, 1;\nsetp.lt.u32 %p3, %r10, 3;\n@%p3 bra ROUND;"
    );
    for (host, check) in [(1, false), (3, false), (2, true)] {
        let blocks = 37;
        let wanted = Wanted {
            blocks,
            threads: 64,
            resident: 37,
            check,
            ..WANTED
        };
        let found = on(host, &wanted, 2 * blocks as usize, "", &body).unwrap_or_else(|fault| panic!("{fault}"));
        let mut values: Vec<u32> = (0..blocks).collect();
        for _ in 0..6 {
            let next = |b: usize| values[b] + values[(b + 1) % blocks as usize];
            values = (0..blocks as usize).map(next).collect();
        }
        assert_eq!(found[..blocks as usize], values, "on {host} threads");
    }
}

#[test]
fn the_watchdog_names_who_waits() {
    let wait = ".loc 1 12 1\nWAIT:\nld.volatile.global.u32 %r6, [%rd0];\n.loc 1 13 1\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 bra WAIT;";
    let short = Duration::from_millis(50);
    let timed_out = |wanted: &Wanted, declarations: &str, body: &str| {
        let fault = on(2, wanted, 8, declarations, body).expect_err("a fault");
        assert_eq!(fault.kind, FaultKind::Timeout, "{fault}");
        fault
    };
    let wanted = Wanted {
        watchdog: short,
        blocks: 1,
        threads: 40,
        ..WANTED
    };
    let fault = timed_out(&wanted, ".file 1 \"spin.cu\"", wait);
    let text = fault.to_string();
    assert!(
        text.contains("40 threads run (line 1") && text.contains("in k at spin.cu:1"),
        "{text}"
    );
    // A block that is not resident need not begin: four blocks wait for the sixth.
    let sixth =
        format!("{PLACE}setp.eq.u32 %p0, %r3, 5;\n@%p0 st.volatile.global.u32 [%rd0], 1;\n@%p0 bra END;\n{wait}\nEND:");
    let wanted = Wanted {
        watchdog: short,
        blocks: 6,
        resident: 4,
        ..WANTED
    };
    assert!(timed_out(&wanted, "", &sixth).block[0] < 4);
    on(2, &Wanted { resident: 6, ..wanted }, 8, "", &sixth).expect("no fault");
    // Loops that no branch closes.
    let indexed =
        "LIST: .branchtargets AGAIN, END;\nAGAIN:\nld.volatile.global.u32 %r6, [%rd0];\nbrx.idx %r6, LIST;\nEND:";
    timed_out(
        &Wanted {
            watchdog: short,
            ..WANTED
        },
        "",
        indexed,
    );
    let deep = ".func f(.param .b32 n)\n{\n.reg .b32 %t<2>;\n.reg .pred %q;\nld.param.b32 %t0, [n];\nsetp.eq.u32 %q, %t0, 0;\n\
                @%q ret;\nsub.u32 %t1, %t0, 1;\n{\n.param .b32 x;\nst.param.b32 [x], %t1;\ncall f, (x);\ncall f, (x);\n}\nret;\n}";
    timed_out(
        &Wanted {
            watchdog: short,
            ..WANTED
        },
        deep,
        "{\n.param .b32 x;\nst.param.b32 [x], 60;\ncall f, (x);\n}",
    );
}

#[test]
fn a_fault_ends_those_who_wait_for_it() {
    let body = format!(
        "{PLACE}setp.eq.u32 %p0, %r3, 9;\n@%p0 trap;\nWAIT:\nld.volatile.global.u32 %r6, [%rd0];\nsetp.eq.u32 %p1, %r6, 0;\n\
         @%p1 bra WAIT;"
    );
    for host in [1, 3] {
        let fault = on(host, &Wanted { blocks: 20, ..WANTED }, 1, "", &body).expect_err("a fault");
        assert_eq!((fault.kind, fault.block[0]), (FaultKind::Trap, 9), "{fault}");
    }
}
