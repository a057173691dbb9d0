//! Contexts: the primary one of each device, and others; the current context of a thread.

use std::io::Write;
use std::sync::Arc;

use kiln_simulator::{System, Text};

use crate::error::{Code, Outcome};
use crate::objects::context::{Context, HEAP, PRINTF};
use crate::objects::stream::{PRIORITIES, Stream};
use crate::state::{Driver, State, driver, stack};
use crate::types::{CUcontext, CUdevice, CUstream, Out};

/// `CU_CTX_FLAGS_MASK` of CUDA 13, without the flags that ask for core dumps.
const FLAGS: u32 = 0x1f;

/// Bytes of output that are kept, unless the program says otherwise.
const PRINTF_SIZE: usize = 1 << 20;

impl State {
    fn create(&mut self, device: u32, flags: u32, primary: bool) -> CUcontext {
        let (handle, legacy) = (CUcontext(self.handle()), CUstream(self.handle()));
        let limits = [
            (0, 1024),
            (PRINTF, PRINTF_SIZE),
            (HEAP, 8 << 20),
            (3, 2),
            (4, 2048),
            (5, 64),
            (6, 0),
        ]
        .into();
        let context = Context {
            device,
            flags,
            primary,
            sticky: None,
            legacy,
            system: Arc::new(System::new(PRINTF_SIZE)),
            limits,
            cache: 0,
            shared: 0,
        };
        self.contexts.insert(handle, context);
        self.streams.insert(legacy, Stream::new(handle, 0, 0, true));
        handle
    }

    /// Writes the output of a context's kernels.
    pub(crate) fn print(&self, context: CUcontext) {
        for text in self.contexts.get(&context).map_or(Vec::new(), |c| c.system.take()) {
            match text {
                Text::Output(bytes) => crate::console::write(&bytes),
                // When stderr is closed, the text is lost.
                Text::Error(bytes) => drop(std::io::stderr().write_all(&bytes)),
            }
        }
    }

    fn context(&mut self, handle: CUcontext) -> Outcome<&mut Context> {
        self.contexts.get_mut(&handle).ok_or(Code::INVALID_CONTEXT)
    }
}

/// Ends a context: waits for its work, reports memory that was never freed, and frees it.
fn destroy(driver: &'static Driver, handle: CUcontext) -> Outcome {
    let mut state = driver.lock();
    state.contexts.get(&handle).ok_or(Code::INVALID_CONTEXT)?;
    let goal = state.everything(handle);
    while !state.met(&goal) {
        state = driver.step(state, Some(&goal))?;
    }
    state = driver.drain(state);
    driver.host_waited(&mut state);
    state.print(handle);
    let context = state.contexts.remove(&handle).ok_or(Code::INVALID_CONTEXT)?;
    let device = context.device;
    context.system.free_heap(&driver.memory);
    state.streams.retain(|_, s| s.context != handle);
    state.events.retain(|_, e| e.context != handle);
    state.execs.retain(|_, e| e.context != handle);
    state.graphs.retain(|_, g| g.context != handle);
    state.captures.retain(|_, c| c.context() != handle);
    let modules: Vec<_> = state
        .modules
        .iter()
        .filter(|(_, m)| m.context == handle)
        .map(|(id, _)| *id)
        .collect();
    for module in modules {
        driver.unload(&mut state, module)?;
    }
    if state.contexts.values().any(|c| c.device == device) {
        return Ok(());
    }
    let left = driver.memory.of_device(device);
    if driver.config.check && !left.is_empty() {
        let bytes: u64 = left.iter().map(|r| r.len).sum();
        let first: Vec<_> = left
            .iter()
            .take(4)
            .map(|r| format!("#{} of {} bytes", r.id, r.len))
            .collect();
        let more = if left.len() > first.len() { ", …" } else { "" };
        driver.config.say(format_args!(
            "device {device} ends with {} allocations of {bytes} bytes that were never freed: {}{more}",
            left.len(),
            first.join(", ")
        ));
    }
    for range in left {
        // It was listed under this lock, and nothing runs on the device any more.
        if let Ok(freed) = driver.memory.free(range.base) {
            driver.tell_damage(&freed);
        }
    }
    driver.memory.collect();
    Ok(())
}

fn retain(device: CUdevice) -> Outcome<CUcontext> {
    let driver = driver()?;
    let device = driver.device(device)?;
    let mut state = driver.lock();
    let mut primary = state.primaries[device as usize];
    if primary.context.0 == 0 {
        primary.context = state.create(device, primary.flags, true);
    }
    primary.retained += 1;
    state.primaries[device as usize] = primary;
    Ok(primary.context)
}

fn release(device: CUdevice, all: bool) -> Outcome {
    let driver = driver()?;
    let device = driver.device(device)? as usize;
    let mut state = driver.lock();
    let primary = &mut state.primaries[device];
    if primary.context.0 == 0 {
        return if all { Ok(()) } else { Err(Code::INVALID_CONTEXT) };
    }
    primary.retained = if all { 0 } else { primary.retained - 1 };
    if primary.retained > 0 {
        return Ok(());
    }
    let context = std::mem::take(&mut primary.context);
    drop(state);
    destroy(driver, context)
}

fn create(out: Out<CUcontext>, flags: u32, device: CUdevice) -> Outcome {
    let driver = driver()?;
    let device = driver.device(device)?;
    if flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let handle = driver.lock().create(device, flags, false);
    stack(|s| s.push(handle));
    out.put(handle)
}

fn set_flags(device: CUdevice, flags: u32) -> Outcome {
    let driver = driver()?;
    let device = driver.device(device)? as usize;
    if flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = driver.lock();
    let primary = &mut state.primaries[device];
    primary.flags = flags;
    let context = primary.context;
    if let Some(context) = state.contexts.get_mut(&context) {
        context.flags = flags;
    }
    Ok(())
}

export! {
    fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) {
        context.put(retain(device)?)
    }

    fn cuDevicePrimaryCtxRelease(device: CUdevice) {
        release(device, false)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        release(device, false)
    }

    fn cuDevicePrimaryCtxReset(device: CUdevice) {
        release(device, true)
    }

    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        release(device, true)
    }

    fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: u32) {
        set_flags(device, flags)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32) {
        set_flags(device, flags)
    }

    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        let driver = driver()?;
        let device = driver.device(device)?;
        let primary = driver.lock().primaries[device as usize];
        flags.put(primary.flags)?;
        active.put(i32::from(primary.context.0 != 0))
    }

    fn cuCtxCreate_v2(context: Out<CUcontext>, flags: u32, device: CUdevice) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v3(context: Out<CUcontext>, _params: usize, _count: i32, flags: u32, device: CUdevice) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v4(context: Out<CUcontext>, _params: usize, flags: u32, device: CUdevice) {
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2(context: CUcontext) {
        let driver = driver()?;
        if driver.lock().context(context)?.primary {
            return Err(Code::INVALID_CONTEXT);
        }
        stack(|s| {
            if s.last() == Some(&context) {
                s.pop();
            }
        });
        destroy(driver, context)
    }

    fn cuCtxPushCurrent_v2(context: CUcontext) {
        driver()?.lock().context(context)?;
        stack(|s| s.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<CUcontext>) {
        driver()?;
        let top = stack(Vec::pop).filter(|c| c.0 != 0).ok_or(Code::INVALID_CONTEXT)?;
        context.put_if(top);
        Ok(())
    }

    fn cuCtxSetCurrent(context: CUcontext) {
        let mut state = driver()?.lock();
        if context.0 != 0 {
            state.context(context)?;
        }
        stack(|s| {
            s.pop();
            if context.0 != 0 {
                s.push(context);
            }
        });
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<CUcontext>) {
        driver()?;
        context.put(stack(|s| s.last().copied()).unwrap_or_default())
    }

    fn cuCtxGetDevice(device: Out<CUdevice>) {
        device.put(driver()?.lock().current_device()? as CUdevice)
    }

    fn cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) {
        let mut state = driver()?.lock();
        let context = if context.0 == 0 { state.current()? } else { context };
        device.put(state.context(context)?.device as CUdevice)
    }

    fn cuCtxGetId(context: CUcontext, id: Out<u64>) {
        let mut state = driver()?.lock();
        let context = if context.0 == 0 { state.current()? } else { context };
        state.context(context)?;
        id.put(context.0)
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        flags.put(state.context(context)?.flags)
    }

    fn cuCtxSetFlags(flags: u32) {
        if flags & !FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = driver()?.lock();
        let context = state.current()?;
        state.context(context)?.flags = flags;
        Ok(())
    }

    fn cuCtxSynchronize() {
        let driver = driver()?;
        let mut state = driver.lock();
        let context = state.current()?;
        state.refuse_captured_context(context)?;
        state.refuse_unsafe()?;
        let goal = state.everything(context);
        driver.wait(state, &goal).map(drop)
    }

    fn cuCtxSynchronize_v2(context: CUcontext) {
        let driver = driver()?;
        let mut state = driver.lock();
        let context = if context.0 == 0 { state.current()? } else { context };
        state.healthy(context)?;
        state.refuse_captured_context(context)?;
        state.refuse_unsafe()?;
        let goal = state.everything(context);
        while !state.met(&goal) {
            state = driver.step(state, Some(&goal))?;
        }
        state.print(context);
        state.healthy(context)
    }

    fn cuCtxSetLimit(limit: i32, value: usize) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        let found = state.context(context)?;
        let late = match limit {
            PRINTF => !found.system.set_limit(value),
            HEAP => found.system.has_heap(),
            _ => false,
        };
        if late {
            return Err(Code::INVALID_VALUE);
        }
        let found = found.limits.get_mut(&limit);
        *found.ok_or(if (0..32).contains(&limit) { Code::UNSUPPORTED_LIMIT } else { Code::INVALID_VALUE })? = value;
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: i32) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        value.put(*state.context(context)?.limits.get(&limit).ok_or(Code::UNSUPPORTED_LIMIT)?)
    }

    fn cuCtxGetCacheConfig(config: Out<i32>) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        config.put(state.context(context)?.cache)
    }

    fn cuCtxSetCacheConfig(config: i32) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        state.context(context)?.cache = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(config: Out<i32>) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        config.put(state.context(context)?.shared)
    }

    fn cuCtxSetSharedMemConfig(config: i32) {
        let mut state = driver()?.lock();
        let context = state.current()?;
        state.context(context)?.shared = config;
        Ok(())
    }

    fn cuCtxGetApiVersion(context: CUcontext, version: Out<u32>) {
        let mut state = driver()?.lock();
        let context = if context.0 == 0 { state.current()? } else { context };
        state.context(context)?;
        version.put(3020)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        driver()?.lock().current()?;
        least.put_if(PRIORITIES.0);
        greatest.put_if(PRIORITIES.1);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        driver()?.lock().current().map(|_| ())
    }
}
