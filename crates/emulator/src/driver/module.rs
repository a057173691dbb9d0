//! Modules: images become programs, their variables get device memory, their kernels get handles.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

use super::state::{Driver, State, driver};
use super::types::{CUcontext, CUdeviceptr, CUfunction, CUmodule, In, Out, name, put_text};
use super::{Code, Outcome, device};
use crate::cubin::{self, Resources};
use crate::fatbin::{self, ImageError};
use crate::memory::Kind;
use crate::{Kernel, Program};

/// One module.
pub(crate) struct Module {
    pub(crate) context: CUcontext,
    program: Program,
    /// The memory of each of the program's variables.
    variables: Arc<[u64]>,
    /// What the machine code in the same image says of the kernels.
    resources: HashMap<String, Resources>,
}

/// One kernel of a module, with what was set for it.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: CUmodule,
    pub(crate) context: CUcontext,
    pub(crate) kernel: Arc<Kernel>,
    /// The kernel's name for C, which lives as long as its module.
    pub(crate) name: Arc<CStr>,
    pub(crate) variables: Arc<[u64]>,
    /// What `ptxas` says, where the image holds machine code for this device.
    pub(crate) resources: Option<Resources>,
    pub(crate) static_shared: u32,
    /// Bytes of the module's constants.
    pub(crate) constants: u64,
    /// The dynamic shared memory that a launch may have, in bytes.
    pub(crate) max_dynamic: u32,
    pub(crate) carveout: i32,
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
            _ => CStr::from_ptr(start.cast()).to_bytes(),
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
                ImageError::Target { .. } => Code::INVALID_PTX,
                ImageError::Unknown { .. }
                | ImageError::Truncated { .. }
                | ImageError::Unpack { .. }
                | ImageError::Text => Code::INVALID_IMAGE,
            };
            (code, e.to_string())
        })?;
        let program = Program::load(&text).map_err(|e| (Code::INVALID_PTX, e.to_string()))?;
        let variables = self.place_variables(&program, device)?;
        let resources = fatbin::cubin(image, self.config.sm)
            .map(|code| cubin::resources(&code))
            .unwrap_or_default();
        let mut state = self.lock();
        let handle = CUmodule(state.handle());
        state.modules.insert(
            handle,
            Module {
                context,
                program,
                variables,
                resources,
            },
        );
        Ok(handle)
    }

    /// Gives a program's variables memory and their first values.
    fn place_variables(&self, program: &Program, device: u32) -> Result<Arc<[u64]>, (Code, String)> {
        let mut places = Vec::new();
        for variable in program.variables() {
            let made = self
                .memory
                .allocate(device, variable.size.max(1), Kind::Variable)
                .map_err(|e| {
                    places.iter().for_each(|base| drop(self.memory.free(*base)));
                    (Code::OUT_OF_MEMORY, e.to_string())
                })?;
            places.push(made.base);
        }
        for (variable, base) in program.variables().iter().zip(&places) {
            let mut bytes = variable.init.clone();
            bytes.resize(variable.size as usize, 0);
            for to in &variable.relocations {
                let value = places[to.variable].wrapping_add_signed(to.addend);
                bytes[to.offset as usize..][..8].copy_from_slice(&value.to_le_bytes());
            }
            // SAFETY: the range was allocated above with the variable's size, and nothing else knows of it yet.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *base as *mut u8, bytes.len()) };
        }
        Ok(places.into())
    }

    /// Takes a module and its functions away. Nothing that uses them is pending.
    pub(crate) fn unload(&self, state: &mut State, module: CUmodule) -> Outcome {
        let gone = state.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
        state.functions.retain(|_, f| f.module != module);
        for base in gone.variables.iter() {
            // Only its module frees a variable, so this one is live.
            let _ = self.memory.free(*base);
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
    let kernel = found.program.kernel(&wanted).ok_or(Code::NOT_FOUND)?;
    let name = CString::new(wanted.as_str()).map_err(|_| Code::NOT_FOUND)?.into();
    let static_shared = kernel.static_shared().map_err(|e| {
        driver.config.say(format_args!("kernel not loaded: {e}"));
        Code::INVALID_PTX
    })?;
    let mut known = state.functions.iter();
    if let Some((handle, _)) = known.find(|(_, f)| f.module == module && Arc::ptr_eq(&f.kernel, &kernel)) {
        return out.put(*handle);
    }
    let function = Function {
        module,
        context: found.context,
        resources: found.resources.get(&wanted).copied(),
        kernel,
        name,
        variables: found.variables.clone(),
        static_shared,
        constants: found
            .program
            .variables()
            .iter()
            .filter(|v| v.constant)
            .map(|v| v.size)
            .sum(),
        max_dynamic: device::SHARED.saturating_sub(static_shared),
        carveout: -1,
    };
    let handle = CUfunction(state.handle());
    state.functions.insert(handle, function);
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

    fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, module: CUmodule) {
        let names = {
            let state = driver()?.lock();
            state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?.program.kernels().to_vec()
        };
        for (n, kernel) in names.into_iter().take(count as usize).enumerate() {
            let kernel = CString::new(kernel).map_err(|_| Code::UNKNOWN)?;
            // The caller says with `count` how many handles the array holds.
            function(Out::from_raw(functions.raw().wrapping_add(n)), module, kernel.as_ptr())?;
        }
        Ok(())
    }

    fn cuFuncGetName(text: Out<*const c_char>, function: CUfunction) {
        let state = driver()?.lock();
        text.put(state.functions.get(&function).ok_or(Code::INVALID_HANDLE)?.name.as_ptr())
    }

    fn cuModuleGetFunctionCount(count: Out<u32>, module: CUmodule) {
        let state = driver()?.lock();
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        count.put(found.program.kernels().len() as u32)
    }

    fn cuModuleGetGlobal_v2(pointer: Out<CUdeviceptr>, size: Out<usize>, module: CUmodule, wanted: *const c_char) {
        let wanted = name(wanted)?;
        let state = driver()?.lock();
        state.current()?;
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let variables = found.program.variables();
        let at = variables.iter().position(|v| v.name == wanted).ok_or(Code::NOT_FOUND)?;
        pointer.put_if(found.variables[at]);
        size.put_if(variables[at].size as usize);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        // Lazy: a kernel is decoded when it is launched first.
        mode.put(2)
    }
}
