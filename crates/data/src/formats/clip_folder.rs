//! A folder of clips with one sub-folder per class.

use super::clip::decode_clip;
use super::frames::ClipOptions;
use super::image_folder::list;
use crate::dataset::check_index;
use crate::error::reserve;
use crate::{BadRecords, DataError, Dataset, Result, Sample, Skipped};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clips in one sub-folder per class. The classes are the sub-folders in sorted order; a clip is a folder of frames in one of them, or a
/// `.gif`, `.y4m` or `.y4m.gz` file, in sorted order, decoded when it is read ([`decode_clip`]).
#[derive(Debug, Clone)]
pub struct ClipFolder {
    root: PathBuf,
    options: ClipOptions,
    classes: Vec<String>,
    clips: Vec<(PathBuf, i32)>,
    skipped: Arc<Skipped>,
}

impl ClipFolder {
    /// Lists the folder and, under [`BadRecords::Skip`], decodes every clip once.
    ///
    /// # Errors
    /// [`DataError::Io`], [`DataError::Empty`] for a folder without classes or a class without clips; under [`BadRecords::Skip`] also
    /// [`DataError::OutOfMemory`].
    pub fn open(root: impl AsRef<Path>, options: ClipOptions, bad: BadRecords) -> Result<Self> {
        let root = root.as_ref();
        let mut folder = ClipFolder {
            root: root.to_path_buf(),
            options,
            classes: Vec::new(),
            clips: Vec::new(),
            skipped: Arc::default(),
        };
        for (name, path) in list(root)? {
            if !path.is_dir() || name.starts_with('.') {
                continue;
            }
            let label = i32::try_from(folder.classes.len())
                .map_err(|_| DataError::invalid("clip folder", "classes", folder.classes.len(), "fewer than 2³¹"))?;
            let before = folder.clips.len();
            let clips = list(&path)?.into_iter().filter(|(name, path)| is_clip(name, path));
            folder.clips.extend(clips.map(|(_, path)| (path, label)));
            if folder.clips.len() == before {
                return Err(DataError::Empty {
                    path,
                    expected: "at least one clip of this class: a folder of frames, or a .gif or .y4m file",
                });
            }
            folder.classes.push(name);
        }
        if folder.classes.is_empty() {
            return Err(DataError::Empty {
                path: root.to_path_buf(),
                expected: "one sub-folder per class",
            });
        }
        if bad == BadRecords::Skip {
            folder.drop_bad()?;
        }
        Ok(folder)
    }

    /// The path of the clip of sample `index`; `None` past the end.
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.clips.get(index).map(|(path, _)| path.as_path())
    }

    fn drop_bad(&mut self) -> Result<()> {
        let (mut skipped, mut kept) = (Skipped::default(), Vec::new());
        reserve(&mut kept, self.clips.len(), "a list of clips")?;
        for clip in std::mem::take(&mut self.clips) {
            match decode_clip(&clip.0, &self.options) {
                Ok(_) => kept.push(clip),
                Err(error) => skipped.note(BadRecords::Skip, error)?,
            }
        }
        if kept.is_empty() {
            return Err(skipped.nothing_left(&self.root, "at least one clip that decodes"));
        }
        self.clips = kept;
        self.skipped = Arc::new(skipped);
        Ok(())
    }
}

/// True for the name of a folder or of a file that a clip may be in.
fn is_clip(name: &str, path: &Path) -> bool {
    let name = name.to_ascii_lowercase();
    let file = [".gif", ".y4m", ".y4m.gz"].iter().any(|end| name.ends_with(end));
    !name.starts_with('.') && (file || path.is_dir())
}

impl Dataset for ClipFolder {
    type Sample = Sample;

    fn len(&self) -> usize {
        self.clips.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> Result<()> {
        check_index(index, self.len())?;
        let (path, label) = &self.clips[index];
        decode_clip(path, &self.options)?.fill(sample)?;
        sample.label = *label;
        sample.targets.clear();
        Ok(())
    }
    fn classes(&self) -> Option<usize> {
        Some(self.classes.len())
    }
    fn class_names(&self) -> &[String] {
        &self.classes
    }
    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
    fn source(&self) -> Option<&Path> {
        Some(&self.root)
    }
}
