//! The C types of the driver API that this crate names.

use std::ffi::{c_char, c_void};

/// A device's ordinal.
pub type CUdevice = i32;
/// An address in the unified address space.
pub type CUdeviceptr = u64;
/// `void (*)(void *)`, for `cuLaunchHostFunc`.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// `void (*)(CUstream, CUresult, void *)`, for `cuStreamAddCallback`.
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, crate::Code, *mut c_void)>;
/// `size_t (*)(int)`: dynamic shared memory by block size.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(i32) -> usize>;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);
    )*};
}

handles! {
    /// A context. Zero is none.
    CUcontext
    /// A stream. Zero and one are the context's legacy stream, two is the thread's own.
    CUstream
    /// An event.
    CUevent
    /// A module.
    CUmodule
    /// A kernel of a module.
    CUfunction
    /// A library.
    CUlibrary
    /// A kernel of a library.
    CUkernel
    /// A linker of images.
    CUlinkState
    /// A graph.
    CUgraph
    /// A node of a graph.
    CUgraphNode
    /// A graph made ready to launch.
    CUgraphExec
    /// A pool of stream-ordered memory.
    CUmemoryPool
}

/// 16 bytes that name a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CUuuid {
    /// The bytes.
    pub bytes: [u8; 16],
}

/// A pointer that a call writes through: null, or valid for one write, as the API asks of its caller.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// No place.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// Writes, or refuses a null pointer.
    pub(crate) fn put(self, value: T) -> crate::Outcome {
        if self.0.is_null() {
            return Err(crate::Code::INVALID_VALUE);
        }
        // SAFETY: whoever calls the exported function that this argument came with promises that a pointer that is not
        // null is valid for a write.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes unless the pointer is null.
    pub(crate) fn put_if(self, value: T) {
        let _ = self.put(value);
    }

    /// From a pointer of the same call that the API gives another type here.
    pub(crate) fn from_raw(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// True if there is no place to write to.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The pointer.
    pub(crate) fn raw(self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Out<T> {
    /// The value at the pointer.
    pub(crate) fn get(self) -> crate::Outcome<T> {
        In(self.0.cast_const()).get()
    }
}

impl<T> From<&mut T> for Out<T> {
    fn from(place: &mut T) -> Self {
        Self(place)
    }
}

/// A pointer that a call reads through: null, or valid for reads of as many values as the API says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// No value.
    pub const NULL: Self = Self(std::ptr::null());

    /// From a pointer of the same call that the API gives another type here.
    pub(crate) fn from_raw(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// The value, or a refusal of a null pointer.
    pub(crate) fn get(self) -> crate::Outcome<T> {
        if self.0.is_null() {
            return Err(crate::Code::INVALID_VALUE);
        }
        // SAFETY: whoever calls the exported function that this argument came with promises that a pointer that is not
        // null is valid for a read.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `n` values.
    pub(crate) fn list(self, n: usize) -> crate::Outcome<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(crate::Code::INVALID_VALUE);
        }
        // SAFETY: as in `get`, for `n` values: the API says so of every array that comes with a count.
        Ok((0..n).map(|at| unsafe { self.0.add(at).read_unaligned() }).collect())
    }

    /// The pointer.
    pub(crate) fn raw(self) -> *const T {
        self.0
    }
}

impl<T> From<&T> for In<T> {
    fn from(value: &T) -> Self {
        Self(value)
    }
}

impl<T> From<&[T]> for In<T> {
    fn from(values: &[T]) -> Self {
        Self(values.as_ptr())
    }
}

/// A NUL-terminated name.
pub(crate) fn name(pointer: *const c_char) -> crate::Outcome<String> {
    if pointer.is_null() {
        return Err(crate::Code::INVALID_VALUE);
    }
    // SAFETY: whoever calls the exported function that this argument came with promises a C string.
    let text = unsafe { std::ffi::CStr::from_ptr(pointer) };
    Ok(text.to_string_lossy().into_owned())
}

/// Writes a list as the API does: without an array, the count; with one, as many values as fit, and their number.
pub(crate) fn put_list<T: Copy>(values: &[T], array: Out<T>, count: Out<usize>) -> crate::Outcome {
    if array.is_null() {
        return count.put(values.len());
    }
    let fit = count.get()?.min(values.len());
    for (at, value) in values[..fit].iter().enumerate() {
        // SAFETY: the caller of the exported function says with `count` how many values the array holds.
        unsafe { array.raw().add(at).write_unaligned(*value) };
    }
    count.put(fit)
}

/// Writes a string and its NUL into a buffer of `len` bytes, cut to what fits.
pub(crate) fn put_text(text: &str, buffer: *mut c_char, len: usize) -> crate::Outcome {
    if buffer.is_null() || len == 0 {
        return Err(crate::Code::INVALID_VALUE);
    }
    let bytes = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller of the exported function promises a buffer of `len` bytes; one was kept for the NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}
