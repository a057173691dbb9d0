//! Writes safetensors files (<https://huggingface.co/docs/safetensors>): named tensors, readable from Python.

use super::WeightsError;
use super::error::{tensor_error, within};
use super::header::{MAX_HEADER, Metadata};
use crate::module::{StateDict, Value};
use crate::{Backend, DType};
use half::{bf16, f16};
use kiln_files::write_atomic;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::path::Path;

type Result<T> = std::result::Result<T, WeightsError>;

/// Encodes a dictionary as a safetensors file. Equal entries give equal bytes, whatever order they were inserted in.
///
/// ```
/// # use kiln_nn::{Init, Module, layers::Linear};
/// # use kiln_nn::weights::{self, Metadata};
/// # let cpu = kiln_cpu::Cpu::new();
/// let layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
/// let bytes = weights::encode(&layer.state_dict(), &Metadata::new())?;
/// let (dict, _) = weights::decode(&bytes, &cpu)?;
/// assert_eq!(dict.names().collect::<Vec<_>>(), ["bias", "weight"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WeightsError::Tensor`] for a device error while reading the values, [`WeightsError::Format`] for more metadata than
/// a header may hold.
#[compiled_once]
pub fn encode<B: Backend>(dict: &StateDict<B>, metadata: &Metadata) -> Result<Vec<u8>> {
    let mut host = Vec::with_capacity(dict.len());
    for (name, value) in dict.iter() {
        let bytes = to_bytes(value).map_err(|source| tensor_error(name, source))?;
        host.push((name, dtype_of(value.dtype()), value.shape().to_vec(), bytes));
    }
    let entries = host.iter();
    serialized(
        entries.map(|(name, dtype, shape, bytes)| (*name, *dtype, shape.clone(), &bytes[..])),
        metadata,
    )
}

/// A file of entries: name, dtype, shape and little-endian bytes of each.
pub(super) fn serialized<'a>(
    entries: impl Iterator<Item = (&'a str, Dtype, Vec<usize>, &'a [u8])>,
    metadata: &Metadata,
) -> Result<Vec<u8>> {
    let view = |(name, dtype, shape, bytes)| Ok((name, TensorView::new(dtype, shape, bytes).map_err(format_error)?));
    let views: Vec<(&str, TensorView<'_>)> = entries.map(view).collect::<Result<_>>()?;
    let file = safetensors::serialize(views, None).map_err(format_error)?;
    if metadata.is_empty() {
        Ok(file)
    } else {
        with_metadata(&file, metadata)
    }
}

/// Inserts metadata into the header, in the order of its names. `safetensors` takes a `HashMap`, whose order would differ
/// from one file to the next.
fn with_metadata(file: &[u8], metadata: &Metadata) -> Result<Vec<u8>> {
    let broken = |reason: &str| WeightsError::Format {
        reason: reason.to_string(),
    };
    let split = || {
        let (length, rest) = file.split_first_chunk::<8>()?;
        rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
    };
    let (header, data) = split().ok_or_else(|| broken("a header that ends early"))?;
    let entries = header
        .strip_prefix(b"{")
        .ok_or_else(|| broken("a header that is no object"))?;
    let info = serde_json::to_string(metadata).map_err(|e| broken(&e.to_string()))?;
    let comma = if entries.starts_with(b"}") { "" } else { "," };
    let mut header = format!("{{\"__metadata__\":{info}{comma}").into_bytes();
    header.extend_from_slice(entries);
    // The data starts at a multiple of 8 bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > MAX_HEADER {
        return Err(broken("more metadata than a header may hold"));
    }
    let mut file = Vec::with_capacity(8 + header.len() + data.len());
    file.extend_from_slice(&(header.len() as u64).to_le_bytes());
    file.extend_from_slice(&header);
    file.extend_from_slice(data);
    Ok(file)
}

/// Writes a safetensors file atomically ([`write_atomic`]).
///
/// ```
/// # use kiln_nn::{Init, Module, layers::Linear};
/// # use kiln_nn::weights::{self, Metadata};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let path = std::env::temp_dir().join(format!("kiln-nn-write-{}.safetensors", std::process::id()));
/// let layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
/// weights::write(&path, &layer.state_dict(), &Metadata::from([("epoch".to_string(), "3".to_string())]))?;
/// let (dict, metadata) = weights::read(&path, &cpu)?;
/// assert_eq!((dict.len(), &metadata["epoch"][..]), (2, "3"));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WeightsError::File`] with the path when the disk is full or the folder is missing or not writable, and the errors of
/// [`encode`].
pub fn write<B: Backend>(path: impl AsRef<Path>, dict: &StateDict<B>, metadata: &Metadata) -> Result<()> {
    let path = path.as_ref();
    let bytes = encode(dict, metadata).map_err(|e| within(path, e))?;
    Ok(write_atomic(path, &bytes)?)
}

fn format_error(e: safetensors::SafeTensorError) -> WeightsError {
    WeightsError::Format { reason: e.to_string() }
}

pub(super) fn dtype_of(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
    }
}

/// The little-endian bytes of values, as the format has them.
macro_rules! le_bytes {
    ($values:expr) => {{
        let values = $values;
        match cfg!(target_endian = "little") {
            true => bytemuck::cast_slice(&values).to_vec(),
            false => values.into_iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }};
}

pub(super) fn to_bytes<B: Backend>(value: &Value<B>) -> kiln_core::Result<Vec<u8>> {
    Ok(match value {
        Value::Float(t) => match t.dtype() {
            DType::F64 => le_bytes!(t.to_vec::<f64>()?),
            DType::BF16 => le_bytes!(t.to_vec::<bf16>()?),
            DType::F16 => le_bytes!(t.to_vec::<f16>()?),
            _ => le_bytes!(t.to_vec::<f32>()?),
        },
        Value::Int(i) if i.dtype() == DType::U8 => i.to_vec::<u8>()?,
        Value::Int(i) => le_bytes!(i.to_vec::<i32>()?),
    })
}
