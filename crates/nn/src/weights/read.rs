//! Reads safetensors files tensor by tensor.
//!
//! A file is read in pieces of a mebibyte, each of which is converted and sent to the device at once, so a load takes no
//! more memory than a piece beside the model, however large the file is. The file is not memory-mapped: if another
//! process truncated a mapped file, this process would end (SIGBUS), whereas a read returns an error.

use super::convert::{floats, integers};
use super::error::{io_error, tensor_error, within};
use super::header::{Entry, Header, Metadata};
use super::load::{LoadOptions, compare};
use super::torch::{Swap, swap_of};
use super::{LoadReport, WeightsError};
use crate::module::{EntriesMut, EntryMut, StateDict, Value, Walkable, entries_mut};
use crate::{Backend, DType, Indices, Tensor};
use safetensors::Dtype;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The number of bytes read at once; more only if one output channel of a PyTorch kernel is larger.
const PIECE: usize = 1 << 20;

/// The name in messages of a source without a path.
const MEMORY: &str = "memory";

type Result<T> = std::result::Result<T, WeightsError>;

/// An open safetensors file. Its header has been read and checked against the size of the file; tensors are read on
/// request.
///
/// ```
/// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
/// # use kiln_nn::weights::{self, Metadata, WeightsFile};
/// # use std::io::Cursor;
/// # let cpu = kiln_cpu::Cpu::new();
/// # let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
/// # let info = Metadata::from([("epoch".to_string(), "3".to_string())]);
/// # let bytes = weights::encode(&layer.state_dict(), &info)?;
/// # let path = std::env::temp_dir().join(format!("kiln-nn-file-{}.safetensors", std::process::id()));
/// # std::fs::write(&path, bytes)?;
/// let mut file = WeightsFile::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["bias", "weight"]);
/// assert!(file.load_into(&mut layer, LoadOptions::strict())?.is_exact());
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WeightsFile<R> {
    source: R,
    /// The path at which it was opened, for messages.
    path: Option<PathBuf>,
    header: Header,
}

impl WeightsFile<File> {
    /// Opens a file and reads its header. The file is untrusted; only a regular file is opened.
    ///
    /// See the example of [`WeightsFile`].
    ///
    /// # Errors
    /// [`WeightsError::Io`] when it cannot be read, and the errors of [`WeightsFile::new`] with the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, size) = kiln_files::open_regular(path).map_err(|e| io_error(path, "open", e))?;
        let opened = WeightsFile::of(file, size).map_err(|e| within(path, e))?;
        Ok(WeightsFile {
            path: Some(path.to_path_buf()),
            ..opened
        })
    }
}

impl<R: Read + Seek> WeightsFile<R> {
    /// Reads the header of a seekable source, which starts at its first byte.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # use kiln_nn::weights::{self, Metadata, WeightsFile};
    /// # use std::io::Cursor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// # let info = Metadata::from([("epoch".to_string(), "3".to_string())]);
    /// # let bytes = weights::encode(&layer.state_dict(), &info)?;
    /// let file = WeightsFile::new(Cursor::new(bytes))?; // a file in memory
    /// assert_eq!(file.names().count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WeightsError::Format`] for a malformed header or one that does not fit the size, [`WeightsError::DType`] for an
    /// entry of a dtype that Kiln does not read, [`WeightsError::Tensor`] for a shape that no tensor can have,
    /// [`WeightsError::Io`].
    pub fn new(mut source: R) -> Result<Self> {
        let sized = source
            .seek(SeekFrom::End(0))
            .and_then(|size| source.rewind().map(|()| size));
        let size = sized.map_err(|e| io_error(Path::new(MEMORY), "read", e))?;
        WeightsFile::of(source, size)
    }

    fn of(mut source: R, size: u64) -> Result<Self> {
        let header = Header::read(&mut source, size)?;
        Ok(WeightsFile {
            source,
            path: None,
            header,
        })
    }

    fn named(&self, e: WeightsError) -> WeightsError {
        match &self.path {
            Some(path) => within(path, e),
            None => e,
        }
    }

    /// The metadata in the header.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # use kiln_nn::weights::{self, Metadata, WeightsFile};
    /// # use std::io::Cursor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// # let info = Metadata::from([("epoch".to_string(), "3".to_string())]);
    /// # let bytes = weights::encode(&layer.state_dict(), &info)?;
    /// let file = WeightsFile::new(Cursor::new(bytes))?;
    /// assert_eq!(file.metadata()["epoch"], "3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The names of the tensors, sorted.
    ///
    /// See the example of [`WeightsFile`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.entries.keys().map(String::as_str)
    }

    /// Reads every tensor onto `backend`, in the layout of the file. Floats of a dtype that the backend does not compute in
    /// become f32, 64-bit integers i32.
    ///
    /// ```
    /// # use kiln_nn::{Init, LoadOptions, Module, layers::Linear};
    /// # use kiln_nn::weights::{self, Metadata, WeightsFile};
    /// # use std::io::Cursor;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let mut layer = Linear::new(&mut Init::new(&cpu, 0), 4, 2)?;
    /// # let info = Metadata::from([("epoch".to_string(), "3".to_string())]);
    /// # let bytes = weights::encode(&layer.state_dict(), &info)?;
    /// let dict = WeightsFile::new(Cursor::new(bytes))?.state_dict(&cpu)?;
    /// assert_eq!(dict.float("weight").map(|w| w.shape().to_vec()), Some(vec![2, 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WeightsError::Range`] for integers that do not fit, [`WeightsError::Memory`] and [`WeightsError::Tensor`] for memory
    /// that runs out, [`WeightsError::Io`], [`WeightsError::Format`] for a file that was truncated since it was opened.
    pub fn state_dict<B: Backend>(&mut self, backend: &B) -> Result<StateDict<B>> {
        let mut dict = StateDict::new();
        let entries: Vec<(String, Entry)> = self
            .header
            .entries
            .iter()
            .map(|(n, e)| (n.clone(), e.clone()))
            .collect();
        for (name, entry) in entries {
            let value = self.value(&name, &entry, backend).map_err(|e| self.named(e))?;
            dict.insert(name, value);
        }
        Ok(dict)
    }

    /// Loads the tensors into the parameters, buffers and counters of `module`, converting dtypes. Names, shapes and dtypes
    /// are compared before any value is read, and all values are checked before the first is changed, so an error leaves the
    /// module unchanged, unless the file changes or a read fails between the two passes.
    ///
    /// See the example of [`WeightsFile`].
    ///
    /// # Errors
    /// [`WeightsError::Misfit`] when names or shapes do not fit and the options are strict,
    /// [`WeightsError::NonFinite`] for a value that is NaN or infinite, or becomes infinite in the module's dtype, unless the
    /// options allow it, and the errors of [`WeightsFile::state_dict`].
    pub fn load_into<B: Backend, M: Walkable<B> + ?Sized>(
        &mut self,
        module: &mut M,
        options: LoadOptions,
    ) -> Result<LoadReport> {
        self.load_entries(entries_mut(module), options)
    }

    fn load_entries<B: Backend>(&mut self, mut module: EntriesMut<'_, B>, options: LoadOptions) -> Result<LoadReport> {
        let entries = &self.header.entries;
        let offered = |name: &str| entries.get(name).map(|e| (e.shape, e.dtype));
        let report = compare(&module, &offered, &mut self.names(), options);
        if !options.is_partial() && !report.is_exact() {
            return Err(self.named(WeightsError::Misfit(report)));
        }
        let fits: BTreeSet<&str> = report.loaded.iter().map(String::as_str).collect();
        for store in [false, true] {
            for (name, entry) in &mut module {
                let found = self.header.entries.get(name).filter(|_| fits.contains(&name[..]));
                if let Some(found) = found.cloned() {
                    let done = self.transfer(name, &found, entry, options, store);
                    done.map_err(|e| self.named(e))?;
                }
            }
        }
        Ok(report)
    }

    /// Checks the values of an entry or, with `store`, writes them into the module.
    fn transfer<B: Backend>(
        &mut self,
        name: &str,
        from: &Entry,
        to: &mut EntryMut<'_, B>,
        options: LoadOptions,
        store: bool,
    ) -> Result<()> {
        let failed = |e| tensor_error(name, e);
        match to {
            EntryMut::Param(p) => {
                let swapped = swap_of(p.layout(), p.rank()).filter(|_| options.is_torch());
                let (dtype, backend) = (p.dtype(), p.backend().clone());
                let buffer = if store {
                    Some(p.buffer_mut().map_err(failed)?)
                } else {
                    None
                };
                self.floats(name, from, (dtype, swapped, options), &backend, buffer)
            }
            EntryMut::State(s) => {
                let (dtype, backend) = s.with(|t| (t.dtype(), t.backend().clone()));
                if !store {
                    return self.floats(name, from, (dtype, None, options), &backend, None);
                }
                s.update(|t| {
                    let buffer = t.buffer_mut().map_err(failed)?;
                    self.floats(name, from, (dtype, None, options), &backend, Some(buffer))
                })
            }
            EntryMut::Counter(c) => {
                let backend = c.with(|i| i.backend().clone());
                match self.value(name, from, &backend)? {
                    Value::Int(count) if store => c.assign(&count).map_err(failed),
                    _ => Ok(()),
                }
            }
            EntryMut::Mode(_) => Ok(()),
        }
    }

    /// Converts the floats of an entry to `dtype` and writes them to `buffer`, if there is one, with PyTorch's dimensions `swapped`,
    /// such as the input channels of a kernel, which are moved last.
    fn floats<B: Backend>(
        &mut self,
        name: &str,
        from: &Entry,
        (dtype, swapped, options): (DType, Option<Swap>, LoadOptions),
        backend: &B,
        mut buffer: Option<&mut B::Buffer>,
    ) -> Result<()> {
        let (stored, size, dims) = (from.stored, dtype.size(), from.shape.dims());
        // Such as the input channels and positions of one output channel, which are transposed as a unit.
        let sides = swapped.map(|swap| swap.sizes(dims));
        let unit = sides.map_or(1, |(rows, columns)| rows * columns);
        let (mut converted, mut turned, mut at) = (Vec::new(), Vec::new(), 0);
        self.pieces(name, from, unit, |bytes| {
            converted.clear();
            reserve(name, &mut converted, bytes.len() / from.dtype.size() * size)?;
            if let Some((i, value)) = floats(stored, dtype, bytes, &mut converted)
                && !options.allows_non_finite()
            {
                return Err(WeightsError::NonFinite {
                    name: name.to_string(),
                    index: coordinates(at / size + i, dims),
                    value,
                    dtype,
                });
            }
            let ready = match sides {
                Some((rows, columns)) => {
                    turned.clear();
                    reserve(name, &mut turned, converted.len())?;
                    turned.resize(converted.len(), 0);
                    let each = turned
                        .chunks_exact_mut(unit * size)
                        .zip(converted.chunks_exact(unit * size));
                    each.for_each(|(to, from)| swap(from, to, rows, columns, size));
                    &turned
                }
                None => &converted,
            };
            if let Some(buffer) = &mut buffer {
                backend
                    .upload_part(ready, buffer, at)
                    .map_err(|e| tensor_error(name, e))?;
            }
            at += converted.len();
            Ok(())
        })
    }

    /// Reads an entry into a new tensor.
    fn value<B: Backend>(&mut self, name: &str, entry: &Entry, backend: &B) -> Result<Value<B>> {
        let failed = |e| tensor_error(name, e);
        match entry.dtype {
            DType::U8 => {
                let mut values = Vec::new();
                reserve(name, &mut values, entry.shape.size())?;
                self.pieces(name, entry, 1, |bytes| {
                    values.extend_from_slice(bytes);
                    Ok(())
                })?;
                Indices::from_slice(backend, &values, entry.shape.dims())
                    .map(Value::Int)
                    .map_err(failed)
            }
            DType::I32 => {
                let mut values = Vec::new();
                reserve(name, &mut values, entry.shape.size())?;
                self.pieces(name, entry, 1, |bytes| {
                    integers(entry.stored, bytes, &mut values).map_err(|value| WeightsError::Range {
                        name: name.to_string(),
                        value,
                    })
                })?;
                Indices::from_slice(backend, &values, entry.shape.dims())
                    .map(Value::Int)
                    .map_err(failed)
            }
            float => {
                let dtype = if backend.supports_dtype(float) {
                    float
                } else {
                    DType::F32
                };
                let mut buffer = backend.alloc(dtype, entry.shape.size()).map_err(failed)?;
                let as_it_is = LoadOptions::strict().allow_non_finite();
                self.floats(name, entry, (dtype, None, as_it_is), backend, Some(&mut buffer))?;
                Ok(Value::Float(Tensor::from_buffer(backend, buffer, entry.shape)))
            }
        }
    }

    /// Calls `take` with the bytes of an entry, piece by piece, in multiples of `unit` elements.
    fn pieces(
        &mut self,
        name: &str,
        entry: &Entry,
        unit: usize,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = self.path.as_deref().unwrap_or(Path::new(MEMORY));
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::UnexpectedEof => WeightsError::Format {
                reason: "the file became shorter while it was read".to_string(),
            },
            _ => io_error(path, "read", e),
        };
        let unit = unit.max(1) * element(entry.stored);
        let piece = (PIECE / unit).max(1) * unit;
        let mut left = entry.bytes;
        let mut bytes = Vec::new();
        let first = usize::try_from(left).unwrap_or(usize::MAX).min(piece);
        reserve(name, &mut bytes, first)?;
        self.source.seek(SeekFrom::Start(entry.at)).map_err(failed)?;
        while left > 0 {
            // At most `piece`, so it fits a `usize`.
            let next = left.min(piece as u64) as usize;
            bytes.resize(next, 0);
            self.source.read_exact(&mut bytes).map_err(failed)?;
            take(&bytes)?;
            left -= next as u64;
        }
        Ok(())
    }
}

/// The size in bytes of an element in a file.
fn element(stored: Dtype) -> usize {
    stored.bitsize() / 8
}

/// Transposes `[channels, positions]` to `[positions, channels]`, for elements of `size` bytes.
fn swap(from: &[u8], to: &mut [u8], channels: usize, positions: usize, size: usize) {
    for c in 0..channels {
        for p in 0..positions {
            let (a, b) = ((c * positions + p) * size, (p * channels + c) * size);
            to[b..b + size].copy_from_slice(&from[a..a + size]);
        }
    }
}

/// Converts a flat row-major index to an index in every dimension.
fn coordinates(mut flat: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (i, &d) in index.iter_mut().zip(dims).rev() {
        (*i, flat) = (flat % d.max(1), flat / d.max(1));
    }
    index
}

/// Reserves room for `count` elements of the entry `name`, or fails with [`WeightsError::Memory`].
fn reserve<T>(name: &str, values: &mut Vec<T>, count: usize) -> Result<()> {
    values.try_reserve(count).map_err(|_| WeightsError::Memory {
        name: name.to_string(),
        bytes: (count as u64).saturating_mul(size_of::<T>() as u64),
    })
}

/// Reads all tensors and the metadata of a safetensors file ([`WeightsFile::state_dict`]).
///
/// See the example of [`write`](super::write).
///
/// # Errors
/// As [`WeightsFile::open`] and [`WeightsFile::state_dict`].
pub fn read<B: Backend>(path: impl AsRef<Path>, backend: &B) -> Result<(StateDict<B>, Metadata)> {
    let mut file = WeightsFile::open(path)?;
    let dict = file.state_dict(backend)?;
    Ok((dict, file.header.metadata))
}

/// Decodes the bytes of a safetensors file to tensors on `backend` and metadata.
///
/// See the example of [`encode`](super::encode).
///
/// # Errors
/// As [`WeightsFile::new`] and [`WeightsFile::state_dict`].
#[compiled_once]
pub fn decode<B: Backend>(bytes: &[u8], backend: &B) -> Result<(StateDict<B>, Metadata)> {
    let mut file = WeightsFile::new(Cursor::new(bytes))?;
    let dict = file.state_dict(backend)?;
    Ok((dict, file.header.metadata))
}
