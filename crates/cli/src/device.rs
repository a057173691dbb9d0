//! Choosing a device: the one place that knows which backends are in this build.

use crate::error::{Error, Result};
use crate::output::counted;
use clap::ValueEnum;
use kiln_core::{Backend, Runtime};
use kiln_cpu::Cpu;

/// A device on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceChoice {
    /// The fastest there is
    Auto,
    /// The processor
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

/// Work that runs on any backend.
pub(crate) trait Task {
    /// What it gives.
    type Output;
    /// Does it.
    fn run<B: Backend>(self, backend: &B) -> Result<Self::Output>;
}

/// Runs `task` on the chosen device, with that many threads when it is the processor.
pub(crate) fn with_device<T: Task>(choice: DeviceChoice, threads: Option<u16>, task: T) -> Result<T::Output> {
    match choice {
        DeviceChoice::Auto | DeviceChoice::Cpu => {
            if let Some(threads) = threads {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(usize::from(threads));
                let started = pool.build_global();
                started
                    .map_err(|e| Error::failure(format!("cannot start {}: {e}", counted(threads.into(), "thread"))))?;
            }
            task.run(&Cpu::new())
        }
        DeviceChoice::Cuda => Err(Error::failure("device cuda: this build of kiln has no CUDA")
            .help("use --device cpu, or leave the option out")),
    }
}

/// A device as `kiln devices` lists it.
pub(crate) struct Listed {
    /// What `--device` takes.
    pub(crate) name: String,
    /// Whether this build can use it here.
    pub(crate) usable: bool,
    /// What it is, or why it is not usable.
    pub(crate) about: String,
}

/// Every device this program knows of.
pub(crate) fn list() -> Vec<Listed> {
    let features = vector_units();
    let units = match features.is_empty() {
        true => String::new(),
        false => format!(", {}", features.join(" ")),
    };
    vec![
        Listed {
            name: Cpu::new().name(),
            usable: true,
            about: format!(
                "{}, {}{units}",
                counted(rayon::current_num_threads() as u64, "thread"),
                std::env::consts::ARCH
            ),
        },
        Listed {
            name: "cuda".to_string(),
            usable: false,
            about: "not in this build".to_string(),
        },
    ]
}

/// The vector instructions of this processor that matter here.
fn vector_units() -> Vec<&'static str> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        for (name, has) in [
            ("avx512f", std::is_x86_feature_detected!("avx512f")),
            ("avx2", std::is_x86_feature_detected!("avx2")),
            ("fma", std::is_x86_feature_detected!("fma")),
        ] {
            if has {
                found.push(name);
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        found.push("neon");
    }
    found
}
