//! Reading and writing by several index tensors, and by masks.

use crate::ops::matmul::magnitudes;
use crate::{Array, Case, Rounding, check_with, shapes};
use kiln_core::{Backend, Result};
use kiln_nn::ops::index::AxisIndex;
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

/// An index of one axis.
#[derive(Clone, Debug)]
enum Index {
    All,
    At(isize),
    /// Entries, and whether their tensor is a column `[n, 1]` rather than a row `[n]`.
    Entries(Vec<i32>, bool),
}

/// Indices of all axes, whose index tensors broadcast to `[3, 2]`.
#[derive(Clone, Debug)]
struct Indexed {
    x: Array,
    index: Vec<Index>,
    /// The part's shape, and the place in `x` of each of its elements.
    shape: Vec<usize>,
    places: Vec<usize>,
    /// Values that are written; none if the part is read. They are one element, or as many as the part has.
    values: Option<Array>,
    accumulate: bool,
}

/// The part that the indices name, by PyTorch's rules.
fn part(shape: &[usize], index: &[Index]) -> (Vec<usize>, Vec<usize>) {
    let strides: Vec<usize> = (0..shape.len()).map(|d| shape[d + 1..].iter().product()).collect();
    let kept: Vec<usize> = (0..shape.len()).filter(|&d| matches!(index[d], Index::All)).collect();
    let named: Vec<usize> = (0..shape.len())
        .filter(|&d| matches!(index[d], Index::Entries(..)))
        .collect();
    let columns = named.iter().any(|&d| matches!(index[d], Index::Entries(_, true)));
    let rows = named.iter().any(|&d| matches!(index[d], Index::Entries(_, false)));
    let of_entries = match (columns, rows) {
        (true, true) => vec![3, 2],
        (true, false) => vec![3, 1],
        (false, true) => vec![2],
        _ => vec![],
    };
    // Axes between the named ones, after positions have dropped theirs.
    let between = |d: &usize| named.first().is_some_and(|f| d > f) && named.last().is_some_and(|l| d < l);
    let before = match kept.iter().any(between) {
        true => 0,
        false => kept.iter().filter(|d| named.first().is_some_and(|f| *d < f)).count(),
    };
    let mut dims: Vec<usize> = kept.iter().map(|&d| shape[d]).collect();
    dims.splice(before..before, of_entries.iter().copied());
    let wrap = |i: isize, d: usize| if i < 0 { i + shape[d] as isize } else { i } as usize;
    let places = (0..dims.iter().product()).map(|i: usize| {
        let (mut rest, mut at) = (i, vec![0; dims.len()]);
        for d in (0..dims.len()).rev() {
            at[d] = rest % dims[d];
            rest /= dims[d];
        }
        let entry = &at[before..before + of_entries.len()];
        let mut own = at[..before].iter().chain(&at[before + of_entries.len()..]);
        (0..shape.len())
            .map(|d| {
                let i = match &index[d] {
                    Index::All => *own.next().unwrap_or(&0),
                    Index::At(i) => wrap(*i, d),
                    Index::Entries(list, true) => wrap(list[entry[0]] as isize, d),
                    Index::Entries(list, false) => wrap(list[entry[entry.len() - 1]] as isize, d),
                };
                i * strides[d]
            })
            .sum()
    });
    let places = places.collect();
    (dims, places)
}

impl Indexed {
    fn index<B: Backend>(&self, backend: &B) -> Result<Vec<AxisIndex<B>>> {
        let one = |index: &Index| {
            Ok(match index {
                Index::All => AxisIndex::Slice(None, None, 1),
                Index::At(i) => AxisIndex::At(*i),
                Index::Entries(list, column) => {
                    let shape: &[usize] = if *column { &[3, 1] } else { &[2] };
                    AxisIndex::Entries(Indices::from_slice(backend, list, shape)?)
                }
            })
        };
        self.index.iter().map(one).collect()
    }
}

impl Case for Indexed {
    fn inputs(&self) -> Vec<Array> {
        [Some(self.x.clone()), self.values.clone()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let index = self.index(backend)?;
        match x.get(1) {
            Some(values) => x[0].index_put(index, values, self.accumulate),
            None => x[0].i(index),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        let Some(values) = x.get(1) else {
            return Array::new(&self.shape, self.places.iter().map(|&i| x[0].data[i]).collect());
        };
        let mut y = x[0].clone();
        for (k, &i) in self.places.iter().enumerate() {
            let value = values.data[k % values.data.len()];
            y.data[i] = if self.accumulate { y.data[i] + value } else { value };
        }
        y
    }

    fn rounding(&self, x: &[Array], want: &Array) -> Rounding {
        match self.accumulate {
            false => Rounding::exact(want),
            true => Rounding::terms(self.places.len() as f64, self.oracle(&magnitudes(x))),
        }
    }
}

fn cases(writes: bool) -> impl Strategy<Value = Indexed> {
    let shape = prop::collection::vec(1usize..4, 1..5);
    let kinds = prop::collection::vec((0u8..5, any::<[u8; 3]>()), 4);
    (shape, kinds, any::<[bool; 2]>()).prop_flat_map(move |(shape, kinds, [accumulate, one])| {
        let index = shape.iter().zip(&kinds).map(|(&n, (kind, c))| {
            let at = |c: u8| isize::from(c) % (2 * n as isize) - n as isize;
            let list = |count: usize| c[..count].iter().map(|&c| at(c) as i32).collect();
            match kind {
                0 | 1 => Index::All,
                2 => Index::At(at(c[0])),
                3 => Index::Entries(list(3), true),
                _ => Index::Entries(list(2), false),
            }
        });
        let index: Vec<Index> = index.collect();
        let (dims, places) = part(&shape, &index);
        let of_values: Vec<usize> = if one { vec![] } else { dims.clone() };
        let accumulate = accumulate && writes;
        (shapes::values(&shape, -2.0, 2.0), shapes::values(&of_values, -2.0, 2.0)).prop_map(move |(x, values)| {
            Indexed {
                x,
                index: index.clone(),
                shape: dims.clone(),
                places: places.clone(),
                values: writes.then_some(values),
                accumulate,
            }
        })
    })
}

/// Index tensors are broadcast, and take the place of their axes or come first.
pub fn several_index_tensors<B: Backend>(backend: &B) {
    check_with(32, backend, cases(false));
}

/// Writing a part, or adding to it; of places that are named twice the last value counts.
pub fn index_put<B: Backend>(backend: &B) {
    check_with(32, backend, cases(true));
}
