//! The interpreter, instruction by instruction: PTX in, values out.
//!
//! `table` runs one instruction over many operands, in full and partial warps, and compares every lane with a formula.
//! Tests that need more than one instruction have kernels of their own.

mod arithmetic;
mod atomics;
mod bits;
mod bulk;
mod checker;
mod checker_findings;
mod checker_wgmma;
mod control;
mod convert;
mod counters;
mod faults;
mod float;
mod grid;
mod half;
mod indirect;
mod kernel;
mod limits;
mod mbarrier;
mod memory;
mod missing;
mod modifiers;
mod origins;
mod rig;
mod rounding;
mod table;
mod tensor;
mod warpwide;
mod wgmma;
