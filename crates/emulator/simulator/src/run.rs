//! Running a kernel.

use crate::count::{Counter, Counters};
use crate::limits::{MOST_DYNAMIC, MOST_LOCAL};
use crate::machine::LaunchObserver;
use crate::memory::Snapshot;
use crate::{Fault, FaultKind, Kernel, Launch, Options, check, exec};

/// Runs a kernel to its end. The caller has checked the launch's limits, and keeps the memory mapped meanwhile.
///
/// A fault ends the launch; of faults in several blocks, that of the lowest is reported. Findings of the checker do not end
/// it; each is reported once, in the order of the blocks, before the fault.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, memory: &Snapshot, options: &Options) -> Result<(), Vec<Fault>> {
    run_observed(kernel, launch, memory, options, None)
}

/// As [`run`], and counts what the kernel does: the same numbers on any number of threads, and with the checker or without.
/// Where blocks wait for each other, how often they look depends on their timing.
///
/// A launch that a fault ends is counted as far as its blocks came.
pub fn run_counted(
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Snapshot,
    options: &Options,
) -> (Result<(), Vec<Fault>>, Counters) {
    let Ok(code) = kernel.code(true) else {
        return (run(kernel, launch, memory, options), Counters::default());
    };
    let counter = Counter::new(kernel.plan(code), launch.grid, launch.block, options.resident);
    let result = run_observed(kernel, launch, memory, options, Some(&counter));
    (result, counter.counters(code))
}

fn run_observed(
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Snapshot,
    options: &Options,
    counter: Option<&dyn LaunchObserver>,
) -> Result<(), Vec<Fault>> {
    let refuse = |kind, message| {
        let name = kernel.name().to_string();
        vec![Fault {
            kind,
            kernel: name,
            file: String::new(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
            message,
        }]
    };
    let threads = launch.block.iter().try_fold(1u32, |n, d| n.checked_mul(*d));
    if !threads.is_some_and(|n| (1..=1024).contains(&n)) || launch.grid.contains(&0) {
        let message = format!("a launch of {:?} blocks of {:?} threads", launch.grid, launch.block);
        return Err(refuse(FaultKind::Launch, message));
    }
    if launch.params.len() != kernel.param_bytes() as usize {
        let message = format!(
            "{} bytes of parameters for a kernel that has {}",
            launch.params.len(),
            kernel.param_bytes()
        );
        return Err(refuse(FaultKind::Launch, message));
    }
    let code = kernel
        .code(options.check || counter.is_some())
        .map_err(|e| refuse(FaultKind::Unsupported, e.to_string()))?;
    let local = code.functions[0].local;
    if local > MOST_LOCAL || launch.dynamic_shared > MOST_DYNAMIC {
        let message = format!(
            "a launch with {local} bytes of local memory for each thread and {} bytes of dynamic shared memory; \
             {MOST_LOCAL} and {MOST_DYNAMIC} can be",
            launch.dynamic_shared
        );
        return Err(refuse(FaultKind::Launch, message));
    }
    exec::run(
        code,
        kernel.name(),
        launch,
        memory,
        options,
        check::launch_checker,
        counter,
    )
}
