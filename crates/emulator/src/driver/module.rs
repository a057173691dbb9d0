//! Modules: images become programs, their variables get device memory, their kernels get handles.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::program::Program;
use super::state::{Driver, State, driver};
use super::types::{CUcontext, CUdeviceptr, CUfunction, CUmodule, In, Out, name, put_text};
use super::{Code, Outcome, device};
use crate::fatbin::{self, ImageError};
use crate::memory::{Kind, Range};

/// One module.
pub(crate) struct Module {
    pub(crate) context: CUcontext,
    pub(crate) program: Arc<Program>,
    /// The memory of each of the program's variables.
    pub(crate) variables: Arc<[u64]>,
    ranges: Vec<Range>,
}

/// One kernel of a module, with what was set for it.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: CUmodule,
    pub(crate) context: CUcontext,
    pub(crate) program: Arc<Program>,
    pub(crate) entry: usize,
    pub(crate) variables: Arc<[u64]>,
    /// The dynamic shared memory that a launch may have, in bytes.
    pub(crate) max_dynamic: u32,
    pub(crate) carveout: i32,
}

impl Function {
    pub(crate) fn entry(&self) -> &super::program::Entry {
        &self.program.entries[self.entry]
    }
}

/// The bytes of an image that C gives by its start alone.
///
/// # Safety
/// The pointer is to a fat binary, to the wrapper of one, or to a C string.
unsafe fn image<'a>(start: *const c_void) -> &'a [u8] {
    // SAFETY: each kind of image has at least four bytes, but for strings, which end at their NUL: their bytes are read
    // one by one.
    unsafe {
        let bytes = start.cast::<u8>();
        let word = (0..4)
            .map_while(|n| Some(*bytes.add(n)).filter(|b| *b != 0))
            .collect::<Vec<u8>>();
        match word.first_chunk().map(|w| u32::from_le_bytes(*w)) {
            Some(fatbin::WRAPPER) => image(bytes.add(8).cast::<*const c_void>().read_unaligned()),
            Some(fatbin::HEADER) => {
                let size = bytes.add(8).cast::<u64>().read_unaligned() as usize;
                std::slice::from_raw_parts(bytes, size.saturating_add(fatbin::HEADER_SIZE))
            }
            _ if word.starts_with(b"\x7fELF") => std::slice::from_raw_parts(bytes, 4),
            _ => std::ffi::CStr::from_ptr(start.cast()).to_bytes(),
        }
    }
}

impl Driver {
    /// Makes a module of an image; says why not in words.
    fn load(&self, image: &[u8]) -> Result<CUmodule, (Code, String)> {
        let plain = |code: Code| (code, code.name().to_string());
        let mut state = self.lock();
        let (context, device) = (state.current().map_err(plain)?, state.current_device().map_err(plain)?);
        state.refuse_unsafe().map_err(plain)?;
        drop(state);
        let text = fatbin::ptx(image, self.config.sm).map_err(|e| {
            let code = match e {
                ImageError::NoPtx { .. } | ImageError::Compressed { .. } | ImageError::Cubin => Code::NO_BINARY_FOR_GPU,
                ImageError::Unknown { .. } | ImageError::Truncated { .. } | ImageError::Text => Code::INVALID_IMAGE,
            };
            (code, e.to_string())
        })?;
        let program = Program::load(text).map_err(|e| (Code::INVALID_PTX, e.to_string()))?;
        let mut ranges = Vec::new();
        for variable in &program.variables {
            let made = self.memory.allocate(device, variable.size.max(1), Kind::Variable);
            ranges.push(made.map_err(|e| (Code::OUT_OF_MEMORY, e.to_string()))?);
        }
        let variables: Arc<[u64]> = ranges.iter().map(|r| r.base).collect();
        for (variable, range) in program.variables.iter().zip(&ranges) {
            let mut bytes = variable.bytes.clone();
            bytes.resize(variable.size as usize, 0);
            for (at, other, offset) in &variable.addresses {
                let value = variables[*other].wrapping_add_signed(*offset);
                bytes[*at as usize..][..8].copy_from_slice(&value.to_le_bytes());
            }
            // SAFETY: the range was allocated above with the variable's size, and nothing else knows of it yet.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), range.base as *mut u8, bytes.len()) };
        }
        let mut state = self.lock();
        let handle = CUmodule(state.handle());
        state.modules.insert(
            handle,
            Module {
                context,
                program: Arc::new(program),
                variables,
                ranges,
            },
        );
        Ok(handle)
    }

    /// Takes a module and its functions away. Nothing that uses them is pending.
    pub(crate) fn unload(&self, state: &mut State, module: CUmodule) -> Outcome {
        let module_state = state.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        state.functions.retain(|_, f| f.module != module);
        for range in module_state.ranges {
            // Listed here alone, so it is live.
            let _ = self.memory.free(range.base);
        }
        Ok(())
    }
}

/// Numbers of `CUjit_option` for the two logs.
const INFO_LOG: i32 = 3;
const INFO_LOG_SIZE: i32 = 4;
const ERROR_LOG: i32 = 5;
const ERROR_LOG_SIZE: i32 = 6;
const WALL_TIME: i32 = 2;

/// Loads, and writes what there is to say into the logs that the options name.
fn load(out: Out<CUmodule>, start: *const c_void, options: &[(i32, usize)], values: Out<usize>) -> Outcome {
    if start.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let driver = driver()?;
    // SAFETY: the caller of the exported function promises an image.
    let loaded = driver.load(unsafe { image(start) });
    let text = loaded.as_ref().err().map_or("", |(_, text)| text);
    let find = |option| options.iter().position(|(o, _)| *o == option);
    let put = |option: i32, value: usize| {
        if let Some(at) = find(option) {
            // SAFETY: the API says that sizes and times are given back in the array of values, which has this place.
            unsafe { values.raw().add(at).write_unaligned(value) };
        }
    };
    for (log, size, text) in [(INFO_LOG, INFO_LOG_SIZE, ""), (ERROR_LOG, ERROR_LOG_SIZE, text)] {
        let room = find(size).map_or(0, |at| options[at].1 as u32 as usize);
        let buffer = find(log).map_or(0, |at| options[at].1) as *mut c_char;
        if !buffer.is_null() && room > 0 {
            put_text(text, buffer, room)?;
            put(size, text.len().min(room - 1));
        }
    }
    put(WALL_TIME, 0);
    match loaded {
        Ok(module) => out.put(module),
        Err((code, text)) => {
            if !text.starts_with("CUDA_") {
                driver.config.say(format_args!("module not loaded: {text}"));
            }
            Err(code)
        }
    }
}

fn function(out: Out<CUfunction>, module: CUmodule, wanted: *const c_char) -> Outcome {
    let wanted = name(wanted)?;
    let driver = driver()?;
    let mut state = driver.lock();
    state.current()?;
    let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    let entry = found
        .program
        .entries
        .iter()
        .position(|e| e.name == wanted)
        .ok_or(Code::NOT_FOUND)?;
    let function = Function {
        module,
        context: found.context,
        program: found.program.clone(),
        entry,
        variables: found.variables.clone(),
        max_dynamic: device::SHARED.saturating_sub(found.program.entries[entry].static_shared()),
        carveout: -1,
    };
    let known = state
        .functions
        .iter()
        .find(|(_, f)| f.module == module && f.entry == entry)
        .map(|(id, _)| *id);
    let handle = known.unwrap_or(CUfunction(state.handle()));
    state.functions.entry(handle).or_insert(function);
    out.put(handle)
}

export! {
    fn cuModuleLoadData(module: Out<CUmodule>, start: *const c_void) {
        load(module, start, &[], Out::NULL)
    }

    fn cuModuleLoadFatBinary(module: Out<CUmodule>, start: *const c_void) {
        load(module, start, &[], Out::NULL)
    }

    fn cuModuleLoadDataEx(
        module: Out<CUmodule>,
        start: *const c_void,
        count: u32,
        options: In<i32>,
        values: Out<usize>,
    ) {
        let options = options.list(count as usize)?;
        let given = In::<usize>::from_raw(values.raw()).list(count as usize)?;
        load(module, start, &options.into_iter().zip(given).collect::<Vec<_>>(), values)
    }

    fn cuModuleLoad(module: Out<CUmodule>, path: *const c_char) {
        let mut bytes = std::fs::read(name(path)?).map_err(|_| Code::FILE_NOT_FOUND)?;
        bytes.push(0);
        load(module, bytes.as_ptr().cast(), &[], Out::NULL)
    }

    fn cuModuleUnload(module: CUmodule) {
        let driver = driver()?;
        let mut state = driver.lock();
        state.refuse_unsafe()?;
        let mut state = driver.quiet(state)?;
        driver.unload(&mut state, module)
    }

    fn cuModuleGetFunction(function_out: Out<CUfunction>, module: CUmodule, wanted: *const c_char) {
        function(function_out, module, wanted)
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, module: CUmodule) {
        let state = driver()?.lock();
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        count.put(found.program.entries.len() as u32)
    }

    fn cuModuleGetGlobal_v2(pointer: Out<CUdeviceptr>, size: Out<usize>, module: CUmodule, wanted: *const c_char) {
        let wanted = name(wanted)?;
        let state = driver()?.lock();
        state.current()?;
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let at = found.program.variables.iter().position(|v| v.name == wanted).ok_or(Code::NOT_FOUND)?;
        pointer.put_if(found.variables[at]);
        size.put_if(found.program.variables[at].size as usize);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        // Lazy: a kernel is decoded when it is launched first.
        mode.put(2)
    }
}
