//! A launch, and the data that its blocks share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::resident;
use crate::machine::{Both, Code, Env, LaunchConstant, LaunchObserver, Line, MakeChecker};
use crate::memory::Snapshot;
use crate::{Fault, Launch, Options};

thread_local! {
    static CONSTANTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Runs every block of a launch. In checker mode `checker` makes the checker that watches it; `counter` watches it too.
pub(crate) fn run(
    code: &Code,
    name: &str,
    launch: &Launch<'_>,
    ranges: &Snapshot,
    options: &Options,
    checker: MakeChecker,
    counter: Option<&dyn LaunchObserver>,
) -> Result<(), Vec<Fault>> {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    let mut constants = CONSTANTS.with(RefCell::take);
    constants.clear();
    constants.extend_from_slice(&code.constants);
    fill(code, launch, &mut constants);
    let dynamic = launch.dynamic_shared;
    // Parameters are read at their natural alignment.
    let mut params = [Line([0; 64]); 64];
    let aligned = aligned_params(launch.params, &mut params);
    let env = Env {
        code,
        name,
        constants: &constants,
        params: aligned,
        grid: launch.grid,
        block: launch.block,
        shared: dynamic_start(code).saturating_add(dynamic),
        dynamic_shared: dynamic,
        ranges,
        system: launch.system,
        check: options.check,
        observed: options.check || counter.is_some(),
        stepped: counter.is_some(),
        multiprocessors: options.multiprocessors,
        workspace: launch.workspace,
        serial: SERIAL.fetch_add(1, Ordering::Relaxed),
    };
    let checker = options.check.then(|| checker(&env));
    let run = |observer| resident::run(&env, options.resident, options.watchdog, observer);
    let result = match (checker.as_deref(), counter) {
        (Some(checker), Some(counter)) => run(Some(&Both(checker, counter))),
        (checker, counter) => run(checker.or(counter)),
    };
    CONSTANTS.with(|c| *c.borrow_mut() = constants);
    result
}

/// The offset of dynamic shared memory.
fn dynamic_start(code: &Code) -> u32 {
    code.static_shared.next_multiple_of(code.dynamic_align.max(16))
}

fn aligned_params<'a>(params: &'a [u8], space: &'a mut [Line; 64]) -> &'a [u8] {
    if (params.as_ptr() as usize).is_multiple_of(16) || params.len() > 4096 {
        return params;
    }
    // SAFETY: the lines are 4096 plain bytes, borrowed exclusively.
    let bytes = unsafe { std::slice::from_raw_parts_mut(space.as_mut_ptr().cast::<u8>(), 4096) };
    bytes[..params.len()].copy_from_slice(params);
    &bytes[..params.len()]
}

fn fill(code: &Code, launch: &Launch<'_>, constants: &mut [Line]) {
    // SAFETY: lines are plain bytes, borrowed exclusively.
    let bytes = unsafe { std::slice::from_raw_parts_mut(constants.as_mut_ptr().cast::<u8>(), constants.len() * 64) };
    for (at, size, constant) in &code.launch_constants {
        let value = match constant {
            LaunchConstant::Variable { index, offset } => {
                let base = launch.variables.get(*index as usize).copied().unwrap_or(0);
                base.wrapping_add(*offset as u64).to_le_bytes()
            }
            LaunchConstant::Param { offset, size } => {
                let mut value = [0u8; 8];
                let end = (offset + size) as usize;
                if let Some(bytes) = launch.params.get(*offset as usize..end) {
                    value[..*size as usize].copy_from_slice(bytes);
                }
                value
            }
            LaunchConstant::Dynamic { offset } => {
                (u64::from(dynamic_start(code)).wrapping_add(*offset as u64)).to_le_bytes()
            }
        };
        let (at, size) = (*at as usize, *size as usize);
        for lane in bytes[at..at + size * 32].chunks_exact_mut(size) {
            lane.copy_from_slice(&value[..size]);
        }
    }
}
