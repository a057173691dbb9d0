//! Ops whose result holds elements of one tensor in another order or number.

use super::{Choices, choices};
use crate::ops::matmul::magnitudes;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Reshape(Vec<isize>),
    Flatten(isize, isize),
    Squeeze(isize),
    Unsqueeze(isize),
    Permute(Vec<isize>),
    Transpose(isize, isize),
    Broadcast(Vec<usize>),
    Expand(Vec<isize>),
    SumTo(Vec<usize>),
    Narrow(isize, usize, usize),
    Slice(isize, Option<isize>, Option<isize>, isize),
    Flip(Vec<isize>),
    Diagonal(isize, isize, isize),
    Roll(isize, isize),
    /// A piece of `split`, of `split_sizes` into three, of `chunk`, or of `unbind`.
    Split(isize, usize, usize),
    SplitSizes(isize, [usize; 3], usize),
    Chunk(isize, usize, usize),
    Unbind(isize, usize),
}

const KINDS: usize = 18;

#[derive(Clone, Debug)]
struct View {
    op: Op,
    x: Array,
    /// The oracle's result: its shape, and the input index of each element. `SumTo` adds elements instead.
    shape: Vec<usize>,
    from: Vec<Vec<usize>>,
}

impl Case for View {
    fn inputs(&self) -> Vec<Array> {
        vec![self.x.clone()]
    }

    fn call<B: Backend>(&self, _: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let x = &x[0];
        let piece = |pieces: Result<Vec<Tensor<B>>>, i: usize| pieces.map(|mut p| p.swap_remove(i));
        match &self.op {
            Op::Reshape(shape) => x.reshape(shape),
            Op::Flatten(start, end) => x.flatten(*start, *end),
            Op::Squeeze(axis) => x.squeeze(*axis),
            Op::Unsqueeze(axis) => x.unsqueeze(*axis),
            Op::Permute(axes) => x.permute(axes),
            Op::Transpose(a, b) => x.transpose(*a, *b),
            Op::Broadcast(shape) => x.broadcast_to(shape),
            Op::Expand(shape) => x.expand(shape),
            Op::SumTo(shape) => x.sum_to_size(shape),
            Op::Narrow(axis, start, length) => x.narrow(*axis, *start, *length),
            Op::Slice(axis, start, end, step) => x.slice(*axis, *start, *end, *step),
            Op::Flip(axes) => x.flip(axes),
            Op::Diagonal(offset, a, b) => x.diagonal(*offset, *a, *b),
            Op::Roll(shift, axis) => x.roll(*shift, *axis),
            Op::Split(axis, size, i) => piece(x.split(*size, *axis), *i),
            Op::SplitSizes(axis, sizes, i) => piece(x.split_sizes(sizes, *axis), *i),
            Op::Chunk(axis, chunks, i) => piece(x.chunk(*chunks, *axis), *i),
            Op::Unbind(axis, i) => piece(x.unbind(*axis), *i),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        if matches!(self.op, Op::SumTo(_)) {
            let mut y = Array::zeros(&self.shape);
            for (value, to) in x[0].data.iter().zip(&self.from) {
                *y.at_mut(to) += value;
            }
            return y;
        }
        Array::new(&self.shape, self.from.iter().map(|i| x[0].at(i)).collect())
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        if matches!(self.op, Op::SumTo(_)) {
            let each = self.x.size() / want.size().max(1);
            return Rounding::terms(each as f64, self.oracle(&magnitudes(x)));
        }
        Rounding::exact(want)
    }
}

/// Every index of `shape`, in row-major order.
pub(super) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    (0..shape.iter().product())
        .map(|n| crate::array::unravel(n, shape))
        .collect()
}

/// The result with entries `picked` of `axis`: its shape, and the input index of each element.
fn pick(shape: &[usize], axis: usize, picked: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut to = shape.to_vec();
    to[axis] = picked.len();
    let from = indices(&to)
        .into_iter()
        .map(|mut i| {
            i[axis] = picked[i[axis]];
            i
        })
        .collect();
    (to, from)
}

/// Python's `list(range(n))[start:end:step]`, by steps from the first index.
pub(super) fn python(n: usize, start: Option<isize>, end: Option<isize>, step: isize) -> Vec<usize> {
    let n = n as isize;
    let wrap = |i: isize| if i < 0 { i + n } else { i };
    let all: Vec<isize> = if step > 0 {
        (0..n).collect()
    } else {
        (0..n).rev().collect()
    };
    let (from, to) = (start.map(wrap), end.map(wrap));
    let inside = |&i: &isize| match step > 0 {
        true => from.is_none_or(|s| i >= s) && to.is_none_or(|e| i < e),
        false => from.is_none_or(|s| i <= s) && to.is_none_or(|e| i > e),
    };
    let kept: Vec<isize> = all.into_iter().filter(inside).collect();
    kept.into_iter()
        .step_by(step.unsigned_abs())
        .map(|i| i as usize)
        .collect()
}

/// An op of the given kind for `shape`, with its result's shape and input indices; `None` if the shape does not allow it.
fn build(kind: usize, shape: &[usize], c: &mut Choices) -> Option<(Op, Vec<usize>, Vec<Vec<usize>>)> {
    let rank = shape.len();
    let size: usize = shape.iter().product();
    let same = || indices(shape);
    let signed = |d: usize| d as isize;
    if rank == 0 && matches!(kind, 5 | 9 | 10 | 12..) || rank == 1 && kind == 16 {
        return None;
    }
    Some(match kind {
        0 => {
            // The dimensions in another order, one of them −1 where that is unambiguous.
            let mut to: Vec<usize> = c.order(rank).into_iter().map(|i| shape[i]).collect();
            to.insert(c.next(rank + 1), 1);
            let mut wanted: Vec<isize> = to.iter().copied().map(signed).collect();
            if size > 0 && c.flag() {
                wanted[c.next(to.len())] = -1;
            }
            (Op::Reshape(wanted), to, same())
        }
        1 => {
            if rank == 0 {
                return Some((Op::Flatten(0, -1), vec![1], same()));
            }
            let (s, start) = c.axis(rank);
            let e = s + c.next(rank - s);
            let to = [&shape[..s], &[shape[s..=e].iter().product()], &shape[e + 1..]].concat();
            (Op::Flatten(start, e as isize), to, same())
        }
        2 => {
            let axis = shape.iter().position(|&d| d == 1)?;
            let to = [&shape[..axis], &shape[axis + 1..]].concat();
            (Op::Squeeze(axis as isize - rank as isize), to, same())
        }
        3 => {
            let (axis, given) = c.axis(rank + 1);
            let to = [&shape[..axis], &[1], &shape[axis..]].concat();
            (Op::Unsqueeze(given), to, same())
        }
        4 | 5 => {
            let mut order = c.order(rank);
            let mut op = Op::Permute(
                order
                    .iter()
                    .map(|&a| a as isize - if c.flag() { rank as isize } else { 0 })
                    .collect(),
            );
            if kind == 5 {
                let ((i, a), (j, b)) = (c.axis(rank), c.axis(rank));
                order = (0..rank).collect();
                order.swap(i, j);
                op = Op::Transpose(a, b);
            }
            let to: Vec<usize> = order.iter().map(|&a| shape[a]).collect();
            let from = indices(&to)
                .into_iter()
                .map(|i| {
                    let mut source = vec![0; rank];
                    order.iter().zip(i).for_each(|(&a, i)| source[a] = i);
                    source
                })
                .collect();
            (op, to, from)
        }
        6 | 7 => {
            let mut to: Vec<usize> = shape.iter().map(|&d| if d == 1 { c.next(4) } else { d }).collect();
            let lead = c.next(3);
            (0..lead).for_each(|_| to.insert(0, 1 + c.next(3)));
            let from = indices(&to)
                .into_iter()
                .map(|i| {
                    i[lead..]
                        .iter()
                        .zip(shape)
                        .map(|(&i, &d)| if d == 1 { 0 } else { i })
                        .collect()
                })
                .collect();
            if kind == 6 {
                return Some((Op::Broadcast(to.clone()), to, from));
            }
            let keep = |(i, &d): (usize, &usize)| {
                if i >= lead && shape[i - lead] == d {
                    -1
                } else {
                    signed(d)
                }
            };
            (Op::Expand(to.iter().enumerate().map(keep).collect()), to, from)
        }
        8 => {
            let lead = c.next(rank + 1);
            let to: Vec<usize> = shape[lead..].iter().map(|&d| if c.flag() { 1 } else { d }).collect();
            let into = indices(shape)
                .into_iter()
                .map(|i| {
                    i[lead..]
                        .iter()
                        .zip(&to)
                        .map(|(&i, &d)| if d == 1 { 0 } else { i })
                        .collect()
                })
                .collect();
            (Op::SumTo(to.clone()), to, into)
        }
        9 => {
            let (axis, given) = c.axis(rank);
            let start = c.next(shape[axis] + 1);
            let length = c.next(shape[axis] - start + 1);
            let (to, from) = pick(shape, axis, &(start..start + length).collect::<Vec<_>>());
            (Op::Narrow(given, start, length), to, from)
        }
        10 => {
            let (axis, given) = c.axis(rank);
            let n = shape[axis];
            let bound = |c: &mut Choices| (!c.flag()).then(|| c.next(2 * n + 5) as isize - n as isize - 2);
            let (start, end) = (bound(c), bound(c));
            let step = (1 + c.next(3) as isize) * if c.flag() { 1 } else { -1 };
            let (to, from) = pick(shape, axis, &python(n, start, end, step));
            (Op::Slice(given, start, end, step), to, from)
        }
        11 => {
            let axes: Vec<usize> = (0..rank).filter(|_| c.flag()).collect();
            let from = indices(shape)
                .into_iter()
                .map(|mut i| {
                    axes.iter().for_each(|&a| i[a] = shape[a] - 1 - i[a]);
                    i
                })
                .collect();
            (
                Op::Flip(axes.iter().map(|&a| a as isize).collect()),
                shape.to_vec(),
                from,
            )
        }
        12 | 14 => {
            let (axis, given) = c.axis(rank);
            let n = shape[axis];
            let amount = 1 + c.next(n + 1);
            // `chunk` gives pieces of the size that `amount` equal pieces would have.
            let each = if kind == 12 { amount } else { n.div_ceil(amount).max(1) };
            let i = c.next(n.div_ceil(each).max(1));
            let (to, from) = pick(shape, axis, &(i * each..((i + 1) * each).min(n)).collect::<Vec<_>>());
            let op = if kind == 12 {
                Op::Split(given, amount, i)
            } else {
                Op::Chunk(given, amount, i)
            };
            (op, to, from)
        }
        13 => {
            let (axis, given) = c.axis(rank);
            let n = shape[axis];
            let first = c.next(n + 1);
            let second = c.next(n - first + 1);
            let cuts = [0, first, first + second, n];
            let i = c.next(3);
            let (to, from) = pick(shape, axis, &(cuts[i]..cuts[i + 1]).collect::<Vec<_>>());
            (Op::SplitSizes(given, [first, second, n - first - second], i), to, from)
        }
        16 => {
            let (mut order, negative) = (c.order(rank), c.flag());
            let (a, b) = (order[rank - 1], order[rank - 2]);
            order.truncate(rank - 2);
            order.sort();
            let offset = c.next(shape[a] + shape[b] + 3) as isize - shape[a] as isize - 1;
            let on_it = |i: &Vec<usize>| i[b] as isize - i[a] as isize == offset;
            let length = (0..shape[a] as isize).filter(|i| (0..shape[b] as isize).contains(&(i + offset)));
            let mut to: Vec<usize> = order.iter().map(|&i| shape[i]).collect();
            to.push(length.count());
            // Row-major order with the position on the diagonal last.
            let mut from: Vec<_> = indices(shape).into_iter().filter(on_it).collect();
            from.sort_by_key(|i| (order.iter().map(|&k| i[k]).collect::<Vec<_>>(), i[a]));
            let given = |axis: usize| axis as isize - if negative { rank as isize } else { 0 };
            (Op::Diagonal(offset, given(a), given(b)), to, from)
        }
        17 => {
            let (axis, given) = c.axis(rank);
            let n = shape[axis] as isize;
            let shift = c.next(20) as isize - 10;
            let picked: Vec<usize> = (0..n).map(|i| (i - shift).rem_euclid(n) as usize).collect();
            let (to, from) = pick(shape, axis, &picked);
            (Op::Roll(shift, given), to, from)
        }
        _ => {
            let (axis, given) = c.axis(rank);
            if shape[axis] == 0 {
                return None;
            }
            let i = c.next(shape[axis]);
            let (mut to, from) = pick(shape, axis, &[i]);
            to.remove(axis);
            (Op::Unbind(given, i), to, from)
        }
    })
}

/// Every op whose result holds a tensor's elements in another order or number.
pub fn views<B: Backend>(backend: &B) {
    for kind in 0..KINDS {
        let built = (shapes::shape(4), choices()).prop_filter_map("an op for the shape", move |(shape, mut c)| {
            build(kind, &shape, &mut c).map(|built| (shape, built))
        });
        let cases = built.prop_flat_map(|(shape, (op, to, from))| {
            shapes::values(&shape, -2.0, 2.0).prop_map(move |x| View {
                op: op.clone(),
                x,
                shape: to.clone(),
                from: from.clone(),
            })
        });
        check_with(24, backend, cases);
    }
}
