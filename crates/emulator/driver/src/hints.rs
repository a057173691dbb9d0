//! Calls that change speed on a device and nothing here: they check their arguments.

use crate::error::{Code, Outcome};
use crate::pool::MemLocation;
use crate::state::driver;
use crate::types::{CUdevice, CUdeviceptr, CUstream, In, Out};

/// Success if there is managed memory of that size.
fn managed(pointer: CUdeviceptr, bytes: usize) -> Outcome {
    let range = driver()?.memory.find(pointer).ok_or(Code::INVALID_VALUE)?;
    let inside = pointer
        .checked_add(bytes as u64)
        .is_some_and(|end| end <= range.base + range.len);
    if inside && range.kind == kiln_simulator::memory::Kind::Managed {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

fn stream_known(stream: CUstream) -> Outcome {
    driver()?.lock().stream(stream).map(|_| ())
}

export! {
    fn cuMemAdvise(pointer: CUdeviceptr, bytes: usize, _advice: i32, _device: CUdevice) {
        managed(pointer, bytes)
    }

    fn cuMemAdvise_v2(pointer: CUdeviceptr, bytes: usize, _advice: i32, _location: MemLocation) {
        managed(pointer, bytes)
    }

    fn cuMemPrefetchAsync(pointer: CUdeviceptr, bytes: usize, _device: CUdevice, stream: CUstream) {
        stream_known(stream)?;
        managed(pointer, bytes)
    }

    fn cuMemPrefetchAsync_v2(
        pointer: CUdeviceptr, bytes: usize, _location: MemLocation, _flags: u32, stream: CUstream,
    ) {
        stream_known(stream)?;
        managed(pointer, bytes)
    }

    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) {
        stream_known(dst)?;
        stream_known(src)
    }

    fn cuStreamGetAttribute(stream: CUstream, _attribute: i32, value: Out<[u64; 8]>) {
        stream_known(stream)?;
        value.put([0; 8])
    }

    fn cuStreamSetAttribute(stream: CUstream, _attribute: i32, value: In<[u64; 8]>) {
        stream_known(stream)?;
        value.get().map(|_| ())
    }
}
