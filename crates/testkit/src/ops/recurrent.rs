//! Directions of recurrent layers.

use crate::{Array, Case, Rounding, check, refused, shapes};
use kiln_core::{Backend, DType, Error, Result};
use kiln_nn::ops::{Recurrence, RecurrentCell};
use kiln_nn::{Indices, Tensor};
use proptest::prelude::*;

/// A call; its inputs are the products of the inputs, the weight, the first states, then the first cells of an LSTM, the bias and the
/// projection where it has them.
#[derive(Clone, Debug)]
struct Sequences {
    cell: RecurrentCell,
    inputs: Vec<Array>,
    bias: bool,
    projection: bool,
    lengths: Option<Vec<i32>>,
    reverse: bool,
    last_cells: bool,
}

/// Numbers with bounds of their errors, in units of roundoff.
type Vector = Vec<(f64, f64)>;

impl Sequences {
    fn lstm(&self) -> bool {
        self.cell == RecurrentCell::Lstm
    }

    fn bias<T>(&self, x: &[T]) -> Option<usize> {
        self.bias
            .then_some(3 + usize::from(self.lstm()))
            .filter(|&i| i < x.len())
    }

    /// Every state, and the last cells, each with a bound of its error.
    fn states(&self, x: &[Array]) -> Vector {
        let (steps, batch) = (x[0].shape[0], x[0].shape[1]);
        let width = x[2].shape[1];
        let hidden = x[0].shape[2] / self.cell.gates();
        let mut y = vec![(0.0, 0.0); steps * batch * width];
        let mut cells = Vec::new();
        for n in 0..batch {
            let row = |x: &Array| -> Vector { (0..x.shape[1]).map(|j| (x.at(&[n, j]), 0.0)).collect() };
            let mut h = row(&x[2]);
            let mut c = if self.lstm() { row(&x[3]) } else { Vec::new() };
            let len = self
                .lengths
                .as_ref()
                .map_or(steps, |lengths| lengths[n].max(0) as usize);
            let own = 0..len.min(steps);
            let order: Vec<usize> = if self.reverse {
                own.rev().collect()
            } else {
                own.collect()
            };
            for t in order {
                h = self.step(x, [t, n, hidden], &h, &mut c);
                y[(t * batch + n) * width..][..width].copy_from_slice(&h);
            }
            cells.extend(c);
        }
        if self.last_cells {
            y.extend(cells);
        }
        y
    }

    /// The state after a step.
    fn step(&self, x: &[Array], [t, n, hidden]: [usize; 3], h: &[(f64, f64)], c: &mut Vector) -> Vector {
        let input = |gate: usize, j: usize| (x[0].at(&[t, n, gate * hidden + j]), 0.0);
        let product = |gate: usize, j: usize| {
            let row = gate * hidden + j;
            let bias = self.bias(x).map_or(0.0, |i| x[i].data[row]);
            dot(bias, h, |k| x[1].at(&[row, k]))
        };
        let new: Vector = (0..hidden)
            .map(|j| {
                let sum = |gate| plus(input(gate, j), product(gate, j));
                match self.cell {
                    RecurrentCell::Tanh => tanh(sum(0)),
                    RecurrentCell::Relu => (sum(0).0.max(0.0), sum(0).1),
                    RecurrentCell::Lstm => {
                        let (i, f, g, o) = (sigmoid(sum(0)), sigmoid(sum(1)), tanh(sum(2)), sigmoid(sum(3)));
                        c[j] = plus(times(f, c[j]), times(i, g));
                        times(o, tanh(c[j]))
                    }
                    RecurrentCell::Gru => {
                        let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
                        let new = tanh(plus(input(2, j), times(r, product(2, j))));
                        plus(times((1.0 - z.0, z.1 + 1.0), new), times(z, h[j]))
                    }
                }
            })
            .collect();
        match self.projection {
            true => {
                let w = &x[x.len() - 1];
                (0..w.shape[0]).map(|i| dot(0.0, &new, |k| w.at(&[i, k]))).collect()
            }
            false => new,
        }
    }

    fn shape(&self, x: &[Array]) -> Vec<usize> {
        let states = [x[0].shape[0], x[0].shape[1], x[2].shape[1]];
        match self.last_cells {
            true => vec![states.iter().product::<usize>() + x[3].size()],
            false => states.to_vec(),
        }
    }
}

/// `first + Σ w(k)·x[k]`
fn dot(first: f64, x: &[(f64, f64)], w: impl Fn(usize) -> f64) -> (f64, f64) {
    let terms = x.iter().enumerate().map(|(k, x)| (w(k) * x.0, w(k).abs() * x.1));
    let (sum, size, error) = terms.fold((first, first.abs(), 0.0), |(sum, size, all), (term, error)| {
        (sum + term, size + term.abs(), all + error)
    });
    (sum, error + (x.len() as f64 + 2.0) * size)
}

fn plus(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 + b.0, a.1 + b.1 + 2.0 * (a.0.abs() + b.0.abs()))
}

fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0, a.0.abs() * b.1 + a.1 * b.0.abs() + 2.0 * (a.0 * b.0).abs())
}

fn sigmoid(x: (f64, f64)) -> (f64, f64) {
    let y = 1.0 / (1.0 + (-x.0).exp());
    (y, 0.25 * x.1 + 4.0 * y)
}

fn tanh(x: (f64, f64)) -> (f64, f64) {
    (x.0.tanh(), x.1 + 4.0 * x.0.tanh().abs())
}

impl Case for Sequences {
    fn inputs(&self) -> Vec<Array> {
        self.inputs.clone()
    }

    fn call<B: Backend>(&self, backend: &B, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        let lengths = self.lengths.as_ref();
        let lengths = lengths
            .map(|lengths| Indices::from_slice(backend, lengths, &[lengths.len()]))
            .transpose()?;
        let (y, c) = x[0].recurrent(&Recurrence {
            bias: self.bias(x).map(|i| &x[i]),
            projection: self.projection.then(|| &x[x.len() - 1]),
            h0: Some(&x[2]),
            c0: self.lstm().then(|| &x[3]),
            lengths: lengths.as_ref(),
            reverse: self.reverse,
            last_cells: self.last_cells,
            ..Recurrence::new(self.cell, &x[1])
        })?;
        match c {
            Some(c) => Tensor::concat(&[&y.flatten(0, -1)?, &c.flatten(0, -1)?], 0),
            None => Ok(y),
        }
    }

    fn oracle(&self, x: &[Array]) -> Array {
        Array::new(&self.shape(x), self.states(x).into_iter().map(|(y, _)| y).collect())
    }

    /// The errors of the formulas, step by step. Backward passes of halves multiply by a rounded state at each step.
    fn rounding(&self, x: &[Array], _: &Array) -> Rounding {
        let (steps, width) = (x[0].shape[0] as f64, x[2].shape[1] as f64);
        let count = steps * (width + 12.0);
        let errors = self
            .states(x)
            .into_iter()
            .map(|(y, error)| (error / count).max(y.abs()));
        Rounding::terms(count, Array::new(&self.shape(x), errors.collect())).stored(steps)
    }

    /// A derivative of a gate is that of a difference of about 1, times seeds, states and cells.
    fn slope_terms(&self, x: &[Array]) -> f64 {
        let largest = |x: &Array| x.data.iter().fold(1.0, |m: f64, x| x.abs().max(m));
        1.5 * x.iter().skip(2).map(largest).fold(1.0, f64::max)
    }
}

/// Directions of every cell, with sequences of one length and of several.
pub fn sequences<B: Backend>(backend: &B) {
    let cell = prop::sample::select(RecurrentCell::ALL.to_vec());
    let steps = prop_oneof![6 => 1usize..5, 1 => Just(9usize)];
    let batch = prop_oneof![6 => 1usize..4, 1 => Just(0usize), 1 => prop::sample::select(vec![9usize, 17])];
    let hidden = prop_oneof![6 => 1usize..4, 2 => prop::sample::select(vec![7usize, 15, 16, 17, 33])];
    let choice = (
        cell,
        steps,
        batch,
        hidden,
        any::<[bool; 5]>(),
        prop::option::of(1usize..4),
    );
    let strategy = choice
        .prop_filter("at most 8192 elements", |(cell, t, n, h, ..)| {
            (t * n + h) * cell.gates() * h <= 8192
        })
        .prop_flat_map(
            |(cell, t, n, h, [bias, packed, reverse, last_cells, projects], width)| {
                let lstm = cell == RecurrentCell::Lstm;
                let projection = width.filter(|_| projects && lstm);
                let (rows, width) = (cell.gates() * h, projection.unwrap_or(h));
                let small = 1.5 / (width as f64).sqrt();
                let mut inputs = vec![
                    shapes::values(&[t, n, rows], -2.0, 2.0).boxed(),
                    shapes::values(&[rows, width], -small, small).boxed(),
                    shapes::values(&[n, width], -1.0, 1.0).boxed(),
                ];
                if lstm {
                    inputs.push(shapes::values(&[n, h], -1.5, 1.5).boxed());
                }
                if bias {
                    inputs.push(shapes::values(&[rows], -1.0, 1.0).boxed());
                }
                if projection.is_some() {
                    inputs.push(shapes::values(&[width, h], -1.0, 1.0).boxed());
                }
                let lengths = prop::collection::vec(0..=t as i32, n).prop_map(move |lengths| packed.then_some(lengths));
                (inputs, lengths).prop_map(move |(inputs, lengths)| Sequences {
                    cell,
                    inputs,
                    bias,
                    projection: projection.is_some(),
                    lengths,
                    reverse,
                    last_cells: last_cells && lstm,
                })
            },
        );
    check(backend, strategy);
}

/// Shapes, cells and lengths that do not fit are typed errors.
pub fn refused<B: Backend>(backend: &B) {
    let zeros = |dims: &[usize]| Tensor::zeros(backend, dims, DType::F32).unwrap_or_else(|e| panic!("{e}"));
    let (x, w, state) = (zeros(&[3, 2, 8]), zeros(&[8, 2]), zeros(&[2, 2]));
    let lstm = Recurrence::new(RecurrentCell::Lstm, &w);
    for dims in [&[][..], &[8], &[2, 8], &[1, 3, 2, 8]] {
        refused!(zeros(dims).recurrent(&lstm), Error::Rank { .. });
    }
    refused!(
        zeros(&[0, 2, 8]).recurrent(&lstm),
        Error::InvalidArgument { argument: "steps", .. }
    );
    refused!(zeros(&[3, 2, 9]).recurrent(&lstm), Error::InvalidArgument { .. });
    refused!(zeros(&[3, 2, 0]).recurrent(&lstm), Error::InvalidArgument { .. });
    refused!(zeros(&[3, 2, 4]).recurrent(&lstm), Error::ShapeMismatch { .. });
    for other in [zeros(&[2, 3]), zeros(&[3, 2]), zeros(&[2])] {
        for wrong in [
            Recurrence {
                h0: Some(&other),
                ..lstm
            },
            Recurrence {
                c0: Some(&other),
                ..lstm
            },
            Recurrence {
                bias: Some(&other),
                ..lstm
            },
        ] {
            refused!(x.recurrent(&wrong), Error::ShapeMismatch { .. });
        }
    }
    let gru = Recurrence {
        c0: Some(&state),
        ..Recurrence::new(RecurrentCell::Gru, &w)
    };
    refused!(x.recurrent(&gru), Error::InvalidArgument { argument: "c0", .. });
    let rnn = zeros(&[2, 2]);
    let cells = Recurrence {
        last_cells: true,
        ..Recurrence::new(RecurrentCell::Tanh, &rnn)
    };
    refused!(
        zeros(&[3, 2, 2]).recurrent(&cells),
        Error::InvalidArgument { argument: "cells", .. }
    );
    for (lengths, shape) in [(vec![1i32, 2, 3], vec![3]), (vec![1, 2], vec![1, 2])] {
        let lengths = Indices::from_slice(backend, &lengths, &shape).unwrap_or_else(|e| panic!("{e}"));
        let packed = Recurrence {
            lengths: Some(&lengths),
            ..lstm
        };
        refused!(
            x.recurrent(&packed),
            Error::InvalidArgument {
                argument: "lengths",
                ..
            }
        );
    }
}
