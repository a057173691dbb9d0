//! Batches whose type is forgotten, so that what trains networks on them is compiled once and not for each type.

use super::fields::{ArraysOf, Fields};
use super::host::Batch;
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::Result;
use kiln_core::Backend;
use kiln_nn::module::{StateDict, Value};
use std::any::Any;

/// A batch of any type. On a device it is its arrays, of which a batch of the type is made again.
///
/// ```
/// use kiln_cpu::Cpu;
/// use kiln_data::{AnyBatch, Batch};
/// use ndarray::{Array1, Array2};
///
/// #[derive(Batch)]
/// struct Pairs {
///     inputs: Array2<f32>,
///     labels: Array1<i32>,
/// }
///
/// let pairs = Pairs { inputs: Array2::zeros((2, 3)), labels: Array1::zeros(2) };
/// let any = AnyBatch::new(pairs).to_device(&Cpu::new())?;
/// let pairs: PairsOn<Cpu> = any.of::<Pairs>()?;
/// assert_eq!(pairs.inputs.shape().dims(), [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AnyBatch(Box<dyn Erased>);

/// The methods of a batch of any type that do not depend on a backend, behind a pointer.
trait Erased: Send {
    fn samples(&self) -> usize;
    fn visit<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>);
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Batch> Erased for T {
    fn samples(&self) -> usize {
        self.len()
    }
    fn visit<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        self.arrays(fields);
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl AnyBatch {
    /// Forgets the type of a batch.
    pub fn new(batch: impl Batch) -> Self {
        AnyBatch(Box::new(batch))
    }

    /// The batch of a type, if it is one.
    pub fn downcast<T: Batch>(self) -> Option<T> {
        self.0.into_any().downcast().ok().map(|batch| *batch)
    }
}

impl std::fmt::Debug for AnyBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AnyBatch({})", self.layout())
    }
}

/// The arrays of a batch on a device, in their order, each by the path of its fields.
#[derive(Clone, Debug)]
pub struct AnyBatchOn<B: Backend>(Vec<(String, Value<B>)>);

impl<B: Backend> AnyBatchOn<B> {
    /// The batch of a type, which shares the memory of the arrays.
    ///
    /// # Errors
    /// As [`Batch::from_arrays`].
    pub fn of<T: Batch>(&self) -> Result<T::On<B>> {
        let mut arrays = StateDict::new();
        for (name, value) in &self.0 {
            arrays.insert(name, value.clone());
        }
        T::from_arrays(&mut ArraysOf::new(&arrays))
    }
}

impl Batch for AnyBatch {
    type On<B: Backend> = AnyBatchOn<B>;

    fn len(&self) -> usize {
        self.0.samples()
    }
    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        self.0.visit(fields);
    }
    fn to_device<B: Backend>(&self, backend: &B) -> Result<AnyBatchOn<B>> {
        let (mut on, mut result) = (Vec::new(), Ok(()));
        self.arrays(&mut Fields::new(&mut |name, array: HostArray<'_>| {
            if result.is_ok() {
                result = array.to_device(backend).map(|value| on.push((name.to_string(), value)));
            }
        }));
        result.map(|()| AnyBatchOn(on))
    }
    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<AnyBatchOn<B>> {
        let all = arrays.all();
        Ok(AnyBatchOn(
            all.map(|(name, value)| (name.to_string(), value.clone())).collect(),
        ))
    }
    fn on_device<'a, B: Backend>(on: &'a AnyBatchOn<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
        for (name, value) in &on.0 {
            fields.at(name, |fields| match value {
                Value::Float(t) => fields.value(OnDevice::Floats(t)),
                Value::Int(i) => fields.value(OnDevice::Integers(i)),
            });
        }
    }
    fn on_device_mut<'a, B: Backend>(on: &'a mut AnyBatchOn<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
        for (name, value) in &mut on.0 {
            fields.at(name, |fields| match value {
                Value::Float(t) => fields.value(OnDeviceMut::Floats(t)),
                Value::Int(i) => fields.value(OnDeviceMut::Integers(i)),
            });
        }
    }
}
