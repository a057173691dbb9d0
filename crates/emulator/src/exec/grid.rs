//! A launch: its blocks over the cores.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::block::Block;
use super::inst::{Code, Late, Line};
use crate::Fault;
use crate::check::{self, Observer, Watch};
use crate::kernel::{Launch, Options};
use crate::memory::Snapshot;

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
    pub(crate) check: bool,
    pub(crate) multiprocessors: u32,
    /// A number that no other launch has.
    pub(crate) serial: u64,
}

thread_local! {
    static BLOCK: RefCell<Block> = RefCell::new(Block::new());
    static CONSTANTS: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Blocks run on the calling thread for so long before the others are asked to help.
const ALONE: Duration = Duration::from_micros(60);

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
        check: options.check,
        multiprocessors: options.multiprocessors,
        serial: SERIAL.fetch_add(1, Ordering::Relaxed),
    };
    let result = blocks(&env);
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

/// Runs the blocks; what the checker found comes before the fault that ended the launch.
fn blocks(env: &Env<'_>) -> Result<(), Vec<Fault>> {
    let watch = if env.check { check::watch(env) } else { None };
    let ended = every_block(env, watch.as_deref());
    let last = ended.as_ref().map_or_else(|(block, _)| *block, |()| u64::MAX);
    let mut faults = watch.map_or_else(Vec::new, |w| w.findings(last));
    faults.extend(ended.err().map(|(_, fault)| *fault));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Runs the blocks, unless one of them has a fault: the lowest one's number, and the fault.
fn every_block(env: &Env<'_>, watch: Option<&dyn Watch>) -> Result<(), (u64, Box<Fault>)> {
    let [x, y, z] = env.grid.map(u64::from);
    let count = x * y * z;
    let index = |b: u64| [(b % x) as u32, (b / x % y) as u32, (b / x / y) as u32];
    let one = |block: &mut Block, b: u64| {
        block.prepare(env);
        let mut observer = watch.map(|w| w.block(index(b)));
        block.run(env, index(b), observer.as_deref_mut().map(|o| o as &mut dyn Observer))
    };
    // Most launches of small tests are over before another thread would have woken up.
    let start = Instant::now();
    let mut next = 0;
    let alone = BLOCK.with(|block| {
        let mut block = block.borrow_mut();
        while next < count && (next == 0 || start.elapsed() < ALONE) {
            one(&mut block, next).map_err(|fault| (next, fault))?;
            next += 1;
        }
        Ok(())
    });
    alone?;
    if next == count {
        return Ok(());
    }
    let counter = AtomicU64::new(next);
    // The fault of the lowest block is the one that is told, whichever thread comes first.
    let first = Mutex::new((u64::MAX, None::<Box<Fault>>));
    let limit = AtomicU64::new(count);
    let threads = (rayon::current_num_threads() as u64).min(count - next);
    (0..threads).into_par_iter().for_each(|_| {
        BLOCK.with(|block| {
            let mut block = block.borrow_mut();
            loop {
                let b = counter.fetch_add(1, Ordering::Relaxed);
                if b >= limit.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(fault) = one(&mut block, b) {
                    limit.fetch_min(b, Ordering::Relaxed);
                    let mut first = first.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    if b < first.0 {
                        *first = (b, Some(fault));
                    }
                }
            }
        });
    });
    match first.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        (block, Some(fault)) => Err((block, fault)),
        (_, None) => Ok(()),
    }
}
