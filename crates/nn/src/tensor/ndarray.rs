//! Tensors from arrays of the `ndarray` crate, and back.

use crate::ops::integer::IntegerValue;
use crate::{Backend, Indices, Result, Tensor};
use ::ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use kiln_core::{Element, Error, host};
use std::borrow::Cow;

/// The elements in row-major order: in place if they lie so, else a copy.
fn row_major<T: Copy, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> Result<Cow<'_, [T]>> {
    match array.as_slice() {
        Some(slice) => Ok(Cow::Borrowed(slice)),
        None => Ok(Cow::Owned(host::collect(array.iter().copied())?)),
    }
}

macro_rules! conversions {
    ($type:ident, $value:ident, $elements:literal) => {
        impl<B: Backend> $type<B> {
            #[doc = concat!("The values of an array of ", $elements, ", in its shape and dtype, whatever its memory layout.")]
            ///
            /// ```
            /// # use kiln_nn::{Indices, Tensor};
            /// # let cpu = kiln_cpu::Cpu::new();
            /// use ndarray::array;
            /// let x = Tensor::from_ndarray(&cpu, &array![[1f32, 2.0], [3.0, 4.0]].t())?;
            /// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
            /// let labels = Indices::from_ndarray(&cpu, &array![7, 2])?;
            /// assert_eq!(labels.to_vec::<i32>()?, [7, 2]);
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($type), "::from_slice`]; more than 8 dimensions.")]
            pub fn from_ndarray<T: $value, S: Data<Elem = T>, D: Dimension>(
                backend: &B,
                array: &ArrayBase<S, D>,
            ) -> Result<Self> {
                Self::from_slice(backend, &row_major(array)?, array.shape())
            }

            /// The elements, copied to an array. `T` must be the dtype.
            ///
            /// ```
            /// # use kiln_nn::{Indices, Tensor};
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
            /// assert_eq!(x.to_ndarray::<f32>()?[[1, 0]], 3.0);
            /// let ids = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
            /// assert_eq!(ids.to_ndarray::<i32>()?.sum(), 15);
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::DTypeMismatch`] for another dtype.
            pub fn to_ndarray<T: $value>(&self) -> Result<ArrayD<T>> {
                let values = self.to_vec()?;
                ArrayD::from_shape_vec(IxDyn(self.shape()), values).map_err(|e| refused(&e))
            }

            /// The elements as an array where they lie, without a copy. `T` must be the dtype.
            ///
            /// ```
            /// # use kiln_nn::{Indices, Tensor};
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
            /// assert_eq!(x.view::<f32>()?.sum(), 10.0);
            /// let ids = Indices::arange(&cpu, 0, 6)?;
            /// assert_eq!(ids.view::<i32>()?[[5]], 5);
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`Error::DTypeMismatch`] for another dtype; a device whose memory the host cannot read in place.
            pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
                ArrayViewD::from_shape(IxDyn(self.shape()), self.as_slice()?).map_err(|e| refused(&e))
            }
        }
    };
}
conversions!(Tensor, Element, "floats");
conversions!(Indices, IntegerValue, "i32 or u8");

/// An array has at most `isize::MAX` bytes, as a tensor in memory has.
fn refused(e: &::ndarray::ShapeError) -> Error {
    Error::invalid("ndarray", "shape", e, "one that an array can have")
}
