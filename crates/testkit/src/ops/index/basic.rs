//! Indexing of several axes at once.

use super::view::{indices, python};
use super::{Choices, choices};
use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::ops::index::AxisIndex;
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

/// An index of one axis, and the entries of the axis that it names.
#[derive(Clone, Debug)]
enum Index {
    At(isize, usize),
    Slice([Option<isize>; 2], isize, Vec<usize>),
    Entries(Vec<usize>, Vec<usize>),
    NewAxis,
    Ellipsis,
}

#[derive(Clone, Debug)]
struct Indexing {
    x: Array,
    index: Vec<Index>,
    /// The result's shape, and where each element comes from.
    shape: Vec<usize>,
    from: Vec<Vec<usize>>,
}

impl Case for Indexing {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let index = self.index.iter().map(|i| {
            Ok(match i {
                Index::At(i, _) => AxisIndex::At(*i),
                Index::Slice([start, end], step, _) => AxisIndex::Slice(*start, *end, *step),
                Index::Entries(entries, shape) => {
                    let entries: Vec<i32> = entries.iter().map(|&i| i as i32).collect();
                    AxisIndex::Entries(Indices::from_slice(backend, &entries, shape)?)
                }
                Index::NewAxis => AxisIndex::NewAxis,
                Index::Ellipsis => AxisIndex::Ellipsis,
            })
        });
        x[0].i(index.collect::<Result<Vec<_>>>()?)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        Array::new(&self.shape, self.from.iter().map(|i| x[0].at(i)).collect())
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// An index of an axis of `n` entries; tensors of entries where `entries` says so.
fn one(n: usize, entries: bool, c: &mut Choices) -> Index {
    if entries && n > 0 {
        let shape = [vec![], vec![2], vec![1, 3], vec![0]][c.next(4)].clone();
        let list = (0..shape.iter().product()).map(|_| c.next(n)).collect();
        return Index::Entries(list, shape);
    }
    if n > 0 && c.next(3) == 0 {
        let i = c.next(n);
        return Index::At(i as isize - if c.flag() { n as isize } else { 0 }, i);
    }
    let bound = |c: &mut Choices| (!c.flag()).then(|| c.next(2 * n + 5) as isize - n as isize - 2);
    let (start, end) = (bound(c), bound(c));
    let step = (1 + c.next(3) as isize) * if c.flag() { 1 } else { -1 };
    Index::Slice([start, end], step, python(n, start, end, step))
}

/// Indices for `shape` with the answer.
fn build(shape: &[usize], c: &mut Choices) -> (Vec<Index>, Vec<usize>, Vec<Vec<usize>>) {
    let (skipped, first) = (c.next(shape.len() + 1), c.next(shape.len() + 1));
    let tensor = c.next(2 * shape.len() + 1);
    let mut index: Vec<Index> = (0..).zip(shape).map(|(i, &n)| one(n, i == tensor, c)).collect();
    // Whole axes, which the ellipsis or nothing stands for.
    let whole = first..(first + skipped).min(shape.len());
    for i in whole.clone() {
        index[i] = Index::Slice([None, None], 1, (0..shape[i]).collect());
    }
    let axes = index.clone();
    if whole.end == shape.len() && c.flag() {
        index.truncate(whole.start);
    } else {
        index.splice(whole, [Index::Ellipsis]);
    }
    let mut to = Vec::new();
    for i in &axes {
        match i {
            Index::Slice(_, _, entries) => to.push(entries.len()),
            Index::Entries(_, shape) => to.extend(shape),
            _ => {}
        }
    }
    let mut from = vec![vec![]];
    for i in &axes {
        let entries = match i {
            Index::At(_, i) => &vec![*i],
            Index::Slice(_, _, entries) | Index::Entries(entries, _) => entries,
            Index::NewAxis | Index::Ellipsis => continue,
        };
        let longer = |at: Vec<usize>| entries.iter().map(move |&i| [&at[..], &[i]].concat());
        from = from.into_iter().flat_map(longer).collect();
    }
    // Before the first index, where it is the first axis of the result.
    if c.flag() {
        index.insert(0, Index::NewAxis);
        to.insert(0, 1);
    }
    assert_eq!(from.len(), indices(&to).len());
    (index, to, from)
}

/// Positions, ranges with steps, new axes, an ellipsis and a tensor of entries in any order.
pub fn indexing<B: Backend>(backend: &B) {
    let cases = (shapes::shape(4), choices()).prop_flat_map(|(shape, mut c)| {
        let (index, to, from) = build(&shape, &mut c);
        shapes::values(&shape, -2.0, 2.0).prop_map(move |x| Indexing {
            x,
            index: index.clone(),
            shape: to.clone(),
            from: from.clone(),
        })
    });
    check(backend, cases);
}
