//! Who works in a folder: a lock on a file of the run's own. The lock is the system's, so it ends with its process
//! however that ends; the file tells others who it is.

use crate::{Result, TrainError};
use kiln_files::{FileError, Folder, is_unlockable};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{Read, Seek};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file that is locked. It is removed with the lock, unless its process was killed.
pub(crate) const MARK: &str = ".kiln.lock";

/// The contents of the mark.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    /// Seconds since 1970.
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

    /// The text of the mark; whatever it says, it is one line without control characters.
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

/// A folder that nobody else works in while this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    folder: Folder,
    mark: File,
    /// True if the mark goes with the claim.
    remove: bool,
}

impl Claim {
    /// Claims `folder` if `allowed` lets it; of several at once, one succeeds. A folder that is refused stays as it is.
    ///
    /// # Errors
    /// Those of `allowed`, [`TrainError::Busy`], [`TrainError::Unlockable`], [`TrainError::File`].
    pub(crate) fn new(folder: &Folder, allowed: impl Fn() -> Result<()>) -> Result<Self> {
        loop {
            // The mark of a run that goes on, or was killed.
            if folder.contains(MARK) {
                let Some(claim) = Claim::existing(folder)? else {
                    continue;
                };
                allowed()?;
                return claim.signed();
            }
            allowed()?;
            if let Some(claim) = Claim::made(folder)? {
                // Somebody may have put something here since.
                allowed()?;
                return claim.signed();
            }
        }
    }

    /// Claims `folder` if a run was killed in it: if it has a mark that nobody holds.
    pub(crate) fn abandoned(folder: &Folder) -> Option<Self> {
        let mut claim = Claim::existing(folder).ok()??;
        claim.remove = true;
        Some(claim)
    }

    /// The claim by a mark that is there; `None` when it has just gone.
    fn existing(folder: &Folder) -> Result<Option<Self>> {
        let mut mark = match folder.open_file(MARK, false) {
            Ok(mark) => mark,
            Err(_) if !folder.contains(MARK) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        if let Err(e) = mark.try_lock() {
            return Err(refused(folder, &mut mark, e));
        }
        // A run that ended meanwhile has taken its mark along.
        Ok(folder.holds(MARK, &mark).then(|| Claim {
            folder: folder.clone(),
            mark,
            remove: false,
        }))
    }

    /// The claim by a new mark; `None` when somebody else was quicker.
    fn made(folder: &Folder) -> Result<Option<Self>> {
        let Some(mark) = folder.create_file(MARK)? else {
            return Ok(None);
        };
        match mark.try_lock() {
            Ok(()) => {}
            // Without locks, whoever makes the mark has the folder.
            Err(e) if is_unlockable(&e) => {}
            // Somebody has opened it already, and will find what this loop finds.
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

    /// Says who holds the folder. A run must not find out after its first epoch that nothing can be written here, so this
    /// is also the trial.
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
        // While it is still locked, and only if it is still this one. A mark that stays locks nobody out.
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
