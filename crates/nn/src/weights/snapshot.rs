//! The values of a dictionary at one moment, to be encoded on another thread.

use super::WeightsError;
use super::error::tensor_error;
use super::file::{dtype_of, serialized, to_bytes};
use super::header::Metadata;
use crate::array::Array;
use crate::memory::Memory;
use crate::module::{StateDict, Value};
use crate::{Backend, DType, Indices, Shape, Tensor};
use kiln_core::Buffer;
use std::sync::Arc;

type Result<T> = std::result::Result<T, WeightsError>;

/// The values of a [`StateDict`] at one moment, of any backend and for any thread ([`StateDict::snapshot`]).
///
/// Values that lie in the memory of the host are not copied: they are shared with the model, which moves to new memory when it next
/// changes. Values of another device are copied to the host.
///
/// ```
/// # use kiln_nn::{DType, Init, Module, Tensor, layers::Linear, weights};
/// # let cpu = kiln_cpu::Cpu::new();
/// let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
/// let before = weights::encode(&layer.state_dict(), &Default::default())?;
/// let snapshot = layer.state_dict().snapshot()?;
/// let writer = std::thread::spawn(move || snapshot.encode(&Default::default()));
/// layer.weight.assign(&Tensor::zeros(&cpu, &[2, 4], DType::F32)?)?;
/// assert_eq!(writer.join().unwrap()?, before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    dtype: DType,
    shape: Shape,
    bytes: Bytes,
}

/// Little-endian values in the memory of the host.
enum Bytes {
    Shared(Arc<dyn HostMemory>),
    Own(Vec<u8>),
}

/// Memory of tensors that the host can read.
trait HostMemory: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl<Buf: Buffer> HostMemory for Memory<Buf> {
    fn bytes(&self) -> &[u8] {
        self.host_bytes().unwrap_or_default()
    }
}

impl Entry {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(memory) => memory.bytes(),
            Bytes::Own(bytes) => bytes,
        }
    }
}

impl Snapshot {
    /// Encodes the values as a safetensors file: the bytes of [`encode`](super::encode).
    ///
    /// # Errors
    /// [`WeightsError::Format`] for more metadata than a header may hold.
    pub fn encode(&self, metadata: &Metadata) -> Result<Vec<u8>> {
        let entries = self.entries.iter();
        let views = entries.map(|e| (&e.name[..], dtype_of(e.dtype), e.shape.to_vec(), e.bytes()));
        serialized(views, metadata)
    }

    /// The number of bytes of the values.
    pub fn size(&self) -> usize {
        self.entries.iter().map(|e| e.bytes().len()).sum()
    }

    /// Those of the bytes that are shared with a model.
    pub fn shared(&self) -> usize {
        let shared = |e: &&Entry| matches!(e.bytes, Bytes::Shared(_));
        self.entries.iter().filter(shared).map(|e| e.bytes().len()).sum()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("entries", &self.entries.len())
            .field("size", &self.size())
            .finish()
    }
}

#[compiled_once]
impl<B: Backend> StateDict<B> {
    /// The values at this moment, for another thread: see [`Snapshot`].
    ///
    /// # Errors
    /// [`WeightsError::Tensor`] for an error of the device while its values are copied to the host.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut entries = Vec::with_capacity(self.len());
        for (name, value) in self.iter() {
            let memory = match value {
                Value::Float(t) => t.clone().into_array().memory,
                Value::Int(i) => i.array().memory.clone(),
            };
            let bytes = match cfg!(target_endian = "little") && memory.host_bytes().is_some() {
                true => Bytes::Shared(memory),
                false => Bytes::Own(to_bytes(value).map_err(|source| tensor_error(name, source))?),
            };
            entries.push(Entry {
                name: name.to_string(),
                dtype: value.dtype(),
                shape: *value.shape(),
                bytes,
            });
        }
        Ok(Snapshot { entries })
    }

    /// The values of a snapshot as tensors on `backend`, in memory of their own.
    ///
    /// ```
    /// # use kiln_nn::{Init, Module, layers::Linear, module::StateDict};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// let again = StateDict::of_snapshot(&layer.state_dict().snapshot()?, &cpu)?;
    /// assert_eq!(again.float("weight").map(|t| t.to_f64()).transpose()?, Some(layer.weight.to_f64()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WeightsError::Tensor`] for memory, and for a dtype that the backend lacks.
    pub fn of_snapshot(snapshot: &Snapshot, backend: &B) -> Result<Self> {
        let mut dict = StateDict::new();
        for entry in &snapshot.entries {
            let made = || -> kiln_core::Result<Array<B>> {
                let mut buffer = backend.alloc(entry.dtype, entry.shape.size())?;
                match cfg!(target_endian = "little") {
                    true => backend.upload_bytes(entry.bytes(), &mut buffer)?,
                    false => {
                        let native = entry.bytes().chunks_exact(entry.dtype.size());
                        let native: Vec<u8> = native.flat_map(|v| v.iter().rev().copied()).collect();
                        backend.upload_bytes(&native, &mut buffer)?;
                    }
                }
                Ok(Array::new(backend, buffer, entry.shape))
            };
            let array = made().map_err(|source| tensor_error(&entry.name, source))?;
            let value = match entry.dtype {
                DType::I32 | DType::U8 => Value::Int(Indices::of_array(array)),
                _ => Value::Float(Tensor::new(array, None)),
            };
            dict.insert(entry.name.clone(), value);
        }
        Ok(dict)
    }
}
