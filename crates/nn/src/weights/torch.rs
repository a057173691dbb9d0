//! Conversion between PyTorch's layout of parameters and Kiln's. Models always have Kiln's layout.

use crate::module::{Entries, Entry, ParamLayout, StateDict, Value};
use crate::{Backend, Error, Result, Tensor};

/// The layout of convolution kernels and matrices in weights; `k…` are the spatial dimensions.
///
/// See the example of [`LoadOptions`](super::LoadOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Kernels are `[O, k…, I]`, channels last, and the matrices of dense layers `[out, in]`.
    #[default]
    Kiln,
    /// Kernels are `[O, I, k…]`, as in PyTorch, and matrices of [`ParamLayout::Transposed`] `[in, out]`. The columns of a Linear
    /// after a Flatten are also in another order, which the shape does not show: see
    /// [`columns_from_torch`](super::columns_from_torch).
    Torch,
}

/// The dimension of PyTorch's weights that a parameter has last: its place there.
#[derive(Clone, Copy)]
pub(super) struct Swap(usize);

/// The dimension of a parameter of this layout and rank that has another place in PyTorch's weights.
pub(super) fn swap_of(layout: ParamLayout, rank: usize) -> Option<Swap> {
    match layout {
        ParamLayout::Kernel if rank > 2 => Some(Swap(1)),
        ParamLayout::Transposed if rank == 2 => Some(Swap(0)),
        _ => None,
    }
}

impl Swap {
    /// Turns the dimensions of a parameter to PyTorch's.
    pub(super) fn outside(self, dims: &mut [usize]) {
        dims[self.0..].rotate_right(1);
    }

    /// The size of the dimension, and of all behind it, in PyTorch's dimensions.
    pub(super) fn sizes(self, dims: &[usize]) -> (usize, usize) {
        let behind = dims[self.0 + 1..].iter().product();
        (dims[self.0], behind)
    }

    /// The axes of a parameter's dimensions by PyTorch's, or, with `back`, the other way around.
    fn axes(self, rank: usize, back: bool) -> Vec<isize> {
        let mut axes: Vec<isize> = (0..rank as isize).collect();
        match back {
            false => axes[self.0..].rotate_left(1),
            true => axes[self.0..].rotate_right(1),
        }
        axes
    }
}

/// Permutes a tensor of PyTorch's layout to that of its parameter, such as a kernel `[O, I, k…]` to `[O, k…, I]`; any other is
/// returned as it is.
pub(super) fn from_torch<B: Backend>(t: &Tensor<B>, layout: ParamLayout, from: Layout) -> Result<Tensor<B>> {
    match swap_of(layout, t.rank()).filter(|_| from == Layout::Torch) {
        Some(swap) => t.detach().permute(&swap.axes(t.rank(), false)),
        None => Ok(t.detach()),
    }
}

/// The state dictionary of a module, with the dimensions of kernels and transposed matrices in PyTorch's order.
pub(crate) fn torch_state_dict<B: Backend>(entries: &Entries<'_, B>) -> Result<StateDict<B>> {
    let mut dict = StateDict::of_entries(entries);
    for (name, entry) in entries {
        if let Entry::Param(p) = entry
            && let Some(swap) = swap_of(p.layout(), p.rank())
        {
            let turned = p.tensor().detach().permute(&swap.axes(p.rank(), true))?;
            dict.insert(name, Value::Float(turned));
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
