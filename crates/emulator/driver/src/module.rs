//! Modules: images become programs, their variables get device memory, their kernels get handles.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

use kiln_ptx::cubin;
use kiln_ptx::fatbin::{self, ImageError};
use kiln_simulator::Program;
use kiln_simulator::memory::Kind;

use crate::device;
use crate::error::{Code, Outcome};
use crate::jit::{Logs, Refusal};
use crate::objects::module::{Function, Image, Module};
use crate::state::{Driver, State, driver};
use crate::types::{CUcontext, CUdeviceptr, CUfunction, CUmodule, In, Out, name};

/// The bytes of an image that C gives by its start alone.
///
/// # Safety
/// The pointer is to a fat binary, to the wrapper of one, or to a C string.
pub(crate) unsafe fn image<'a>(start: *const c_void) -> &'a [u8] {
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
    /// The PTX of an image, or the reason in words why there is none.
    pub(crate) fn ptx<'a>(&self, image: &'a [u8]) -> Result<Cow<'a, str>, Refusal> {
        fatbin::ptx(image, self.config.sm).map_err(|e| {
            let code = match e {
                ImageError::NoPtx { .. } | ImageError::Cubin => Code::NO_BINARY_FOR_GPU,
                ImageError::Target { .. } => Code::INVALID_PTX,
                ImageError::Unknown { .. }
                | ImageError::Truncated { .. }
                | ImageError::Unpack { .. }
                | ImageError::Text => Code::INVALID_IMAGE,
            };
            (code, e.to_string())
        })
    }

    /// Reads an image; the error is the reason in words.
    pub(crate) fn read(&self, image: &[u8]) -> Result<Arc<Image>, Refusal> {
        let text = self.ptx(image)?;
        let program = self.programs.load(&text);
        let program = program.map_err(|e| (Code::INVALID_PTX, e.to_string()))?;
        let resources = fatbin::cubin(image, self.config.sm)
            .map(|code| cubin::resources(&code))
            .unwrap_or_default();
        Ok(Image { program, resources }.into())
    }

    /// Makes a module of an image in the current context; the error is the reason in words.
    fn load(&self, image: &[u8]) -> Result<CUmodule, Refusal> {
        let plain = |code: Code| (code, code.name().to_string());
        let mut state = self.lock();
        state.current().map_err(plain)?;
        state.refuse_unsafe().map_err(plain)?;
        drop(state);
        let image = self.read(image)?;
        let mut state = self.lock();
        let context = state.current().map_err(plain)?;
        self.instantiate(&mut state, &image, context)
    }

    /// Makes a module of a program in a context.
    pub(crate) fn instantiate(
        &self,
        state: &mut State,
        image: &Arc<Image>,
        context: CUcontext,
    ) -> Result<CUmodule, Refusal> {
        let device = state.contexts.get(&context).map(|c| c.device);
        let device = device.ok_or((Code::INVALID_CONTEXT, Code::INVALID_CONTEXT.name().to_string()))?;
        let variables = self.place_variables(&image.program, device)?;
        let handle = CUmodule(state.handle());
        state.modules.insert(
            handle,
            Module {
                context,
                image: Arc::clone(image),
                variables,
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

    /// Removes a module and its functions. No work that uses them is pending.
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

/// Loads an image, and writes messages into the logs that the options name.
fn load(out: Out<CUmodule>, start: *const c_void, logs: &Logs) -> Outcome {
    if start.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let driver = driver()?;
    // SAFETY: the caller of the exported function promises an image.
    let loaded = driver.load(unsafe { image(start) });
    out.put(logs.finish(&driver.config, "module not loaded", loaded)?)
}

impl Driver {
    /// The function of a kernel in an image that no module has loaded yet.
    pub(crate) fn function(&self, image: &Image, wanted: &str) -> Outcome<Function> {
        let kernel = image.program.kernel(wanted).ok_or(Code::NOT_FOUND)?;
        let name = CString::new(wanted).map_err(|_| Code::NOT_FOUND)?.into();
        let static_shared = kernel.static_shared().map_err(|e| {
            self.config.say(format_args!("kernel not loaded: {e}"));
            Code::INVALID_PTX
        })?;
        let variables = image.program.variables().iter();
        Ok(Function {
            module: CUmodule::default(),
            context: CUcontext::default(),
            resources: image.resources.get(wanted).copied(),
            kernel,
            name,
            variables: Arc::new([]),
            static_shared,
            constants: variables.filter(|v| v.constant).map(|v| v.size).sum(),
            max_dynamic: device::SHARED.saturating_sub(static_shared),
            carveout: -1,
        })
    }

    /// The handle of a module's kernel; `settings` are the attributes that were set for it before.
    pub(crate) fn function_of(
        &self,
        state: &mut State,
        module: CUmodule,
        wanted: &str,
        settings: Option<&Function>,
    ) -> Outcome<CUfunction> {
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let kernel = found.image.program.kernel(wanted).ok_or(Code::NOT_FOUND)?;
        let mut known = state.functions.iter();
        if let Some((handle, _)) = known.find(|(_, f)| f.module == module && Arc::ptr_eq(&f.kernel, &kernel)) {
            return Ok(*handle);
        }
        let made = match settings {
            Some(settings) => settings.clone(),
            None => self.function(&found.image, wanted)?,
        };
        let function = Function {
            module,
            context: found.context,
            variables: found.variables.clone(),
            ..made
        };
        let handle = CUfunction(state.handle());
        state.functions.insert(handle, function);
        Ok(handle)
    }
}

impl Module {
    /// The address and the size of a variable.
    pub(crate) fn variable(&self, wanted: &str, managed: bool) -> Outcome<(CUdeviceptr, u64)> {
        let variables = self.image.program.variables();
        let at = variables
            .iter()
            .position(|v| v.name == wanted && (v.managed || !managed));
        let at = at.ok_or(Code::NOT_FOUND)?;
        Ok((self.variables[at], variables[at].size))
    }
}

fn function(out: Out<CUfunction>, module: CUmodule, wanted: &str) -> Outcome {
    let driver = driver()?;
    let mut state = driver.lock();
    state.current()?;
    out.put(driver.function_of(&mut state, module, wanted, None)?)
}

export! {
    fn cuModuleLoadData(module: Out<CUmodule>, start: *const c_void) {
        load(module, start, &Logs::default())
    }

    fn cuModuleLoadFatBinary(module: Out<CUmodule>, start: *const c_void) {
        load(module, start, &Logs::default())
    }

    fn cuModuleLoadDataEx(
        module: Out<CUmodule>,
        start: *const c_void,
        count: u32,
        options: In<i32>,
        values: Out<usize>,
    ) {
        load(module, start, &Logs::new(count, options, values)?)
    }

    fn cuModuleLoad(module: Out<CUmodule>, path: *const c_char) {
        let mut bytes = std::fs::read(name(path)?).map_err(|_| Code::FILE_NOT_FOUND)?;
        bytes.push(0);
        load(module, bytes.as_ptr().cast(), &Logs::default())
    }

    fn cuModuleUnload(module: CUmodule) {
        let driver = driver()?;
        let mut state = driver.lock();
        state.refuse_unsafe()?;
        let mut state = driver.quiet(state)?;
        driver.unload(&mut state, module)
    }

    fn cuModuleGetFunction(function_out: Out<CUfunction>, module: CUmodule, wanted: *const c_char) {
        let wanted = name(wanted)?;
        // As NVIDIA's driver 580 does.
        if wanted.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        function(function_out, module, &wanted)
    }

    fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, module: CUmodule) {
        let names = {
            let state = driver()?.lock();
            state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?.image.program.kernels().to_vec()
        };
        for (n, kernel) in names.into_iter().take(count as usize).enumerate() {
            // The caller says with `count` how many handles the array holds.
            function(Out::from_raw(functions.raw().wrapping_add(n)), module, &kernel)?;
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
        count.put(found.image.program.kernels().len() as u32)
    }

    fn cuModuleGetGlobal_v2(pointer: Out<CUdeviceptr>, size: Out<usize>, module: CUmodule, wanted: *const c_char) {
        let wanted = name(wanted)?;
        let state = driver()?.lock();
        state.current()?;
        let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let (address, bytes) = found.variable(&wanted, false)?;
        pointer.put_if(address);
        size.put_if(bytes as usize);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        // Lazy: a kernel is decoded when it is launched first.
        mode.put(2)
    }
}
