//! A batch in host memory, whose memory goes back to its loader.

use super::position::Position;
use kiln_core::Shape;
use std::sync::{Arc, Mutex, PoisonError};

/// Samples of one shape, stacked. When it is dropped its memory serves a later batch of the same loader.
#[derive(Debug)]
pub struct HostBatch {
    /// The inputs, `input_shape` row-major.
    pub inputs: Vec<f32>,
    /// `[samples, …]`; images `[N, H, W, C]`.
    pub input_shape: Shape,
    /// A class per sample.
    pub labels: Vec<i32>,
    /// Regression targets `[samples, target_width]`; empty for classification.
    pub targets: Vec<f32>,
    /// Targets per sample.
    pub target_width: usize,
    /// Each sample's index in the dataset.
    pub indices: Vec<usize>,
    /// Which batch this is.
    pub position: Position,
    home: Arc<Spares>,
}

impl HostBatch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none; a loader never gives such a batch.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// An empty batch, in used memory where there is some.
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

/// Memory of dropped batches, as much as a loader can have in flight.
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
        // Nothing inside can be left half-done by a panic, so poison is no reason to stop.
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
