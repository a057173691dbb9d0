//! Ops that move elements, as those of [`Tensor`].

use crate::ops::index::IntoDims;
use crate::{Backend, Indices, Result, Tensor};

/// Methods that are those of [`Tensor`] by the same name.
macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $($example:literal),*;)*) => {
        impl<B: Backend> Indices<B> {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use kiln_nn::Indices;
            /// # let cpu = kiln_cpu::Cpu::new();
            /// let x = Indices::arange(&cpu, 0, 6)?.reshape(&[2, 3])?;
            $(#[doc = $example])*
            /// # Ok::<(), kiln_nn::Error>(())
            /// ```
            ///
            /// # Errors
            #[doc = concat!("Those of [`Tensor::", stringify!($name), "`].")]
            pub fn $name(&self $(, $argument: $type)*) -> Result<Indices<B>> {
                self.moved(|x| x.$name($($argument),*))
            }
        )*}
    };
}

moves! {
    /// The axes in another order (`torch.permute`), as [`Tensor::permute`].
    permute(axes: &[isize]) => "assert_eq!(x.permute(&[1, 0])?.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);";
    /// Two axes exchanged (`torch.transpose`), as [`Tensor::transpose`].
    transpose(a: isize, b: isize) => "assert_eq!(x.transpose(0, 1)?.shape().dims(), [3, 2]);";
    /// An axis of size 1 left out (`torch.squeeze`), as [`Tensor::squeeze`].
    squeeze(axis: isize) => "assert_eq!(x.unsqueeze(0)?.squeeze(0)?.shape(), x.shape());";
    /// A new axis of size 1 (`torch.unsqueeze`), as [`Tensor::unsqueeze`].
    unsqueeze(axis: isize) => "assert_eq!(x.unsqueeze(-1)?.shape().dims(), [2, 3, 1]);";
    /// Adjacent axes as one (`torch.flatten`), as [`Tensor::flatten`].
    flatten(start: isize, end: isize) => "assert_eq!(x.flatten(0, -1)?.shape().dims(), [6]);";
    /// An axis as several (`torch.unflatten`), as [`Tensor::unflatten`].
    unflatten(axis: isize, sizes: impl IntoDims) => "assert_eq!(x.unflatten(1, (3, 1))?.shape().dims(), [2, 3, 1]);";
    /// The elements repeated to a larger shape (`torch.broadcast_to`), as [`Tensor::broadcast_to`].
    broadcast_to(shape: &[usize]) => "assert_eq!(x.i(0)?.broadcast_to(&[2, 3])?.to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);";
    /// The elements repeated along axes of size 1 (`torch.Tensor.expand`), as [`Tensor::expand`].
    expand(shape: &[isize]) => "assert_eq!(x.i(0)?.expand(&[2, -1])?.to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);";
    /// A range of the entries of an axis (`torch.narrow`), as [`Tensor::narrow`].
    narrow(axis: isize, start: usize, length: usize) => "assert_eq!(x.narrow(1, 1, 2)?.to_vec::<i32>()?, [1, 2, 4, 5]);";
    /// Entries of an axis by Python's `start:end:step`, as [`Tensor::slice`].
    slice(axis: isize, start: Option<isize>, end: Option<isize>, step: isize) => "assert_eq!(x.slice(1, None, None, 2)?.to_vec::<i32>()?, [0, 2, 3, 5]);";
    /// The entries of axes in reverse order (`torch.flip`), as [`Tensor::flip`].
    flip(axes: &[isize]) => "assert_eq!(x.flip(&[1])?.to_vec::<i32>()?, [2, 1, 0, 5, 4, 3]);";
    /// A diagonal of two axes (`torch.diagonal`), as [`Tensor::diagonal`].
    diagonal(offset: isize, axis1: isize, axis2: isize) => "assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<i32>()?, [0, 4]);";
    /// The entries of an axis shifted around (`torch.roll`), as [`Tensor::roll`].
    roll(shift: isize, axis: isize) => "assert_eq!(x.roll(1, 1)?.to_vec::<i32>()?, [2, 0, 1, 5, 3, 4]);";
    /// The tensor repeated along its axes (`torch.tile`), as [`Tensor::tile`].
    tile(repeats: &[usize]) => "assert_eq!(x.tile(&[1, 2])?.to_vec::<i32>()?, [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);";
    /// Elements that an index tensor names along an axis (`torch.gather`), as [`Tensor::gather`].
    gather(axis: isize, index: &Indices<B>) => "let order = Indices::from_slice(&cpu, &[2, 0, 0, 1], &[2, 2])?;", "assert_eq!(x.gather(1, &order)?.to_vec::<i32>()?, [2, 0, 3, 4]);";
    /// Entries that an index names along an axis (`torch.index_select`), as [`Tensor::index_select`].
    index_select(axis: isize, index: &Indices<B>) => "let order = Indices::from_slice(&cpu, &[2, 0], &[2])?;", "assert_eq!(x.index_select(1, &order)?.to_vec::<i32>()?, [2, 0, 5, 3]);";
    /// The elements that a mask marks (`torch.masked_select`), as [`Tensor::masked_select`].
    masked_select(mask: &Indices<B>) => "assert_eq!(x.masked_select(&x.gt(3)?)?.to_vec::<i32>()?, [4, 5]);";
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// Joins tensors one after the other along `axis`, as [`Tensor::concat`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Indices::arange(&cpu, 0, 2)?, Indices::arange(&cpu, 5, 7)?);
    /// assert_eq!(Indices::concat(&[&x, &y], 0)?.to_vec::<i32>()?, [0, 1, 5, 6]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::concat`].
    pub fn concat(tensors: &[&Indices<B>], axis: isize) -> Result<Indices<B>> {
        joined(tensors, |tensors| Tensor::concat(tensors, axis))
    }

    /// Joins tensors of one shape along a new axis, as [`Tensor::stack`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, y) = (Indices::arange(&cpu, 0, 2)?, Indices::arange(&cpu, 5, 7)?);
    /// assert_eq!(Indices::stack(&[&x, &y], 1)?.to_vec::<i32>()?, [0, 5, 1, 6]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::stack`].
    pub fn stack(tensors: &[&Indices<B>], axis: isize) -> Result<Indices<B>> {
        joined(tensors, |tensors| Tensor::stack(tensors, axis))
    }

    /// Parts of `size` entries along `axis`, as [`Tensor::split`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let parts = Indices::arange(&cpu, 0, 5)?.split(2, 0)?;
    /// assert_eq!(parts[2].to_vec::<i32>()?, [4]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::split`].
    pub fn split(&self, size: usize, axis: isize) -> Result<Vec<Indices<B>>> {
        let parts = self.elements().split(size, axis)?;
        Ok(parts.into_iter().map(Tensor::into_indices).collect())
    }
}

fn joined<B: Backend>(
    tensors: &[&Indices<B>],
    join: impl FnOnce(&[&Tensor<B>]) -> Result<Tensor<B>>,
) -> Result<Indices<B>> {
    let tensors: Vec<Tensor<B>> = tensors.iter().map(|x| x.elements()).collect();
    join(&tensors.iter().collect::<Vec<_>>()).map(Tensor::into_indices)
}
