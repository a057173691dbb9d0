//! The batches of one epoch, made on the calling thread or on worker threads.

use super::batch::Loaded;
use super::fill::Job;
use super::position::Position;
use crate::{Batch, DataError, Labelled, Result, Sample};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which a wait for a worker checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(20);

struct Worker<T: Batch> {
    batches: Receiver<Result<Loaded<T>>>,
    thread: JoinHandle<()>,
}

/// An iterator over the batches of an epoch. After an error the next call yields the next batch. Dropping the iterator
/// stops its threads and waits for them.
pub struct Epoch<S = Sample, T: Batch = Labelled> {
    job: Arc<Job<S, T>>,
    /// Scratch memory of the calling thread.
    samples: Vec<S>,
    first: usize,
    next: usize,
    end: usize,
    /// Batch `b` comes from worker `(b − first) % workers`, so batches arrive in order without further bookkeeping.
    workers: Vec<Worker<T>>,
    stop: Arc<AtomicBool>,
}

impl<S: Default + Send + 'static, T: Batch> Epoch<S, T> {
    pub(super) fn start(job: Job<S, T>, first: usize, end: usize, workers: usize, prefetch: usize) -> Result<Self> {
        let mut epoch = Epoch {
            job: Arc::new(job),
            samples: Vec::new(),
            first,
            next: first,
            end,
            workers: Vec::new(),
            stop: Arc::default(),
        };
        // Workers beyond the number of batches would have nothing to do.
        let workers = workers.min(end - first);
        for w in 0..workers {
            let (sender, batches) = sync_channel(prefetch);
            let (job, stop) = (epoch.job.clone(), epoch.stop.clone());
            let work = move || {
                let mut samples = Vec::new();
                for number in (first + w..end).step_by(workers) {
                    let Some(batch) = job.batch(number, &mut samples, &|| stop.load(Ordering::Relaxed)) else {
                        return;
                    };
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            };
            let name = format!("kiln-data-{w}");
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(work)
                .map_err(|e| DataError::Worker {
                    worker: w,
                    reason: format!("cannot start: {e}"),
                })?;
            epoch.workers.push(Worker { batches, thread });
        }
        Ok(epoch)
    }

    /// The position of the next batch, to be saved for [`Loader::resume`](super::Loader::resume).
    pub fn position(&self) -> Position {
        Position {
            epoch: self.job.epoch,
            batch: self.next as u64,
        }
    }

    /// As `next`, but also returns `None` if `stop` returns true while the batch is being made or waited for; a later call
    /// yields that batch.
    ///
    /// # Errors
    /// The errors of the dataset and the transform, as [`DataError::Sample`]; [`DataError::OutOfMemory`];
    /// [`DataError::Worker`] for a worker thread that ended without making its batch.
    pub fn next_until(&mut self, stop: &dyn Fn() -> bool) -> Option<Result<Loaded<T>>> {
        if self.next >= self.end {
            return None;
        }
        let batch = self.wait(stop)?;
        self.next += 1;
        Some(batch)
    }

    fn wait(&mut self, stop: &dyn Fn() -> bool) -> Option<Result<Loaded<T>>> {
        if self.workers.is_empty() {
            return self.job.batch(self.next, &mut self.samples, stop);
        }
        let worker = (self.next - self.first) % self.workers.len();
        loop {
            match self.workers[worker].batches.recv_timeout(LOOK) {
                Ok(batch) => return Some(batch),
                Err(RecvTimeoutError::Timeout) if stop() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let reason = "ended before its batch was made".to_string();
                    return Some(Err(DataError::Worker { worker, reason }));
                }
            }
        }
    }
}

impl<S: Default + Send + 'static, T: Batch> Iterator for Epoch<S, T> {
    type Item = Result<Loaded<T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_until(&|| false)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.next;
        (left, Some(left))
    }
}

impl<S: Default + Send + 'static, T: Batch> ExactSizeIterator for Epoch<S, T> {}

impl<S, T: Batch> Drop for Epoch<S, T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // A worker that waits for room in its queue gets an error from `send` and ends.
            drop(worker.batches);
            // Panics in samples are caught; any other panic of a worker was reported as `DataError::Worker`.
            let _ = worker.thread.join();
        }
    }
}

impl<S: Default + Send + 'static, T: Batch> std::fmt::Debug for Epoch<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoch")
            .field("position", &self.position())
            .field("batches", &self.end)
            .field("workers", &self.workers.len())
            .finish()
    }
}
