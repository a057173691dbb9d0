//! Kernels that run in checker mode, and the findings in them.

use kiln_simulator::memory::{Kind, Memory, Range, copy};
use kiln_simulator::{Fault, FaultKind, Launch, Options, Program, System, run};

use crate::kernel::{OPTIONS, first, module};

/// A device whose memory tracks the bytes that were written.
pub(crate) struct Rig {
    memory: Memory,
    x: Range,
}

impl Rig {
    /// One allocation of `len` bytes, of which the first `written` are zeros.
    pub(crate) fn new(len: u64, written: u64) -> Rig {
        let memory = Memory::new(1 << 24, true);
        let x = memory.allocate(0, len, Kind::Device).expect("memory");
        let zeros = vec![0u8; written as usize];
        // SAFETY: both spans have `written` bytes.
        unsafe { copy(&memory, x.base, zeros.as_ptr() as u64, written) };
        Rig { memory, x }
    }

    pub(crate) fn launch(&self, blocks: u32, threads: u32, body: &str) -> Result<(), Fault> {
        self.findings(blocks, threads, body).map_err(first)
    }

    /// All findings of one launch.
    pub(crate) fn findings(&self, blocks: u32, threads: u32, body: &str) -> Result<(), Vec<Fault>> {
        let text = module(1, DECLARED, &format!("{STARTED}{body}"));
        let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let launch = Launch {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            params: &self.x.base.to_le_bytes(),
            variables: &[],
            workspace: 0,
            system: &System::new(1 << 20),
        };
        let options = Options { check: true, ..OPTIONS };
        run(
            &program.kernel("k").expect("a kernel named k"),
            &launch,
            &self.memory.snapshot(),
            &options,
        )
    }
}

pub(crate) const DECLARED: &str = ".file 1 \"case.cu\"\n.shared .align 16 .b8 tile[2048];\n";

/// `%rd10` = &x[place in the grid], `%r12` = &tile[t], `%r13` = &tile[t ^ 1], `%r14` = &tile[t ^ 32], `%r15` =
/// &tile[t ^ 16], words all; `%r20` the block; `%p1`: t = 0.
pub(crate) const STARTED: &str = "
    mul.wide.u32 %rd10, %r0, 4;
    add.u64 %rd10, %rd10, %rd0;
    mov.u32 %r10, tile;
    mad.lo.u32 %r12, %r2, 4, %r10;
    xor.b32 %r13, %r2, 1;
    mad.lo.u32 %r13, %r13, 4, %r10;
    xor.b32 %r14, %r2, 32;
    mad.lo.u32 %r14, %r14, 4, %r10;
    xor.b32 %r15, %r2, 16;
    mad.lo.u32 %r15, %r15, 4, %r10;
    mov.u32 %r20, %ctaid.x;
    setp.eq.u32 %p1, %r2, 0;
";

pub(crate) fn right(blocks: u32, threads: u32, body: &str) {
    let rig = Rig::new(4096, 4096);
    if let Err(fault) = rig.launch(blocks, threads, body) {
        panic!("{fault}\n{body}");
    }
}

pub(crate) fn wrong(blocks: u32, threads: u32, body: &str, kind: FaultKind, words: &[&str]) {
    found(&Rig::new(4096, 4096), blocks, threads, body, kind, words);
}

pub(crate) fn found(rig: &Rig, blocks: u32, threads: u32, body: &str, kind: FaultKind, words: &[&str]) {
    let fault = rig.launch(blocks, threads, body).expect_err(body);
    let text = fault.to_string();
    assert_eq!(fault.kind, kind, "{text}\n{body}");
    for word in words.iter().chain(&["in k"]) {
        assert!(text.contains(word), "{word} in: {text}\n{body}");
    }
}

pub(crate) const PUT: &str = ".loc 1 7 0\nst.shared.u32 [%r12], %r2;\n";
pub(crate) const NEXT: &str = ".loc 1 9 0\nld.shared.u32 %r30, [%r13];\n";
pub(crate) const FAR: &str = ".loc 1 9 0\nld.shared.u32 %r30, [%r14];\n";
