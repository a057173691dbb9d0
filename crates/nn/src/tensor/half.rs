//! The copy of a parameter in half precision that lies beside its memory.

use super::Tensor;
use crate::memory::{keep_half, own_with_half, refresh_half};
use kiln_core::{Backend, DType, Result};

impl<B: Backend> Tensor<B> {
    /// [`to_dtype`](Tensor::to_dtype) for mixed precision: without a cast where its result lies beside the memory, as that of a
    /// parameter may. The next update is asked to leave it there.
    pub(crate) fn to_half(&self, dtype: DType) -> Result<Tensor<B>> {
        match self.memory().half(dtype) {
            Some(memory) => {
                let mut array = self.array.clone();
                array.memory = memory;
                Ok(Tensor::new(array, None).recorded_cast(self))
            }
            None => self.to_dtype(dtype),
        }
    }

    /// The memory for an update, and that of the copy in half precision if one is wanted: [`own_with_half`].
    /// [`half_written`](Tensor::half_written) follows.
    pub(crate) fn buffers_mut(&mut self, may_leave: bool) -> Result<(&mut B::Buffer, Option<&mut B::Buffer>)> {
        self.about_to_change();
        own_with_half(&self.array.backend, &mut self.array.memory, may_leave)
    }

    /// Ends an update of both buffers of [`buffers_mut`](Tensor::buffers_mut).
    pub(crate) fn half_written(&self) {
        self.memory().half_written();
    }

    /// Brings the copy in half precision up to date, if there is one.
    pub(crate) fn refresh_half(&self) -> Result<()> {
        refresh_half(self.backend(), self.memory())
    }

    /// Keeps a copy in half precision of a frozen parameter, if one is wanted, and brings it up to date.
    pub(crate) fn keep_half(&self) -> Result<()> {
        keep_half(self.backend(), self.memory())
    }
}
