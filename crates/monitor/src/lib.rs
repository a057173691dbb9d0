//! The machine while it trains: how busy processor and GPU are, memory, power, energy and temperature, and a verdict on where the
//! time goes.
//!
//! [`Machine`] finds what can be read: `/proc` and `/sys` of Linux (times, memory with the limit of a container, thermometers, the
//! energy counters of processors called RAPL), and GPUs by NVIDIA's management library, which is opened at run time. Each source
//! is optional; [`Machine::absent`] has the reason for one that is missing. On other systems all are.
//!
//! [`Watch`] reads a machine at intervals from a thread of its own. It is a callback of the trainer, whose history then has the
//! joules of every epoch; in a loop of your own, [`Watch::lap`] is a stopwatch. [`verdict`] says in words what limits the speed,
//! and [`Judge`] says it of a run in progress, steadily.
//!
//! ```
//! use kiln_monitor::{Machine, Watch};
//! use std::time::Duration;
//!
//! let watch = Watch::start(Machine::this(), Duration::from_secs(1))?;
//! for source in watch.absent() {
//!     println!("no {}: {}", source.what, source.why);
//! }
//! // … some training …
//! let lap = watch.lap();
//! if let (Some(joules), Some(watts)) = (lap.joules(), lap.cpu_watts()) {
//!     println!("{joules:.0} J, the processor at {watts:.0} W");
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

mod gpu;
mod judge;
mod machine;
mod system;
mod totals;
mod verdict;
mod watch;
mod whole;

pub use gpu::{Gpu, GpuState, nvidia, nvidia_from};
pub use judge::Judge;
pub use machine::{Absent, Machine};
pub use system::Memory;
pub use totals::Lap;
pub use verdict::{Bottleneck, Facts, Verdict, verdict};
pub use watch::{Sample, Watch};
pub use whole::of_run;
