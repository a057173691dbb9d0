//! A launch: what its blocks share.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::inst::{Code, Late, Line};
use super::resident;
use crate::Fault;
use crate::kernel::{Launch, Options};
use crate::memory::Snapshot;
use crate::system::System;

/// What every warp of a launch shares.
pub(crate) struct Env<'a> {
    pub(crate) code: &'a Code,
    pub(crate) name: &'a str,
    pub(crate) constants: &'a [Line],
    pub(crate) params: &'a [u8],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory, static and dynamic.
    pub(crate) shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) ranges: &'a Snapshot,
    pub(crate) system: &'a System,
    pub(crate) check: bool,
    pub(crate) multiprocessors: u32,
    /// The address of a cooperative launch's workspace, or 0.
    pub(crate) workspace: u64,
    /// A number that no other launch has.
    pub(crate) serial: u64,
}

thread_local! {
    static CONSTANTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Runs every block of a launch.
pub(crate) fn run(
    code: &Code,
    name: &str,
    launch: &Launch<'_>,
    ranges: &Snapshot,
    options: &Options,
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
        multiprocessors: options.multiprocessors,
        workspace: launch.workspace,
        serial: SERIAL.fetch_add(1, Ordering::Relaxed),
    };
    let result = resident::run(&env, options.resident, options.watchdog);
    CONSTANTS.with(|c| *c.borrow_mut() = constants);
    result
}

/// Where dynamic shared memory starts.
fn dynamic_start(code: &Code) -> u32 {
    code.static_shared.next_multiple_of(16)
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
    for (at, size, late) in &code.late {
        let value = match late {
            Late::Variable { index, offset } => {
                let base = launch.variables.get(*index as usize).copied().unwrap_or(0);
                base.wrapping_add(*offset as u64).to_le_bytes()
            }
            Late::Param { offset, size } => {
                let mut value = [0u8; 8];
                let end = (offset + size) as usize;
                if let Some(bytes) = launch.params.get(*offset as usize..end) {
                    value[..*size as usize].copy_from_slice(bytes);
                }
                value
            }
            Late::Dynamic { offset } => (u64::from(dynamic_start(code)).wrapping_add(*offset as u64)).to_le_bytes(),
        };
        let (at, size) = (*at as usize, *size as usize);
        for lane in bytes[at..at + size * 32].chunks_exact_mut(size) {
            lane.copy_from_slice(&value[..size]);
        }
    }
}
