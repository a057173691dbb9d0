//! Indexing of several axes at once by positions, ranges and index tensors, as NumPy's and PyTorch's `x[...]`.

use super::slice::python_slice;
use super::{View, read_view};
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use kiln_core::ops::ViewParams;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// How one axis is indexed.
///
/// ```
/// # use kiln_nn::{DType, Tensor};
/// # use kiln_nn::ops::index::AxisIndex;
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::arange(&cpu, 0.0, 6.0, 1.0, DType::F32)?.reshape(&[2, 3])?;
/// let first = x.i(vec![AxisIndex::Slice(None, None, 1), AxisIndex::At(0)])?; // x[:, 0]
/// assert_eq!(first.to_vec::<f32>()?, [0.0, 3.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone)]
pub enum AxisIndex<B: Backend> {
    /// One entry, from the end when negative. The axis is dropped.
    At(isize),
    /// Python's `start:end:step`.
    Slice(Option<isize>, Option<isize>, isize),
    /// The entries that an i32 tensor names, or that a u8 mask of one axis or more marks.
    Entries(Indices<B>),
    /// An axis of size 1 that was not there.
    NewAxis,
    /// As many whole axes as the other indices leave over.
    Ellipsis,
}

/// A new axis of size 1 in [`Tensor::i`] (`None` in NumPy and PyTorch).
///
/// ```
/// # use kiln_nn::{DType, NewAxis, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[2, 3], DType::F32)?;
/// assert_eq!(x.i((.., NewAxis))?.shape().dims(), [2, 1, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// As many whole axes as the other indices leave over in [`Tensor::i`] (`...` in NumPy and PyTorch).
///
/// ```
/// # use kiln_nn::{DType, Ellipsis, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::zeros(&cpu, &[2, 3, 4], DType::F32)?;
/// assert_eq!(x.i((Ellipsis, 0))?.shape().dims(), [2, 3]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

/// Every n-th entry of a range in [`Tensor::i`]: `Step(1.., 2)` is Python's `1::2`, and `Step(.., -1)` its `::-1`.
///
/// ```
/// # use kiln_nn::{DType, Step, Tensor};
/// # let cpu = kiln_cpu::Cpu::new();
/// let x = Tensor::arange(&cpu, 0.0, 5.0, 1.0, DType::F32)?;
/// assert_eq!(x.i(Step(1.., 2))?.to_vec::<f32>()?, [1.0, 3.0]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Step<R>(pub R, pub isize);

/// An index of one axis in [`Tensor::i`].
///
/// See the example of [`Tensor::i`].
pub trait IntoAxisIndex<B: Backend> {
    /// The index.
    fn axis_index(self) -> AxisIndex<B>;
}

/// Indices of the leading axes in [`Tensor::i`]: that of one axis, or a tuple, an array or a list of up to eight.
///
/// See the example of [`Tensor::i`].
pub trait IntoIndex<B: Backend> {
    /// The indices in order.
    fn index(self) -> Vec<AxisIndex<B>>;
}

impl<B: Backend> IntoAxisIndex<B> for AxisIndex<B> {
    fn axis_index(self) -> AxisIndex<B> {
        self
    }
}

impl<B: Backend> IntoAxisIndex<B> for &Indices<B> {
    fn axis_index(self) -> AxisIndex<B> {
        AxisIndex::Entries(self.clone())
    }
}

impl<B: Backend> IntoAxisIndex<B> for RangeFull {
    fn axis_index(self) -> AxisIndex<B> {
        AxisIndex::Slice(None, None, 1)
    }
}

impl<B: Backend> IntoAxisIndex<B> for NewAxis {
    fn axis_index(self) -> AxisIndex<B> {
        AxisIndex::NewAxis
    }
}

impl<B: Backend> IntoAxisIndex<B> for Ellipsis {
    fn axis_index(self) -> AxisIndex<B> {
        AxisIndex::Ellipsis
    }
}

/// Of anything but a range, a step is no index: what has no bounds to step through is refused where it is used.
impl<B: Backend, R: IntoAxisIndex<B>> IntoAxisIndex<B> for Step<R> {
    fn axis_index(self) -> AxisIndex<B> {
        match self.0.axis_index() {
            AxisIndex::Slice(start, end, 1) => AxisIndex::Slice(start, end, self.1),
            _ => AxisIndex::Slice(None, None, 0),
        }
    }
}

/// The bound after `end`, none after −1, which is the last entry.
fn after(end: isize) -> Option<isize> {
    end.checked_add(1).filter(|&end| end != 0)
}

/// An index of one axis is one of the first.
macro_rules! alone {
    ($([$($generic:tt)*] $index:ty),*) => {$(
        impl<B: Backend, $($generic)*> IntoIndex<B> for $index {
            fn index(self) -> Vec<AxisIndex<B>> {
                vec![self.axis_index()]
            }
        }
    )*};
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl<B: Backend> IntoAxisIndex<B> for $int {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::At(bound(self))
            }
        }
        impl<B: Backend> IntoAxisIndex<B> for Range<$int> {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::Slice(Some(bound(self.start)), Some(bound(self.end)), 1)
            }
        }
        impl<B: Backend> IntoAxisIndex<B> for RangeFrom<$int> {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::Slice(Some(bound(self.start)), None, 1)
            }
        }
        impl<B: Backend> IntoAxisIndex<B> for RangeTo<$int> {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::Slice(None, Some(bound(self.end)), 1)
            }
        }
        impl<B: Backend> IntoAxisIndex<B> for RangeInclusive<$int> {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::Slice(Some(bound(*self.start())), after(bound(*self.end())), 1)
            }
        }
        impl<B: Backend> IntoAxisIndex<B> for RangeToInclusive<$int> {
            fn axis_index(self) -> AxisIndex<B> {
                AxisIndex::Slice(None, after(bound(self.end)), 1)
            }
        }
        alone! {
            [] $int, [] Range<$int>, [] RangeFrom<$int>, [] RangeTo<$int>, [] RangeInclusive<$int>, [] RangeToInclusive<$int>
        }
    )*};
}
integers!(i32, isize, usize);

/// A bound as isize. No axis has entries beyond it.
fn bound(i: impl TryInto<isize>) -> isize {
    i.try_into().unwrap_or(isize::MAX)
}

alone!([] AxisIndex<B>, [] &Indices<B>, [] RangeFull, [] NewAxis, [] Ellipsis, [R: IntoAxisIndex<B>] Step<R>);

impl<B: Backend, A: IntoAxisIndex<B>> IntoIndex<B> for Vec<A> {
    fn index(self) -> Vec<AxisIndex<B>> {
        self.into_iter().map(A::axis_index).collect()
    }
}

impl<B: Backend, A: IntoAxisIndex<B>, const N: usize> IntoIndex<B> for [A; N] {
    fn index(self) -> Vec<AxisIndex<B>> {
        self.into_iter().map(A::axis_index).collect()
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<B: Backend, $($name: IntoAxisIndex<B>),*> IntoIndex<B> for ($($name,)*) {
            fn index(self) -> Vec<AxisIndex<B>> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                vec![$($name.axis_index()),*]
            }
        }
    )*};
}
tuples! {
    A0;
    A0 A1;
    A0 A1 A2;
    A0 A1 A2 A3;
    A0 A1 A2 A3 A4;
    A0 A1 A2 A3 A4 A5;
    A0 A1 A2 A3 A4 A5 A6;
    A0 A1 A2 A3 A4 A5 A6 A7;
}

/// The part of a tensor that indices name.
struct Plan<B: Backend> {
    view: View,
    /// The tensors of entries among the indices, each with the axis of the view that it indexes, in order.
    entries: Vec<(usize, Indices<B>)>,
}

/// Resolves `index` for a tensor of shape `from`.
#[compiled_once]
fn plan<B: Backend>(from: &Shape, index: Vec<AxisIndex<B>>) -> Result<Plan<B>> {
    const OP: &str = "i";
    let mut index = without_masks(from, index)?;
    let used = |a: &AxisIndex<B>| !matches!(a, AxisIndex::NewAxis | AxisIndex::Ellipsis);
    let (given, dots) = (
        index.iter().filter(|a| used(a)).count(),
        index.iter().position(|a| matches!(a, AxisIndex::Ellipsis)),
    );
    let Some(left) = from.rank().checked_sub(given) else {
        return Err(Error::invalid(
            OP,
            "index",
            format!("{given} indices"),
            format!("at most {}", from.rank()),
        ));
    };
    let at = dots.unwrap_or(index.len());
    let whole = (0..left).map(|_| AxisIndex::Slice(None, None, 1));
    index.splice(at..at + usize::from(dots.is_some()), whole);

    let own = from.strides();
    let (mut dims, mut strides, mut offset) = (Vec::new(), Vec::new(), 0);
    let (mut within, mut entries, mut axis) = ((0, 0..from.first().copied().unwrap_or(1)), Vec::new(), 0);
    for a in index {
        let (start, length, step) = match &a {
            AxisIndex::NewAxis => {
                dims.push(1);
                strides.push(0);
                continue;
            }
            AxisIndex::Ellipsis => return Err(Error::invalid(OP, "index", "Ellipsis twice", "at most one")),
            AxisIndex::Slice(_, _, 0) => {
                return Err(Error::invalid(OP, "step", 0, "the step of a range, other than 0"));
            }
            AxisIndex::Slice(start, end, step) => {
                let (first, count) = python_slice(from[axis], *start, *end, *step);
                (first, count, *step)
            }
            AxisIndex::Entries(_) => (0, from[axis], 1),
            AxisIndex::At(i) => {
                let n = from[axis] as isize;
                let position = if *i < 0 { i.saturating_add(n) } else { *i };
                if !(0..n).contains(&position) {
                    return Err(Error::invalid(
                        OP,
                        "index",
                        format!("{i} of axis {axis}"),
                        format!("-{n}..{n}"),
                    ));
                }
                (position as usize, 1, 1)
            }
        };
        if let AxisIndex::Entries(tensor) = &a {
            tensor.require(OP, DType::I32)?;
            entries.push((dims.len(), tensor.clone()));
        }
        offset += start * own[axis];
        if !matches!(a, AxisIndex::At(_)) {
            dims.push(length);
            strides.push((own[axis] as i64).saturating_mul(step as i64));
        }
        let last = start.saturating_add_signed(step.saturating_mul(length as isize - 1));
        let range = match length {
            0 => start..start,
            _ => start.min(last)..start.max(last) + 1,
        };
        // The narrowest part along one axis that holds the view.
        let narrower = range.len() * from[within.0] < within.1.len() * from[axis];
        if narrower {
            within = (axis, range);
        }
        axis += 1;
    }
    let shape = Shape::new(&dims)?;
    let offset = if shape.size() == 0 { 0 } else { offset };
    Ok(Plan {
        view: View {
            p: ViewParams::new(&shape, &strides, offset),
            whole: *from,
            shape,
            within,
        },
        entries,
    })
}

/// The number of axes that an index takes.
fn axes<B: Backend>(a: &AxisIndex<B>) -> usize {
    match a {
        AxisIndex::NewAxis | AxisIndex::Ellipsis => 0,
        AxisIndex::Entries(mask) if mask.dtype() == DType::U8 => mask.shape().rank(),
        _ => 1,
    }
}

/// The indices with each mask as the positions that it marks: an index tensor for each of its axes (`torch.nonzero`).
#[compiled_once]
fn without_masks<B: Backend>(from: &Shape, index: Vec<AxisIndex<B>>) -> Result<Vec<AxisIndex<B>>> {
    let given: usize = index.iter().map(axes).sum();
    let (mut out, mut axis) = (Vec::with_capacity(index.len()), 0);
    for a in index {
        let taken = axes(&a);
        match a {
            AxisIndex::Entries(mask) if mask.dtype() == DType::U8 => {
                if from.get(axis..axis + taken) != Some(mask.shape()) {
                    return Err(Error::ShapeMismatch {
                        op: "i",
                        lhs: *from,
                        rhs: *mask.shape(),
                    });
                }
                if taken == 0 {
                    let expected = "a mask of one axis or more; `masked_fill` and `where_` take a single one";
                    return Err(Error::invalid("i", "mask", mask.shape(), expected));
                }
                let positions = mask.nonzero()?;
                for column in 0..taken {
                    out.push(AxisIndex::Entries(positions.i((.., column))?));
                }
            }
            AxisIndex::Ellipsis => {
                axis += from.rank().saturating_sub(given);
                out.push(AxisIndex::Ellipsis);
            }
            a => out.push(a),
        }
        axis += taken;
    }
    Ok(out)
}

/// The entries of axes of `part` that index tensors name, whose broadcast shape takes the place of the axes; at the front where
/// other axes lie between them.
#[compiled_once]
fn pick<B: Backend>(part: Tensor<B>, entries: &[(usize, Indices<B>)]) -> Result<Tensor<B>> {
    let Some((first, _)) = entries.first() else {
        return Ok(part);
    };
    let mut to = Shape::scalar();
    for (_, index) in entries {
        to = to.broadcast("i", index.shape())?;
    }
    let named: Vec<usize> = entries.iter().map(|(axis, _)| *axis).collect();
    let together = named.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let first = if together { *first } else { 0 };
    // The named axes side by side, and as one: an entry is Σ index · step.
    let mut order: Vec<usize> = (0..part.rank()).filter(|axis| !named.contains(axis)).collect();
    order.splice(first..first, named.iter().copied());
    let order: Vec<isize> = order.into_iter().map(|axis| axis as isize).collect();
    let (mut step, mut flat) = (1, None);
    for (axis, index) in entries.iter().rev() {
        let n = part.shape()[*axis];
        // Entries count from the end where they are negative.
        let index = index.add(index.lt(0)?.mul(i32::try_from(n).unwrap_or(i32::MAX))?)?;
        let term = match entries.len() {
            1 => index,
            // Reading the multiples of the step checks the index too.
            _ => {
                let multiples = steps(part.backend(), n, step)?;
                multiples
                    .index_select(0, &index.flatten(0, -1)?)?
                    .reshape(index.shape())?
            }
        };
        flat = Some(match flat {
            None => term,
            Some(sum) => term.add(&sum)?,
        });
        step *= n;
    }
    let flat = flat.map_or_else(|| Indices::full(part.backend(), &[], 0), Ok)?;
    let part = if together { part } else { part.permute(&order)? };
    let dims = part.shape();
    let (before, after) = (&dims[..first], &dims[first + named.len()..]);
    let joined = part.reshape(&[before, &[step], after].concat())?;
    let flat = flat.broadcast_to(&to)?.flatten(0, -1)?;
    joined
        .index_select(first as isize, &flat)?
        .reshape(&[before, &to[..], after].concat())
}

/// The numbers `0, step, 2·step, …`, `n` of them, made on the device.
fn steps<B: Backend>(backend: &B, n: usize, step: usize) -> Result<Indices<B>> {
    let last = n.saturating_sub(1).saturating_mul(step);
    if i32::try_from(last).is_err() || i32::try_from(step).is_err() {
        return Err(Error::invalid(
            "i",
            "shape",
            last,
            "at most 2147483647 entries of the indexed axes",
        ));
    }
    Indices::full(backend, &[n], step)?.cumsum(0)?.sub(step as i32)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The part that `index` names, as `x[index]` in PyTorch: positions drop their axes, ranges are clamped to theirs, negative
    /// numbers count from the end, and axes that are not named are whole. Index tensors are broadcast with each other; their
    /// axes take the place of the axes that they index, or come first where others lie between. A u8 mask stands for the
    /// positions that it marks, of as many axes as it has.
    ///
    /// ```
    /// use kiln_nn::{DType, Ellipsis, Indices, NewAxis, Result, Step, Tensor};
    /// # fn main() -> Result<()> {
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::arange(&cpu, 0.0, 24.0, 1.0, DType::F32)?.reshape(&[2, 3, 4])?;
    /// assert_eq!(x.i((.., 1..3, -1))?.to_vec::<f32>()?, [7.0, 11.0, 19.0, 23.0]); // x[:, 1:3, -1]
    /// assert_eq!(x.i((0, 0, Step(.., -2)))?.to_vec::<f32>()?, [3.0, 1.0]); // x[0, 0, ::-2] in NumPy
    /// assert_eq!(x.i((Ellipsis, NewAxis, 0))?.shape().dims(), [2, 3, 1]); // x[..., None, 0]
    /// let rows = Indices::from_slice(&cpu, &[2, 0], &[2])?;
    /// assert_eq!(x.i((1, &rows, 0))?.to_vec::<f32>()?, [20.0, 12.0]); // x[1, rows, 0]
    /// let columns = Indices::from_slice(&cpu, &[3, -1], &[2])?;
    /// assert_eq!(x.i((1, &rows, &columns))?.to_vec::<f32>()?, [23.0, 15.0]); // x[1, rows, columns]
    /// assert_eq!(x.i(&x.gt_scalar(20.0)?)?.to_vec::<f32>()?, [21.0, 22.0, 23.0]); // x[x > 20]
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// More indices than axes, a position out of range, a step of 0, index tensors that do not broadcast, entries out of range.
    pub fn i(&self, index: impl IntoIndex<B>) -> Result<Tensor<B>> {
        let Plan { view, entries } = plan(self.shape(), index.index())?;
        let in_order = view.p.rank == 0 || (view.p.rank == 1 && view.p.strides[0] == 1);
        let part = match view.shape.size() == self.size() && in_order {
            true => self.reshape(&view.shape)?,
            false => read_view("i", self, view)?,
        };
        pick(part, &entries)
    }
}

#[compiled_once]
impl<B: Backend> Indices<B> {
    /// The part that `index` names, as [`Tensor::i`].
    ///
    /// ```
    /// # use kiln_nn::Indices;
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let ids = Indices::from_slice(&cpu, &[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(ids.i((.., -1))?.to_vec::<i32>()?, [3, 6]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Tensor::i`].
    pub fn i(&self, index: impl IntoIndex<B>) -> Result<Indices<B>> {
        Ok(self.elements().i(index)?.into_indices())
    }
}
