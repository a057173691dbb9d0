//! The driver's one state: its objects, and the current context of each thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

use kiln_simulator::memory::Memory;

use crate::config::{Config, Order};
use crate::error::{Code, Outcome};
use crate::json_lines::JsonLines;
use crate::objects::capture::{Capture, Mode};
use crate::objects::context::{Context, Primary};
use crate::objects::event::Event;
use crate::objects::graph::{Graph, GraphExec};
use crate::objects::host_access::HostAccess;
use crate::objects::library::{Kernel, Library};
use crate::objects::linker::Linker;
use crate::objects::module::{Function, Module};
use crate::objects::stream::Stream;
use crate::programs::Programs;
use crate::trace::Trace;
use crate::types::{
    CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUlibrary, CUlinkState, CUmemoryPool,
    CUmodule, CUstream,
};

/// The driver.
pub(crate) struct Driver {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) programs: Programs,
    pub(crate) trace: Trace,
    /// Where launches are counted.
    pub(crate) counters: Option<JsonLines>,
    state: Mutex<State>,
    /// Notified when a piece of work is done and `State::resting` is not 0.
    pub(crate) changed: Condvar,
    findings: AtomicU64,
    host_access: Mutex<HostAccess>,
}

/// The state behind the mutex.
pub(crate) struct State {
    next: u64,
    /// Counts the work that is issued, over all streams.
    pub(crate) seq: u64,
    /// The number of threads that wait for `changed`.
    pub(crate) resting: u32,
    /// The number of threads that wait until nothing runs.
    pub(crate) draining: u32,
    /// The state of the generator that chooses an order.
    random: u64,
    pub(crate) contexts: BTreeMap<CUcontext, Context>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) streams: BTreeMap<CUstream, Stream>,
    pub(crate) events: HashMap<CUevent, Event>,
    pub(crate) modules: HashMap<CUmodule, Module>,
    pub(crate) functions: HashMap<CUfunction, Function>,
    pub(crate) libraries: HashMap<CUlibrary, Library>,
    pub(crate) kernels: HashMap<CUkernel, Kernel>,
    pub(crate) linkers: HashMap<CUlinkState, Linker>,
    pub(crate) graphs: HashMap<CUgraph, Graph>,
    pub(crate) execs: HashMap<CUgraphExec, GraphExec>,
    /// The graph that each node belongs to.
    pub(crate) nodes: HashMap<CUgraphNode, CUgraph>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// The flags that page-locked memory was asked for with, by its first address.
    pub(crate) pinned: HashMap<u64, u32>,
    /// The device of each pool that the program made.
    pub(crate) made_pools: HashMap<CUmemoryPool, u32>,
    /// The pool of each device, where it is not the default one.
    pub(crate) device_pools: HashMap<u32, CUmemoryPool>,
    pub(crate) pool_attributes: HashMap<(CUmemoryPool, i32), u64>,
}

static CONFIG: OnceLock<(Config, Vec<String>)> = OnceLock::new();
static DRIVER: OnceLock<Driver> = OnceLock::new();

thread_local! {
    static STACK: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The driver, after `cuInit`.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    DRIVER.get().ok_or(Code::NOT_INITIALIZED)
}

/// Reads the options and makes the devices.
pub(crate) fn initialise() -> Outcome {
    let (config, wrong) = CONFIG.get_or_init(Config::from_env);
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| config.say(line));
        return Err(Code::INVALID_VALUE);
    }
    if config.devices == 0 {
        return Err(Code::NO_DEVICE);
    }
    DRIVER.get_or_init(|| {
        config.begin_findings();
        Driver::new(config.clone())
    });
    Ok(())
}

/// Writes one line to the log.
pub(crate) fn say(line: impl fmt::Display) {
    CONFIG.get_or_init(Config::from_env).0.say(line);
}

/// A number for this thread that no other thread of the process has.
pub(crate) fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    THREAD.with(|t| {
        if t.get() == 0 {
            t.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        t.get()
    })
}

/// This thread's mode against captures; sets a new one if given.
pub(crate) fn thread_mode(new: Option<Mode>) -> Mode {
    let old = MODE.get();
    MODE.set(new.unwrap_or(old));
    old
}

/// Works on this thread's stack of contexts; the last is current.
pub(crate) fn stack<T>(f: impl FnOnce(&mut Vec<CUcontext>) -> T) -> T {
    STACK.with_borrow_mut(f)
}

impl Driver {
    /// A driver with nothing in it.
    pub(crate) fn new(config: Config) -> Self {
        let random = match config.order {
            Order::Random(seed) => seed,
            _ => 0,
        };
        let state = State {
            next: 1,
            seq: 0,
            resting: 0,
            draining: 0,
            random,
            contexts: BTreeMap::new(),
            primaries: (0..config.devices).map(|_| Primary::default()).collect(),
            streams: BTreeMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            libraries: HashMap::new(),
            kernels: HashMap::new(),
            linkers: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            nodes: HashMap::new(),
            captures: BTreeMap::new(),
            pinned: HashMap::new(),
            made_pools: HashMap::new(),
            device_pools: HashMap::new(),
            pool_attributes: HashMap::new(),
        };
        let memory = Memory::new(config.memory, config.check);
        let memory = if config.execute {
            memory
        } else {
            memory.without_poison()
        };
        Self {
            trace: Trace::new(&config),
            counters: JsonLines::new(&config, config.counters.as_deref(), "counters"),
            config,
            memory,
            programs: Programs::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            findings: AtomicU64::new(0),
            host_access: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The page-locked memory that the host must leave alone. Taken after the state's lock, where both are.
    pub(crate) fn host_access(&self) -> MutexGuard<'_, HostAccess> {
        self.host_access.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a finding and writes it to the log.
    pub(crate) fn report(&self, finding: impl fmt::Display) {
        self.findings.fetch_add(1, Ordering::Relaxed);
        self.config.finding(finding);
    }

    pub(crate) fn findings(&self) -> u64 {
        self.findings.load(Ordering::Relaxed)
    }

    /// The device with this ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<u32> {
        u32::try_from(ordinal)
            .ok()
            .filter(|n| *n < self.config.devices)
            .ok_or(Code::INVALID_DEVICE)
    }
}

impl State {
    /// A handle that was never given out. It looks like an address and points to nothing.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next += 1;
        0x00c0_da00_0000_0000 | (self.next << 4)
    }

    /// The thread's current context.
    pub(crate) fn current(&self) -> Outcome<CUcontext> {
        let top = stack(|s| s.last().copied()).unwrap_or_default();
        if top.0 == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        let context = self.contexts.get(&top).ok_or(Code::CONTEXT_IS_DESTROYED)?;
        context.sticky.map_or(Ok(top), Err)
    }

    /// The device of the thread's current context.
    pub(crate) fn current_device(&self) -> Outcome<u32> {
        let context = self.current()?;
        Ok(self.contexts[&context].device)
    }

    /// An error if the context does not exist or has failed.
    pub(crate) fn healthy(&self, context: CUcontext) -> Outcome {
        let context = self.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?;
        context.sticky.map_or(Ok(()), Err)
    }

    /// A number below `n`, from the seed.
    pub(crate) fn draw(&mut self, n: usize) -> usize {
        // splitmix64, Steele, Lea and Flood 2014.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}
