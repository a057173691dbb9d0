//! Integer tensors of one value and of random values, and reading one element.

use super::IntegerValue;
use crate::{Backend, DType, Error, Indices, Result, Rng, Shape};
use kiln_core::{Element, host};

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// A tensor filled with `value` (`torch.full`): i32, or a mask for a `bool` or u8.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert_eq!(Indices::full(&cpu, &[2], 7)?.to_vec::<i32>()?, [7, 7]);
    /// assert_eq!(Indices::full(&cpu, &[2], true)?.dtype(), DType::U8);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape that overflows, a value that does not fit i32, memory.
    pub fn full<T: IntegerValue>(backend: &B, shape: &[usize], value: T) -> Result<Self> {
        let value = [value];
        let stored = T::stored(&value)?;
        let number = match bytemuck::cast_slice::<T::Stored, u8>(&stored) {
            &[a, b, c, d] => i32::from_ne_bytes([a, b, c, d]),
            byte => i32::from(byte[0]),
        };
        Self::filled(backend, shape, T::Stored::DTYPE, number)
    }

    /// A tensor of `dtype` filled on the device.
    pub(super) fn filled(backend: &B, shape: &[usize], dtype: DType, value: i32) -> Result<Self> {
        let shape = Shape::new(shape)?;
        let mut buffer = backend.alloc(dtype, shape.size())?;
        backend.fill(value.into(), &mut buffer)?;
        Ok(Self::from_buffer(backend, buffer, shape))
    }

    /// Numbers drawn uniformly from `low ≤ x < high` (`torch.randint`), i32. Drawn on the host, the same on every device.
    ///
    /// ```
    /// # use kiln_nn::{Indices, Rng};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let dice = Indices::randint(&cpu, 1, 7, &[100], &mut Rng::new(0))?;
    /// assert_eq!(dice.min(&[], false)?.item()?, 1);
    /// assert_eq!(dice.max(&[], false)?.item()?, 6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No number between `low` and `high`, memory.
    pub fn randint(backend: &B, low: i32, high: i32, shape: &[usize], rng: &mut Rng) -> Result<Self> {
        if high <= low {
            return Err(Error::invalid("randint", "high", high, format!("above {low}")));
        }
        let (key, span) = (rng.next_key(), high.abs_diff(low));
        let count = Shape::new(shape)?.size();
        let values = host::collect((0..count).map(|i| low.wrapping_add_unsigned(key.below(i as u64, span))))?;
        Self::from_slice(backend, &values, shape)
    }

    /// The one element (`torch.Tensor.item`), of a mask 0 or 1.
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// assert_eq!(Indices::arange(&cpu, 0, 5)?.sum(&[], false)?.item()?, 10);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of elements than one, errors of the device.
    pub fn item(&self) -> Result<i32> {
        match self.integers()?.to_vec::<i32>()?[..] {
            [value] => Ok(value),
            _ => Err(Error::invalid("item", "shape", self.shape(), "one element")),
        }
    }
}
