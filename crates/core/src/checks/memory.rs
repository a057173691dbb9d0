//! Checks of copies between host and device, and on a device.

use super::Operands;
use crate::{Buffer, Error, Result, Runtime};

fn bytes<R: Runtime>(on: &R, op: &'static str, operand: &'static str, buffer: &R::Buffer, host: usize) -> Result<()> {
    Operands::new(on, op).holds(operand, buffer, buffer.dtype(), buffer.len())?;
    let expected = buffer.len() * buffer.dtype().size();
    if host == expected {
        return Ok(());
    }
    let expected = format!("{expected}, those of the buffer");
    Err(Error::invalid(op, "bytes on the host", host, expected))
}

/// Checks [`Runtime::upload_bytes`].
///
/// # Errors
/// A host slice whose size differs from the buffer's.
pub fn upload_bytes<R: Runtime>(on: &R, src: &[u8], dst: &R::Buffer) -> Result<()> {
    bytes(on, "upload", "dst", dst, src.len())
}

/// Checks [`Runtime::upload_part`].
///
/// # Errors
/// A range of bytes that is not inside the buffer.
pub fn upload_part<R: Runtime>(on: &R, src: &[u8], dst: &R::Buffer, offset: usize) -> Result<()> {
    Operands::new(on, "upload_part").holds("dst", dst, dst.dtype(), dst.len())?;
    let held = dst.len() * dst.dtype().size();
    if offset.checked_add(src.len()).is_some_and(|end| end <= held) {
        return Ok(());
    }
    let expected = format!("room for {} bytes in {held}", src.len());
    Err(Error::invalid("upload_part", "offset", offset, expected))
}

/// Checks [`Runtime::download_bytes`].
///
/// # Errors
/// A host slice whose size differs from the buffer's.
pub fn download_bytes<R: Runtime>(on: &R, src: &R::Buffer, dst: &[u8]) -> Result<()> {
    bytes(on, "download", "src", src, dst.len())
}

/// Checks [`Runtime::copy`].
///
/// # Errors
/// Buffers of different dtypes or lengths.
pub fn copy<R: Runtime>(on: &R, src: &R::Buffer, dst: &R::Buffer) -> Result<()> {
    let of = Operands::new(on, "copy");
    of.holds("src", src, src.dtype(), src.len())?;
    of.holds("dst", dst, src.dtype(), src.len())
}
