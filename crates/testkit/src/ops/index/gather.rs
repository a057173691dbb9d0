//! Picking and adding by index tensors.

use super::choices;
use crate::ops::matmul::magnitudes;
use crate::{Array, Case, Rounding, check, shapes};
use kiln_core::{Backend, DType, Result};
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Gather,
    ScatterAdd,
    Scatter,
    IndexSelect,
    IndexAdd,
    IndexCopy,
}

#[derive(Clone, Debug)]
struct Indexed {
    op: Op,
    x: Array,
    source: Option<Array>,
    axis: usize,
    given: isize,
    /// Shape and values of the index tensor.
    index: (Vec<usize>, Vec<i32>),
}

impl Indexed {
    /// The index for an element of the picked (or the added) tensor.
    fn index_at(&self, at: &[usize]) -> usize {
        let offset = match self.op {
            Op::Gather | Op::ScatterAdd | Op::Scatter => at.iter().zip(&self.index.0).fold(0, |o, (&i, &d)| o * d + i),
            Op::IndexSelect | Op::IndexAdd | Op::IndexCopy => at[self.axis],
        };
        self.index.1[offset] as usize
    }
}

impl Case for Indexed {
    fn inputs(&self) -> Vec<Array> {
        [Some(self.x.clone()), self.source.clone()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let index = Indices::from_slice(backend, &self.index.1, &self.index.0)?;
        match self.op {
            Op::Gather => x[0].gather(self.given, &index),
            Op::ScatterAdd => x[0].scatter_add(self.given, &index, &x[1]),
            Op::Scatter => x[0].scatter(self.given, &index, &x[1]),
            Op::IndexSelect => x[0].index_select(self.given, &index),
            Op::IndexAdd => x[0].index_add(self.given, &index, &x[1]),
            Op::IndexCopy => x[0].index_copy(self.given, &index, &x[1]),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let moved = |at: &[usize]| {
            let mut to = at.to_vec();
            to[self.axis] = self.index_at(at);
            to
        };
        if self.op == Op::Gather || self.op == Op::IndexSelect {
            let shape = match self.op {
                Op::Gather => self.index.0.clone(),
                _ => {
                    let mut shape = x[0].shape.clone();
                    shape[self.axis] = self.index.1.len();
                    shape
                }
            };
            return Array::from_fn(&shape, |i| x[0].at(&moved(i)));
        }
        let mut y = x[0].clone();
        // An index with an entry per element may be smaller than the source.
        let added = match self.op {
            Op::ScatterAdd | Op::Scatter => &self.index.0,
            _ => &x[1].shape,
        };
        for n in 0..added.iter().product() {
            let at = crate::array::unravel(n, added);
            let (to, value) = (y.at_mut(&moved(&at)), x[1].at(&at));
            *to = match self.op {
                Op::ScatterAdd | Op::IndexAdd => *to + value,
                _ => value,
            };
        }
        y
    }

    /// All indices may be equal, so that all terms are added to one element.
    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.op {
            Op::Gather | Op::IndexSelect | Op::Scatter | Op::IndexCopy => Rounding::exact(want),
            Op::ScatterAdd | Op::IndexAdd => {
                let most = x[1].shape[self.axis];
                Rounding::terms(most as f64, self.oracle(&magnitudes(x)))
            }
        }
    }
}

fn run<B: Backend>(backend: &B, op: Op) {
    let cases = (shapes::shape(4), choices(), 0usize..6, any::<u64>());
    let cases = cases.prop_filter_map("an axis that is not empty", move |(shape, mut c, count, seed)| {
        let (axis, given) = (!shape.is_empty()).then(|| c.axis(shape.len()))?;
        if shape[axis] == 0 {
            return None;
        }
        let mut picked = shape.clone();
        picked[axis] = count;
        let index_shape = match op {
            // Half of the index tensors are smaller than the input along some axes.
            Op::Gather | Op::ScatterAdd | Op::Scatter => {
                let less = |n: usize, i: usize| n - (seed >> (2 * i)) as usize % 2 * n.min(1);
                let smaller = picked
                    .iter()
                    .enumerate()
                    .map(|(i, &n)| if seed % 3 == 0 { less(n, i) } else { n });
                smaller.collect()
            }
            Op::IndexSelect | Op::IndexAdd | Op::IndexCopy => vec![count],
        };
        let key = kiln_core::philox::Key::new(seed, 0, 0);
        let n: usize = index_shape.iter().product();
        let index = (0..n as u64)
            .map(|i| key.below(i, shape[axis] as u32) as i32)
            .collect::<Vec<i32>>();
        Some((shape, picked, axis, given, (index_shape, index)))
    });
    let cases = cases.prop_flat_map(move |(shape, picked, axis, given, index)| {
        let adds = !matches!(op, Op::Gather | Op::IndexSelect);
        (shapes::values(&shape, -2.0, 2.0), shapes::values(&picked, -2.0, 2.0)).prop_map(move |(x, source)| Indexed {
            op,
            x,
            source: adds.then_some(source),
            axis,
            given,
            index: index.clone(),
        })
    });
    check(backend, cases);
}

/// Gather: one index per element.
pub fn gather<B: Backend>(backend: &B) {
    run(backend, Op::Gather);
}

/// Scatter-add: one index per added element; several may be equal.
pub fn scatter_add<B: Backend>(backend: &B) {
    run(backend, Op::ScatterAdd);
}

/// Scatter: of elements that several indices name the last one counts.
pub fn scatter<B: Backend>(backend: &B) {
    run(backend, Op::Scatter);
}

/// Index-copy: of entries that several indices name the last one counts.
pub fn index_copy<B: Backend>(backend: &B) {
    run(backend, Op::IndexCopy);
}

/// Index-select: one index per entry of an axis.
pub fn index_select<B: Backend>(backend: &B) {
    run(backend, Op::IndexSelect);
}

/// Index-add: one index per added entry of an axis.
pub fn index_add<B: Backend>(backend: &B) {
    run(backend, Op::IndexAdd);
}

#[derive(Clone, Debug)]
struct Embedding {
    table: Array,
    shape: Vec<usize>,
    index: Vec<i32>,
}

impl Case for Embedding {
    fn inputs(&self) -> Vec<Array> {
        vec![self.table.clone()]
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        x[0].embedding(&Indices::from_slice(backend, &self.index, &self.shape)?, None)
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let width = x[0].shape[1];
        let shape = [&self.shape[..], &[width]].concat();
        let data = self
            .index
            .iter()
            .flat_map(|&i| (0..width).map(move |d| (i as usize, d)));
        Array::new(&shape, data.map(|(i, d)| x[0].at(&[i, d])).collect())
    }

    fn rounding(&self, _: &[Array], want: &Array) -> Rounding {
        Rounding::exact(want)
    }
}

/// Rows of a table, and a padding row that gets no gradient.
pub fn embedding<B: Backend>(backend: &B) {
    let cases = (1usize..9, shapes::dim(), shapes::shape(2)).prop_flat_map(|(rows, width, shape)| {
        let n: usize = shape.iter().product();
        let index = prop::collection::vec(0..rows as i32, n);
        (shapes::values(&[rows, width], -2.0, 2.0), index).prop_map(move |(table, index)| Embedding {
            table,
            shape: shape.clone(),
            index,
        })
    });
    check(
        backend,
        cases.prop_filter("at most 4096 elements", |c| c.index.len() * c.table.shape[1] <= 4096),
    );
    let run = || -> Result<()> {
        let table = Tensor::from_slice(backend, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?.requires_grad();
        let index = Indices::from_slice(backend, &[2, 1, 2, 0], &[2, 2])?;
        let y = table.embedding(&index, Some(1))?;
        assert_eq!(y.to_vec::<f32>()?, [5.0, 6.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0]);
        let grads = y.backward_with(&y.full_like(1.0)?)?;
        let g = grads.get(&table).map_or(Ok(Vec::new()), |g| g.to_vec::<f32>())?;
        assert_eq!(g, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0]);
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("embedding: {e}"));
}

/// One-hot vectors in every float dtype.
pub fn one_hot<B: Backend>(backend: &B) {
    let run = || -> Result<()> {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            if !backend.supports_dtype(dtype) {
                continue;
            }
            let y = Indices::from_slice(backend, &[2, 0, 1, 2], &[2, 2])?.one_hot(3, dtype)?;
            assert_eq!(y.shape().dims(), [2, 2, 3]);
            assert_eq!(y.to_f64()?, [0., 0., 1., 1., 0., 0., 0., 1., 0., 0., 0., 1.]);
        }
        let none = Indices::from_slice::<i32>(backend, &[], &[0])?.one_hot(3, DType::F32)?;
        assert_eq!(none.shape().dims(), [0, 3]);
        Ok(())
    };
    run().unwrap_or_else(|e| panic!("one_hot: {e}"));
}
