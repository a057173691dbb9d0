//! `.npz` files: zip archives with one `.npy` file for each array.

use crate::error::{NpyError, Result};
use crate::npy::{decode, encode};
use kiln_nn::Backend;
use kiln_nn::module::StateDict;
use std::io::{BufReader, Cursor, Read, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Reads all arrays of a `.npz` file (`numpy.load`) onto `backend`, under their names.
///
/// # Errors
/// A file that is no zip archive of NumPy's arrays, that is damaged, or packed by another method than deflate; for each array those
/// of [`read`](crate::read()). The message begins with the path and the name of the array.
pub fn read_npz<B: Backend>(path: impl AsRef<Path>, backend: &B) -> Result<StateDict<B>> {
    let path = path.as_ref();
    let read = || {
        let (file, _) = kiln_files::open_regular(path).map_err(NpyError::Io)?;
        let mut archive = ZipArchive::new(BufReader::new(file)).map_err(damaged)?;
        let mut dict = StateDict::new();
        for i in 0..archive.len() {
            let entry = archive.by_index(i).map_err(damaged)?;
            let file = entry.name().map_err(damaged)?;
            let name = file.strip_suffix(".npy").unwrap_or(&file).to_string();
            // An archive says how large an entry will be; nobody has to believe more than that.
            let (size, mut bytes) = (entry.size(), Vec::new());
            let unpacked = entry.take(size).read_to_end(&mut bytes).map_err(NpyError::Io);
            let value = unpacked
                .and_then(|_| decode(&bytes, backend))
                .map_err(|e| e.within(&name))?;
            dict.insert(name, value);
        }
        Ok(dict)
    };
    read().map_err(|e: NpyError| e.within(path.display()))
}

/// Writes all entries of `dict` to a `.npz` file, the whole file or nothing of it: as they are (`numpy.savez`), or packed
/// (`numpy.savez_compressed`).
///
/// # Errors
/// A folder that is missing or not writable, a full disk, a device error, memory.
pub fn write_npz<B: Backend>(path: impl AsRef<Path>, dict: &StateDict<B>, compressed: bool) -> Result<()> {
    let method = match compressed {
        true => CompressionMethod::Deflated,
        false => CompressionMethod::Stored,
    };
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, value) in dict.iter() {
        let bytes = encode(value.clone())?;
        let options = SimpleFileOptions::default().compression_method(method);
        // Sizes that do not fit 32 bits take an extension of the format.
        let options = options.large_file(u32::try_from(bytes.len()).is_err());
        archive.start_file(format!("{name}.npy"), options).map_err(damaged)?;
        archive.write_all(&bytes).map_err(NpyError::Io)?;
    }
    let bytes = archive.finish().map_err(damaged)?.into_inner();
    Ok(kiln_files::write_atomic(path, &bytes)?)
}

fn damaged(e: zip::result::ZipError) -> NpyError {
    NpyError::format(e.to_string())
}
