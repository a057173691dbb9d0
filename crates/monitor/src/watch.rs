//! Reads a machine at intervals, on a thread of its own.

use crate::gpu::GpuState;
use crate::machine::{Absent, Machine, Raw};
use crate::system::Memory;
use crate::totals::{Lap, Totals};
use kiln_train::{Callback, Reading};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The state of a machine over the last interval, for a live view.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    /// Means and largest values over the interval.
    pub lap: Lap,
    /// The memory of the machine or the container.
    pub memory: Option<Memory>,
    /// The most memory that this process has held since its start, in bytes.
    pub process_peak: Option<u64>,
    /// The GPU at the end of the interval.
    pub gpu: Option<GpuState>,
}

impl Sample {
    fn of(interval: &Totals) -> Self {
        let last = interval.last();
        Sample {
            lap: interval.lap(),
            memory: last.memory,
            process_peak: last.process_memory.map(|(_, most)| most),
            gpu: last.gpu,
        }
    }
}

struct State {
    machine: Machine,
    /// Since the last lap.
    lap: Totals,
    /// Since the thread has last read.
    interval: Totals,
    sample: Sample,
}

impl State {
    fn read(&mut self) -> Raw {
        let now = self.machine.read();
        self.lap.add(now);
        self.interval.add(now);
        now
    }

    fn end_interval(&mut self) {
        let now = self.read();
        self.sample = Sample::of(&self.interval);
        self.interval = Totals::new(now);
    }
}

struct Inner {
    state: Arc<Mutex<State>>,
    absent: Vec<Absent>,
    gpu: Option<String>,
    /// Dropped to end the thread.
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported, and takes nothing from the run.
            let _ = thread.join();
        }
    }
}

/// A machine that is read at intervals, from a thread of its own, until the last clone of this is dropped. As a callback of the
/// trainer it puts what it reads into the records of epochs ([`EpochRecord::machine`](kiln_train::EpochRecord::machine)), by the
/// names of [`Lap::readings`].
///
/// ```
/// use kiln_cpu::Cpu;
/// # use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
/// # use kiln_nn::{Init, Layer, optim::Sgd, layers::{Flatten, Linear}, Sequential};
/// use kiln_monitor::{Machine, Watch};
/// use kiln_train::{TrainOptions, Trainer};
/// # use kiln_train::Output;
/// # use std::sync::Arc;
/// use std::time::Duration;
/// # let cpu = Cpu::new();
/// # let data = Loader::new(Arc::new(Synthetic::images(64, &[3, 3, 1], 2, 0)?), LoaderOptions::default())?;
/// # let step = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
/// #     Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
/// # };
/// # let mut net = Sequential::new().push(Flatten::default()).push(Linear::new(&mut Init::new(&cpu, 0), 9, 2)?);
///
/// let watch = Watch::start(Machine::this(), Duration::from_secs(1))?;
/// let mut trainer = Trainer::new(&cpu, TrainOptions::default()).callback(watch.clone());
/// let report = trainer.fit(&mut net, &mut Sgd::new(0.1), step, &data, None)?;
/// // In a loop of your own:
/// let lap = watch.lap();
/// if let Some(memory) = lap.memory_used {
///     println!("{:.0} % of the memory in use", 100.0 * memory);
/// }
/// # if cfg!(target_os = "linux") {
/// assert!(report.history.epochs()[0].machine.contains_key("process_memory_bytes"));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Watch(Arc<Inner>);

impl Watch {
    /// Starts to read a machine.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn start(mut machine: Machine, interval: Duration) -> std::io::Result<Self> {
        let first = machine.read();
        let (absent, gpu) = (machine.absent().to_vec(), machine.gpu());
        let state = Arc::new(Mutex::new(State {
            lap: Totals::new(first),
            interval: Totals::new(first),
            sample: Sample::of(&Totals::new(first)),
            machine,
        }));
        let (ends, ended) = channel::<()>();
        let shared = Arc::clone(&state);
        let work = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                locked(&shared).end_interval();
            }
        };
        let thread = std::thread::Builder::new()
            .name("kiln-monitor".to_string())
            .spawn(work)?;
        Ok(Watch(Arc::new(Inner {
            state,
            absent,
            gpu,
            ends: Some(ends),
            thread: Some(thread),
        })))
    }

    /// The sources that the machine has not.
    pub fn absent(&self) -> &[Absent] {
        &self.0.absent
    }

    /// The name of the GPU that is read.
    pub fn gpu(&self) -> Option<&str> {
        self.0.gpu.as_deref()
    }

    /// The last interval; before its end what was read at the start.
    pub fn sample(&self) -> Sample {
        locked(&self.0.state).sample
    }

    /// Reads the machine, and returns what it was since the last call of this, or since the start.
    pub fn lap(&self) -> Lap {
        let mut state = locked(&self.0.state);
        let now = state.read();
        let lap = state.lap.lap();
        state.lap = Totals::new(now);
        lap
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Callback for Watch {
    fn reads_weights(&self) -> bool {
        false
    }

    fn readings(&mut self) -> Vec<Reading> {
        self.lap().readings()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("gpu", &self.0.gpu)
            .field("absent", &self.0.absent)
            .finish_non_exhaustive()
    }
}
