//! IDX, the format of MNIST (Y. LeCun, "THE MNIST DATABASE", file format section).
//!
//! A file holds two zero bytes, a byte for the element type, a byte for the number of dimensions, each dimension as a
//! big-endian u32, and the elements, row-major and big-endian. Gzipped files are recognised by their first bytes.

use super::DEFAULT_MAX_BYTES;
use super::input::Input;
use crate::error::reserve;
use crate::{DataError, Place, Result};
use kiln_core::{MAX_RANK, Shape};
use std::path::Path;

/// The elements of an IDX file.
#[derive(Debug, Clone, PartialEq)]
pub enum IdxData {
    /// Type code `0x08`.
    U8(Vec<u8>),
    /// Type code `0x09`.
    I8(Vec<i8>),
    /// Type code `0x0b`.
    I16(Vec<i16>),
    /// Type code `0x0c`.
    I32(Vec<i32>),
    /// Type code `0x0d`.
    F32(Vec<f32>),
    /// Type code `0x0e`.
    F64(Vec<f64>),
}

impl IdxData {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            IdxData::U8(v) => v.len(),
            IdxData::I8(v) => v.len(),
            IdxData::I16(v) => v.len(),
            IdxData::I32(v) => v.len(),
            IdxData::F32(v) => v.len(),
            IdxData::F64(v) => v.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn code(&self) -> u8 {
        match self {
            IdxData::U8(_) => 0x08,
            IdxData::I8(_) => 0x09,
            IdxData::I16(_) => 0x0b,
            IdxData::I32(_) => 0x0c,
            IdxData::F32(_) => 0x0d,
            IdxData::F64(_) => 0x0e,
        }
    }

    /// The name of the element type.
    pub fn type_name(&self) -> &'static str {
        match self {
            IdxData::U8(_) => "u8",
            IdxData::I8(_) => "i8",
            IdxData::I16(_) => "i16",
            IdxData::I32(_) => "i32",
            IdxData::F32(_) => "f32",
            IdxData::F64(_) => "f64",
        }
    }
}

/// An array from an IDX file.
#[derive(Debug, Clone, PartialEq)]
pub struct Idx {
    /// The shape, of at most [`MAX_RANK`] dimensions.
    pub shape: Shape,
    /// The elements, row-major: `shape.size()` of them.
    pub data: IdxData,
}

/// Converts big-endian bytes to elements.
macro_rules! elements {
    ($bytes:expr, $t:ty) => {{
        const SIZE: usize = size_of::<$t>();
        let mut values: Vec<$t> = Vec::new();
        reserve(&mut values, $bytes.len() / SIZE, "IDX elements")?;
        values.extend(
            $bytes
                .as_chunks::<SIZE>()
                .0
                .iter()
                .map(|&chunk| <$t>::from_be_bytes(chunk)),
        );
        values
    }};
}

impl Idx {
    /// Reads a file, gzipped or not, of at most [`DEFAULT_MAX_BYTES`] of elements.
    ///
    /// # Errors
    /// [`DataError::Magic`]; [`DataError::Value`] for an unknown element type, too many dimensions, or dimensions whose
    /// product overflows; [`DataError::TooLarge`] and [`DataError::Truncated`] for more elements than the limit allows or
    /// the file holds (both before allocating); [`DataError::Trailing`]; [`DataError::Decode`] for broken gzip;
    /// [`DataError::OutOfMemory`]; [`DataError::Io`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_limited(path, DEFAULT_MAX_BYTES)
    }

    /// As [`Idx::read`], with at most `max_bytes` bytes of elements.
    ///
    /// # Errors
    /// As [`Idx::read`].
    pub fn read_limited(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self> {
        Self::parse(Input::open(path.as_ref(), max_bytes)?)
    }

    /// Parses bytes in memory, gzipped or not; error messages show `name` in place of a path.
    ///
    /// # Errors
    /// As [`Idx::read`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: &[u8]) -> Result<Self> {
        Self::parse(Input::bytes(name.as_ref(), bytes, DEFAULT_MAX_BYTES)?)
    }

    fn parse(mut input: Input<'_>) -> Result<Self> {
        let magic: [u8; 4] = input.array()?;
        let [zero, zero2, code, rank] = magic;
        if zero != 0 || zero2 != 0 {
            return Err(DataError::Magic {
                path: input.path().to_path_buf(),
                found: magic.to_vec(),
                expected: "IDX: 00 00, an element type, the number of dimensions",
            });
        }
        let width = match code {
            0x08 | 0x09 => 1u64,
            0x0b => 2,
            0x0c | 0x0d => 4,
            0x0e => 8,
            _ => {
                return Err(DataError::Value {
                    path: input.path().to_path_buf(),
                    place: Place::Byte(2),
                    what: "element type",
                    found: format!("{code:#04x}"),
                    expected: "0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e".into(),
                });
            }
        };
        let rank = usize::from(rank);
        if rank > MAX_RANK {
            return Err(DataError::Value {
                path: input.path().to_path_buf(),
                place: Place::Byte(3),
                what: "number of dimensions",
                found: rank.to_string(),
                expected: format!("at most {MAX_RANK}").into(),
            });
        }
        let mut dims = [0usize; MAX_RANK];
        for d in &mut dims[..rank] {
            *d = u32::from_be_bytes(input.array()?) as usize;
        }
        // `Shape::new` checks that the product does not overflow; a file of rank 0 holds one element.
        let shape = Shape::new(&dims[..rank]).map_err(|_| DataError::Value {
            path: input.path().to_path_buf(),
            place: Place::Byte(4),
            what: "dimensions",
            found: format!("{:?}", &dims[..rank]),
            expected: "a product that fits the address space".into(),
        })?;
        let bytes = input.take(shape.size() as u64 * width, "number of bytes announced")?;
        input.end()?;
        let data = match code {
            0x08 => IdxData::U8(bytes),
            0x09 => IdxData::I8(elements!(bytes, i8)),
            0x0b => IdxData::I16(elements!(bytes, i16)),
            0x0c => IdxData::I32(elements!(bytes, i32)),
            0x0d => IdxData::F32(elements!(bytes, f32)),
            _ => IdxData::F64(elements!(bytes, f64)),
        };
        Ok(Idx { shape, data })
    }

    /// Encodes the array as an IDX file, not compressed.
    ///
    /// # Errors
    /// [`DataError::Shape`] when the elements are not as many as the shape has, [`DataError::InvalidArgument`] when a
    /// dimension does not fit 32 bits, [`DataError::OutOfMemory`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if self.data.len() != self.shape.size() {
            let found = format!("{} elements", self.data.len());
            return Err(DataError::shape("idx", found, self.shape));
        }
        let mut out = vec![0, 0, self.data.code(), self.shape.rank() as u8];
        for &d in self.shape.dims() {
            let d =
                u32::try_from(d).map_err(|_| DataError::invalid("idx", "shape", self.shape, "32-bit dimensions"))?;
            out.extend(d.to_be_bytes());
        }
        // At most eight bytes per element; a valid shape's size leaves room for that in a `usize`.
        reserve(&mut out, self.data.len() * 8, "IDX bytes")?;
        match &self.data {
            IdxData::U8(v) => out.extend(v),
            IdxData::I8(v) => out.extend(v.iter().flat_map(|x| x.to_be_bytes())),
            IdxData::I16(v) => out.extend(v.iter().flat_map(|x| x.to_be_bytes())),
            IdxData::I32(v) => out.extend(v.iter().flat_map(|x| x.to_be_bytes())),
            IdxData::F32(v) => out.extend(v.iter().flat_map(|x| x.to_be_bytes())),
            IdxData::F64(v) => out.extend(v.iter().flat_map(|x| x.to_be_bytes())),
        }
        Ok(out)
    }
}
