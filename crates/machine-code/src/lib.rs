//! The machine code of CUDA kernels, read without a GPU: registers, resident warps, the instructions of each loop.
//!
//! An image is what nvcc writes: a fat binary with machine code for some architectures. [`Disassembler`] runs NVIDIA's `nvdisasm` on one
//! of them, [`listing::parse`] reads its listing, [`flow::Graph`] finds the loops, [`path`] the way through a loop that a warp takes when
//! all goes well, and [`Counts`] says what is issued on it. [`occupancy::Limits`] tells how many warps an SM holds at a time.
//! [`kernels`] puts all of it together.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use kiln_machine_code::{Disassembler, kernels, ptxas};
//! let image = std::fs::read("matmul_tensor_bf16.fatbin")?;
//! let log = std::fs::read_to_string("matmul_tensor_bf16.ptxas")?;
//! let tool = Disassembler::find("nvdisasm".as_ref())?;
//! for kernel in kernels(&image, 90, &ptxas::spills(&log), &tool)? {
//!     if let Some(main) = kernel.main_loop() {
//!         println!("{}: {} instructions for {} HMMA", kernel.name, main.path.issued, main.path.hmma);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here measures time. What is known of the encoding of instructions is in [`listing::Instruction::stall`].

mod counts;
mod disassembler;
pub mod flow;
pub mod listing;
pub mod occupancy;
pub mod path;
pub mod ptxas;
mod report;

pub use counts::{Accesses, Counts};
pub use disassembler::{Disassembler, Error};
pub use report::{Kernel, Loop, kernel, kernels};

/// A number that changes with the code of this crate: what was read with another one may differ.
pub fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    [
        include_str!("counts.rs"),
        include_str!("flow.rs"),
        include_str!("listing.rs"),
        include_str!("occupancy.rs"),
        include_str!("path.rs"),
        include_str!("ptxas.rs"),
        include_str!("report.rs"),
    ]
    .hash(&mut hasher);
    hasher.finish()
}
