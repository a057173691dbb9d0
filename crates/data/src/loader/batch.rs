//! A batch in host memory. Its buffers are reused by its loader.

use super::position::Position;
use kiln_core::Shape;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples of one shape, stacked. When a batch is dropped, its buffers serve a later batch of the same loader.
#[derive(Debug)]
pub struct HostBatch {
    /// The inputs of shape `input_shape`, row-major.
    pub inputs: Vec<f32>,
    /// The shape of the inputs, `[N, …]`; images are `[N, H, W, C]`.
    pub input_shape: Shape,
    /// The class of each sample.
    pub labels: Vec<i32>,
    /// Regression targets `[N, target_width]`, row-major; empty for classification.
    pub targets: Vec<f32>,
    /// The number of targets per sample; 0 for classification.
    pub target_width: usize,
    /// The index in the dataset of each sample.
    pub indices: Vec<usize>,
    /// The epoch and the number of the batch.
    pub position: Position,
    home: Arc<Spares>,
}

impl HostBatch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there are no samples; a loader never makes such a batch.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// An empty batch, with the buffers of a dropped batch if there are any.
    pub(super) fn from_spares(home: &Arc<Spares>, position: Position) -> Self {
        let mut memory = home.take();
        memory.clear();
        HostBatch {
            inputs: memory.inputs,
            input_shape: Shape::default(),
            labels: memory.labels,
            targets: memory.targets,
            target_width: 0,
            indices: memory.indices,
            position,
            home: home.clone(),
        }
    }
}

impl Drop for HostBatch {
    fn drop(&mut self) {
        self.home.put(Memory {
            inputs: std::mem::take(&mut self.inputs),
            labels: std::mem::take(&mut self.labels),
            targets: std::mem::take(&mut self.targets),
            indices: std::mem::take(&mut self.indices),
        });
    }
}

#[derive(Debug, Default)]
struct Memory {
    inputs: Vec<f32>,
    labels: Vec<i32>,
    targets: Vec<f32>,
    indices: Vec<usize>,
}

impl Memory {
    fn clear(&mut self) {
        self.inputs.clear();
        self.labels.clear();
        self.targets.clear();
        self.indices.clear();
    }
}

/// The buffers of dropped batches, for at most as many batches as a loader can have alive at once.
#[derive(Debug)]
pub(super) struct Spares {
    memory: Mutex<Vec<Memory>>,
    most: usize,
}

impl Spares {
    pub(super) fn new(most: usize) -> Self {
        Spares {
            memory: Mutex::default(),
            most,
        }
    }

    fn take(&self) -> Memory {
        // The vector is whole even if a holder of the lock panicked, so poisoning is ignored.
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.pop().unwrap_or_default()
    }

    fn put(&self, used: Memory) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() < self.most {
            memory.push(used);
        }
    }
}
