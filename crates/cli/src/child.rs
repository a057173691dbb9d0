//! A run of `kiln train` in a process of its own.

use crate::error::{Error, Result};
use kiln_files::shown_path;
use kiln_train::StopHandle;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The time between two looks at a run.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// A run in a process of its own, whose messages go into a file. It is killed when this program is asked to stop.
pub(crate) struct ChildRun {
    child: Child,
    said: PathBuf,
    stop: StopHandle,
}

impl ChildRun {
    /// Starts a run with the settings in the file `config`, in the new folder `out`.
    pub(crate) fn start(config: &Path, out: &Path, stop: &StopHandle) -> Result<Self> {
        let args = [
            OsStr::new("--config"),
            config.as_ref(),
            OsStr::new("--out"),
            out.as_ref(),
        ];
        ChildRun::spawn(&args, out, stop)
    }

    /// Resumes the run in `folder`.
    pub(crate) fn resume(folder: &Path, stop: &StopHandle) -> Result<Self> {
        ChildRun::spawn(&[OsStr::new("--resume"), folder.as_ref()], folder, stop)
    }

    fn spawn(args: &[&OsStr], folder: &Path, stop: &StopHandle) -> Result<Self> {
        let said = folder.with_extension("stderr");
        let run = || -> std::io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .arg("train")
                .args(args)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            command.stderr(std::fs::File::create(&said)?).spawn()
        };
        Ok(ChildRun {
            child: run().map_err(|e| failed("start a run", &e))?,
            said,
            stop: stop.clone(),
        })
    }

    /// The status of the run if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.stop.is_requested() {
            self.kill()?;
            return Err(Error::failure("stopped"));
        }
        self.child.try_wait().map_err(|e| failed("wait for a run", &e))
    }

    /// Kills the run.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|e| failed("kill a run", &e))
    }

    /// Waits for the end of the run; its error if it failed.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = loop {
            match self.ended()? {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        if status.success() {
            // What is kept is what somebody has to read.
            if said.is_empty() {
                let _ = std::fs::remove_file(&self.said);
            }
            return Ok(());
        }
        let said = said.trim().trim_start_matches("error: ");
        let folder = self.said.with_extension("");
        Err(Error::failure(format!(
            "the run {} failed: {said}",
            shown_path(&folder)
        )))
    }
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::failure(format!("cannot {what}: {error}"))
}
