//! The names and meanings of error codes, for programs.

use std::ffi::c_char;

use crate::error::{Code, lookup};
use crate::types::Out;

export! {
    fn cuGetErrorName(error: Code, text: Out<*const c_char>) {
        let found = lookup(error.0);
        text.put(found.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        found.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(error: Code, text: Out<*const c_char>) {
        let found = lookup(error.0);
        text.put(found.map_or(std::ptr::null(), |(_, text)| text.as_ptr()))?;
        found.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}
