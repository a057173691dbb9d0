//! Arrays of a batch in host memory, and tensors of one on a device, of any element type.

use crate::{Result, Windows};
use kiln_core::{Backend, DType, Element, Error, Shape};
use kiln_nn::module::Value;
use kiln_nn::{Indices, Tensor};
use ndarray::ArrayViewD;

/// A tensor of a batch on a device.
#[derive(Debug)]
pub enum OnDevice<'a, B: Backend> {
    /// A tensor of floats.
    Floats(&'a Tensor<B>),
    /// A tensor of integers.
    Integers(&'a Indices<B>),
}

impl<B: Backend> OnDevice<'_, B> {
    /// The dtype.
    pub fn dtype(&self) -> DType {
        match self {
            OnDevice::Floats(t) => t.dtype(),
            OnDevice::Integers(i) => i.dtype(),
        }
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        match self {
            OnDevice::Floats(t) => t.shape(),
            OnDevice::Integers(i) => i.shape(),
        }
    }
}

/// A tensor of a batch on a device, to be overwritten.
#[derive(Debug)]
pub enum OnDeviceMut<'a, B: Backend> {
    /// A tensor of floats.
    Floats(&'a mut Tensor<B>),
    /// A tensor of integers.
    Integers(&'a mut Indices<B>),
}

impl<B: Backend> OnDeviceMut<'_, B> {
    pub(super) fn write<T: Element>(&mut self, values: &[T]) -> Result<()> {
        match self {
            OnDeviceMut::Floats(t) => t.write(values)?,
            OnDeviceMut::Integers(i) => i.write(values)?,
        }
        Ok(())
    }
}

/// Makes the enum of the views of arrays of each element type.
macro_rules! elements {
    ($($(#[$doc:meta])* $variant:ident($element:ty) as $kind:ident of $device:ident, $finite:expr;)*) => {
        /// An array of a batch in host memory.
        #[derive(Clone, Debug)]
        pub enum HostArray<'a> {
            $($(#[$doc])* $variant(ArrayViewD<'a, $element>),)*
            /// Images that lie on a device, where they become floats of 32 bits.
            Images(&'a Windows),
        }

        impl HostArray<'_> {
            /// The dtype on the device.
            pub fn dtype(&self) -> DType {
                match self {
                    $(HostArray::$variant(_) => <$element as Element>::DTYPE,)*
                    HostArray::Images(_) => DType::F32,
                }
            }

            /// The shape on the device.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(HostArray::$variant(array) => array.shape(),)*
                    HostArray::Images(images) => &images.shape,
                }
            }

            /// True if no value is NaN or infinite.
            pub fn is_finite(&self) -> bool {
                match self {
                    $(HostArray::$variant(array) => array.iter().all($finite),)*
                    HostArray::Images(images) => images.is_finite(),
                }
            }

            /// The tensor on a device.
            pub(super) fn to_device<B: Backend>(&self, backend: &B) -> Result<Value<B>> {
                // Refused before anything is copied.
                Shape::new(self.shape())?;
                Ok(match self {
                    $(HostArray::$variant(array) => Value::$kind($device::from_ndarray(backend, array)?),)*
                    HostArray::Images(images) => Value::Float(images.floats(backend)?),
                })
            }

            /// Copies the values over a tensor of the same dtype and shape.
            pub(super) fn write_to<B: Backend>(&self, on: &mut OnDeviceMut<'_, B>) -> Result<()> {
                match self {
                    $(HostArray::$variant(array) => match array.as_slice() {
                        Some(values) => on.write(values),
                        None => on.write(&kiln_core::host::collect(array.iter().copied())?),
                    },)*
                    HostArray::Images(images) => match on {
                        OnDeviceMut::Floats(t) => images.write_over(t),
                        OnDeviceMut::Integers(i) => {
                            Err(Error::invalid("write", "images", i.dtype(), "floats to be written over").into())
                        }
                    },
                }
            }
        }
    };
}

elements! {
    /// Floats of 32 bits.
    F32(f32) as Float of Tensor, |x| x.is_finite();
    /// Floats of 64 bits.
    F64(f64) as Float of Tensor, |x| x.is_finite();
    /// Integers of 32 bits: classes, tokens, lengths.
    I32(i32) as Int of Indices, |_| true;
    /// Bytes: pixels, masks.
    U8(u8) as Int of Indices, |_| true;
}
