//! Copies and fills of rectangles and boxes in linear memory. There are no arrays.

use crate::copy::{Side, When, fill, issue_copy};
use crate::error::{Code, Outcome};
use crate::objects::work::{Copy, Fill};
use crate::state::driver;
use crate::types::{CUdeviceptr, CUstream, In};
use crate::unsupported::unsupported;

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Side2D {
    /// Bytes to skip in each row.
    pub x: usize,
    /// Rows to skip.
    pub y: usize,
    /// A `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
    pub memory: i32,
    /// The address, for host memory.
    pub host: usize,
    /// The address, for device and unified memory.
    pub device: CUdeviceptr,
    /// The handle, for an array.
    pub array: usize,
    /// Bytes from a row to the next.
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memcpy2D {
    /// The source.
    pub src: Side2D,
    /// The destination.
    pub dst: Side2D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// One side of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Side3D {
    /// Bytes to skip in each row.
    pub x: usize,
    /// Rows to skip.
    pub y: usize,
    /// Slices to skip.
    pub z: usize,
    /// Zero.
    pub level: usize,
    /// A `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified.
    pub memory: i32,
    /// The address, for host memory.
    pub host: usize,
    /// The address, for device and unified memory.
    pub device: CUdeviceptr,
    /// The handle, for an array.
    pub array: usize,
    /// Zero.
    pub reserved: usize,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Rows from a slice to the next.
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Memcpy3D {
    /// The source.
    pub src: Side3D,
    /// The destination.
    pub dst: Side3D,
    /// Bytes of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

const _: () = assert!(size_of::<Memcpy2D>() == 128 && size_of::<Memcpy3D>() == 200);

impl From<Memcpy2D> for Memcpy3D {
    fn from(c: Memcpy2D) -> Self {
        let side = |s: Side2D| Side3D {
            x: s.x,
            y: s.y,
            memory: s.memory,
            host: s.host,
            device: s.device,
            array: s.array,
            pitch: s.pitch,
            ..Side3D::default()
        };
        Self {
            src: side(c.src),
            dst: side(c.dst),
            width: c.width,
            height: c.height,
            depth: 1,
        }
    }
}

impl Memcpy3D {
    /// The copy that it describes, its places looked up.
    pub(crate) fn resolve(&self) -> Outcome<Copy> {
        let driver = driver()?;
        let (width, height, depth) = (self.width as u64, self.height as u64, self.depth as u64);
        let place = |s: &Side3D| {
            let (start, side) = match s.memory {
                1 => (s.host as u64, Side::Host),
                2 => (s.device, Side::Device),
                4 => (s.device, Side::Any),
                3 => return Err(unsupported("copies of arrays")),
                _ => return Err(Code::INVALID_VALUE),
            };
            let row = if s.pitch == 0 { width } else { s.pitch as u64 };
            if row < width && height > 1 {
                return Err(Code::INVALID_VALUE);
            }
            let rows = if s.height == 0 { height } else { s.height as u64 };
            let pitch = [row, row.checked_mul(rows).ok_or(Code::INVALID_VALUE)?];
            let skip = (s.z as u64).checked_mul(pitch[1]).zip((s.y as u64).checked_mul(row));
            let skip = skip.and_then(|(z, y)| z.checked_add(y)?.checked_add(s.x as u64)?.checked_add(start));
            Ok((skip.ok_or(Code::INVALID_VALUE)?, side, pitch))
        };
        let (src, from, src_pitch) = place(&self.src)?;
        let (dst, to, dst_pitch) = place(&self.dst)?;
        let unknown = crate::objects::work::Place::Known(0);
        let mut copy = Copy {
            dst: unknown.clone(),
            src: unknown,
            width,
            height,
            depth,
            dst_pitch,
            src_pitch,
        };
        let (reads, writes) = (copy.span(src_pitch), copy.span(dst_pitch));
        if writes.ok_or(Code::INVALID_VALUE)? > 0 {
            copy.src = driver.place(src, reads.ok_or(Code::INVALID_VALUE)?, from)?;
            copy.dst = driver.place(dst, writes.ok_or(Code::INVALID_VALUE)?, to)?;
        }
        Ok(copy)
    }
}

fn copy(description: Memcpy3D, when: When) -> Outcome {
    let driver = driver()?;
    driver.lock().current()?;
    let copy = description.resolve()?;
    if copy.span(copy.dst_pitch) == Some(0) {
        return Ok(());
    }
    issue_copy(driver, copy, when)
}

fn rectangle(dst: u64, pitch: usize, value: u32, element: u64, width: usize, height: usize, when: When) -> Outcome {
    let (width, height, pitch) = (width as u64, height as u64, pitch as u64);
    fill(
        Fill {
            dst,
            value,
            element,
            width,
            height,
            pitch,
        },
        when,
    )
}

export! {
    fn cuMemcpy2D_v2(description: In<Memcpy2D>) {
        copy(description.get()?.into(), When::Now)
    }

    fn cuMemcpy2DUnaligned_v2(description: In<Memcpy2D>) {
        copy(description.get()?.into(), When::Now)
    }

    fn cuMemcpy2DAsync_v2(description: In<Memcpy2D>, stream: CUstream) {
        copy(description.get()?.into(), When::In(stream))
    }

    fn cuMemcpy3D_v2(description: In<Memcpy3D>) {
        copy(description.get()?, When::Now)
    }

    fn cuMemcpy3DAsync_v2(description: In<Memcpy3D>, stream: CUstream) {
        copy(description.get()?, When::In(stream))
    }

    fn cuMemsetD2D8_v2(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) {
        rectangle(dst, pitch, value.into(), 1, width, height, When::Now)
    }

    fn cuMemsetD2D16_v2(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) {
        rectangle(dst, pitch, value.into(), 2, width, height, When::Now)
    }

    fn cuMemsetD2D32_v2(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) {
        rectangle(dst, pitch, value, 4, width, height, When::Now)
    }

    fn cuMemsetD2D8Async(
        dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    ) {
        rectangle(dst, pitch, value.into(), 1, width, height, When::In(stream))
    }

    fn cuMemsetD2D16Async(
        dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream,
    ) {
        rectangle(dst, pitch, value.into(), 2, width, height, When::In(stream))
    }

    fn cuMemsetD2D32Async(
        dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream,
    ) {
        rectangle(dst, pitch, value, 4, width, height, When::In(stream))
    }
}
