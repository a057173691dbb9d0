//! Vector arithmetic.
//!
//! ```text
//! isa          the instruction sets of this machine, and closures compiled for the widest
//! machine      the processor's name and caches        cpuid   what the processor says of itself
//! tiles        the matrix unit for bfloat16
//! vector       the vector registers of each instruction set as one trait, for micro-kernels
//! widening     vectors filled from elements in memory, and from halves
//! real, math   the accumulation types, and functions of them without branches
//! lanes        elementwise loops in the accumulation type     upcast       operands in the accumulation type
//! row_reduce   sums and maxima along a row                    column_tile  sums and maxima along several columns at once
//! ```

pub(crate) mod column_tile;
#[cfg(target_arch = "x86_64")]
pub(crate) mod cpuid;
pub(crate) mod isa;
pub(crate) mod lanes;
pub(crate) mod machine;
pub(crate) mod math;
pub(crate) mod real;
pub(crate) mod row_reduce;
pub(crate) mod tiles;
pub(crate) mod upcast;
pub(crate) mod vector;
pub(crate) mod widening;
