//! Running decoded kernels. Opcodes live in one file for each group; `select` asks each group for the plan of an
//! instruction whose operands are plain values.

mod approx;
pub(crate) mod async_copy;
pub(crate) mod atomics;
mod bits;
mod block;
pub(crate) mod bulk;
mod compare;
mod control;
pub(crate) mod convert;
mod exact;
mod float;
mod format;
mod grid;
mod half;
mod integer;
mod lanes;
mod matrix;
pub(crate) mod mbarrier;
mod meet;
pub(crate) mod memory;
pub(crate) mod product;
mod resident;
mod rounding;
mod space;
pub(crate) mod special;
mod stuck;
mod survey;
pub(crate) mod system;
pub(crate) mod tensor;
mod warpgroup;
pub(crate) mod warpwide;

pub(crate) use block::barrier_flags;
pub(crate) use grid::run;
pub(crate) use lanes::{Plan, Ty};
pub(crate) use space::{LOCAL, PARAM, SHARED, locate, locate_polled, nowhere};
pub(crate) use warpwide::refused;

use kiln_ptx::Opcode;

/// The plan of an instruction that computes each lane's values from registers alone.
pub(crate) fn select(op: &Opcode<'_>) -> Option<Plan> {
    let groups = [
        compare::select,
        half::select,
        float::select,
        integer::select,
        bits::select,
        convert::select,
    ];
    groups.iter().find_map(|group| group(op))
}

/// Moves bytes: PTX has no such instruction, but parameters of one byte need it.
pub(crate) fn byte_move() -> Option<Plan> {
    Some(lanes::unary(|a: u8| a))
}
