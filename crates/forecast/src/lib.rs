//! How long a training step would take on a GPU, modelled without one.
//!
//! A launch is described by what it asks for ([`Work`]): blocks, warps, turns of its loop, and what a warp asks of each part of an SM in
//! a turn, which the machine code says. [`modelled`] makes seconds of it for a [`Gpu`]. [`published`] has kernels of others with their measured
//! times, by which the model's three exponents are fitted and its error is known.
//!
//! ```
//! use kiln_forecast::{Cards, Turn, Work, modelled, published};
//! # fn main() -> Result<(), kiln_forecast::Error> {
//! // A copy of 256 MB: a warp moves 1 KiB.
//! let outside = Turn { issued: 20.0, l2_bytes: 1024.0, stall: 60.0, ..Turn::default() };
//! let work = Work { blocks: 32768.0, warps: 8.0, resident: 8.0, outside, bytes: 268435456.0, ..Work::default() };
//! let time = modelled(&work, &Cards::known()?.gpu("h100")?, &published::EXPONENTS);
//! assert!(time.seconds > 268435456.0 / 3.35e12);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Step`] is what a run on the emulated driver recorded; [`time()`] adds up its launches, with the figures of Kiln's kernels ([`Table`]).
//!
//! Every time here is modelled, none is measured.

mod figures;
mod kernel;
mod launches;
mod model;
pub mod published;
mod step;
mod tables;
mod work;

pub use figures::{COUNTS, Counts, Figures, Table};
pub use kernel::{resident_blocks, work};
pub use launches::{Arg, Launch, last_capture};

pub use model::{Bound, Exponents, Modelled, modelled};
pub use step::{Share, Step, Time, time};
pub use tables::{Architecture, Card, Cards, Error, Gpu, LOWEST};
pub use work::{Overlap, Tensor, Turn, Waits, Work};
