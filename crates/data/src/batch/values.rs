//! Arrays of a batch in host memory, and tensors of one on a device, of any element type.

use crate::Result;
use kiln_core::{Backend, DType, Element};
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
    ($($(#[$doc:meta])* $variant:ident($element:ty), $finite:expr;)*) => {
        /// An array of a batch in host memory.
        #[derive(Clone, Debug)]
        pub enum HostArray<'a> {
            $($(#[$doc])* $variant(ArrayViewD<'a, $element>),)*
        }

        impl HostArray<'_> {
            /// The dtype on the device.
            pub fn dtype(&self) -> DType {
                match self {
                    $(HostArray::$variant(_) => <$element as Element>::DTYPE,)*
                }
            }

            /// The shape.
            pub fn shape(&self) -> &[usize] {
                match self {
                    $(HostArray::$variant(array) => array.shape(),)*
                }
            }

            /// True if no value is NaN or infinite.
            pub fn is_finite(&self) -> bool {
                match self {
                    $(HostArray::$variant(array) => array.iter().all($finite),)*
                }
            }

            /// Copies the values over a tensor of the same dtype and shape.
            pub(super) fn write_to<B: Backend>(&self, on: &mut OnDeviceMut<'_, B>) -> Result<()> {
                match self {
                    $(HostArray::$variant(array) => match array.as_slice() {
                        Some(values) => on.write(values),
                        None => on.write(&kiln_core::host::collect(array.iter().copied())?),
                    },)*
                }
            }
        }
    };
}

elements! {
    /// Floats of 32 bits.
    F32(f32), |x| x.is_finite();
    /// Floats of 64 bits.
    F64(f64), |x| x.is_finite();
    /// Integers of 32 bits: classes, tokens, lengths.
    I32(i32), |_| true;
    /// Bytes: pixels, masks.
    U8(u8), |_| true;
}
