//! The errors of this crate, with the driver's call and code where a driver reported them.

use crate::codes;
use crate::geometry::Geometry;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a device, its driver or a call's arguments.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to load.
    #[error("no CUDA driver: {reason}; install NVIDIA's driver, or name one in KILN_CUDA_DRIVER")]
    NoDriver {
        /// The files that were tried, and the loader's message.
        reason: String,
    },
    /// `set_driver` came too late.
    #[error("{reason}")]
    DriverLoaded {
        /// The driver that was asked for, and the one in use.
        reason: String,
    },
    /// There is no device of this number.
    #[error("no CUDA device {ordinal}: {}", there_are(*count))]
    NoSuchDevice {
        /// The number that was asked for.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The device's memory does not suffice, even with the allocator's cached blocks released.
    #[error("out of memory on CUDA device {ordinal}: {requested} bytes requested, {free} of {total} free")]
    OutOfMemory {
        /// The device.
        ordinal: usize,
        /// The bytes that were asked for.
        requested: usize,
        /// The bytes free on the device after the cached blocks were released.
        free: usize,
        /// The bytes of the device.
        total: usize,
    },
    /// A call of the driver failed.
    #[error("{call} failed with {name} ({code}): {meaning}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The code's name, or its number if it is not known.
        name: String,
        /// The meaning of the code.
        meaning: String,
    },
    /// The driver refused a launch, or an earlier kernel failed.
    #[error("the launch of `{kernel}` ({geometry}) failed with {name} ({code}): {meaning}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// Grid, block and dynamic shared memory.
        geometry: Geometry,
        /// The driver's result.
        code: i32,
        /// The code's name, or its number if it is not known.
        name: String,
        /// The meaning of the code.
        meaning: String,
    },
    /// A launch's arguments are not those that the kernel declares.
    #[error("kernel `{kernel}` takes arguments of {expected:?} bytes, not of {found:?}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The bytes of each argument that the kernel declares.
        expected: Vec<usize>,
        /// The bytes of each argument given.
        found: Vec<usize>,
    },
    /// The driver cannot load a kernel image.
    #[error("cannot load a kernel image: {name} ({code}): {meaning}{}{log}", if log.is_empty() { "" } else { ": " })]
    Image {
        /// The driver's result.
        code: i32,
        /// The code's name, or its number if it is not known.
        name: String,
        /// The meaning of the code.
        meaning: String,
        /// The log of the driver's compiler.
        log: String,
    },
    /// A module lacks a function or a variable.
    #[error("the module has no {what} `{name}`")]
    NoSuchSymbol {
        /// "function" or "variable".
        what: &'static str,
        /// The name that was asked for.
        name: String,
    },
    /// A call that cannot be part of a capture, or a capture that was invalidated.
    #[error("{call} in a stream capture: {reason}")]
    Capture {
        /// The method or the driver's function.
        call: &'static str,
        /// The driver's result, or nothing if the driver was not called.
        code: Option<i32>,
        /// The mistake, and what to do.
        reason: String,
    },
    /// Bytes outside of a block.
    #[error("{call}: bytes {offset} to {offset}+{len} of a block of {size}")]
    Range {
        /// The method.
        call: &'static str,
        /// The first byte.
        offset: usize,
        /// The number of bytes.
        len: usize,
        /// The bytes of the block.
        size: usize,
    },
    /// Objects of two devices where one is needed.
    #[error("{call}: a stream of device {stream} with memory or code of device {other}")]
    DeviceMismatch {
        /// The method.
        call: &'static str,
        /// The stream's device.
        stream: usize,
        /// The other object's device.
        other: usize,
    },
}

fn there_are(count: usize) -> String {
    match count {
        0 => "there is none".to_string(),
        1 => "there is only device 0".to_string(),
        n => format!("there are {n}, numbered from 0"),
    }
}

impl Error {
    /// The driver's error for a code other than success.
    pub(crate) fn driver(call: &'static str, code: i32) -> Self {
        let (name, meaning) = codes::describe(code);
        if (900..=908).contains(&code) {
            return Self::Capture {
                call,
                code: Some(code),
                reason: format!("{meaning} ({name})"),
            };
        }
        Self::Driver {
            call,
            code,
            name,
            meaning,
        }
    }

    /// The driver's code, if the error came from a driver.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Driver { code, .. } | Self::Launch { code, .. } | Self::Image { code, .. } => Some(*code),
            Self::Capture { code, .. } => *code,
            Self::OutOfMemory { .. } => Some(codes::OUT_OF_MEMORY),
            _ => None,
        }
    }
}

/// A result code as a `Result`.
pub(crate) fn check(call: &'static str, code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::driver(call, code)),
    }
}

/// An error of `cust`, whose variants are the driver's codes.
pub(crate) fn of_cust(call: &'static str) -> impl Fn(cust::error::CudaError) -> Error {
    move |e| Error::driver(call, e as u32 as i32)
}
