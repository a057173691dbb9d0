//! The kinds of instructions, and how many of each there are.

use crate::listing::Instruction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Accesses of global memory by a thread: how many, by the bytes of each.
pub type Accesses = BTreeMap<u32, u32>;

/// Instructions that a warp issues on a way through code, by kind. The kinds do not overlap: `issued` is the sum of those up to `other`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All instructions, those whose predicate is false among them: each takes its place in the queue.
    pub issued: u32,
    /// Products of a warp on tensor cores: `HMMA`, `IMMA`, `DMMA`, `QMMA`, `BMMA`, `OMMA`.
    pub hmma: u32,
    /// Products of a warp group on tensor cores, from Hopper on: `HGMMA` and others.
    pub wgmma: u32,
    /// Fused multiply-adds of f32.
    pub ffma: u32,
    /// Special functions: exponential, logarithm, reciprocal, roots, sine.
    pub mufu: u32,
    /// Other arithmetic of floats, conversions among them.
    pub float: u32,
    /// Matrix fragments loaded from shared memory.
    pub ldsm: u32,
    /// Other loads from shared memory.
    pub lds: u32,
    /// Stores to shared memory.
    pub sts: u32,
    /// Copies from global to shared memory that pass no register (`cp.async`).
    pub ldgsts: u32,
    /// Loads from global memory.
    pub ldg: u32,
    /// Stores to global memory.
    pub stg: u32,
    /// Loads from and stores to local memory: arrays that are no registers, and spills.
    pub local: u32,
    /// Atomic operations.
    pub atomic: u32,
    /// Copies between registers: `MOV`, and `IMAD.MOV`, by which compilers spread them over two pipes.
    pub mov: u32,
    /// Jumps, taken or not.
    pub branch: u32,
    /// Barriers of a block.
    pub barrier: u32,
    /// Where threads of a warp part and meet again: `BSSY`, `BSYNC`, `WARPSYNC` and others.
    pub convergence: u32,
    /// Exchanges between threads of a warp, votes and reductions.
    pub shuffle: u32,
    /// Loads that never happen, which the assembler puts before copies to shared memory: `@!PT LDS RZ, [RZ]`.
    pub guard: u32,
    /// All others: integers, addresses, predicates, constants.
    pub other: u32,
    /// The sum of stall counts: the least clocks that one warp takes by itself. See [`Instruction::stall`].
    pub stall: u32,
    /// Loads from global memory, copies to shared memory among them.
    pub global_loads: Accesses,
    /// Stores to global memory.
    pub global_stores: Accesses,
}

impl Counts {
    /// Counts one more instruction.
    pub fn add(&mut self, instruction: &Instruction<'_>) {
        self.issued += 1;
        self.stall += instruction.stall();
        let name = instruction.name();
        let kind = match name {
            "LDS" if instruction.predicate == "!PT" => &mut self.guard,
            "HMMA" | "IMMA" | "DMMA" | "QMMA" | "BMMA" | "OMMA" => &mut self.hmma,
            "HGMMA" | "IGMMA" | "QGMMA" | "BGMMA" | "UTCHMMA" | "UTCQMMA" | "UTCIMMA" | "UTCOMMA" => &mut self.wgmma,
            "FFMA" | "FFMA2" | "FFMA32I" => &mut self.ffma,
            "MUFU" => &mut self.mufu,
            "FADD" | "FADD2" | "FADD32I" | "FMUL" | "FMUL2" | "FMUL32I" | "FMNMX" | "FMNMX3" | "FSEL" | "FSET"
            | "FSETP" | "FCHK" | "FSWZADD" | "HADD2" | "HMUL2" | "HFMA2" | "HMNMX2" | "HSET2" | "HSETP2" | "DADD"
            | "DMUL" | "DFMA" | "DSETP" | "F2F" | "F2FP" | "F2I" | "F2IP" | "I2F" | "I2FP" | "FRND" => &mut self.float,
            "LDSM" => &mut self.ldsm,
            "LDS" => &mut self.lds,
            "STS" | "STSM" => &mut self.sts,
            "LDGSTS" => &mut self.ldgsts,
            "LDG" | "LD" => &mut self.ldg,
            "STG" | "ST" => &mut self.stg,
            "LDL" | "STL" => &mut self.local,
            "ATOM" | "ATOMG" | "ATOMS" | "RED" | "REDG" | "REDS" => &mut self.atomic,
            "MOV" => &mut self.mov,
            "IMAD" if instruction.has("MOV") => &mut self.mov,
            "BRA" | "JMP" | "BRX" | "BRXU" | "JMX" | "JMXU" | "CALL" | "RET" | "EXIT" | "KILL" => &mut self.branch,
            "BAR" => &mut self.barrier,
            "BSSY" | "BSYNC" | "BREAK" | "WARPSYNC" | "ENDCOLLECTIVE" | "YIELD" => &mut self.convergence,
            "SHFL" | "VOTE" | "VOTEU" | "MATCH" | "REDUX" | "CREDUX" => &mut self.shuffle,
            _ => &mut self.other,
        };
        *kind += 1;
        let accesses = match name {
            "LDG" | "LD" | "LDGSTS" => &mut self.global_loads,
            "STG" | "ST" => &mut self.global_stores,
            _ => return,
        };
        *accesses.entry(width(instruction)).or_default() += 1;
    }

    /// Bytes of global memory that a thread loads and stores, in accesses of at least so many bytes each.
    pub fn bytes(&self, at_least: u32) -> u32 {
        let both = self
            .global_loads
            .range(at_least..)
            .chain(self.global_stores.range(at_least..));
        both.map(|(bytes, n)| bytes * n).sum()
    }

    /// Bytes of global memory that a warp moves with an instruction it issues, on average. On an H100 a streaming loop below about 3.2
    /// is limited by its instructions and not by memory: 3.0 TB/s divided by 132 SMs of 4 schedulers at 1.755 GHz.
    pub fn bytes_per_instruction(&self) -> f64 {
        f64::from(32 * self.bytes(0)) / f64::from(self.issued.max(1))
    }

    /// The bytes of the narrowest access of global memory; `None` if there is none.
    pub fn narrowest(&self) -> Option<u32> {
        let first = |accesses: &Accesses| accesses.keys().next().copied();
        [first(&self.global_loads), first(&self.global_stores)]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Bytes of an access of memory, by its modifiers.
fn width(instruction: &Instruction<'_>) -> u32 {
    let widths = [
        ("256", 32),
        ("128", 16),
        ("64", 8),
        ("U16", 2),
        ("S16", 2),
        ("U8", 1),
        ("S8", 1),
    ];
    let named = widths.into_iter().find(|(modifier, _)| instruction.has(modifier));
    named.map_or(4, |(_, bytes)| bytes)
}
