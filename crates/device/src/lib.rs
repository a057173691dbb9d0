//! CUDA devices over the driver API: contexts, streams, events, graphs, modules, launches, pinned memory and a caching
//! allocator. It knows no tensors; any program can use it alone.
//!
//! A program with this crate builds without a toolkit and starts without a driver (see `kiln-link`): [`devices`] is
//! then empty, and [`Context::new`] says why.
//!
//! ```no_run
//! use kiln_device::{Arg, Context, Geometry, Module, Pool, Priority, Stream};
//!
//! # fn main() -> kiln_device::Result<()> {
//! # let image: &[u8] = b"";
//! let context = Context::new(0)?;
//! let stream = Stream::new(&context, Priority::Normal)?;
//! let pool = Pool::new(&context);
//! let mut x = pool.alloc(4096)?;
//! stream.upload(&[0; 4096], &mut x, 0)?;
//! let scale = Module::load(&context, image)?.function("scale_f32")?;
//! let geometry = Geometry::linear(1024, 256);
//! // SAFETY: the kernel takes a length and a pointer to that many floats, which `x` holds.
//! unsafe { stream.launch(&scale, geometry, &[Arg::value(&1024u32), Arg::block(&x)])? };
//! let mut host = vec![0; 4096];
//! stream.download(&x, 0, &mut host)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Copies beside the computation
//!
//! The next batch is copied from pinned memory on a separate stream, and the computing stream waits for it on the device,
//! not on the host:
//!
//! ```no_run
//! # use kiln_device::{Context, Event, Pinned, Pool, Priority, Stream};
//! # fn main() -> kiln_device::Result<()> {
//! # let context = Context::new(0)?;
//! # let pool = Pool::new(&context);
//! let compute = Stream::new(&context, Priority::Normal)?;
//! let copies = Stream::new(&context, Priority::High)?;
//! let (arrived, used) = (Event::new(&context)?, Event::new(&context)?);
//! let mut host = Pinned::new(&context, 1 << 20)?;
//! let mut batch = pool.alloc(1 << 20)?;
//! for step in 0..10u8 {
//!     host.fill(step); // waits until the copy before has read it
//!     copies.wait(&used)?; // until the step before no longer reads the batch
//!     copies.upload_pinned(&host, &mut batch, 0)?; // returns at once
//!     copies.record(&arrived)?;
//!     compute.wait(&arrived)?;
//!     // … launches on `compute` that read `batch` …
//!     compute.record(&used)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How the driver is called
//!
//! `cust` enumerates the devices and provides types. Every other function is declared here with plain integers as results:
//! `cust`'s result is a Rust enum of CUDA 11.4, for which a newer driver's code is undefined behaviour and which loses
//! the codes above 900; it has no stream capture, and its streams synchronise with the NULL stream.
//! Every method makes its context current on the calling thread, so any thread may use any object.

mod capture;
mod capture_count;
mod capture_mode;
mod codes;
mod context;
mod copies;
mod driver;
pub mod emulator;
mod error;
mod event;
mod ffi;
mod geometry;
mod graph;
mod info;
mod launch;
mod launch_log;
mod module;
mod pinned;
mod pool;
mod staging;
mod stream;
mod stream_capture;

pub use capture_mode::CaptureMode;
pub use context::Context;
pub use driver::{DriverInfo, driver, set_driver};
pub use error::{Error, Result};
pub use event::Event;
pub use geometry::Geometry;
pub use graph::{Graph, GraphExec};
pub use info::{DeviceInfo, devices};
pub use launch::Arg;
pub use module::{Function, Module};
pub use pinned::Pinned;
pub use pool::{Block, Entered, Pool, PoolStats, PrivatePool};
pub use stream::{Priority, Stream};
