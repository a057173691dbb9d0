//! The lock on the folder of a run. It is a file lock of the operating system, which ends with the process; the locked
//! file names the process.

use crate::{Result, TrainError};
use kiln_files::{FileError, Folder, is_unlockable};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{Read, Seek};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of the lock file. It is removed when the claim ends, unless the process is killed.
pub(crate) const MARK: &str = ".kiln.lock";

/// The contents of the lock file.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    /// The start of the run, in seconds since 1970.
    started: u64,
}

impl Holder {
    fn this() -> Self {
        Holder {
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            started: now(),
        }
    }

    /// Describes the holder of a lock file in one line without control characters, whatever the file contains.
    fn of(mark: &mut File) -> String {
        let mut bytes = Vec::new();
        let read = mark.rewind().and_then(|()| mark.take(4096).read_to_end(&mut bytes));
        let holder = read.ok().and_then(|_| serde_json::from_slice::<Holder>(&bytes).ok());
        match holder {
            Some(Holder { pid, host, started }) => {
                let ago = Duration::from_secs(now().saturating_sub(started));
                format!("a run (process {pid} on {}, started {ago:?} ago)", host.escape_debug())
            }
            None => "a run".to_string(),
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// The exclusive use of a folder by one run, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: Folder,
    mark: File,
    /// True if the lock file is removed with the claim.
    remove: bool,
}

impl Claim {
    /// Claims `folder` if `allowed` succeeds; of several concurrent calls one succeeds. After an error the folder is unchanged.
    ///
    /// # Errors
    /// The errors of `allowed`, [`TrainError::Busy`], [`TrainError::Unlockable`], [`TrainError::File`].
    pub(crate) fn new(folder: &Folder, allowed: impl Fn() -> Result<()>) -> Result<Self> {
        loop {
            // The lock file of a run that is in progress or was killed.
            if folder.contains(MARK) {
                let Some(claim) = Claim::existing(folder)? else {
                    continue;
                };
                allowed()?;
                return claim.signed();
            }
            allowed()?;
            if let Some(claim) = Claim::made(folder)? {
                // Another process may have added files since the first check.
                allowed()?;
                return claim.signed();
            }
        }
    }

    /// Claims `folder` if a run was killed in it, which is the case if it has a lock file that no process has locked.
    pub(crate) fn abandoned(folder: &Folder) -> Option<Self> {
        let mut claim = Claim::existing(folder).ok()??;
        claim.remove = true;
        Some(claim)
    }

    /// True if a process has the folder, or may have it.
    pub(crate) fn is_held(folder: &Folder) -> bool {
        let Ok(mark) = folder.open_file(MARK, false) else {
            return false;
        };
        mark.try_lock().is_err()
    }

    /// Locks the existing lock file; `None` if it has just been removed.
    fn existing(folder: &Folder) -> Result<Option<Self>> {
        let mut mark = match folder.open_file(MARK, false) {
            Ok(mark) => mark,
            Err(_) if !folder.contains(MARK) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if let Err(e) = mark.try_lock() {
            return Err(refused(folder, &mut mark, e));
        }
        // A run that ended in the meantime has removed its lock file.
        Ok(folder.holds(MARK, &mark).then(|| Claim {
            folder: folder.clone(),
            mark,
            remove: false,
        }))
    }

    /// Creates and locks the lock file; `None` if another process did so first.
    fn made(folder: &Folder) -> Result<Option<Self>> {
        let Some(mark) = folder.create_file(MARK)? else {
            return Ok(None);
        };
        match mark.try_lock() {
            Ok(()) => {}
            // On a file system without locks, the creator of the file has the folder.
            Err(e) if is_unlockable(&e) => {}
            // Another process has opened and locked the file; the loop in `new` decides between the two.
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(FileError::io(&folder.path().join(MARK), "lock")(e).into()),
        }
        Ok(folder.holds(MARK, &mark).then(|| Claim {
            folder: folder.clone(),
            mark,
            remove: true,
        }))
    }

    fn signed(mut self) -> Result<Self> {
        self.remove = true;
        self.sign()?;
        Ok(self)
    }

    /// Writes the holder into the lock file. This also tests that files can be written here, so that a run does not fail
    /// after its first epoch.
    fn sign(&mut self) -> Result<()> {
        let path = self.folder.path().join(MARK);
        let mut text = serde_json::to_vec(&Holder::this()).map_err(|e| FileError::io(&path, "encode")(e.into()))?;
        text.push(b'\n');
        self.mark.set_len(0).map_err(FileError::io(&path, "write"))?;
        Ok(self.folder.append(MARK, &mut self.mark, 0, &text)?)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed while still locked, and only if it is still the same file. A lock file that remains blocks nobody.
        if self.remove && self.folder.holds(MARK, &self.mark) {
            let _ = self.folder.remove(MARK);
        }
    }
}

fn refused(folder: &Folder, mark: &mut File, error: TryLockError) -> TrainError {
    let path = folder.path().to_path_buf();
    match error {
        TryLockError::WouldBlock => TrainError::Busy {
            path,
            holder: Holder::of(mark),
        },
        e if is_unlockable(&e) => TrainError::Unlockable {
            path,
            holder: Holder::of(mark),
            mark: MARK,
        },
        TryLockError::Error(e) => FileError::io(&path.join(MARK), "lock")(e).into(),
    }
}
