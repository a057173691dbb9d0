//! Arrays of NumPy: `.npy` files of one array, and `.npz` files of many by name.
//!
//! ```no_run
//! use kiln_nn::{DType, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cpu = kiln_cpu::Cpu::new();
//! // numpy.save("x.npy", x)
//! let x = kiln_npy::read_tensor("x.npy", &cpu)?;
//! // numpy.load("y.npy")
//! kiln_npy::write("y.npy", &x.sqrt()?)?;
//! # Ok(())
//! # }
//! ```
//!
//! | NumPy | here |
//! |---|---|
//! | float16, float32, float64 | a [`Tensor`](kiln_nn::Tensor) of the same dtype |
//! | int32 | [`Indices`](kiln_nn::Indices) of i32 |
//! | uint8, bool | [`Indices`](kiln_nn::Indices) of u8 |
//! | int8, int16, int64, uint16, uint32, uint64 | [`Indices`](kiln_nn::Indices) of i32, where all values are in its range |
//!
//! Either order of bytes and of dimensions is read. Written are little-endian bytes in C's order; a tensor of bf16, which NumPy
//! does not have, becomes float32.

mod array;
mod error;
mod header;
mod npy;
mod npz;

pub use error::{NpyError, Result};
pub use npy::{decode, encode, read, read_indices, read_tensor, write};
pub use npz::{read_npz, write_npz};

/// Compiles and runs the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
