//! Attributes of pointers.

use std::ffi::c_void;

use kiln_simulator::memory::{Kind, Range};

use crate::error::{Code, Outcome};
use crate::state::{Driver, driver};
use crate::types::{CUcontext, CUdeviceptr, In, Out};

/// Writes one attribute. For an address that the driver does not know, it is the value that the API gives, or an error.
fn put(driver: &Driver, data: *mut c_void, attribute: i32, address: u64, range: Option<&Range>) -> Outcome {
    let word = |value: u32| Out::<u32>::from_raw(data.cast()).put(value);
    let long = |value: u64| Out::<u64>::from_raw(data.cast()).put(value);
    let flag = |value: bool| Out::<u8>::from_raw(data.cast()).put(value.into());
    let Some(range) = range else {
        return match attribute {
            9 => word(-2i32 as u32),
            8 => word(0),
            1 | 3 | 4 | 11 | 12 | 17..=20 => long(0),
            7 | 14 => long(0),
            10 | 13 | 15 => flag(false),
            2 | 6 | 16 => word(0),
            _ => Err(Code::INVALID_VALUE),
        };
    };
    let managed = range.kind == Kind::Managed;
    match attribute {
        1 => {
            let state = driver.lock();
            let owner = state.contexts.iter().find(|(_, c)| c.device == range.device);
            long(owner.map_or(CUcontext::default(), |(handle, _)| *handle).0)
        }
        2 => word(if range.kind.host() { 1 } else { 2 }),
        3 => long(address),
        4 if range.kind.host() || managed => long(address),
        4 => Err(Code::INVALID_VALUE),
        6 => word(0),
        7 | 20 => long(range.id),
        8 => word(managed.into()),
        9 => word(range.device),
        10 => flag(range.kind == Kind::Device),
        11 | 19 => long(range.base),
        12 | 18 => long(range.len),
        13 => flag(true),
        14 | 17 => long(0),
        15 => flag(false),
        // Read and write.
        16 => word(3),
        _ => Err(Code::INVALID_VALUE),
    }
}

export! {
    fn cuPointerGetAttribute(data: *mut c_void, attribute: i32, pointer: CUdeviceptr) {
        let driver = driver()?;
        driver.lock().current()?;
        let range = driver.memory.find(pointer).ok_or(Code::INVALID_VALUE)?;
        put(driver, data, attribute, pointer, Some(&range))
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<i32>, data: In<*mut c_void>, pointer: CUdeviceptr) {
        let driver = driver()?;
        driver.lock().current()?;
        let range = driver.memory.find(pointer);
        let places = data.list(count as usize)?;
        for (attribute, place) in attributes.list(count as usize)?.into_iter().zip(places) {
            let outcome = put(driver, place, attribute, pointer, range.as_ref());
            // Device memory has no host pointer; in a list that is a null pointer rather than an error.
            if outcome.is_err() && attribute == 4 && !place.is_null() {
                Out::<u64>::from_raw(place.cast()).put(0)?;
            } else {
                outcome?;
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(_value: In<u32>, attribute: i32, pointer: CUdeviceptr) {
        // Synchronous copies wait here whether they are told to or not.
        let known = driver()?.memory.find(pointer).filter(|_| attribute == 6);
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}
