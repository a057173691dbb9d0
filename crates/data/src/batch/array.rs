//! Arrays of `ndarray` as batches.

use super::fields::{ArraysOf, Fields};
use super::host::Batch;
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::Result;
use kiln_core::{Backend, Shape};
use kiln_nn::{Indices, Tensor};
use ndarray::{Array, Dimension};

/// Implements [`Batch`] for arrays of each element type.
macro_rules! arrays {
    ($($variant:ident($element:ty) as $kind:ident of $device:ident by $method:ident;)*) => {
        $(
            impl<D: Dimension + 'static> Batch for Array<$element, D> {
                type On<B: Backend> = $device<B>;

                fn len(&self) -> usize {
                    self.shape().first().copied().unwrap_or(1)
                }
                fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
                    fields.value(HostArray::$variant(self.view().into_dyn()));
                }
                fn to_device<B: Backend>(&self, backend: &B) -> Result<$device<B>> {
                    // Refused before anything is copied.
                    Shape::new(self.shape())?;
                    Ok($device::from_ndarray(backend, self)?)
                }
                fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<$device<B>> {
                    arrays.$method()
                }
                fn on_device<'a, B: Backend>(on: &'a $device<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
                    fields.value(OnDevice::$kind(on));
                }
                fn on_device_mut<'a, B: Backend>(on: &'a mut $device<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
                    fields.value(OnDeviceMut::$kind(on));
                }
            }
        )*
    };
}

arrays! {
    F32(f32) as Floats of Tensor by floats;
    F64(f64) as Floats of Tensor by floats;
    I32(i32) as Integers of Indices by integers;
    U8(u8) as Integers of Indices by integers;
}
