//! Libraries: images that are loaded once and get a module in each context that uses them.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::error::{Code, Outcome};
use crate::jit::Logs;
use crate::objects::library::{Kernel, Library};
use crate::objects::module::Function;
use crate::state::{Driver, State, driver};
use crate::types::{CUcontext, CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule, In, Out, name};
use crate::{function, module};

fn load(out: Out<CUlibrary>, start: *const c_void, logs: &Logs) -> Outcome {
    if start.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let driver = driver()?;
    // SAFETY: the caller of the exported function promises an image.
    let read = driver.read(unsafe { module::image(start) });
    let image = logs.finish(&driver.config, "library not loaded", read)?;
    let mut state = driver.lock();
    let library = CUlibrary(state.handle());
    let mut kernels = Vec::new();
    for kernel in image.program.kernels() {
        let handle = CUkernel(state.handle());
        let text = std::ffi::CString::new(kernel.as_str()).map_err(|_| Code::INVALID_IMAGE)?;
        let kernel = Kernel {
            library,
            name: kernel.clone(),
            text: text.into(),
            settings: HashMap::new(),
        };
        state.kernels.insert(handle, kernel);
        kernels.push(handle);
    }
    let modules = HashMap::new();
    state.libraries.insert(
        library,
        Library {
            image,
            modules,
            kernels,
        },
    );
    out.put(library)
}

impl Driver {
    /// The library's module in the current context, which is made at its first use.
    fn module(&self, state: &mut State, library: CUlibrary) -> Outcome<CUmodule> {
        let context = state.current()?;
        let found = state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        // The module of a destroyed context is gone.
        if let Some(module) = found.modules.get(&context).filter(|m| state.modules.contains_key(m)) {
            return Ok(*module);
        }
        let image = Arc::clone(&found.image);
        let made = self.instantiate(state, &image, context);
        let module = Logs::default().finish(&self.config, "library not loaded", made)?;
        if let Some(library) = state.libraries.get_mut(&library) {
            library.modules.insert(context, module);
        }
        Ok(module)
    }

    /// The function that a handle means in the current context: calls take kernels where they take functions.
    pub(crate) fn resolve(&self, state: &mut State, handle: CUfunction) -> Outcome<CUfunction> {
        let kernel = CUkernel(handle.0);
        let Some(found) = state.kernels.get(&kernel) else {
            return Ok(handle);
        };
        let (library, name) = (found.library, found.name.clone());
        let device = state.current_device()?;
        let module = self.module(state, library)?;
        let settings = state
            .kernels
            .get(&kernel)
            .and_then(|k| k.settings.get(&device))
            .cloned();
        self.function_of(state, module, &name, settings.as_ref())
    }

    /// Reads or changes the settings of a kernel on a device.
    fn settings<T>(
        &self,
        kernel: CUkernel,
        device: CUdevice,
        f: impl FnOnce(&Driver, &mut Function) -> Outcome<T>,
    ) -> Outcome<T> {
        let device = self.device(device)?;
        let mut state = self.lock();
        let found = state.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?;
        let library = state.libraries.get(&found.library).ok_or(Code::INVALID_HANDLE)?;
        let fresh = self.function(&library.image, &found.name)?;
        let found = state.kernels.get_mut(&kernel).ok_or(Code::INVALID_HANDLE)?;
        f(self, found.settings.entry(device).or_insert(fresh))
    }

    /// Gives the functions of a kernel on a device the attributes that were set for the kernel.
    fn pass_on(&self, kernel: CUkernel, device: CUdevice) -> Outcome {
        let mut state = self.lock();
        let state = &mut *state;
        let found = state.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?;
        let Some(settings) = found.settings.get(&(device as u32)) else {
            return Ok(());
        };
        for function in state.functions.values_mut() {
            let of_device = state
                .contexts
                .get(&function.context)
                .is_some_and(|c| c.device == device as u32);
            if of_device && Arc::ptr_eq(&function.kernel, &settings.kernel) {
                function.max_dynamic = settings.max_dynamic;
                function.carveout = settings.carveout;
            }
        }
        Ok(())
    }
}

/// A variable of a library, in the current context.
fn variable(
    pointer: Out<CUdeviceptr>,
    size: Out<usize>,
    library: CUlibrary,
    wanted: *const c_char,
    managed: bool,
) -> Outcome {
    let wanted = name(wanted)?;
    let driver = driver()?;
    let mut state = driver.lock();
    let module = driver.module(&mut state, library)?;
    let found = state.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
    let (address, bytes) = found.variable(&wanted, managed)?;
    pointer.put_if(address);
    size.put_if(bytes as usize);
    Ok(())
}

export! {
    fn cuLibraryLoadData(
        library: Out<CUlibrary>,
        code: *const c_void,
        options: In<i32>,
        values: Out<usize>,
        count: u32,
        _library_options: In<i32>,
        _library_values: In<usize>,
        _library_count: u32,
    ) {
        load(library, code, &Logs::new(count, options, values)?)
    }

    fn cuLibraryLoadFromFile(
        library: Out<CUlibrary>,
        path: *const c_char,
        options: In<i32>,
        values: Out<usize>,
        count: u32,
        _library_options: In<i32>,
        _library_values: In<usize>,
        _library_count: u32,
    ) {
        let mut bytes = std::fs::read(name(path)?).map_err(|_| Code::FILE_NOT_FOUND)?;
        bytes.push(0);
        load(library, bytes.as_ptr().cast(), &Logs::new(count, options, values)?)
    }

    fn cuLibraryUnload(library: CUlibrary) {
        let driver = driver()?;
        let mut state = driver.lock();
        state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        // Work of any context may use it.
        let mut contexts: Vec<CUcontext> = state.libraries[&library].modules.keys().copied().collect();
        while let Some(context) = contexts.pop() {
            let goal = state.everything(context);
            while !state.met(&goal) {
                state = driver.step(state, Some(&goal))?;
            }
        }
        let mut state = driver.drain(state);
        let gone = state.libraries.remove(&library).ok_or(Code::INVALID_HANDLE)?;
        state.kernels.retain(|_, k| k.library != library);
        for module in gone.modules.into_values().filter(|m| state.modules.contains_key(m)).collect::<Vec<_>>() {
            driver.unload(&mut state, module)?;
        }
        Ok(())
    }

    fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, wanted: *const c_char) {
        let wanted = name(wanted)?;
        let state = driver()?.lock();
        let found = state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        let mut kernels = found.kernels.iter().copied();
        kernel.put(kernels.find(|k| state.kernels[k].name == wanted).ok_or(Code::NOT_FOUND)?)
    }

    fn cuLibraryGetKernelCount(count: Out<u32>, library: CUlibrary) {
        let state = driver()?.lock();
        count.put(state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?.kernels.len() as u32)
    }

    fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: u32, library: CUlibrary) {
        let state = driver()?.lock();
        let found = state.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        for (n, kernel) in found.kernels.iter().take(count as usize).enumerate() {
            // The caller says with `count` how many handles the array holds.
            Out::from_raw(kernels.raw().wrapping_add(n)).put(*kernel)?;
        }
        Ok(())
    }

    fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) {
        let driver = driver()?;
        let mut state = driver.lock();
        module.put(driver.module(&mut state, library)?)
    }

    fn cuLibraryGetGlobal(pointer: Out<CUdeviceptr>, size: Out<usize>, library: CUlibrary, wanted: *const c_char) {
        variable(pointer, size, library, wanted, false)
    }

    fn cuLibraryGetManaged(pointer: Out<CUdeviceptr>, size: Out<usize>, library: CUlibrary, wanted: *const c_char) {
        variable(pointer, size, library, wanted, true)
    }

    fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) {
        let driver = driver()?;
        let mut state = driver.lock();
        state.current()?;
        state.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?;
        function.put(driver.resolve(&mut state, CUfunction(kernel.0))?)
    }

    fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) {
        let state = driver()?.lock();
        library.put(state.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?.library)
    }

    fn cuKernelGetName(text: Out<*const c_char>, kernel: CUkernel) {
        let state = driver()?.lock();
        text.put(state.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?.text.as_ptr())
    }

    fn cuKernelGetAttribute(value: Out<i32>, attribute: i32, kernel: CUkernel, device: CUdevice) {
        value.put(driver()?.settings(kernel, device, |driver, f| function::attribute(driver, f, attribute))?)
    }

    fn cuKernelSetAttribute(attribute: i32, value: i32, kernel: CUkernel, device: CUdevice) {
        let driver = driver()?;
        driver.settings(kernel, device, |driver, f| function::set_attribute(driver, f, attribute, value))?;
        driver.pass_on(kernel, device)
    }

    fn cuKernelSetCacheConfig(kernel: CUkernel, _config: i32, device: CUdevice) {
        driver()?.settings(kernel, device, |_, _| Ok(()))
    }

    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) {
        let param = |_: &Driver, f: &mut Function| f.kernel.params().get(index).copied().ok_or(Code::INVALID_VALUE);
        let param = driver()?.settings(kernel, 0, param)?;
        offset.put(param.offset as usize)?;
        size.put_if(param.size as usize);
        Ok(())
    }
}
