//! Runs of this program in processes of their own, which are killed and resumed.

use crate::child::{ChildRun, LOOK};
use crate::config::{self, RunConfig};
use crate::error::{Error, Result};
use kiln_files::{Folder, shown_path};
use kiln_train::{Checkpoint, StopHandle};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The run that never stops.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    /// The number of its steps.
    pub(super) steps: u64,
    /// The time from its start to its end.
    pub(super) time: Duration,
}

/// Starts runs of the same settings in folders of one parent.
pub(super) struct Runs {
    parent: PathBuf,
    config: PathBuf,
    /// The number of steps between two checkpoints.
    every: u64,
    stop: StopHandle,
}

impl Runs {
    pub(super) fn new(parent: &Path, config: &RunConfig, every: u64, stop: StopHandle) -> Result<Self> {
        let failed = |e: std::io::Error| Error::failure(format!("{}: {e}", shown_path(parent)));
        std::fs::create_dir_all(parent).map_err(failed)?;
        let path = parent.join("config.json");
        config::write(&path, config)?;
        Ok(Runs {
            parent: parent.to_path_buf(),
            config: path,
            every,
            stop,
        })
    }

    /// Runs to the end.
    pub(super) fn whole(&self, name: &str) -> Result<Whole> {
        let began = Instant::now();
        self.start(name)?.end()?;
        Ok(Whole {
            steps: self.newest(name)?.unwrap_or(0),
            time: began.elapsed(),
        })
    }

    /// Runs to the end of the steps of `whole`, killed up to `kills` times on the way and resumed. Returns the steps of the newest
    /// checkpoints when it was killed.
    pub(super) fn killed(&self, name: &str, whole: Whole, kills: u64, during_save: bool) -> Result<Vec<u64>> {
        let Whole { steps, time } = whole;
        // A kill comes a part of a checkpoint's interval after the checkpoint that it waits for, or in the middle of a save.
        let spread = match during_save {
            true => 3_000,
            false => time.as_micros() as u64 / steps.max(1) * self.every,
        };
        let mut killed = Vec::new();
        let mut child = self.start(name)?;
        for done in 0..kills {
            let from = self.newest(name)?.unwrap_or(0);
            // The kills are spread over the steps that are left.
            let apart = (2 * steps.saturating_sub(from) / (kills - done + 1)).max(1);
            let at = (from + 1 + random() % apart).min(steps.saturating_sub(self.every));
            if !self.kill(&mut child, name, at.max(from + 1), during_save, spread)? {
                break;
            }
            killed.push(self.newest(name)?.unwrap_or(0));
            child = self.resume(name)?;
        }
        child.end()?;
        Ok(killed)
    }

    /// Kills a run once it has written a checkpoint of step `at` or later, in the middle of the next one if `during_save`. False if
    /// it ended before.
    fn kill(&self, child: &mut ChildRun, name: &str, at: u64, during_save: bool, spread: u64) -> Result<bool> {
        loop {
            if child.ended()?.is_some() {
                return Ok(false);
            }
            let due = self.newest(name)?.is_some_and(|step| step >= at);
            if due && (!during_save || self.is_saving(name)?) {
                break;
            }
            if !during_save || !due {
                std::thread::sleep(LOOK);
            }
        }
        std::thread::sleep(Duration::from_micros(random() % spread.max(1)));
        if child.ended()?.is_some() {
            return Ok(false);
        }
        child.kill()?;
        Ok(true)
    }

    /// True while a checkpoint is being written.
    fn is_saving(&self, name: &str) -> Result<bool> {
        let names = Folder::open(self.parent.join(name))?.names()?;
        Ok(names
            .iter()
            .any(|n| Folder::is_temporary(n) && n.to_string_lossy().contains("checkpoint")))
    }

    /// The step of the newest checkpoint.
    fn newest(&self, name: &str) -> Result<Option<u64>> {
        let path = self.parent.join(name);
        match path.is_dir() {
            true => Ok(Checkpoint::steps(path)?.first().copied()),
            false => Ok(None),
        }
    }

    fn start(&self, name: &str) -> Result<ChildRun> {
        ChildRun::start(&self.config, &self.parent.join(name), &self.stop)
    }

    fn resume(&self, name: &str) -> Result<ChildRun> {
        ChildRun::resume(&self.parent.join(name), &self.stop)
    }
}

/// A random number.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
