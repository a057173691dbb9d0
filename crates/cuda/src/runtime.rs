//! Memory, streams and captured steps.

use crate::buffer::CudaBuffer;
use crate::error::from_device;
use crate::fault::Fault;
use crate::tensor_tile::Multiprocessors;
use crate::transfer::Transfers;
use kiln_core::ops::Op;
use kiln_core::{DType, Error, MemoryStats, Observer, Result, Runtime, checks};
use kiln_device::{Context, Function, Geometry, GraphExec, Module, Pinned, Pool, Priority, PrivatePool, Stream};
use kiln_kernels::Kernel;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Options of a [`Cuda`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Wait after every op, so that an error names its op (as `CUDA_LAUNCH_BLOCKING=1` does). Slow.
    pub blocking: bool,
    /// Let products and convolutions of f32 round their operands to TF32, 10 bits of mantissa, for tensor cores.
    pub tf32: bool,
    /// Fill every new buffer with NaN bytes, so that an element left unwritten shows.
    pub poison: bool,
    /// Give every buffer an allocation of the driver of exactly its size. Slow, and for checkers (the emulated driver's,
    /// `compute-sanitizer`): they see an access past the end of a buffer only where the driver's memory ends too.
    pub exact: bool,
    /// Let convolutions be sums of products alone, as their definition reads. Otherwise 3×3 windows of stride 1 with many
    /// channels take Winograd's algorithm in f32, which rounds more often.
    pub exact_convolutions: bool,
}

/// A CUDA device as a backend. The value is a handle: clones share the device's stream and memory.
#[derive(Clone, Debug)]
pub struct Cuda(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    capturing: AtomicBool,
    launches: AtomicU64,
    /// By the addresses of the images and kernels, whose names are unique within Kiln alone.
    modules: Mutex<HashMap<usize, Module>>,
    functions: Mutex<HashMap<usize, Function>>,
    /// Blocks that a multiprocessor holds, by kernel, threads and shared memory.
    resident: Mutex<HashMap<(usize, u32, u32), u32>>,
    fault: Mutex<Pinned>,
    fault_address: u64,
    transfers: Mutex<Transfers>,
    pool: Pool,
    stream: Stream,
    context: Context,
}

/// A captured step: its kernels, and the memory they work in.
#[derive(Debug)]
pub struct CudaGraph {
    exec: GraphExec,
    kernels: usize,
    _pool: PrivatePool,
    /// The kernels report faults to this handle's memory, and their buffers go back in the order of its stream.
    owner: Cuda,
}

impl CudaGraph {
    /// Kernel launches in one replay.
    pub fn launches(&self) -> usize {
        self.kernels
    }
}

impl Cuda {
    /// Device `ordinal` with default options.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] saying why there is no such device.
    pub fn new(ordinal: usize) -> Result<Self> {
        Self::with_options(ordinal, Options::default())
    }

    /// Device `ordinal`.
    ///
    /// # Errors
    /// As [`Cuda::new`].
    pub fn with_options(ordinal: usize, options: Options) -> Result<Self> {
        let open = || -> kiln_device::Result<Inner> {
            let context = Context::new(ordinal)?;
            let stream = Stream::new(&context, Priority::Normal)?;
            let mut fault = Pinned::new(&context, size_of::<Fault>())?;
            fault.fill(0);
            Ok(Inner {
                options,
                capturing: AtomicBool::new(false),
                launches: AtomicU64::new(0),
                modules: Mutex::default(),
                functions: Mutex::default(),
                resident: Mutex::default(),
                fault_address: fault.address(),
                fault: Mutex::new(fault),
                transfers: Mutex::default(),
                pool: match options.exact {
                    true => Pool::direct(&context),
                    false => Pool::new(&context),
                },
                stream,
                context,
            })
        };
        match open() {
            Ok(inner) => Ok(Cuda(Arc::new(inner))),
            Err(e) => Err(from_device(&format!("cuda:{ordinal}"), e)),
        }
    }

    /// The device's context, for work that is not the backend's.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The stream that every op is queued on.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// The options that this device was opened with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Kernels launched so far, replays not counted.
    pub fn launches(&self) -> u64 {
        self.0.launches.load(Ordering::Relaxed)
    }

    /// Multiprocessors of the device, by which grids are sized.
    pub(crate) fn multiprocessors(&self) -> u32 {
        self.0.context.info().multiprocessors
    }

    /// The multiprocessors of the device, by which kernels are chosen.
    pub(crate) fn processors(&self) -> Multiprocessors {
        let info = self.0.context.info();
        Multiprocessors {
            count: u64::from(info.multiprocessors),
            warpgroups: info.compute_capability == (9, 0),
        }
    }

    pub(crate) fn device_name(&self) -> String {
        format!("cuda:{}", self.0.context.ordinal())
    }

    pub(crate) fn capturing(&self) -> bool {
        self.0.capturing.load(Ordering::Relaxed)
    }

    /// Maps an error of the device layer.
    pub(crate) fn check<T>(&self, result: kiln_device::Result<T>) -> Result<T> {
        result.map_err(|e| from_device(&self.device_name(), e))
    }

    /// The address where kernels report faults.
    pub(crate) fn fault(&self) -> kiln_device::Arg<'static> {
        kiln_device::Arg::ptr(self.0.fault_address)
    }

    /// Scratch memory for one op, returned to the cache when dropped.
    pub(crate) fn scratch(&self, dtype: DType, len: usize) -> Result<CudaBuffer> {
        self.alloc(dtype, len)
    }

    /// The function of a kernel for a launch, which is counted.
    pub(crate) fn function(&self, kernel: &'static Kernel) -> Result<Function> {
        self.0.launches.fetch_add(1, Ordering::Relaxed);
        self.loaded(kernel)
    }

    /// The blocks of a launch of a kernel that a multiprocessor holds at a time.
    pub(crate) fn resident(&self, kernel: &'static Kernel, geometry: Geometry) -> Result<u32> {
        let threads = geometry.block.iter().product();
        let key = (ptr::from_ref(kernel).addr(), threads, geometry.shared);
        if let Some(&blocks) = lock(&self.0.resident).get(&key) {
            return Ok(blocks);
        }
        let function = self.loaded(kernel)?;
        if geometry.shared > 48 * 1024 {
            self.check(function.set_dynamic_shared(geometry.shared))?;
        }
        let blocks = self.check(function.occupancy(threads, geometry.shared))?;
        lock(&self.0.resident).insert(key, blocks);
        Ok(blocks)
    }

    /// The loaded function of a kernel; its image is loaded when first asked for.
    fn loaded(&self, kernel: &'static Kernel) -> Result<Function> {
        let mut functions = lock(&self.0.functions);
        if let Some(function) = functions.get(&ptr::from_ref(kernel).addr()) {
            return Ok(function.clone());
        }
        let mut modules = lock(&self.0.modules);
        let module = match modules.entry(ptr::from_ref(kernel.image).addr()) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => place.insert(self.check(Module::load(&self.0.context, kernel.image.fatbin))?),
        };
        let function = self.check(module.function(kernel.name))?;
        functions.insert(ptr::from_ref(kernel).addr(), function.clone());
        Ok(function)
    }

    /// Waits for all work and reports the faults that kernels found.
    pub(crate) fn wait(&self) -> Result<()> {
        self.refuse_in_capture("waiting")?;
        self.check(self.0.stream.synchronize())?;
        let mut fault = lock(&self.0.fault);
        let found: Fault = bytemuck::pod_read_unaligned(&fault[..size_of::<Fault>()]);
        match found.error() {
            None => Ok(()),
            Some(error) => {
                fault.fill(0);
                Err(error)
            }
        }
    }

    fn refuse_in_capture(&self, what: &'static str) -> Result<()> {
        if self.capturing() {
            return Err(Error::NotCapturable {
                device: self.device_name(),
                what,
            });
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Held while a step is recorded: one at a time in a process.
static RECORDING: Mutex<()> = Mutex::new(());

impl Runtime for Cuda {
    type Buffer = CudaBuffer;
    type Graph = CudaGraph;

    fn name(&self) -> String {
        self.device_name()
    }

    /// That of a profiler of NVIDIA's, if the program runs below one.
    fn observer(&self) -> Option<&dyn Observer> {
        kiln_nvtx::observer()
    }

    fn supports(&self, _: Op, _: DType) -> bool {
        true
    }

    fn supports_dtype(&self, dtype: DType) -> bool {
        dtype != DType::F64
    }

    fn owns(&self, buffer: &CudaBuffer) -> bool {
        self.0.pool.owns(&buffer.block)
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<CudaBuffer> {
        let bytes = len.checked_mul(dtype.size()).ok_or(Error::TooLarge {
            op: "alloc",
            dims: vec![len, dtype.size()],
        })?;
        let mut block = self.check(self.0.pool.alloc(bytes))?;
        if self.0.options.poison {
            self.check(self.0.stream.memset(&mut block, 0xff))?;
        }
        Ok(CudaBuffer { dtype, len, block })
    }

    fn upload_bytes(&self, src: &[u8], dst: &mut CudaBuffer) -> Result<()> {
        checks::upload_bytes(self, src, dst)?;
        debug_assert_eq!(src.len(), dst.bytes());
        self.refuse_in_capture("an upload")?;
        let Inner {
            context, pool, stream, ..
        } = &*self.0;
        if Transfers::takes(src.len()) {
            let mut transfers = lock(&self.0.transfers);
            return self.check(transfers.upload(context, pool, stream, src, &mut dst.block));
        }
        self.check(stream.upload(src, &mut dst.block, 0))
    }

    fn upload_part(&self, src: &[u8], dst: &mut CudaBuffer, offset: usize) -> Result<()> {
        checks::upload_part(self, src, dst, offset)?;
        self.refuse_in_capture("an upload")?;
        self.check(self.0.stream.upload(src, &mut dst.block, offset))
    }

    fn download_bytes(&self, src: &CudaBuffer, dst: &mut [u8]) -> Result<()> {
        checks::download_bytes(self, src, dst)?;
        debug_assert_eq!(dst.len(), src.bytes());
        self.refuse_in_capture("a download")?;
        self.check(self.0.stream.download(&src.block, 0, dst))?;
        self.wait()
    }

    fn copy(&self, src: &CudaBuffer, dst: &mut CudaBuffer) -> Result<()> {
        checks::copy(self, src, dst)?;
        debug_assert_eq!((src.dtype, src.len), (dst.dtype, dst.len));
        self.check(self.0.stream.copy(&src.block, 0, &mut dst.block, 0, src.bytes()))
    }

    fn sync(&self) -> Result<()> {
        self.wait()
    }

    fn capture(&self, body: &mut dyn FnMut() -> Result<()>) -> Result<Option<CudaGraph>> {
        self.refuse_in_capture("a second capture")?;
        // Memory is given back after waiting for the context, which fails, for both, while another thread records on it.
        let _turn = lock(&RECORDING);
        self.wait()?;
        // The recording gets memory of its own; blocks cached by the steps before would only lie idle beside it.
        self.check(self.0.pool.release_cached())?;
        let pool = self.check(self.0.pool.private())?;
        let entered = self.0.pool.enter(&pool);
        self.check(self.0.stream.begin_capture())?;
        self.0.capturing.store(true, Ordering::Relaxed);
        let result = body();
        self.0.capturing.store(false, Ordering::Relaxed);
        let graph = self.check(self.0.stream.end_capture());
        drop(entered);
        result?;
        let graph = graph?;
        let kernels = self.check(graph.kernel_nodes())?;
        let exec = self.check(graph.instantiate())?;
        // Recording ran nothing: the first replay is the run that the caller asked for.
        self.check(exec.launch(&self.0.stream))?;
        Ok(Some(CudaGraph {
            exec,
            kernels,
            _pool: pool,
            owner: self.clone(),
        }))
    }

    fn replay(&self, graph: &mut CudaGraph) -> Result<()> {
        if !Arc::ptr_eq(&self.0, &graph.owner.0) {
            let expected = "one that this handle or a clone of it has captured";
            return Err(Error::invalid("replay", "graph", "another handle's", expected));
        }
        self.0.pool.begin();
        self.check(graph.exec.launch(&self.0.stream))
    }

    fn launches(&self, graph: &CudaGraph) -> usize {
        graph.launches()
    }

    fn memory(&self) -> MemoryStats {
        let stats = self.0.pool.stats();
        MemoryStats {
            live: stats.live,
            cached: stats.cached,
            peak: stats.peak,
            allocations: stats.allocations as u64,
        }
    }
}
