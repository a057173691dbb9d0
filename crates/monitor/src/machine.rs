//! A machine and its sources of readings.

use crate::gpu::{Gpu, GpuState};
use crate::system::{self, Memory, Rapl, Ticks, Why};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A source of readings that a machine has not, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// What cannot be read: `processor`, `memory`, `temperature`, `energy`, `GPU`.
    pub what: &'static str,
    /// The reason.
    pub why: String,
    /// Advice for whoever wants the reading.
    pub advice: &'static str,
}

const PROC: &str = "it is read from Linux's /proc, which a container has to mount; training goes on without it";
const SENSORS: &str =
    "`modprobe coretemp` (Intel) or `modprobe k10temp` (AMD) may help; virtual machines have no sensor";
const DENIED: &str = "root can allow it: chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj";
const NO_RAPL: &str =
    "`modprobe intel_rapl_msr` may help, also on AMD's processors; virtual machines and others have no counter";
const NO_NVML: &str = "it comes with NVIDIA's driver as libnvidia-ml.so.1; KILN_NVML names another file";

/// A machine: where its processor, its memory and its GPU are read. A source that is missing is not an error; [`Machine::absent`]
/// says why.
pub struct Machine {
    root: PathBuf,
    ticks_per_second: f64,
    thermometers: Vec<PathBuf>,
    rapl: Option<Rapl>,
    gpu: Option<Box<dyn Gpu>>,
    absent: Vec<Absent>,
}

/// What was read at a moment; counters count from any beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Raw {
    pub(crate) at: Instant,
    pub(crate) ticks: Option<Ticks>,
    pub(crate) process_seconds: Option<f64>,
    /// The memory that this process holds, and the most that it has held.
    pub(crate) process_memory: Option<(u64, u64)>,
    pub(crate) memory: Option<Memory>,
    pub(crate) celsius: Option<f64>,
    pub(crate) joules: Option<f64>,
    pub(crate) gpu: Option<GpuState>,
}

impl Machine {
    /// The machine that this program runs on, without a GPU.
    pub fn this() -> Self {
        Machine::at("/")
    }

    /// The machine whose `/proc` and `/sys` are below a folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let mut absent = Vec::new();
        let mut lacks = |what, why: Why, advice| absent.push(Absent { what, why, advice });
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let times = system::ticks(&root).and(system::process_seconds(&root, ticks_per_second));
        if let Err(why) = times {
            lacks("processor", why, PROC);
        }
        if let Err(why) = system::memory(&root).and(system::process_memory(&root)) {
            lacks("memory", why, PROC);
        }
        let thermometers = system::thermometers(&root).unwrap_or_else(|why| {
            lacks("temperature", why, SENSORS);
            Vec::new()
        });
        let rapl = Rapl::find(&root).map_err(|why| {
            let advice = if Rapl::is_there(&root) { DENIED } else { NO_RAPL };
            lacks("energy", why, advice);
        });
        Machine {
            thermometers,
            rapl: rapl.ok(),
            root,
            ticks_per_second,
            gpu: None,
            absent,
        }
    }

    /// Adds the GPU that the program computes on, such as that of [`nvidia`](crate::nvidia), or notes why there are no readings of
    /// it.
    pub fn with_gpu(mut self, gpu: Result<Box<dyn Gpu>, String>) -> Self {
        match gpu {
            Ok(gpu) => self.gpu = Some(gpu),
            Err(why) => self.absent.push(Absent {
                what: "GPU",
                why,
                advice: NO_NVML,
            }),
        }
        self
    }

    /// The sources that this machine has not.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// The memory of the machine, or of the container if that may have less; `None` where it cannot be read.
    pub fn memory(&self) -> Option<Memory> {
        system::memory(&self.root).ok()
    }

    /// The name of the GPU.
    pub fn gpu(&self) -> Option<String> {
        self.gpu.as_ref().map(|gpu| gpu.name())
    }

    /// Reads every source. One that has stopped to answer is `None`.
    pub(crate) fn read(&mut self) -> Raw {
        let root: &Path = &self.root;
        let degrees = self.thermometers.iter().filter_map(|path| system::celsius(path).ok());
        Raw {
            at: Instant::now(),
            ticks: system::ticks(root).ok(),
            process_seconds: system::process_seconds(root, self.ticks_per_second).ok(),
            process_memory: system::process_memory(root).ok(),
            memory: system::memory(root).ok(),
            celsius: degrees.reduce(f64::max),
            joules: self.rapl.as_mut().and_then(|rapl| rapl.joules().ok()),
            gpu: self.gpu.as_mut().map(|gpu| gpu.state()),
        }
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("root", &self.root)
            .field("gpu", &self.gpu())
            .field("absent", &self.absent)
            .finish_non_exhaustive()
    }
}
