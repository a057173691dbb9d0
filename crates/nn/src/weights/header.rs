//! The header of a safetensors file: names, dtypes, shapes and offsets, validated before any data is read.

use super::WeightsError;
use crate::{DType, Shape};
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::io::Read;

/// Free text by key in the header of a file: the `__metadata__` of safetensors.
///
/// ```
/// # use kiln_nn::weights::{self, Metadata};
/// # use kiln_nn::{Init, Module, layers::Linear};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let info = Metadata::from([("epoch".to_string(), "3".to_string())]);
/// let bytes = weights::encode(&Linear::new(init, 4, 2)?.state_dict(), &info)?;
/// assert_eq!(weights::decode(&bytes, &cpu)?.1, info);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Metadata = BTreeMap<String, String>;

/// The largest header that the format allows, in bytes.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The dtype in the file.
    pub(super) stored: Dtype,
    /// The dtype that they are read as; 64-bit integers become 32-bit ones.
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// The offset of the first byte in the file.
    pub(super) at: u64,
    /// The number of bytes in the file.
    pub(super) bytes: u64,
}

/// The contents of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) metadata: Metadata,
}

fn broken(reason: String) -> WeightsError {
    WeightsError::Format { reason }
}

impl Header {
    /// Reads the header from the start of a file of `size` bytes, and checks that the data after it is covered by the
    /// entries in order, without gaps or overlaps, each with as many bytes as its shape and dtype need.
    pub(super) fn read(source: &mut impl Read, size: u64) -> Result<Self, WeightsError> {
        let short = |e: std::io::Error| broken(format!("the header cannot be read: {e}"));
        let mut length = [0; 8];
        if size < 8 {
            return Err(broken(format!("{size} bytes, fewer than the shortest header has")));
        }
        source.read_exact(&mut length).map_err(short)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER || length > size - 8 {
            let room = MAX_HEADER.min(size - 8);
            return Err(broken(format!("a header of {length} bytes where {room} may be")));
        }
        let mut text = Vec::new();
        let room = text.try_reserve_exact(length as usize);
        room.map_err(|_| broken(format!("a header of {length} bytes does not fit the memory")))?;
        source.take(length).read_to_end(&mut text).map_err(short)?;
        let parsed: safetensors::tensor::Metadata =
            serde_json::from_slice(&text).map_err(|e| broken(format!("the header is not as it should be: {e}")))?;
        let held = size - 8 - length;
        let announced = parsed.data_len() as u64;
        if announced != held {
            return Err(broken(format!(
                "the header announces {announced} bytes of data, the file has {held}"
            )));
        }
        let mut entries = BTreeMap::new();
        for (name, info) in parsed.tensors() {
            let dtype = dtype(info.dtype).ok_or_else(|| WeightsError::DType {
                name: name.clone(),
                dtype: info.dtype.to_string(),
            })?;
            let shape = Shape::new(&info.shape).map_err(|source| WeightsError::Tensor {
                name: name.clone(),
                source,
            })?;
            let (start, end) = info.data_offsets;
            let entry = Entry {
                stored: info.dtype,
                dtype,
                shape,
                at: 8 + length + start as u64,
                bytes: (end - start) as u64,
            };
            entries.insert(name, entry);
        }
        let metadata = parsed.metadata().iter().flatten();
        Ok(Header {
            entries,
            metadata: metadata.map(|(k, v)| (k.clone(), v.clone())).collect(),
        })
    }
}

/// The dtype that elements of a file are read as; `None` for one that Kiln does not read.
fn dtype(stored: Dtype) -> Option<DType> {
    Some(match stored {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::BF16 => DType::BF16,
        Dtype::F16 => DType::F16,
        Dtype::I32 | Dtype::I64 => DType::I32,
        Dtype::U8 => DType::U8,
        _ => return None,
    })
}
