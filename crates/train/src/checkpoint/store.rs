//! The files of checkpoints: written whole, checked when they are read, removed when there are newer ones.

use super::manifest::{Manifest, TensorFile};
use crate::{Result, RunFolder, TrainError, Warning};
use kiln_files::{FileError, Folder, open_regular};
use kiln_nn::weights::{Metadata, Snapshot};
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest manifest that is read.
const MAX_MANIFEST: u64 = 1 << 28;

/// The name of a checkpoint's files without their extension.
fn stem(step: u64) -> String {
    format!("checkpoint-{step:09}")
}

/// The step in the name of a manifest or of a tensor file, by its extension.
fn step_of(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_prefix("checkpoint-")?.strip_suffix(extension)?;
    let step: u64 = digits.parse().ok()?;
    (name == format!("{}{extension}", stem(step))).then_some(step)
}

/// The steps of the checkpoints in a folder, the newest first.
fn steps(folder: &Folder, extension: &str) -> Result<Vec<u64>> {
    let names = folder.names()?;
    let mut steps: Vec<u64> = names.iter().filter_map(|n| step_of(n.to_str()?, extension)).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

/// A checkpoint that was read from a run's folder, for [`Trainer::resume`](crate::Trainer::resume).
#[derive(Clone)]
pub struct Checkpoint {
    pub(crate) manifest: Manifest,
    /// The safetensors file.
    pub(crate) tensors: Arc<Vec<u8>>,
    /// The damaged checkpoints that are newer.
    pub(crate) warnings: Vec<Warning>,
}

impl Checkpoint {
    /// Reads the newest checkpoint in the folder of a run. One that is damaged is passed over for the one before it.
    ///
    /// # Errors
    /// [`TrainError::NoCheckpoint`] if there is none, [`TrainError::BadCheckpoint`] if none is whole or of a known version,
    /// [`TrainError::File`].
    pub fn latest(folder: &RunFolder) -> Result<Self> {
        let mut failed = None;
        let mut warnings = Vec::new();
        for step in steps(folder.open(), ".json")? {
            match read(folder, step) {
                Ok((manifest, tensors)) => {
                    return Ok(Checkpoint {
                        manifest,
                        tensors: Arc::new(tensors),
                        warnings,
                    });
                }
                Err(TrainError::BadCheckpoint { path, reason }) => {
                    warnings.push(Warning::Damaged {
                        path: path.clone(),
                        reason: reason.clone(),
                    });
                    failed.get_or_insert(TrainError::BadCheckpoint { path, reason });
                }
                Err(other) => return Err(other),
            }
        }
        Err(failed.unwrap_or_else(|| TrainError::NoCheckpoint {
            path: folder.path().to_path_buf(),
        }))
    }

    /// The steps after which the checkpoints in a folder were made, the newest first. A run may be writing there.
    ///
    /// # Errors
    /// [`TrainError::File`].
    pub fn steps(folder: impl Into<PathBuf>) -> Result<Vec<u64>> {
        steps(&Folder::open(folder)?, ".json")
    }

    /// The name of the file with the tensors of the checkpoint that was made after `step`.
    pub fn tensors_name(step: u64) -> String {
        format!("{}.safetensors", stem(step))
    }

    /// The name of the manifest of the checkpoint that was made after `step`.
    pub fn manifest_name(step: u64) -> String {
        format!("{}.json", stem(step))
    }

    /// The counts of the run.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("manifest", &self.manifest)
            .field("bytes", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The fields that every version of the format has.
#[derive(Deserialize)]
struct Version {
    format: String,
    version: u32,
}

fn read(folder: &RunFolder, step: u64) -> Result<(Manifest, Vec<u8>)> {
    let path = folder.file(&Checkpoint::manifest_name(step));
    let bad = |path: &Path, reason: String| TrainError::BadCheckpoint {
        path: path.to_path_buf(),
        reason,
    };
    let text = contents(&path, MAX_MANIFEST)?;
    let version: Version = serde_json::from_slice(&text).map_err(|e| bad(&path, e.to_string()))?;
    if version.format != Manifest::FORMAT {
        return Err(bad(&path, "it is no manifest of a checkpoint".to_string()));
    }
    if version.version != Manifest::VERSION {
        let reason = format!(
            "it has version {} of the format, and this program reads version {}",
            version.version,
            Manifest::VERSION
        );
        return Err(bad(&path, reason));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| bad(&path, e.to_string()))?;
    let TensorFile { file, bytes, crc32 } = &manifest.tensors;
    if step_of(file, ".safetensors") != Some(step) {
        return Err(bad(&path, format!("it names {file:?} as its tensors")));
    }
    let beside = folder.file(file);
    let tensors = match contents(&beside, *bytes) {
        Err(TrainError::File(FileError::Io { source, .. })) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(bad(&beside, "it is missing".to_string()));
        }
        read => read?,
    };
    if tensors.len() as u64 != *bytes {
        let reason = format!("it has {} bytes, and its manifest says {bytes}", tensors.len());
        return Err(bad(&beside, reason));
    }
    if crc32fast::hash(&tensors) != *crc32 {
        return Err(bad(&beside, "its contents are not what was written".to_string()));
    }
    Ok((manifest, tensors))
}

/// The contents of a regular file, of which at most one byte more than `limit` is read.
pub(crate) fn contents(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let failed = || FileError::io(path, "read");
    let (file, size) = open_regular(path).map_err(failed())?;
    let mut bytes = Vec::new();
    let room = usize::try_from(size.min(limit)).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(room)
        .map_err(|e| failed()(std::io::Error::other(e)))?;
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed())?;
    Ok(bytes)
}

/// Encodes a checkpoint and writes its files, the manifest last, and keeps the last of all.
pub(crate) fn write(folder: &RunFolder, keep: usize, mut manifest: Manifest, tensors: Arc<Snapshot>) -> Result<()> {
    let encoded = tensors.encode(&Metadata::new())?;
    // The memory that is shared with the model of then is free while the disk works.
    drop(tensors);
    manifest.tensors = TensorFile {
        file: Checkpoint::tensors_name(manifest.step),
        bytes: encoded.len() as u64,
        crc32: crc32fast::hash(&encoded),
    };
    let name = Checkpoint::manifest_name(manifest.step);
    let text = serde_json::to_vec_pretty(&manifest);
    let mut text = text.map_err(|e| FileError::io(&folder.file(&name), "encode")(e.into()))?;
    text.push(b'\n');
    // A manifest of the same step, from before a run was resumed, would name the tensors while they change.
    if folder.open().contains(&name) {
        folder.open().remove(&name)?;
    }
    folder.write(&manifest.tensors.file, &encoded)?;
    folder.write(&name, &text)?;
    prune(folder.open(), keep)
}

/// Removes all checkpoints but the last `keep`, and tensors without a manifest.
fn prune(folder: &Folder, keep: usize) -> Result<()> {
    let mut kept = steps(folder, ".json")?;
    for step in kept.split_off(keep.min(kept.len())) {
        folder.remove(format!("{}.json", stem(step)))?;
    }
    for step in steps(folder, ".safetensors")? {
        if !kept.contains(&step) {
            folder.remove(Checkpoint::tensors_name(step))?;
        }
    }
    Ok(())
}
