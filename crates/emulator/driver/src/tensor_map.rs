//! Tensor maps, which kernels copy boxes of tensors by.

use std::ffi::c_void;

use kiln_simulator::{TensorMap, TensorMapError};

use crate::error::{Code, Outcome};
use crate::state::driver;
use crate::types::{In, Out};
use crate::unsupported::unsupported;

/// A `CUtensorMap`: 128 bytes that only kernels read.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct CUtensorMap {
    /// The bytes.
    pub opaque: [u8; 128],
}

/// Bytes of an element by its `CUtensorMapDataType`; types whose values a copy changes are missing.
fn element(ty: i32) -> Outcome<u32> {
    match ty {
        0 => Ok(1),
        1 | 6 | 9 => Ok(2),
        2 | 3 | 7 => Ok(4),
        4 | 5 | 8 => Ok(8),
        10..=15 => Err(unsupported("a tensor map of a type that a copy converts")),
        _ => Err(Code::INVALID_VALUE),
    }
}

export! {
    fn cuTensorMapEncodeTiled(
        map: Out<CUtensorMap>,
        ty: i32,
        rank: u32,
        address: *mut c_void,
        sizes: In<u64>,
        strides: In<u64>,
        boxes: In<u32>,
        steps: In<u32>,
        interleave: i32,
        swizzle: i32,
        _promotion: i32,
        fill: i32,
    ) {
        let driver = driver()?;
        if driver.config.sm < 90 {
            return Err(unsupported("a tensor map for a device before 9.0"));
        }
        let refuse = |code: Code, why: &dyn std::fmt::Display| {
            driver.config.say(format_args!("cuTensorMapEncodeTiled: {why}"));
            Err(code)
        };
        if !(map.raw() as usize).is_multiple_of(64) {
            return refuse(Code::INVALID_VALUE, &"the map is not aligned to 64 bytes");
        }
        if !(1..=5).contains(&rank) {
            return refuse(Code::INVALID_VALUE, &format_args!("{rank} dimensions; 1 to 5 can be"));
        }
        let rank = rank as usize;
        if steps.list(rank)?.iter().any(|step| *step != 1) {
            return Err(unsupported("a tensor map with element strides"));
        }
        if interleave != 0 {
            return Err(unsupported("a tensor map of an interleaved layout"));
        }
        if fill != 0 {
            return Err(unsupported("a tensor map whose boxes are filled with NaN"));
        }
        let Some(swizzle) = u8::try_from(swizzle).ok().filter(|s| *s <= 3) else {
            return Err(unsupported("a tensor map with this swizzle"));
        };
        let tiled = TensorMap {
            address: address as u64,
            element: element(ty)?,
            sizes: sizes.list(rank)?,
            strides: strides.list(rank - 1)?,
            boxes: boxes.list(rank)?,
            swizzle,
        };
        match tiled.encode() {
            Ok(opaque) => map.put(CUtensorMap { opaque }),
            Err(TensorMapError::Invalid(why)) => refuse(Code::INVALID_VALUE, &why),
            Err(TensorMapError::Unsupported(why)) => refuse(Code::NOT_SUPPORTED, &format_args!("{why} is not implemented")),
        }
    }
}
