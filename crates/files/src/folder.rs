//! An open folder, and the operations on the files in it.

use crate::error::{FileError, Result, check_size};
use crate::kind::kind;
use crate::temporary::{is_temporary, temporary};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fstatvfs, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open folder. Its files are written into the folder that was opened, even if that has been moved since and another
/// folder is now at its path. Clones share one file descriptor.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    open: Arc<File>,
}

/// The number of times that a writer waits for another before it gives up.
const TURNS: u32 = 10_000;

/// True if both are the same file.
fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

impl Folder {
    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let open = opened.map_err(|e| FileError::io(&path, "open the folder")(e.into()))?;
        Ok(Folder {
            path,
            open: Arc::new(open.into()),
        })
    }

    /// The path at which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the folder has been removed since it was opened.
    pub fn is_removed(&self) -> bool {
        fstat(&*self.open).is_ok_and(|s| s.st_nlink == 0)
    }

    /// True if the path still leads to this folder.
    pub fn is_in_place(&self) -> bool {
        match (fstat(&*self.open), rustix::fs::stat(&self.path)) {
            (Ok(opened), Ok(named)) => same(&opened, &named),
            _ => false,
        }
    }

    /// The names of the entries, in no particular order.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn names(&self) -> Result<Vec<OsString>> {
        let failed = |e: Errno| FileError::io(&self.path, "list")(e.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.open).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_os_string());
            }
        }
        Ok(names)
    }

    /// Replaces the file `name` by one that holds `bytes`, atomically, as [`write_atomic`](crate::write_atomic) does.
    ///
    /// # Errors
    /// As [`write_atomic`](crate::write_atomic).
    pub fn write(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let name = name.as_ref();
        let path = self.path.join(name);
        self.check_regular(name)?;
        check_size(&path, bytes.len() as u64)?;
        let beside = temporary(name);
        let mut file = self.temporary(&beside, &path)?;
        if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
            // The free space is queried after this file's own bytes are released.
            let _ = file.set_len(0);
            let _ = unlinkat(self, &beside, AtFlags::empty());
            return Err(FileError::of_write(&path, bytes.len() as u64, error, || {
                self.free_bytes()
            }));
        }
        if let Err(error) = renameat(self, &beside, self, name) {
            // The first error is reported. A temporary file that remains is reused by the next write of this name.
            let _ = unlinkat(self, &beside, AtFlags::empty());
            return Err(FileError::io(&path, "replace the file")(error.into()));
        }
        self.sync()
    }

    /// Writes `bytes` over the beginning of the file `name` and blanks over its rest, in place: on most file systems that takes no space,
    /// so it works on a full disk. It is not atomic, so it is for a file that is otherwise worth nothing any more.
    ///
    /// # Errors
    /// [`FileError::NotRegular`], [`FileError::Io`], also for a file that does not exist or is shorter than `bytes`, and
    /// [`FileError::DiskFull`].
    pub fn overwrite(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let file = self.open_file(name, false)?;
        let size = file.metadata().map_err(FileError::io(&path, "write"))?.len();
        let blanks = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_sub(bytes.len()));
        let Some(blanks) = blanks else {
            let short = io::Error::new(ErrorKind::FileTooLarge, "the file has too little room");
            return Err(FileError::io(&path, "write")(short));
        };
        let text = [bytes, &vec![b' '; blanks]].concat();
        let written = write_at(&file, &text, 0).and_then(|()| file.sync_data());
        written.map_err(|error| FileError::of_write(&path, size, error, || self.free_bytes()))
    }

    /// Forces the names in the folder to disk.
    fn sync(&self) -> Result<()> {
        match self.open.sync_all() {
            // Some network file systems cannot sync a folder, and keep the order of names by themselves.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            done => done.map_err(FileError::io(&self.path, "force the folder to disk")),
        }
    }

    /// Checks that [`write`](Folder::write) can write a file `name`.
    pub(crate) fn try_out(&self, name: &OsStr) -> Result<()> {
        self.check_regular(name)?;
        let beside = temporary(name);
        drop(self.temporary(&beside, &self.path.join(name))?);
        // The file is empty; if it remains, the next write of this name reuses it.
        let _ = unlinkat(self, &beside, AtFlags::empty());
        Ok(())
    }

    fn check_regular(&self, name: &OsStr) -> Result<()> {
        match self.stat(name)? {
            Some(stat) if !is_regular(&stat) => Err(FileError::NotRegular {
                path: self.path.join(name),
                found: kind(stat.st_mode),
            }),
            _ => Ok(()),
        }
    }

    /// The metadata of `name`, without following links; `None` if it does not exist.
    fn stat(&self, name: &OsStr) -> Result<Option<Stat>> {
        match statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(FileError::io(&self.path.join(name), "write")(e.into())),
        }
    }

    /// True if `name` is the file `file`: it was neither removed nor replaced.
    pub fn holds(&self, name: impl AsRef<OsStr>, file: &File) -> bool {
        match (fstat(file), statat(self, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)) {
            (Ok(opened), Ok(named)) => same(&opened, &named),
            _ => false,
        }
    }

    /// True if an entry `name` exists.
    pub fn contains(&self, name: impl AsRef<OsStr>) -> bool {
        statat(self, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens the regular file `name` for reading and writing; with `create`, makes it if it does not exist. Links are not
    /// followed, and a FIFO is not waited for.
    ///
    /// # Errors
    /// [`FileError::NotRegular`], [`FileError::Io`], [`FileError::DiskFull`].
    pub fn open_file(&self, name: impl AsRef<OsStr>, create: bool) -> Result<File> {
        let name = name.as_ref();
        let path = self.path.join(name);
        let create = if create { OFlags::CREATE } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | create;
        let file: File = match openat(self, name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => file.into(),
            Err(e) => {
                self.check_regular(name)?;
                return Err(FileError::of_write(&path, 0, e.into(), || self.free_bytes()));
            }
        };
        let stat = fstat(&file).map_err(|e| FileError::io(&path, "write")(e.into()))?;
        match is_regular(&stat) {
            true => Ok(file),
            false => Err(FileError::NotRegular {
                path,
                found: kind(stat.st_mode),
            }),
        }
    }

    /// Creates the file `name`, opened for reading and writing; `None` if an entry of that name exists.
    ///
    /// # Errors
    /// [`FileError::Io`], [`FileError::DiskFull`].
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> Result<Option<File>> {
        let name = name.as_ref();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match openat(self, name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::EXIST) => Ok(None),
            Err(e) => {
                let path = self.path.join(name);
                Err(FileError::of_write(&path, 0, e.into(), || self.free_bytes()))
            }
        }
    }

    /// Opens an empty file with the temporary name `beside`, locked until it is dropped.
    fn temporary(&self, beside: &OsStr, path: &Path) -> Result<File> {
        // A further turn means that another writer has finished the same file in the meantime.
        for _ in 0..TURNS {
            let file = self.open_file(beside, true).map_err(|e| match e {
                FileError::Io { source, .. } => FileError::io(path, "write")(source),
                other => other,
            })?;
            // On a file system without locks the caller has to write a file from one place at a time.
            let _ = file.lock();
            // The former holder of the lock has renamed or removed the file.
            if !self.holds(beside, &file) {
                continue;
            }
            let stat = fstat(&file).map_err(|e| FileError::io(path, "write")(e.into()))?;
            if stat.st_nlink > 1 {
                // The file has another hard link, so its contents must not be overwritten.
                unlinkat(self, beside, AtFlags::empty()).map_err(|e| FileError::io(path, "write")(e.into()))?;
                continue;
            }
            file.set_len(0).map_err(FileError::io(path, "write"))?;
            return Ok(file);
        }
        let e = io::Error::new(ErrorKind::ResourceBusy, "others write it all the time");
        Err(FileError::io(path, "write")(e))
    }

    /// Removes the temporary files that killed writers left: those with the exact form of such a name that no process has
    /// locked. Returns the number of files removed.
    ///
    /// # Errors
    /// [`FileError::Io`] when the folder cannot be listed. A file that cannot be removed is no error.
    pub fn remove_stale(&self) -> Result<usize> {
        let mut removed = 0;
        for name in self.names()?.iter().filter(|n| is_temporary(n)) {
            let Ok(file) = self.open_file(name, false) else {
                continue;
            };
            if file.try_lock().is_ok() && self.holds(name, &file) && self.remove(name).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// True if `name` has the form of a temporary file of [`write`](Folder::write).
    pub fn is_temporary(name: &OsStr) -> bool {
        is_temporary(name)
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        unlinkat(self, name, AtFlags::empty()).map_err(|e| FileError::io(&self.path.join(name), "remove")(e.into()))
    }

    /// Appends `bytes` to `file`, which is `name` in this folder and `size` bytes long, and syncs the data to disk. After an
    /// error the file is cut back to `size` bytes.
    ///
    /// # Errors
    /// As [`write_atomic`](crate::write_atomic).
    pub fn append(&self, name: impl AsRef<OsStr>, file: &mut File, size: u64, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name.as_ref());
        let needed = size.saturating_add(bytes.len() as u64);
        check_size(&path, needed)?;
        let written = write_at(file, bytes, size).and_then(|()| file.sync_data());
        written.map_err(|error| {
            let _ = file.set_len(size);
            FileError::of_write(&path, needed, error, || self.free_bytes())
        })
    }

    /// The number of bytes that an unprivileged process can still write to the folder's file system.
    fn free_bytes(&self) -> Option<u64> {
        let stat = fstatvfs(&*self.open).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }
}

fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.write_all_at(bytes, at)
}

/// True if locking failed because the file system has no locks.
pub fn is_unlockable(error: &TryLockError) -> bool {
    match error {
        TryLockError::WouldBlock => false,
        TryLockError::Error(e) => {
            let code = e.raw_os_error().map(Errno::from_raw_os_error);
            matches!(
                code,
                Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL)
            )
        }
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.as_fd()
    }
}
