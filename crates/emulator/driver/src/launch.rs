//! Launches of kernels.

use std::ffi::c_void;
use std::sync::Arc;

use kiln_simulator::memory::{Kind, Snapshot};
use kiln_simulator::{Fault, FaultKind, Launch, MOST_LOCAL, Options, WORKSPACE, run, run_counted};

use crate::counters;
use crate::device::{self, MAX_BLOCK, MAX_GRID, MAX_THREADS};
use crate::error::{Code, Outcome};
use crate::objects::module::Function;
use crate::objects::work::{Kernel, Work};
use crate::state::{Driver, State, driver};
use crate::types::{CUcontext, CUfunction, CUstream, In};

/// The arguments of a call that launches a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) function: CUfunction,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: In<*const c_void>,
    pub(crate) extra: In<*const c_void>,
    pub(crate) cooperative: bool,
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The stream.
    pub stream: CUstream,
    /// Attributes.
    pub attributes: In<LaunchAttribute>,
    /// The number of attributes.
    pub count: u32,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LaunchAttribute {
    /// A `CUlaunchAttributeID`.
    pub id: i32,
    /// Zero.
    pub pad: i32,
    /// The attribute's value.
    pub value: [u32; 16],
}

impl Kernel {
    pub(crate) fn blocks(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    /// True if the kernel is not only traced.
    fn runs(&self, driver: &Driver) -> bool {
        let skip = driver.config.skip.as_ref();
        driver.config.execute && skip.is_none_or(|part| !self.function.kernel.name().contains(&part[..]))
    }

    /// The memory that the kernel can reach; None where more is allocated for it when it starts.
    pub(crate) fn view(&self, driver: &Driver) -> Option<Snapshot> {
        let complete = !self.cooperative && !self.function.kernel.allocates();
        (complete && self.runs(driver)).then(|| driver.memory.view(self.device))
    }

    /// Runs the kernel now.
    pub(crate) fn run(&self, driver: &Driver, view: Option<Snapshot>) -> Outcome {
        driver.trace.kernel(self);
        if !self.runs(driver) {
            return Ok(());
        }
        let workspace = self.cooperative.then(|| self.workspace(driver)).transpose()?;
        let launch = Launch {
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.shared,
            params: &self.params,
            variables: &self.function.variables,
            workspace: workspace.unwrap_or(0),
            system: &self.system,
        };
        if self.function.kernel.allocates() {
            self.system.ensure_heap(&driver.memory, self.device, self.heap);
        }
        let options = Options {
            check: driver.config.check,
            sm: driver.config.sm,
            multiprocessors: driver.config.multiprocessors,
            resident: self.resident,
            watchdog: driver.config.watchdog,
        };
        let view = view.unwrap_or_else(|| driver.memory.view(self.device));
        let result = match &driver.counters {
            None => run(&self.function.kernel, &launch, &view, &options),
            Some(file) => {
                let (result, counters) = run_counted(&self.function.kernel, &launch, &view, &options);
                // What a fault ended is not comparable with anything.
                let whole = result
                    .as_ref()
                    .err()
                    .is_none_or(|faults| faults.iter().all(|f| f.kind.is_finding()));
                if whole {
                    counters::write(file, self, &counters);
                }
                result
            }
        };
        if let Some(base) = workspace {
            // This cannot fail: the memory was allocated above, and only this call knows it.
            let _ = driver.memory.free(base);
        }
        let Err(faults) = result else {
            return Ok(());
        };
        faults.iter().for_each(|fault| driver.report(fault));
        match faults.iter().find(|fault| !fault.kind.is_finding()) {
            Some(fault) => Err(code(fault)),
            None if driver.config.go_on => Ok(()),
            None => Err(Code::LAUNCH_FAILED),
        }
    }

    /// Memory for the barrier of a cooperative launch's grid.
    fn workspace(&self, driver: &Driver) -> Outcome<u64> {
        let range = driver.memory.allocate(self.device, WORKSPACE, Kind::Variable);
        let base = range.map_err(|_| Code::OUT_OF_MEMORY)?.base;
        let words = [WORKSPACE as u32, 0];
        // SAFETY: the allocation is live, aligned, has the bytes of two words, and nothing else knows it yet.
        unsafe { (base as *mut [u32; 2]).write(words) };
        Ok(base)
    }
}

/// The error that a fault leaves in its context.
fn code(fault: &Fault) -> Code {
    match fault.kind {
        FaultKind::IllegalAddress => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        FaultKind::InvalidPc => Code::INVALID_PC,
        FaultKind::Unsupported => Code::ILLEGAL_INSTRUCTION,
        FaultKind::Timeout => Code::LAUNCH_TIMEOUT,
        FaultKind::Assert => Code::ASSERT,
        FaultKind::Trap
        | FaultKind::Barrier
        | FaultKind::Warp
        | FaultKind::Race
        | FaultKind::Uninitialised
        | FaultKind::Asynchronous
        | FaultKind::Launch => Code::LAUNCH_FAILED,
    }
}

/// Marks in the list of `extra`.
const END: usize = 0;
const BUFFER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The bytes of a kernel's parameters, from an array of pointers to each or from one buffer.
fn gather(function: &Function, params: In<*const c_void>, extra: In<*const c_void>) -> Outcome<Box<[u8]>> {
    let wanted = function.kernel.params();
    let size = function.kernel.param_bytes() as usize;
    let mut bytes = vec![0u8; size];
    if !params.raw().is_null() {
        for (param, from) in wanted.iter().zip(params.list(wanted.len())?) {
            let to = &mut bytes[param.offset as usize..][..param.size as usize];
            let from = In::<u8>::from_raw(from.cast()).list(to.len())?;
            to.copy_from_slice(&from);
        }
    } else if !extra.raw().is_null() {
        let (mut buffer, mut len) = (None, None);
        for at in (0..).step_by(2) {
            // SAFETY: the API asks for pairs of a mark and a pointer, closed by the mark for the end.
            let (mark, value) = unsafe { (*extra.raw().add(at) as usize, || *extra.raw().add(at + 1)) };
            match mark {
                END => break,
                BUFFER => buffer = Some(value()),
                BUFFER_SIZE => len = Some(In::<usize>::from_raw(value().cast()).get()?),
                _ => return Err(Code::INVALID_VALUE),
            }
        }
        let (buffer, len) = buffer.zip(len).ok_or(Code::INVALID_VALUE)?;
        // A program may leave out the padding at the end.
        let used = wanted.last().map_or(0, |p| (p.offset + p.size) as usize);
        if len < used {
            return Err(Code::INVALID_VALUE);
        }
        bytes[..used].copy_from_slice(&In::<u8>::from_raw(buffer.cast()).list(used)?);
    } else if !wanted.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    Ok(bytes.into())
}

impl State {
    /// Checks a launch against the limits of device and kernel, and reads its parameters.
    pub(crate) fn kernel(&self, driver: &Driver, request: &Request, context: CUcontext) -> Outcome<Kernel> {
        let function = self
            .functions
            .get(&request.function)
            .ok_or(Code::INVALID_HANDLE)?
            .clone();
        if function.context != context {
            return Err(Code::INVALID_CONTEXT);
        }
        let Request {
            grid, block, shared, ..
        } = *request;
        let name = function.kernel.name();
        let refuse = |code: Code, why: std::fmt::Arguments<'_>| {
            driver.config.say(format_args!("{name} is not launched: {why}"));
            Err(code)
        };
        let outside = |n: [u32; 3], max: [u32; 3]| (0..3).any(|d| n[d] == 0 || n[d] > max[d]);
        if outside(grid, MAX_GRID) {
            return refuse(
                Code::INVALID_VALUE,
                format_args!("a grid of {grid:?} blocks; 1 to {MAX_GRID:?} can be"),
            );
        }
        let threads = block.iter().map(|n| u64::from(*n)).product::<u64>();
        if outside(block, MAX_BLOCK) || threads > u64::from(MAX_THREADS) {
            let why = format_args!("a block of {block:?} threads; 1 to {MAX_BLOCK:?} and {MAX_THREADS} in all can be");
            return refuse(Code::INVALID_VALUE, why);
        }
        if let Some(max) = function.kernel.max_threads().filter(|max| threads > u64::from(*max)) {
            let why = format_args!("{threads} threads in a block; its launch bounds allow {max}");
            return refuse(Code::INVALID_VALUE, why);
        }
        if shared > function.max_dynamic {
            let (max, fixed) = (function.max_dynamic, function.static_shared);
            let why = format_args!(
                "{shared} bytes of dynamic shared memory; {max} are allowed beside {fixed} static ones \
                 (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)"
            );
            return refuse(Code::INVALID_VALUE, why);
        }
        let local = function
            .resources
            .map_or_else(|| function.kernel.local().unwrap_or(0), |r| r.local);
        if local > MOST_LOCAL {
            let why = format_args!("{local} bytes of local memory for each thread; {MOST_LOCAL} can be");
            return refuse(Code::LAUNCH_OUT_OF_RESOURCES, why);
        }
        let each = function.resources.map_or(0, |r| r.registers).next_multiple_of(8);
        let registers = u64::from(each) * threads.next_multiple_of(32);
        if registers > u64::from(device::REGISTERS) {
            let why = format_args!(
                "{threads} threads of {each} registers; there are {} registers",
                device::REGISTERS
            );
            return refuse(Code::LAUNCH_OUT_OF_RESOURCES, why);
        }
        let each = crate::function::blocks_per_multiprocessor(&function, threads as u32, shared, driver);
        let resident = u64::from(each) * u64::from(driver.config.multiprocessors);
        let blocks = grid.iter().map(|n| u64::from(*n)).product::<u64>();
        if request.cooperative && blocks > resident {
            let why = format_args!(
                "a cooperative launch of {blocks} blocks; the device holds {resident} of them at one time ({each} on \
                 each of {} multiprocessors)",
                driver.config.multiprocessors
            );
            return refuse(Code::COOPERATIVE_LAUNCH_TOO_LARGE, why);
        }
        let params = gather(&function, request.params, request.extra)?;
        let pointers = function
            .kernel
            .params()
            .iter()
            .map(|p| params.as_ptr() as usize + p.offset as usize)
            .collect();
        let context = &self.contexts[&context];
        let (device, system, heap) = (context.device, Arc::clone(&context.system), context.heap());
        Ok(Kernel {
            system,
            heap,
            handle: request.function,
            function,
            device,
            grid,
            block,
            shared,
            params,
            resident,
            cooperative: request.cooperative,
            pointers,
        })
    }
}

fn launch(request: Request, stream: CUstream) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    let current = state.current()?;
    let stream = state.stream(stream)?;
    if state.streams[&stream].context != current {
        return Err(Code::INVALID_CONTEXT);
    }
    state.print(current);
    let function = driver.resolve(&mut state, request.function)?;
    let kernel = state.kernel(driver, &Request { function, ..request }, current)?;
    driver.run_or_capture(state, stream, Work::Kernel(kernel.into()))
}

export! {
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: CUstream,
        params: In<*const c_void>,
        extra: In<*const c_void>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        if !params.raw().is_null() && !extra.raw().is_null() {
            return Err(Code::INVALID_VALUE);
        }
        launch(Request { function, grid, block, shared, params, extra, cooperative: false }, stream)
    }

    fn cuLaunchKernelEx(
        config: In<LaunchConfig>,
        function: CUfunction,
        params: In<*const c_void>,
        extra: In<*const c_void>,
    ) {
        let LaunchConfig { grid, block, shared, stream, attributes, count } = config.get()?;
        let mut cooperative = false;
        for attribute in attributes.list(count as usize)? {
            match (attribute.id, &attribute.value) {
                (2, value) => cooperative = value[0] != 0,
                (4, value) if value[..3] != [1; 3] => return Err(crate::unsupported::unsupported("clusters of blocks")),
                // Hints about caches, priorities and overlap change no result.
                _ => {}
            }
        }
        launch(Request { function, grid, block, shared, params, extra, cooperative }, stream)
    }

    fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: CUstream,
        params: In<*const c_void>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(Request { function, grid, block, shared, params, extra: In::NULL, cooperative: true }, stream)
    }
}
