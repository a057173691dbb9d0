//! Conversion between PyTorch's layout of kernels and Kiln's. Models always have Kiln's layout.

use crate::module::{Entries, Entry, ParamLayout, StateDict, Value};
use crate::{Backend, Error, Result, Tensor};

/// The layout of the convolution kernels in weights; `k…` are the spatial dimensions.
///
/// See the example of [`LoadOptions`](super::LoadOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Kernels are `[O, k…, I]`, channels last.
    #[default]
    Kiln,
    /// Kernels are `[O, I, k…]`, as in PyTorch. The columns of a Linear after a Flatten are also in another order, which the
    /// shape does not show: see [`columns_from_torch`](super::columns_from_torch).
    Torch,
}

/// Permutes a PyTorch kernel `[O, I, k…]` to `[O, k…, I]`; any other tensor is returned as it is.
pub(super) fn from_torch<B: Backend>(t: &Tensor<B>, layout: ParamLayout, from: Layout) -> Result<Tensor<B>> {
    if (layout, from) != (ParamLayout::Kernel, Layout::Torch) || t.rank() < 3 {
        return Ok(t.detach());
    }
    let rank = t.rank() as isize;
    let axes: Vec<isize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    t.detach().permute(&axes)
}

/// The state dictionary of a module, with kernels permuted to `[O, I, k…]`.
pub(crate) fn torch_state_dict<B: Backend>(entries: &Entries<'_, B>) -> Result<StateDict<B>> {
    let mut dict = StateDict::of_entries(entries);
    for (name, entry) in entries {
        if let Entry::Param(p) = entry
            && p.layout() == ParamLayout::Kernel
            && p.rank() > 2
        {
            let last = p.rank() as isize - 1;
            let axes: Vec<isize> = [0, last].into_iter().chain(1..last).collect();
            dict.insert(name, Value::Float(p.tensor().detach().permute(&axes)?));
        }
    }
    Ok(dict)
}

/// Reorders the columns of the weight `[out, channels·positions]` of a Linear that follows the Flatten of an image.
/// PyTorch flattens `(C, spatial…)`, Kiln `(spatial…, C)`; `positions` is the product of the spatial dimensions.
///
/// ```
/// # use kiln_nn::{Tensor, weights::columns_from_torch};
/// # let cpu = kiln_cpu::Cpu::new();
/// // Two channels a and b of three positions: PyTorch has a0 a1 a2 b0 b1 b2, Kiln a0 b0 a1 b1 a2 b2.
/// let weight = Tensor::from_slice(&cpu, &[0.0f32, 1.0, 2.0, 10.0, 11.0, 12.0], &[1, 6])?;
/// let ours = columns_from_torch(&weight, 3, 2)?;
/// assert_eq!(ours.to_vec::<f32>()?, [0.0, 10.0, 1.0, 11.0, 2.0, 12.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// [`Error::Rank`] for a weight that is not a matrix, [`Error::InvalidArgument`] for another number of columns.
pub fn columns_from_torch<B: Backend>(weight: &Tensor<B>, positions: usize, channels: usize) -> Result<Tensor<B>> {
    swap(weight, channels, positions)
}

/// The inverse of [`columns_from_torch`].
///
/// ```
/// # use kiln_nn::{Tensor, weights::columns_to_torch};
/// # let cpu = kiln_cpu::Cpu::new();
/// let weight = Tensor::from_slice(&cpu, &[0.0f32, 10.0, 1.0, 11.0, 2.0, 12.0], &[1, 6])?;
/// assert_eq!(columns_to_torch(&weight, 3, 2)?.to_vec::<f32>()?, [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
///
/// # Errors
/// As [`columns_from_torch`].
pub fn columns_to_torch<B: Backend>(weight: &Tensor<B>, positions: usize, channels: usize) -> Result<Tensor<B>> {
    swap(weight, positions, channels)
}

/// Reorders the columns from `(a, b)` to `(b, a)`, for a weight `[out, a·b]`.
fn swap<B: Backend>(weight: &Tensor<B>, a: usize, b: usize) -> Result<Tensor<B>> {
    let &[out, columns] = weight.shape().dims() else {
        return Err(Error::Rank {
            op: "columns_from_torch",
            expected: "2",
            rank: weight.rank(),
        });
    };
    if a.checked_mul(b) != Some(columns) {
        let expected = format!("channels times positions, {a}·{b}");
        return Err(Error::invalid("columns_from_torch", "columns", columns, expected));
    }
    let split = weight.detach().reshape(&[out, a, b])?;
    split.permute(&[0, 2, 1])?.reshape(&[out, columns])
}
