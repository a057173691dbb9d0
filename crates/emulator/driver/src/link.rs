//! The linker of images: it takes inputs that hold PTX and makes one fat binary of all.

use std::ffi::{c_char, c_void};

use kiln_ptx::{fatbin, merge};

use crate::error::{Code, Outcome};
use crate::jit::{Logs, Refusal};
use crate::objects::linker::Linker;
use crate::state::{Driver, driver};
use crate::types::{CUlinkState, In, Out, name};

/// Numbers of `CUjitInputType`.
const CUBIN: i32 = 0;
const PTX: i32 = 1;
const FATBINARY: i32 = 2;
const OBJECT: i32 = 3;
const LIBRARY: i32 = 4;

/// The PTX of an input.
fn texts(driver: &Driver, kind: i32, bytes: &[u8]) -> Result<Vec<String>, Refusal> {
    match kind {
        CUBIN | PTX | FATBINARY => Ok(vec![driver.ptx(bytes)?.into_owned()]),
        // Host objects, alone or in an archive, carry fat binaries.
        OBJECT | LIBRARY => {
            let found: Vec<&[u8]> = fatbin::inside(bytes).collect();
            if found.is_empty() {
                let text = "an object or archive without a fat binary: only PTX can be linked".to_string();
                return Err((Code::INVALID_IMAGE, text));
            }
            found
                .into_iter()
                .map(|bytes| Ok(driver.ptx(bytes)?.into_owned()))
                .collect()
        }
        _ => {
            let text = format!("an input of type {kind} (CUjitInputType): only PTX and what holds it can be linked");
            Err((Code::INVALID_VALUE, text))
        }
    }
}

fn create(count: u32, options: In<i32>, values: Out<usize>, out: Out<CUlinkState>) -> Outcome {
    let logs = Logs::new(count, options, values)?;
    let mut state = driver()?.lock();
    state.current()?;
    let handle = CUlinkState(state.handle());
    let linker = Linker {
        logs,
        texts: Vec::new(),
        image: None,
    };
    state.linkers.insert(handle, linker);
    out.put(handle)
}

fn add(linker: CUlinkState, kind: i32, bytes: &[u8], what: &str) -> Outcome {
    let driver = driver()?;
    let read = texts(driver, kind, bytes).map_err(|(code, text)| (code, format!("{what}: {text}")));
    let mut state = driver.lock();
    let found = state.linkers.get_mut(&linker).ok_or(Code::INVALID_HANDLE)?;
    if found.image.is_some() {
        return Err(Code::INVALID_VALUE);
    }
    let read = found.logs.finish(&driver.config, "not linked", read)?;
    found.texts.extend(read);
    Ok(())
}

/// Functions whose second versions take the same arguments as the first ones.
macro_rules! versions {
    ($($create:ident $data:ident $file:ident)*) => {
        export! {
            $(
                fn $create(count: u32, options: In<i32>, values: Out<usize>, linker: Out<CUlinkState>) {
                    create(count, options, values, linker)
                }

                fn $data(
                    linker: CUlinkState,
                    kind: i32,
                    data: In<u8>,
                    size: usize,
                    what: *const c_char,
                    _count: u32,
                    _options: In<i32>,
                    _values: In<usize>,
                ) {
                    let what = name(what).unwrap_or_else(|_| "an input without a name".to_string());
                    add(linker, kind, &data.list(size)?, &what)
                }

                fn $file(
                    linker: CUlinkState,
                    kind: i32,
                    path: *const c_char,
                    _count: u32,
                    _options: In<i32>,
                    _values: In<usize>,
                ) {
                    let path = name(path)?;
                    let bytes = std::fs::read(&path).map_err(|_| Code::FILE_NOT_FOUND)?;
                    add(linker, kind, &bytes, &path)
                }
            )*
        }
    };
}

versions! {
    cuLinkCreate cuLinkAddData cuLinkAddFile
    cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2
}

export! {
    fn cuLinkComplete(linker: CUlinkState, image: Out<*const c_void>, size: Out<usize>) {
        let driver = driver()?;
        let mut state = driver.lock();
        let found = state.linkers.get_mut(&linker).ok_or(Code::INVALID_HANDLE)?;
        if found.image.is_none() {
            let merged = merge(&found.texts).map_err(|e| (Code::INVALID_PTX, e));
            // A program that does not load is refused here, as a device's linker would.
            let merged = merged.and_then(|text| {
                kiln_simulator::Program::load(&text).map_err(|e| (Code::INVALID_PTX, e.to_string()))?;
                Ok(text)
            });
            let text = found.logs.finish(&driver.config, "not linked", merged)?;
            found.image = Some(fatbin::wrap(&text, driver.config.sm).into());
        }
        let made = found.image.as_deref().ok_or(Code::UNKNOWN)?;
        image.put(made.as_ptr().cast())?;
        size.put_if(made.len());
        Ok(())
    }

    fn cuLinkDestroy(linker: CUlinkState) {
        driver()?.lock().linkers.remove(&linker).map(drop).ok_or(Code::INVALID_HANDLE)
    }
}
