//! Writes checkpoints and weights on a thread of its own, in the order in which they were given.

use super::manifest::Manifest;
use super::store::write;
use crate::{Result, RunFolder};
use kiln_files::FileError;
use kiln_nn::weights::{Metadata, Snapshot};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Encodes states of a run and writes them while the run goes on. Files come in the order in which they were given, so that a process
/// that is killed leaves those of a moment of the run.
///
/// One checkpoint and the weights of one epoch may be waiting for the disk; whoever gives the next waits for those before.
pub(crate) struct Writer {
    folder: RunFolder,
    thread: Option<Thread>,
    /// The numbers of the last files of each kind; files are numbered from 1.
    given: u64,
    checkpoint: u64,
    weights: u64,
    /// The number of files that are on the disk.
    done: u64,
}

struct Thread {
    jobs: Sender<Job>,
    done: Receiver<()>,
    handle: JoinHandle<Result<()>>,
}

enum Job {
    Checkpoint {
        manifest: Box<Manifest>,
        tensors: Arc<Snapshot>,
        keep: usize,
    },
    Weights {
        names: Vec<&'static str>,
        tensors: Snapshot,
        metadata: Metadata,
    },
}

impl Job {
    fn write(self, folder: &RunFolder) -> Result<()> {
        match self {
            Job::Checkpoint {
                manifest,
                tensors,
                keep,
            } => write(folder, keep, *manifest, tensors),
            Job::Weights {
                names,
                tensors,
                metadata,
            } => {
                let encoded = tensors.encode(&metadata)?;
                drop(tensors);
                names.into_iter().try_for_each(|name| folder.write(name, &encoded))
            }
        }
    }
}

impl Writer {
    pub(crate) fn new(folder: RunFolder) -> Self {
        Writer {
            folder,
            thread: None,
            given: 0,
            checkpoint: 0,
            weights: 0,
            done: 0,
        }
    }

    /// Starts to encode and to write a checkpoint, of which the last `keep` are kept. Waits for the checkpoint before.
    ///
    /// # Errors
    /// The errors of files before.
    pub(crate) fn checkpoint(&mut self, manifest: Manifest, tensors: Arc<Snapshot>, keep: usize) -> Result<()> {
        self.wait(self.checkpoint)?;
        let manifest = Box::new(manifest);
        self.give(Job::Checkpoint {
            manifest,
            tensors,
            keep,
        })?;
        self.checkpoint = self.given;
        Ok(())
    }

    /// Starts to encode weights and to write them under each of the names. Waits for the weights before the call of
    /// [`begin_weights`](Writer::begin_weights).
    ///
    /// # Errors
    /// The errors of files before.
    pub(crate) fn weights(&mut self, names: Vec<&'static str>, tensors: Snapshot, metadata: Metadata) -> Result<()> {
        self.give(Job::Weights {
            names,
            tensors,
            metadata,
        })?;
        self.weights = self.given;
        Ok(())
    }

    /// Waits for the weights before, such as those of another epoch.
    ///
    /// # Errors
    /// The errors of files before.
    pub(crate) fn begin_weights(&mut self) -> Result<()> {
        self.wait(self.weights)
    }

    fn give(&mut self, job: Job) -> Result<()> {
        self.poll()?;
        if self.thread.is_none() {
            self.thread = Some(self.start()?);
        }
        let sent = self.thread.as_ref().is_some_and(|thread| thread.jobs.send(job).is_ok());
        self.given += 1;
        match sent {
            true => Ok(()),
            // The thread has ended by an error.
            false => self.finish(),
        }
    }

    fn start(&self) -> Result<Thread> {
        let ((jobs, waiting), (told, done)) = (channel::<Job>(), channel());
        let folder = self.folder.clone();
        let work = move || {
            for job in waiting {
                job.write(&folder)?;
                // Nobody may be waiting.
                let _ = told.send(());
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("kiln-checkpoint".to_string());
        let failed = |e| FileError::io(self.folder.path(), "start a thread that writes into the folder")(e);
        let handle = thread.spawn(work).map_err(failed)?;
        Ok(Thread { jobs, done, handle })
    }

    /// Waits until the file of a number is on the disk.
    fn wait(&mut self, number: u64) -> Result<()> {
        while self.done < number {
            match self.thread.as_ref().map(|thread| thread.done.recv()) {
                Some(Ok(())) => self.done += 1,
                Some(Err(_)) | None => return self.finish(),
            }
        }
        Ok(())
    }

    /// Returns the error of a write that has ended, without waiting for one in progress.
    ///
    /// # Errors
    /// The errors of files before.
    pub(crate) fn poll(&mut self) -> Result<()> {
        while let Some(thread) = &self.thread {
            match thread.done.try_recv() {
                Ok(()) => self.done += 1,
                Err(std::sync::mpsc::TryRecvError::Empty) => return Ok(()),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return self.finish(),
            }
        }
        Ok(())
    }

    /// Waits until all files are on the disk.
    ///
    /// # Errors
    /// The errors of files before.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(Thread { jobs, done, handle }) = self.thread.take() else {
            return Ok(());
        };
        drop((jobs, done));
        self.done = self.given;
        match handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(Thread { jobs, done, handle }) = self.thread.take() {
            drop((jobs, done));
            // The run has ended with an error of its own.
            let _ = handle.join();
        }
    }
}
