//! Kernel images and the functions in them.

use crate::codes;
use crate::context::Context;
use crate::error::{Error, Result, check};
use crate::ffi::{self, call};
use std::ffi::{CString, c_void};
use std::sync::Arc;

const INVALID_IMAGE: i32 = 200;
const NOT_FOUND: i32 = 500;

/// Loaded kernels. Clones are the same module; it is unloaded when the last clone and the last of its functions are dropped.
#[derive(Clone, Debug)]
pub struct Module(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: ffi::CUmodule,
    context: Context,
}

// SAFETY: the driver takes calls with a module from any thread; the pointer is never dereferenced here.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads an image: a fatbin, a cubin, or the text of a PTX file. PTX is compiled for the device here.
    ///
    /// # Errors
    /// [`Error::Image`] with the log of the driver's compiler; [`Error::OutOfMemory`], with the bytes of the image as those requested.
    pub fn load(context: &Context, image: &[u8]) -> Result<Self> {
        check_size(image)?;
        context.bind()?;
        // PTX is read up to a NUL. A fatbin's header is read in words, so the copy is aligned.
        let mut words = vec![0u64; image.len() / 8 + 2];
        bytemuck::cast_slice_mut(&mut words)[..image.len()].copy_from_slice(image);
        let mut log = vec![0u8; 8192];
        let mut names = [ffi::JIT_ERROR_LOG_BUFFER, ffi::JIT_ERROR_LOG_BYTES];
        // The driver takes an integer option in the place of the pointer.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image ends with NUL and outlives the call, as do both lists of two and the log, whose size the
        // second option gives; `raw` is a place for the handle that the function writes. A fatbin's header tells a size
        // that is there, as `check_size` has seen. The driver checks the rest, and what it takes for code is the
        // caller's word, as with any code that is loaded.
        let code = unsafe {
            ffi::cuModuleLoadDataEx(
                &mut raw,
                words.as_ptr().cast(),
                names.len() as u32,
                names.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code == codes::OUT_OF_MEMORY {
            let (free, total) = context.memory()?;
            return Err(Error::OutOfMemory {
                ordinal: context.ordinal(),
                requested: image.len(),
                free,
                total,
            });
        }
        if code != 0 {
            let (name, meaning) = codes::describe(code);
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            return Err(Error::Image {
                code,
                name,
                meaning,
                log: String::from_utf8_lossy(&log[..end]).trim().to_string(),
            });
        }
        Ok(Self(Arc::new(Inner {
            raw,
            context: context.clone(),
        })))
    }

    /// The kernel of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchSymbol`], or the driver's.
    pub fn function(&self, name: &str) -> Result<Function> {
        let text = symbol("function", name)?;
        self.0.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is alive, the name ends with NUL, and `raw` is a place for the handle.
        let code = unsafe { ffi::cuModuleGetFunction(&mut raw, self.0.raw, text.as_ptr()) };
        found("cuModuleGetFunction", code, "function", name)?;
        Ok(Function(Arc::new(Kernel {
            raw,
            parameters: parameters(raw),
            name: name.to_string(),
            module: self.clone(),
        })))
    }

    /// The address and the bytes of the variable of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchSymbol`], or the driver's.
    pub fn global(&self, name: &str) -> Result<(u64, usize)> {
        let text = symbol("variable", name)?;
        self.0.context.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the module is alive, the name ends with NUL, and the others are places for what the function writes.
        let code = unsafe { ffi::cuModuleGetGlobal_v2(&mut address, &mut bytes, self.0.raw, text.as_ptr()) };
        found("cuModuleGetGlobal_v2", code, "variable", name)?;
        Ok((address, bytes))
    }

    /// The context that the module was loaded in.
    pub fn context(&self) -> &Context {
        &self.0.context
    }
}

/// The name as the driver takes it. An empty one names nothing, and drivers answer it with another error.
fn symbol(what: &'static str, name: &str) -> Result<CString> {
    let text = CString::new(name).ok().filter(|text| !text.is_empty());
    text.ok_or_else(|| Error::NoSuchSymbol {
        what,
        name: name.to_string(),
    })
}

fn found(call: &'static str, code: i32, what: &'static str, name: &str) -> Result<()> {
    match code {
        NOT_FOUND => Err(Error::NoSuchSymbol {
            what,
            name: name.to_string(),
        }),
        code => check(call, code),
    }
}

/// An error unless a fatbin is as long as its header says, which the driver does not check.
fn check_size(image: &[u8]) -> Result<()> {
    const MAGIC: [u8; 4] = 0xba55_ed50u32.to_le_bytes();
    if !image.starts_with(&MAGIC) {
        return Ok(());
    }
    // Magic, version, the header's bytes (u16 at 6), and the bytes behind it (u64 at 8).
    let field = |at: usize, bytes: usize| {
        let bytes = image.get(at..at + bytes)?;
        Some(bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)))
    };
    let size = field(6, 2)
        .zip(field(8, 8))
        .and_then(|(header, rest)| header.checked_add(rest));
    if size.is_some_and(|size| size <= image.len() as u64) {
        return Ok(());
    }
    let (name, meaning) = codes::describe(INVALID_IMAGE);
    Err(Error::Image {
        code: INVALID_IMAGE,
        name,
        meaning,
        log: format!("a fatbin of {} bytes is cut short", image.len()),
    })
}

/// The bytes of each argument that the function declares, if this driver can tell.
fn parameters(function: ffi::CUfunction) -> Option<Vec<usize>> {
    // A kernel's parameters have at most 4 KiB, in newer drivers 32 KiB: a larger count is no answer to this question.
    const MOST: usize = 4096;
    let mut sizes = Vec::new();
    while sizes.len() < MOST {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function comes from the driver; the others are places for what the function writes.
        match unsafe { ffi::cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) } {
            0 => sizes.push(size),
            // `CUDA_ERROR_INVALID_VALUE`: past the last parameter, or there are none.
            1 => return Some(sizes),
            _ => return None,
        }
    }
    None
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: this was the last handle, and every function of the module holds one. Kernels that run are finished
        // first. The result does not matter: it could only tell of earlier kernels.
        let _ = unsafe { ffi::cuModuleUnload(self.raw) };
    }
}

/// A kernel. It keeps its module loaded; clones are the same kernel.
#[derive(Clone, Debug)]
pub struct Function(Arc<Kernel>);

#[derive(Debug)]
struct Kernel {
    raw: ffi::CUfunction,
    parameters: Option<Vec<usize>>,
    name: String,
    module: Module,
}

// SAFETY: as for a module.
unsafe impl Send for Kernel {}
// SAFETY: as for a module.
unsafe impl Sync for Kernel {}

impl Function {
    /// The name in the image.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The module that it is from.
    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// The bytes of each argument that the kernel declares; `None` if the driver cannot tell (it is older than 12.4).
    pub fn parameters(&self) -> Option<&[usize]> {
        self.0.parameters.as_deref()
    }

    /// The threads that a block may have at most, by the registers that the kernel needs and its launch bounds.
    ///
    /// # Errors
    /// The driver's.
    pub fn max_threads(&self) -> Result<u32> {
        self.attribute(ffi::FUNC_MAX_THREADS)
    }

    /// The registers that a thread needs.
    ///
    /// # Errors
    /// The driver's.
    pub fn registers(&self) -> Result<u32> {
        self.attribute(ffi::FUNC_REGISTERS)
    }

    /// The bytes of shared memory that the kernel declares itself.
    ///
    /// # Errors
    /// The driver's.
    pub fn static_shared(&self) -> Result<u32> {
        self.attribute(ffi::FUNC_SHARED_BYTES)
    }

    /// The bytes of local memory that a thread needs: more than its own arrays means spilled registers.
    ///
    /// # Errors
    /// The driver's.
    pub fn local_memory(&self) -> Result<u32> {
        self.attribute(ffi::FUNC_LOCAL_BYTES)
    }

    /// The bytes of dynamic shared memory that a launch may ask for.
    ///
    /// # Errors
    /// The driver's.
    pub fn dynamic_shared(&self) -> Result<u32> {
        self.attribute(ffi::FUNC_MAX_DYNAMIC_SHARED)
    }

    /// Lets launches ask for this many bytes of dynamic shared memory. More than 48 KiB, with what the kernel declares
    /// itself, need this; [`shared_per_block_optin`](crate::DeviceInfo::shared_per_block_optin) is the most.
    ///
    /// # Errors
    /// The driver's, if it is more than a block can have.
    pub fn set_dynamic_shared(&self, bytes: u32) -> Result<()> {
        self.0.module.context().bind()?;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: the function is alive: its module is loaded.
        unsafe { call!(cuFuncSetAttribute(self.0.raw, ffi::FUNC_MAX_DYNAMIC_SHARED, bytes)) }
    }

    /// The blocks of this many threads and bytes of dynamic shared memory that fit a multiprocessor at once.
    ///
    /// # Errors
    /// The driver's.
    pub fn occupancy(&self, block_threads: u32, dynamic_shared: u32) -> Result<u32> {
        self.0.module.context().bind()?;
        let threads = i32::try_from(block_threads).unwrap_or(i32::MAX);
        let mut blocks = 0;
        // SAFETY: the function is alive: its module is loaded; `blocks` is a place for the integer.
        unsafe {
            call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.0.raw,
                threads,
                dynamic_shared as usize
            ))?
        };
        Ok(blocks.max(0) as u32)
    }

    fn attribute(&self, attribute: i32) -> Result<u32> {
        self.0.module.context().bind()?;
        let mut value = 0;
        // SAFETY: the function is alive: its module is loaded; `value` is a place for the integer.
        unsafe { call!(cuFuncGetAttribute(&mut value, attribute, self.0.raw))? };
        Ok(value.max(0) as u32)
    }

    pub(crate) fn handle(&self) -> ffi::CUfunction {
        self.0.raw
    }
}
