//! Lists, options and tuples of batches as batches.

use super::fields::{ArraysOf, Fields};
use super::host::Batch;
use super::values::{HostArray, OnDevice, OnDeviceMut};
use crate::Result;
use kiln_core::Backend;

/// A list with one entry per sample, such as boxes, of which each image has another number.
impl<T: Batch> Batch for Vec<T> {
    type On<B: Backend> = Vec<T::On<B>>;

    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        for (i, entry) in self.iter().enumerate() {
            fields.field(i, |fields| entry.arrays(fields));
        }
    }
    fn to_device<B: Backend>(&self, backend: &B) -> Result<Self::On<B>> {
        self.iter().map(|entry| entry.to_device(backend)).collect()
    }
    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<Self::On<B>> {
        (0..arrays.entries()).map(|i| arrays.field(i, T::from_arrays)).collect()
    }
    fn on_device<'a, B: Backend>(on: &'a Self::On<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
        for (i, entry) in on.iter().enumerate() {
            fields.field(i, |fields| T::on_device(entry, fields));
        }
    }
    fn on_device_mut<'a, B: Backend>(on: &'a mut Self::On<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
        for (i, entry) in on.iter_mut().enumerate() {
            fields.field(i, |fields| T::on_device_mut(entry, fields));
        }
    }
}

impl<T: Batch> Batch for Option<T> {
    type On<B: Backend> = Option<T::On<B>>;

    fn len(&self) -> usize {
        self.as_ref().map_or(0, T::len)
    }
    fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
        self.iter().for_each(|inner| inner.arrays(fields));
    }
    fn to_device<B: Backend>(&self, backend: &B) -> Result<Self::On<B>> {
        self.as_ref().map(|inner| inner.to_device(backend)).transpose()
    }
    fn from_arrays<B: Backend>(arrays: &mut ArraysOf<'_, B>) -> Result<Self::On<B>> {
        arrays.is_present().then(|| T::from_arrays(arrays)).transpose()
    }
    fn on_device<'a, B: Backend>(on: &'a Self::On<B>, fields: &mut Fields<'_, OnDevice<'a, B>>) {
        on.iter().for_each(|inner| T::on_device(inner, fields));
    }
    fn on_device_mut<'a, B: Backend>(on: &'a mut Self::On<B>, fields: &mut Fields<'_, OnDeviceMut<'a, B>>) {
        on.iter_mut().for_each(|inner| T::on_device_mut(inner, fields));
    }
}

macro_rules! tuples {
    ($(($first:ident 0 $(, $name:ident $index:tt)*);)*) => {
        $(
            impl<$first: Batch $(, $name: Batch)*> Batch for ($first, $($name,)*) {
                type On<Device: Backend> = ($first::On<Device>, $($name::On<Device>,)*);

                fn len(&self) -> usize {
                    self.0.len()
                }
                fn arrays<'a>(&'a self, fields: &mut Fields<'_, HostArray<'a>>) {
                    fields.field(0, |fields| self.0.arrays(fields));
                    $(fields.field($index, |fields| self.$index.arrays(fields));)*
                }
                fn to_device<Device: Backend>(&self, backend: &Device) -> Result<Self::On<Device>> {
                    Ok((self.0.to_device(backend)?, $(self.$index.to_device(backend)?,)*))
                }
                fn from_arrays<Device: Backend>(arrays: &mut ArraysOf<'_, Device>) -> Result<Self::On<Device>> {
                    Ok((
                        arrays.field(0, $first::from_arrays)?,
                        $(arrays.field($index, $name::from_arrays)?,)*
                    ))
                }
                fn on_device<'a, Device: Backend>(on: &'a Self::On<Device>, fields: &mut Fields<'_, OnDevice<'a, Device>>) {
                    fields.field(0, |fields| $first::on_device(&on.0, fields));
                    $(fields.field($index, |fields| $name::on_device(&on.$index, fields));)*
                }
                fn on_device_mut<'a, Device: Backend>(
                    on: &'a mut Self::On<Device>,
                    fields: &mut Fields<'_, OnDeviceMut<'a, Device>>,
                ) {
                    fields.field(0, |fields| $first::on_device_mut(&mut on.0, fields));
                    $(fields.field($index, |fields| $name::on_device_mut(&mut on.$index, fields));)*
                }
            }
        )*
    };
}

tuples! {
    (S 0);
    (S 0, T 1);
    (S 0, T 1, U 2);
    (S 0, T 1, U 2, V 3);
}
