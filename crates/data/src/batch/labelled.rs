//! Samples of one shape, each with a class or with regression targets.

use super::fields::{ArraysOf, Fields};
use super::host::Batch;
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::{Result, Windows};
use kiln_core::Backend;
use kiln_nn::{Indices, Tensor};
use ndarray::{Array1, Array2, ArrayD};

/// A batch of inputs of one shape, each with a class or with regression targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labelled {
    /// The inputs `[N, …]` in f32; images `[N, H, W, C]`. Empty where there are [`images`](Labelled::images).
    pub inputs: ArrayD<f32>,
    /// The class of each sample, `[N]` in i32.
    pub labels: Array1<i32>,
    /// Regression targets `[N, width]` in f32; `None` for classification.
    pub targets: Option<Array2<f32>>,
    /// The windows that become the inputs on the device where the images lie, of samples of
    /// [`DeviceImages`](crate::DeviceImages).
    pub images: Option<Windows>,
}

/// [`Labelled`] on a device.
#[derive(Clone, Debug)]
pub struct LabelledOn<B: Backend> {
    /// The inputs `[N, …]` in f32; images `[N, H, W, C]`.
    pub inputs: Tensor<B>,
    /// The class of each sample, `[N]` in i32.
    pub labels: Indices<B>,
    /// Regression targets `[N, width]` in f32; `None` for classification.
    pub targets: Option<Tensor<B>>,
}

impl Batch for Labelled {
    type On<B: Backend> = LabelledOn<B>;

    fn len(&self) -> usize {
        match &self.images {
            Some(images) => images.len(),
            None => Batch::len(&self.inputs),
        }
    }

    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        fields.field("inputs", |fields| match &self.images {
            Some(images) => images.arrays(fields),
            None => self.inputs.arrays(fields),
        });
        fields.field("labels", |fields| self.labels.arrays(fields));
        fields.field("targets", |fields| self.targets.arrays(fields));
    }

    fn to_device<B: Backend>(&self, backend: &B) -> Result<LabelledOn<B>> {
        Ok(LabelledOn {
            inputs: match &self.images {
                Some(images) => images.to_device(backend)?,
                None => self.inputs.to_device(backend)?,
            },
            labels: self.labels.to_device(backend)?,
            targets: self.targets.to_device(backend)?,
        })
    }

    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<LabelledOn<B>> {
        Ok(LabelledOn {
            inputs: arrays.field("inputs", ArrayD::<f32>::from_arrays)?,
            labels: arrays.field("labels", Array1::<i32>::from_arrays)?,
            targets: arrays.field("targets", Option::<Array2<f32>>::from_arrays)?,
        })
    }

    fn on_device<'a, B: Backend>(on: &'a LabelledOn<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
        fields.field("inputs", |fields| ArrayD::<f32>::on_device(&on.inputs, fields));
        fields.field("labels", |fields| Array1::<i32>::on_device(&on.labels, fields));
        fields.field("targets", |fields| {
            Option::<Array2<f32>>::on_device(&on.targets, fields)
        });
    }

    fn on_device_mut<'a, B: Backend>(on: &'a mut LabelledOn<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
        fields.field("inputs", |fields| ArrayD::<f32>::on_device_mut(&mut on.inputs, fields));
        fields.field("labels", |fields| Array1::<i32>::on_device_mut(&mut on.labels, fields));
        fields.field("targets", |fields| {
            Option::<Array2<f32>>::on_device_mut(&mut on.targets, fields)
        });
    }
}
