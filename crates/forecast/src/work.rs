//! The work of a launch: what it asks of the parts of a GPU.

use serde::Deserialize;

/// The work of one warp, in one turn of a loop or on the way around the loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// Instructions issued.
    pub issued: f64,
    /// Floating-point operations on tensor cores.
    pub tensor_flops: f64,
    /// Instructions of the pipe of multiply-adds of f32.
    pub fma: f64,
    /// Instructions of special functions.
    pub special: f64,
    /// Wavefronts of shared memory: clocks that it is busy for.
    pub shared: f64,
    /// Bytes that pass between L2 and the SM.
    pub l2_bytes: f64,
    /// Clocks that the warp takes at least by itself: the sum of its stall counts.
    pub stall: f64,
}

/// How a loop waits for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    /// Nothing is loaded from global memory.
    #[default]
    Never,
    /// Loads are used so many turns later, so that a turn takes a part of the latency at least.
    Ahead(f64),
    /// Nothing else is done until the load is answered, so many times a turn.
    Exposed(f64),
}

/// How the parts of an SM overlap in a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Barriers divide the loop into phases, each of which keeps one part busy; other blocks fill the gaps.
    #[default]
    Phases,
    /// The loop is made so that all parts are busy at a time: fragments loaded ahead in registers, or copies and products that run
    /// by themselves.
    Pipelined,
    /// Multiply-adds of f32 in a loop that is unrolled, so that the compiler has spread loads from shared memory among them.
    Unrolled,
}

/// The kind of numbers that tensor cores multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tensor {
    /// f16 or bf16 by `mma.sync`.
    #[default]
    Half,
    /// TF32 by `mma.sync`.
    Tf32,
    /// f16 or bf16 by warp groups.
    HalfGroup,
    /// TF32 by warp groups.
    Tf32Group,
}

/// A launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Blocks of the grid.
    pub blocks: f64,
    /// Warps of a block.
    pub warps: f64,
    /// Blocks that an SM holds at a time.
    pub resident: f64,
    /// Turns of the loop that each warp makes, on average.
    pub turns: f64,
    /// One turn of one warp.
    pub turn: Turn,
    /// The work of a warp outside of the loop.
    pub outside: Turn,
    /// How the loop waits for memory.
    pub waits: Waits,
    /// How the parts of the SM overlap in the loop.
    pub overlap: Overlap,
    /// The operands of tensor cores.
    pub tensor: Tensor,
    /// Different bytes of global memory that the launch reads and writes.
    pub bytes: f64,
}
