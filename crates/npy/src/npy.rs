//! `.npy` files: one array.

use crate::array::{from_bytes, to_bytes};
use crate::error::{NpyError, Result};
use crate::header::Header;
use kiln_nn::module::Value;
use kiln_nn::{Backend, Indices, Tensor};
use std::io::Read;
use std::path::Path;

/// Reads a `.npy` file (`numpy.load`) onto `backend`.
///
/// # Errors
/// A file that cannot be read or is not a regular one; what is not such a file, or is cut short; a dtype or a value that has
/// no counterpart; memory. The message begins with the path.
pub fn read<B: Backend>(path: impl AsRef<Path>, backend: &B) -> Result<Value<B>> {
    let path = path.as_ref();
    let read = || {
        let (mut file, size) = kiln_files::open_regular(path).map_err(NpyError::Io)?;
        let mut bytes = kiln_core::host::room(usize::try_from(size).unwrap_or(usize::MAX))?;
        file.read_to_end(&mut bytes).map_err(NpyError::Io)?;
        decode(&bytes, backend)
    };
    read().map_err(|e| e.within(path.display()))
}

/// Reads a `.npy` file of floats.
///
/// # Errors
/// Those of [`read`]; [`NpyError::Kind`] for integers.
pub fn read_tensor<B: Backend>(path: impl AsRef<Path>, backend: &B) -> Result<Tensor<B>> {
    let path = path.as_ref();
    match read(path, backend)? {
        Value::Float(tensor) => Ok(tensor),
        Value::Int(_) => Err(kind("integers", "floats").within(path.display())),
    }
}

/// Reads a `.npy` file of integers or truth values.
///
/// # Errors
/// Those of [`read`]; [`NpyError::Kind`] for floats.
pub fn read_indices<B: Backend>(path: impl AsRef<Path>, backend: &B) -> Result<Indices<B>> {
    let path = path.as_ref();
    match read(path, backend)? {
        Value::Int(indices) => Ok(indices),
        Value::Float(_) => Err(kind("floats", "integers").within(path.display())),
    }
}

fn kind(found: &'static str, expected: &'static str) -> NpyError {
    NpyError::Kind { found, expected }
}

/// Writes a tensor or indices to a `.npy` file (`numpy.save`), the whole file or nothing of it.
///
/// # Errors
/// A folder that is missing or not writable, a full disk, a device error.
pub fn write<B: Backend>(path: impl AsRef<Path>, array: impl Into<Value<B>>) -> Result<()> {
    Ok(kiln_files::write_atomic(path, &encode(array)?)?)
}

/// The array in the bytes of a `.npy` file.
///
/// # Errors
/// Those of [`read`] but for the file's.
pub fn decode<B: Backend>(bytes: &[u8], backend: &B) -> Result<Value<B>> {
    let (header, data) = Header::parse(bytes)?;
    from_bytes(&header, data, backend)
}

/// The bytes of a `.npy` file with the array.
///
/// # Errors
/// A device error, memory.
pub fn encode<B: Backend>(array: impl Into<Value<B>>) -> Result<Vec<u8>> {
    to_bytes(&array.into())
}
