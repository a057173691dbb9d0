//! The model: seconds of a launch from what it asks for.
//!
//! For each part of an SM, the clocks that it is busy while all blocks that the SM holds make one turn of their loop: the schedulers
//! (four instructions a clock), tensor cores, the pipes of multiply-adds and of special functions, shared memory (a wavefront a clock), the
//! way from L2. The parts overlap, more or less: `t = (Σ tᵖ)^(1/p)`, where `p` is large if they do. A block by itself takes its own
//! share of that and waits for memory; a turn takes no less. Then the turns of a block, the way around its loop, waves of blocks and
//! a last wave that is not full. Memory goes on at the same time: bytes by bandwidth, those of L2 if all of the launch fits it; the
//! same law joins the two. A kernel of a graph begins when the one before has ended, which costs the time of a small kernel.
//!
//! The four exponents are the only numbers that are fitted, to published kernels ([`crate::published`]), none of them Kiln's.

use crate::tables::Gpu;
use crate::work::{Overlap, Tensor, Turn, Waits, Work};
use serde::{Deserialize, Serialize};

/// How much the parts overlap: the exponents of the model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exponents {
    /// The parts of an SM in loops with phases.
    pub phases: f64,
    /// The parts of an SM in pipelined loops.
    pub pipelined: f64,
    /// The parts of an SM in unrolled loops of multiply-adds.
    pub unrolled: f64,
    /// SMs and memory.
    pub memory: f64,
}

/// The part of a GPU that a launch waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The schedulers: it issues many instructions.
    Issue,
    /// Tensor cores.
    Tensor,
    /// The pipe of multiply-adds.
    Fma,
    /// The pipe of special functions.
    Special,
    /// Shared memory.
    Shared,
    /// The way from L2 to the SMs.
    L2,
    /// Memory, or L2 in its place where all of the launch fits it.
    Memory,
    /// Answers of memory, barriers and waves: too few warps have too little under way.
    Latency,
    /// The start of a kernel.
    Launch,
}

impl Bound {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Issue => "instructions",
            Bound::Tensor => "tensor cores",
            Bound::Fma => "f32 units",
            Bound::Special => "special units",
            Bound::Shared => "shared memory",
            Bound::L2 => "L2",
            Bound::Memory => "memory",
            Bound::Latency => "latency",
            Bound::Launch => "launch",
        }
    }
}

/// The modelled time of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modelled {
    /// All of it.
    pub seconds: f64,
    /// The part that it waits for most.
    pub bound: Bound,
    /// The least that it would take if its busiest part did nothing but its own work.
    pub floor: f64,
    /// The places of blocks in its last wave that have one, of all.
    pub last_wave: f64,
}

/// A set that L2 holds beside what else passes through it: gpu-l2-cache and gpu-small-kernels show the bandwidth of L2 up to about this part.
const L2_HELD: f64 = 0.8;
/// Schedulers of an SM, each of which issues an instruction a clock.
const SCHEDULERS: f64 = 4.0;
/// Lanes of a warp.
const LANES: f64 = 32.0;

const PARTS: [Bound; 6] = [
    Bound::Issue,
    Bound::Tensor,
    Bound::Fma,
    Bound::Special,
    Bound::Shared,
    Bound::L2,
];

/// Clocks that each part of an SM is busy for, by so many warps.
fn parts(turn: &Turn, warps: f64, tensor: Tensor, gpu: &Gpu) -> [f64; 6] {
    let architecture = &gpu.architecture;
    let (tf32, group) = match tensor {
        Tensor::Half => (false, false),
        Tensor::Tf32 => (true, false),
        Tensor::HalfGroup => (false, true),
        Tensor::Tf32Group => (true, true),
    };
    let reached = if group { 1.0 } else { architecture.mma_sync };
    let rate = gpu.tensor_rate(tf32) * reached;
    let products = if turn.tensor_flops > 0.0 {
        turn.tensor_flops / rate
    } else {
        0.0
    };
    [
        turn.issued / SCHEDULERS,
        products,
        turn.fma * LANES / architecture.fma_lanes,
        turn.special * LANES / architecture.special_lanes,
        turn.shared,
        turn.l2_bytes / architecture.l2_bytes,
    ]
    .map(|clocks| warps * clocks)
}

/// `(Σ tᵖ)^(1/p)`.
fn joined(times: &[f64], p: f64) -> f64 {
    let most = times.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return 0.0;
    }
    // Divided by the largest, so that no power is too large.
    most * times.iter().map(|t| (t / most).powf(p)).sum::<f64>().powf(1.0 / p)
}

fn largest(times: &[f64; 6]) -> (Bound, f64) {
    let pairs = PARTS.into_iter().zip(times.iter().copied());
    pairs.fold(
        (Bound::Issue, 0.0),
        |best, pair| if pair.1 > best.1 { pair } else { best },
    )
}

/// The modelled time of a launch in a graph, where each kernel waits for the one before.
pub fn modelled(work: &Work, gpu: &Gpu, exponents: &Exponents) -> Modelled {
    let architecture = &gpu.architecture;
    let p = match work.overlap {
        Overlap::Phases => exponents.phases,
        Overlap::Pipelined => exponents.pipelined,
        Overlap::Unrolled => exponents.unrolled,
    };
    let sms = f64::from(gpu.card.sms);
    let resident = work.resident.max(1.0);
    // What misses L2 waits for DRAM; of tiles that many blocks read, that is a small part.
    let through_l2 = work.blocks * work.warps * (work.turns * work.turn.l2_bytes + work.outside.l2_bytes);
    let fits = work.bytes <= L2_HELD * gpu.card.l2 * 1e6;
    let missing = match through_l2 > 0.0 && !fits {
        true => (work.bytes / through_l2).min(1.0),
        false => 0.0,
    };
    let latency = architecture.l2_latency + missing * (architecture.dram_latency - architecture.l2_latency);

    // One turn of `blocks` blocks of an SM.
    let turn = |blocks: f64| {
        let all = joined(&parts(&work.turn, blocks * work.warps, work.tensor, gpu), p);
        let alone = joined(&parts(&work.turn, work.warps, work.tensor, gpu), p).max(work.turn.stall);
        let by_itself = match work.waits {
            Waits::Never => alone,
            Waits::Ahead(turns) => alone.max(latency / turns.max(1.0)),
            Waits::Exposed(times) => alone + times * latency,
        };
        all.max(by_itself)
    };
    // The way around the loop: its own work, the wait for the first load, and the change of blocks.
    let around = |blocks: f64| joined(&parts(&work.outside, blocks * work.warps, work.tensor, gpu), p);
    let first = latency + work.outside.stall + architecture.block_turnover;
    let wave = |blocks: f64| work.turns * turn(blocks) + around(blocks);

    let slots = sms * resident;
    let full = (work.blocks / slots).floor();
    let rest = work.blocks - full * slots;
    let waves = full + f64::from(u8::from(rest > 0.0));
    let last = if rest > 0.0 { wave((rest / sms).ceil()) } else { 0.0 };
    // Without a loop every block waits for its loads. With one, the blocks of an SM drift apart, and the frame of one is hidden by the
    // loops of the others.
    let waiting = match work.turns > 0.0 {
        true => first * (1.0 + (waves - 1.0).max(0.0) / resident),
        false => 0.0,
    };
    let sm_clocks = match work.turns > 0.0 {
        true => full * wave(resident) + last + waiting,
        false => {
            let alone = |blocks: f64| around(blocks).max(first + around(1.0));
            full * alone(resident) + if rest > 0.0 { alone((rest / sms).ceil()) } else { 0.0 }
        }
    };
    let sm = sm_clocks / gpu.hertz();
    let memory = match fits {
        true => work.bytes / (architecture.l2_copy_bytes * sms * gpu.hertz()),
        false => work.bytes / (gpu.card.bandwidth * 1e9 * gpu.dram_efficiency()),
    };
    let body = match fits {
        true => sm.max(memory),
        false => joined(&[sm, memory], exponents.memory),
    };
    // A small kernel's own time is a load and what it waits for: that is in the time of a small kernel already.
    let own = architecture.l2_latency / gpu.hertz();
    let seconds = architecture.small_kernel + (body - own).max(0.0);

    // The busiest part, if each SM had its share of all blocks.
    let share = work.blocks / sms;
    let loops = parts(&work.turn, share * work.warps * work.turns, work.tensor, gpu);
    let outside = parts(&work.outside, share * work.warps, work.tensor, gpu);
    let mut busy = [0.0; 6];
    for (sum, (a, b)) in busy.iter_mut().zip(loops.iter().zip(&outside)) {
        *sum = (a + b) / gpu.hertz();
    }
    let (part, of_part) = largest(&busy);
    let floor = of_part.max(memory);
    // What all parts would take, were every SM as busy as its share of the blocks allows.
    let working = joined(&busy, p).max(memory);
    let bound = if architecture.small_kernel >= seconds / 2.0 {
        Bound::Launch
    } else if sm > 1.5 * working {
        Bound::Latency
    } else if memory >= of_part {
        Bound::Memory
    } else {
        part
    };
    Modelled {
        seconds,
        bound,
        floor,
        last_wave: if rest > 0.0 { rest / slots } else { 1.0 },
    }
}
