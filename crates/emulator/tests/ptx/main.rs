//! The interpreter, instruction by instruction: PTX in, values out.
//!
//! `table` runs one instruction over many operands, in full and partial warps, and compares every lane with a formula.
//! What needs more than one instruction is a kernel of its own.

mod arithmetic;
mod atomics;
mod bits;
mod checker;
mod control;
mod convert;
mod faults;
mod float;
mod half;
mod kernel;
mod memory;
mod table;
mod tensor;
mod warpwide;
