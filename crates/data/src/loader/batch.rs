//! A batch as the loader hands it out. Its memory is reused by the loader.

use super::position::Position;
use crate::{Batch, Result};
use kiln_core::Backend;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A batch of a [`Loader`](super::Loader) with the origin of its samples. When it is dropped, its memory serves a later batch of
/// the same loader.
#[derive(Debug)]
pub struct Loaded<T: Batch> {
    batch: Option<T>,
    /// The index in the dataset of each sample.
    pub indices: Vec<usize>,
    /// The epoch and the number of the batch.
    pub position: Position,
    home: Arc<Spares<T>>,
}

impl<T: Batch> Loaded<T> {
    pub(super) fn new(batch: T, indices: Vec<usize>, position: Position, home: &Arc<Spares<T>>) -> Self {
        Loaded {
            batch: Some(batch),
            indices,
            position,
            home: home.clone(),
        }
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        T::len(self)
    }

    /// True if there are no samples; a loader never makes such a batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the batch to a device. The host's batch may be dropped as soon as this returns.
    ///
    /// # Errors
    /// As [`Batch::to_device`].
    pub fn to_device<B: Backend>(&self, backend: &B) -> Result<T::On<B>> {
        T::to_device(self, backend)
    }

    /// Copies the batch over `on`, which lies on a device and has the same layout.
    ///
    /// # Errors
    /// As [`Batch::write_to`].
    pub fn write_to<B: Backend>(&self, on: &mut T::On<B>) -> Result<()> {
        T::write_to(self, on)
    }
}

impl<T: Batch> Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.batch {
            Some(batch) => batch,
            None => unreachable!("the batch is taken when it is dropped"),
        }
    }
}

impl<T: Batch> DerefMut for Loaded<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.batch {
            Some(batch) => batch,
            None => unreachable!("the batch is taken when it is dropped"),
        }
    }
}

impl<T: Batch> Drop for Loaded<T> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.home.put(batch, std::mem::take(&mut self.indices));
        }
    }
}

/// Dropped batches with their indices, at most as many as a loader can have alive at once.
#[derive(Debug)]
pub(super) struct Spares<T> {
    dropped: Mutex<Vec<(T, Vec<usize>)>>,
    most: usize,
}

impl<T> Spares<T> {
    pub(super) fn new(most: usize) -> Self {
        Spares {
            dropped: Mutex::default(),
            most,
        }
    }

    /// A dropped batch, and an empty vector for indices.
    pub(super) fn take(&self) -> (Option<T>, Vec<usize>) {
        // The vector is whole even if a holder of the lock panicked, so poisoning is ignored.
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        match dropped.pop() {
            Some((batch, mut indices)) => {
                indices.clear();
                (Some(batch), indices)
            }
            None => (None, Vec::new()),
        }
    }

    fn put(&self, batch: T, indices: Vec<usize>) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if dropped.len() < self.most {
            dropped.push((batch, indices));
        }
    }
}
