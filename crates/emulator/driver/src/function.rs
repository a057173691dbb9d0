//! Attributes of kernels, and their occupancy.

use crate::device::{self, MAX_THREADS, WARP};
use crate::error::{Code, Outcome};
use crate::objects::module::Function;
use crate::state::{Driver, driver};
use crate::types::{CUdevice, CUfunction, CUmodule, CUoccupancyB2DSize, Out};

fn with<T>(function: CUfunction, f: impl FnOnce(&Driver, &mut Function) -> Outcome<T>) -> Outcome<T> {
    let driver = driver()?;
    let mut state = driver.lock();
    state.current()?;
    let function = driver.resolve(&mut state, function)?;
    f(driver, state.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?)
}

/// The largest block that a kernel may have.
fn max_threads(function: &Function) -> u32 {
    function.kernel.max_threads().unwrap_or(MAX_THREADS).min(MAX_THREADS)
}

/// The registers of a thread: the number of `ptxas`, or a usual one where the image holds no machine code.
fn registers(function: &Function) -> u32 {
    function.resources.map_or(32, |r| r.registers)
}

/// The number of blocks that a multiprocessor holds at once, by threads, registers, shared memory and places for blocks.
pub(crate) fn blocks_per_multiprocessor(function: &Function, threads: u32, dynamic: u32, driver: &Driver) -> u32 {
    if threads == 0 || threads > max_threads(function) || dynamic > function.max_dynamic {
        return 0;
    }
    let warps = threads.div_ceil(WARP as u32);
    let by_threads = device::THREADS_PER_MULTIPROCESSOR / (warps * WARP as u32);
    // Registers are given out to warps by 256.
    let per_warp = (registers(function).max(1) * WARP as u32).next_multiple_of(256);
    let by_registers = device::REGISTERS / per_warp / warps;
    let shared = (function.static_shared + dynamic + device::SHARED_RESERVED).next_multiple_of(128);
    let by_shared = device::shared_per_multiprocessor(driver.config.sm) / shared;
    by_threads
        .min(by_registers)
        .min(by_shared)
        .min(device::BLOCKS_PER_MULTIPROCESSOR)
}

/// A `CUfunction_attribute` by its number.
pub(crate) fn attribute(driver: &Driver, function: &Function, attribute: i32) -> Outcome<i32> {
    Ok(match attribute {
        0 => max_threads(function) as i32,
        1 => function.static_shared as i32,
        2 => function.constants as i32,
        3 => function
            .resources
            .map_or_else(|| function.kernel.local().unwrap_or(0), |r| r.local) as i32,
        4 => registers(function) as i32,
        5 | 6 => driver.config.sm as i32,
        7 => 0,
        8 => function.max_dynamic as i32,
        9 => function.carveout,
        10..=15 => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// Sets a `CUfunction_attribute`.
pub(crate) fn set_attribute(driver: &Driver, function: &mut Function, attribute: i32, value: i32) -> Outcome {
    match attribute {
        8 => {
            let room = device::shared_optin(driver.config.sm).saturating_sub(function.static_shared);
            let wanted = u32::try_from(value).ok().filter(|v| *v <= room);
            let Some(wanted) = wanted else {
                let name = function.kernel.name();
                let line = format_args!("{name} cannot have {value} bytes of dynamic shared memory; {room} are left");
                driver.config.say(line);
                return Err(Code::INVALID_VALUE);
            };
            function.max_dynamic = wanted;
        }
        9 if (-1..=100).contains(&value) => function.carveout = value,
        // Sizes of clusters and their scheduling: there are no clusters.
        10..=15 => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

fn occupancy(out: Out<i32>, function: CUfunction, threads: i32, dynamic: usize) -> Outcome {
    let threads = u32::try_from(threads)
        .ok()
        .filter(|t| *t > 0)
        .ok_or(Code::INVALID_VALUE)?;
    let dynamic = u32::try_from(dynamic).map_err(|_| Code::INVALID_VALUE)?;
    out.put(with(function, |driver, f| {
        Ok(blocks_per_multiprocessor(f, threads, dynamic, driver) as i32)
    })?)
}

/// The block size with the most threads on a multiprocessor, the larger block when two have as many.
fn best_block(
    min_grid: Out<i32>,
    block: Out<i32>,
    function: CUfunction,
    dynamic_of: CUoccupancyB2DSize,
    dynamic: usize,
    limit: i32,
) -> Outcome {
    let limit = u32::try_from(limit).ok().filter(|l| *l > 0).unwrap_or(MAX_THREADS);
    let largest = with(function, |_, f| Ok(max_threads(f).min(limit)))?;
    let mut best = (0, 0, 0);
    for threads in (1..=largest.div_ceil(WARP as u32))
        .rev()
        .map(|warps| (warps * WARP as u32).min(largest))
    {
        // SAFETY: the program gives a function of C's calling convention that takes a block size. No lock is held.
        let dynamic = dynamic_of.map_or(dynamic, |f| unsafe { f(threads as i32) });
        let dynamic = u32::try_from(dynamic).map_err(|_| Code::INVALID_VALUE)?;
        let blocks = with(function, |driver, f| {
            Ok(blocks_per_multiprocessor(f, threads, dynamic, driver))
        })?;
        if blocks * threads > best.0 {
            best = (blocks * threads, threads, blocks);
        }
    }
    let multiprocessors = with(function, |driver, _| Ok(driver.config.multiprocessors))?;
    min_grid.put((best.2 * multiprocessors) as i32)?;
    block.put(best.1 as i32)
}

export! {
    fn cuFuncGetAttribute(value: Out<i32>, number: i32, function: CUfunction) {
        value.put(with(function, |driver, f| attribute(driver, f, number))?)
    }

    fn cuFuncSetAttribute(function: CUfunction, number: i32, value: i32) {
        with(function, |driver, f| set_attribute(driver, f, number, value))
    }

    fn cuFuncSetCacheConfig(function: CUfunction, _config: i32) {
        with(function, |_, _| Ok(()))
    }

    fn cuFuncSetSharedMemConfig(function: CUfunction, _config: i32) {
        with(function, |_, _| Ok(()))
    }

    fn cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) {
        module.put(with(function, |_, f| Ok(f.module))?)
    }

    fn cuFuncLoad(function: CUfunction) {
        with(function, |_, _| Ok(()))
    }

    fn cuFuncIsLoaded(state: Out<i32>, function: CUfunction) {
        with(function, |_, _| Ok(()))?;
        state.put(1)
    }

    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) {
        let param = with(function, |_, f| f.kernel.params().get(index).copied().ok_or(Code::INVALID_VALUE))?;
        offset.put(param.offset as usize)?;
        size.put_if(param.size as usize);
        Ok(())
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: CUfunction, threads: i32, dynamic: usize,
    ) {
        occupancy(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: CUfunction, threads: i32, dynamic: usize, _flags: u32,
    ) {
        occupancy(blocks, function, threads, dynamic)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        min_grid: Out<i32>,
        block: Out<i32>,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: i32,
    ) {
        best_block(min_grid, block, function, dynamic_of, dynamic, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        min_grid: Out<i32>,
        block: Out<i32>,
        function: CUfunction,
        dynamic_of: CUoccupancyB2DSize,
        dynamic: usize,
        limit: i32,
        _flags: u32,
    ) {
        best_block(min_grid, block, function, dynamic_of, dynamic, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic: Out<usize>, function: CUfunction, blocks: i32, threads: i32,
    ) {
        let blocks = u32::try_from(blocks).ok().filter(|b| *b > 0).ok_or(Code::INVALID_VALUE)?;
        let threads = u32::try_from(threads).ok().filter(|t| *t > 0).ok_or(Code::INVALID_VALUE)?;
        let room = with(function, |driver, f| {
            if blocks_per_multiprocessor(f, threads, 0, driver) < blocks {
                return Err(Code::INVALID_VALUE);
            }
            let each = device::shared_per_multiprocessor(driver.config.sm) / blocks / 128 * 128;
            let taken = f.static_shared + device::SHARED_RESERVED;
            Ok(each.saturating_sub(taken).min(device::shared_optin(driver.config.sm) - f.static_shared))
        })?;
        dynamic.put(room as usize)
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(width: Out<usize>, _format: i32, _channels: u32, device: CUdevice) {
        driver()?.device(device)?;
        width.put(1 << 28)
    }
}
