//! A file of a folder that grows by whole lines, and is written again if somebody takes it away.

use crate::{Result, Warning};
use kiln_files::{FileError, Folder};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;

/// A file of a folder, with its contents in memory.
#[derive(Debug)]
pub(crate) struct Kept {
    folder: Folder,
    name: OsString,
    file: File,
    /// The contents of the file so far.
    text: Vec<u8>,
}

impl Kept {
    /// Creates an empty file.
    ///
    /// # Errors
    /// [`TrainError::File`](crate::TrainError::File), also if the file exists already.
    pub(crate) fn create(folder: &Folder, name: &OsStr) -> Result<Self> {
        let Some(file) = folder.create_file(name)? else {
            let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(FileError::io(&folder.path().join(name), "create")(exists).into());
        };
        Ok(Kept {
            folder: folder.clone(),
            name: name.to_os_string(),
            file,
            text: Vec::new(),
        })
    }

    /// Replaces a file by one of this text, or creates it.
    pub(crate) fn replace(folder: &Folder, name: &OsStr, text: Vec<u8>) -> Result<Self> {
        folder.write(name, &text)?;
        Ok(Kept {
            folder: folder.clone(),
            name: name.to_os_string(),
            file: folder.open_file(name, false)?,
            text,
        })
    }

    /// True if the file is still the one that was opened and is `size` bytes long.
    fn stands_at(&self, size: usize) -> bool {
        let found = self.file.metadata().map(|m| m.len());
        self.folder.holds(&self.name, &self.file) && found.is_ok_and(|found| found == size as u64)
    }

    fn write(&mut self) -> Result<(), FileError> {
        self.folder.write(&self.name, &self.text)?;
        self.file = self.folder.open_file(&self.name, false)?;
        Ok(())
    }

    /// Appends whole lines. A file that was removed or changed from outside is written again as a whole. After an error the
    /// file has the lines of before, or the next call gives it them.
    pub(crate) fn append(&mut self, lines: &[u8]) -> Result<()> {
        let size = self.text.len();
        self.text.extend(lines);
        let written = match self.stands_at(size) {
            true => self.folder.append(&self.name, &mut self.file, size as u64, lines),
            false => self.write(),
        };
        written.map_err(|error| {
            self.text.truncate(size);
            error.into()
        })
    }

    /// Writes another text in the place of the file's.
    pub(crate) fn rewrite(&mut self, text: Vec<u8>) -> Result<()> {
        let before = std::mem::replace(&mut self.text, text);
        self.write().map_err(|error| {
            self.text = before;
            error.into()
        })
    }

    /// Forgets what was appended behind the first `size` bytes; the next call cuts the file back.
    pub(crate) fn rollback(&mut self, size: usize) {
        self.text.truncate(size);
    }

    /// The number of bytes of the file.
    pub(crate) fn size(&self) -> usize {
        self.text.len()
    }

    /// Writes the file again if it was removed, replaced or truncated from outside, and returns a warning then.
    pub(crate) fn restore(&mut self) -> Result<Option<Warning>> {
        if self.stands_at(self.text.len()) {
            return Ok(None);
        }
        self.write()?;
        Ok(Some(Warning::Restored { path: self.path() }))
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }
}
