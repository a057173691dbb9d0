//! Ops of integer tensors and masks: arithmetic, comparisons, logic, reductions, and writing by index.
//!
//! Integers are i32 and wrap around; masks are u8. Where an op takes integers, a mask counts as the integers 0 and 1.

mod arithmetic;
mod compare;
mod element;
mod moves;
mod operators;
mod order;
mod reduce;
mod scatter;
mod values;

pub use element::IntegerValue;
pub use operators::IntegerOperand;
pub use order::Unique;

use crate::{Backend, DType, Indices, Result, Tensor};

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The result of an op on tensors that moves elements of any dtype.
    fn moved(&self, f: impl FnOnce(&Tensor<B>) -> Result<Tensor<B>>) -> Result<Indices<B>> {
        f(&self.elements()).map(Tensor::into_indices)
    }

    /// The same values as i32: a mask is converted.
    fn integers(&self) -> Result<Indices<B>> {
        match self.dtype() {
            DType::I32 => Ok(self.clone()),
            _ => self.cast(DType::I32),
        }
    }

    fn cast(&self, dtype: DType) -> Result<Indices<B>> {
        let mut y = self.backend().alloc(dtype, self.size())?;
        self.backend().cast(self.buffer(), &mut y)?;
        Ok(Indices::from_buffer(self.backend(), y, *self.shape()))
    }
}
