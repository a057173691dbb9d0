//! Programs that need more than a device has are refused, by the name of the resource, and no others.

use kiln_simulator::memory::{Kind, Memory};
use kiln_simulator::{FaultKind, Launch, LoadError, Program, System, run};

use crate::kernel::{Device, OPTIONS, fault, first, module, shape};

fn text(version: &str, target: &str, rest: &str) -> String {
    format!(".version {version}\n.target {target}\n.address_size 64\n{rest}")
}

/// The reason why a module cannot be loaded, or its kernel `k` not be decoded.
fn refused(ptx: &str) -> LoadError {
    let program = match Program::load(ptx) {
        Ok(program) => program,
        Err(e) => return e,
    };
    let kernel = program.kernel("k").expect("a kernel named k");
    kernel.prepare().expect_err(ptx)
}

/// The number that is too large, and the largest that can be.
fn limit(ptx: &str) -> (u64, u64) {
    match refused(ptx) {
        LoadError::Limit { found, most, .. } => (found, most),
        error => panic!("{error}\n{ptx}"),
    }
}

fn loads(ptx: &str) {
    let program = Program::load(ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let kernel = program.kernel("k").expect("a kernel named k");
    kernel.prepare().unwrap_or_else(|e| panic!("{e}\n{ptx}"));
}

#[test]
fn parameters_have_a_limit_by_version_and_target() {
    let kernel = |bytes: u64| format!(".visible .entry k(.param .align 4 .b8 p[{bytes}])\n{{\nret;\n}}\n");
    for (version, target, most) in [
        ("8.0", "sm_80", 4352),
        ("8.1", "sm_61", 4352),
        ("8.1", "sm_80", 32764),
        ("9.0", "sm_90a", 32764),
    ] {
        loads(&text(version, target, &kernel(most)));
        for bytes in [most + 1, 1_000_000_000, 3_000_000_000] {
            assert_eq!(
                limit(&text(version, target, &kernel(bytes))),
                (bytes, most),
                "{version} {target}"
            );
        }
    }
    // Every parameter counts, and the space between them.
    let two = ".visible .entry k(.param .align 4 .b8 p[4344], .param .u64 q, .param .u8 r)\n{\nret;\n}\n";
    assert_eq!(limit(&text("8.0", "sm_80", two)), (4353, 4352));
    let overflow = refused(&text("8.1", "sm_80", &kernel(1 << 32 | 1)));
    assert!(matches!(overflow, LoadError::Syntax { .. }), "{overflow}");
    let message = refused(&text("8.0", "sm_80", &kernel(5000))).to_string();
    assert_eq!(message, "k: 5000 bytes of parameters; 4352 can be");
}

#[test]
fn reads_past_the_parameters_are_faults() {
    for (instruction, wrong) in [
        ("ld.param.u32 %r5, [p0+4];", false),
        ("ld.param.u64 %rd5, [p0+4];", true),
        ("ld.param.u32 %r5, [p0+8];", true),
        ("ld.param.u32 %r5, [p0+100000];", true),
        ("ld.param.u32 %r5, [p0-4];", true),
        ("ld.param.v2.u32 {%r5, %r6}, [p0];", false),
        ("ld.param.v4.u32 {%r5, %r6, %r7, %r8}, [p0];", true),
        ("setp.ne.u32 %p0, 0, 0;\n@%p0 ld.param.u32 %r5, [p0+8];", false),
    ] {
        match fault(shape(1, 1), 8, "", instruction, false) {
            Ok(()) => assert!(!wrong, "{instruction}"),
            Err(fault) => {
                assert!(
                    wrong && fault.kind == FaultKind::IllegalAddress,
                    "{instruction}: {fault}"
                );
                assert!(fault.to_string().contains("of 8 bytes of parameters in k"), "{fault}");
            }
        }
    }
}

#[test]
fn shared_memory_and_constants_have_limits() {
    let shared = |bytes: u64| format!(".visible .entry k()\n{{\n.shared .align 4 .b8 s[{bytes}];\nret;\n}}\n");
    loads(&text("8.0", "sm_80", &shared(48 << 10)));
    for bytes in [(48 << 10) + 1, 1 << 32, (1 << 32) + 4, 1 << 39] {
        assert_eq!(limit(&text("8.0", "sm_80", &shared(bytes))), (bytes, 48 << 10));
    }
    // A module's variable counts where it is used.
    let outside = |body: &str| {
        format!(
            ".shared .align 8 .b8 big[60000];\n.shared .align 1024 .b8 bigger[5000000000];\n\
             .visible .entry k()\n{{\n.reg .b32 r;\n{body}\nret;\n}}\n"
        )
    };
    loads(&text("8.0", "sm_80", &outside("")));
    assert_eq!(
        limit(&text("8.0", "sm_80", &outside("mov.u32 r, big;"))),
        (60000, 48 << 10)
    );
    assert_eq!(
        limit(&text("8.0", "sm_80", &outside("mov.u32 r, bigger;\nmov.u32 r, big;"))).0,
        5_000_060_000
    );
    let constants = |bytes: u32| format!(".const .align 4 .b8 c[{bytes}];\n.visible .entry k()\n{{\nret;\n}}\n");
    loads(&text("8.0", "sm_80", &constants(65536)));
    assert_eq!(limit(&text("8.0", "sm_80", &constants(65537))), (65537, 65536));
}

#[test]
fn registers_have_a_limit() {
    let body = |declarations: &str| {
        text(
            "8.0",
            "sm_80",
            &format!(".visible .entry k()\n{{\n{declarations}\nret;\n}}\n"),
        )
    };
    loads(&body(".reg .b32 %r<200000>;\n.reg .pred %p<2000>;"));
    for declarations in [
        ".reg .b32 %r<1000000000>;",
        ".reg .b64 %r<4294967295>;",
        ".reg .pred %r<4294967295>;",
        ".reg .b32 %r<200000>;\n.reg .b32 %q<100000>;",
    ] {
        let (found, most) = limit(&body(declarations));
        assert!(found > most, "{declarations}");
    }
    assert!(matches!(
        refused(&body(".reg .b32 %r<4294967297>;")),
        LoadError::Syntax { .. }
    ));
}

#[test]
fn local_memory_has_a_limit() {
    let local = |bytes: u64| format!(".local .align 4 .b8 x[{bytes}];\nst.local.u32 [x], 0;");
    fault(shape(1, 32), 64, "", &local(500 << 10), false).expect("no fault");
    for bytes in [(512 << 10) + 16, 100_000_000, 1 << 32, 1 << 39] {
        let fault = fault(shape(1, 32), 64, "", &local(bytes), false).expect_err("a fault");
        assert_eq!(fault.kind, FaultKind::Launch, "{fault}");
        assert!(fault.to_string().contains("524288 and"), "{fault}");
    }
    // Functions share the local memory of a thread.
    let deep = ".func f()\n{\n.local .b8 x[4000000000];\nst.local.b8 [x], 0;\nret;\n}";
    let found = fault(shape(1, 32), 64, deep, "call f;", false).expect_err("a fault");
    assert!(found.to_string().contains("stack overflow"), "{found}");
}

#[test]
fn sizes_that_overflow_are_refused() {
    for line in [
        ".global .b8 x[65536][65536][65536][65536];",
        ".global .align 3 .b8 x[4];",
        ".global .align 4294967297 .b8 x[4];",
        ".func f(.param .b64 x[4294967295])\n{\nret;\n}",
        ".visible .entry k()\n{\nret;\n}",
    ] {
        let ptx = text("8.0", "sm_80", &format!("{line}\n.visible .entry k()\n{{\nret;\n}}\n"));
        assert!(matches!(refused(&ptx), LoadError::Syntax { .. }), "{line}");
    }
    let ptx = module(1, "", "");
    let program = Program::load(&ptx).expect("a program");
    let launch = Launch {
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: u32::MAX,
        params: &[0; 8],
        variables: &[],
        system: &System::new(1 << 20),
        workspace: 0,
    };
    let kernel = program.kernel("k").expect("a kernel named k");
    let memory = Device::new().memory.snapshot();
    assert_eq!(
        run(&kernel, &launch, &memory, &OPTIONS)
            .map_err(first)
            .expect_err("a fault")
            .kind,
        FaultKind::Launch
    );
}

#[test]
fn a_snapshot_outlives_what_it_is_of() {
    let memory = Memory::new(1 << 20, false);
    let (range, snapshot) = (
        memory.allocate(0, 64, Kind::Device).expect("memory").base,
        memory.snapshot(),
    );
    memory.free(range).expect("live");
    memory.collect();
    drop(memory);
    let program = Program::load(&module(
        1,
        "",
        "ld.global.u32 %r5, [%rd0+60];\nst.global.u32 [%rd0], %r5;",
    ))
    .expect("a program");
    let launch = Launch {
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 0,
        params: &range.to_le_bytes(),
        variables: &[],
        system: &System::new(1 << 20),
        workspace: 0,
    };
    let kernel = program.kernel("k").expect("a kernel named k");
    run(&kernel, &launch, &snapshot, &OPTIONS)
        .map_err(first)
        .expect("no fault");
    // SAFETY: the snapshot holds the pages.
    assert_eq!(unsafe { (range as *const u32).read() }, u32::MAX);
}
