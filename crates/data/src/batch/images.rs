//! Images that lie on a device as a batch.

use super::fields::{ArraysOf, Fields};
use super::host::Batch;
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::{Result, Windows};
use kiln_core::Backend;
use kiln_nn::Tensor;

impl Batch for Windows {
    type On<B: Backend> = Tensor<B>;

    fn len(&self) -> usize {
        self.shape[0]
    }

    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        fields.value(HostArray::Images(self));
    }

    fn to_device<B: Backend>(&self, backend: &B) -> Result<Tensor<B>> {
        self.floats(backend)
    }

    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<Tensor<B>> {
        arrays.floats()
    }

    fn on_device<'a, B: Backend>(on: &'a Tensor<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
        fields.value(OnDevice::Floats(on));
    }

    fn on_device_mut<'a, B: Backend>(on: &'a mut Tensor<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
        fields.value(OnDeviceMut::Floats(on));
    }
}
