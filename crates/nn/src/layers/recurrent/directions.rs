//! Recurrent layers: directions and layers of them, one after another.

use crate::layers::{Dropout, Layer};
use crate::module::Runnable;
use crate::ops::{Recurrence, RecurrentCell, last_states};
use crate::{Activation, Backend, Error, Indices, Param, Result, Shape, Tensor, Walk, WalkMut, Walkable, trace};

/// The parameters of one direction of a layer.
#[derive(Clone, Debug)]
pub(super) struct Direction<B: Backend> {
    pub(super) weight_ih: Param<B>,
    pub(super) weight_hh: Param<B>,
    pub(super) bias_ih: Option<Param<B>>,
    pub(super) bias_hh: Option<Param<B>>,
    pub(super) weight_hr: Option<Param<B>>,
}

/// The states of a recurrent network, before its first step or after its last.
///
/// See the example of [`RecurrentLayers::forward_from`].
#[derive(Clone, Debug)]
pub struct RecurrentState<B: Backend> {
    /// The states `[layers·directions, N, H]` (`h_n`), those of a layer side by side, the reverse direction second. Of an LSTM that projects
    /// them they have as many elements as the projection.
    pub h: Tensor<B>,
    /// The cells `[layers·directions, N, H]` of an LSTM (`c_n`); if they are `None` before the first step, they are zeros.
    pub c: Option<Tensor<B>>,
}

/// One or several recurrent layers, each with one direction or two: [`Rnn`](crate::layers::Rnn), [`Lstm`](crate::layers::Lstm) or
/// [`Gru`](crate::layers::Gru), by the kind of their cell. They have PyTorch's names of
/// parameters (`weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, of a projection `weight_hr_l0`, of the reverse direction with
/// `_reverse` behind it).
///
/// Input `[T, N, in]`, result `[T, N, directions·H]`; with `batch_first` `[N, T, in]` and `[N, T, directions·H]`.
///
/// ```
/// use kiln_nn::{DType, Init, Layer, Module, Tensor, layers::Gru};
/// # let cpu = kiln_cpu::Cpu::new();
/// let gru = Gru::builder(8, 16).layers(2).bidirectional(true).build(&mut Init::new(&cpu, 0))?;
/// let x = Tensor::zeros(&cpu, &[5, 3, 8], DType::F32)?;
/// assert_eq!(gru.forward(&x)?.shape().dims(), [5, 3, 32]);
/// assert_eq!(gru.named_parameters()[4].0, "weight_ih_l0_reverse");
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecurrentLayers<B: Backend> {
    pub(super) cell: RecurrentCell,
    /// Layer by layer, the reverse direction of a layer second.
    pub(super) directions: Vec<Direction<B>>,
    pub(super) bidirectional: bool,
    pub(super) batch_first: bool,
    pub(super) dropout: Option<Dropout<B>>,
}

/// The last states of each direction, and of an LSTM its last cells.
type Last<B> = Vec<(Tensor<B>, Option<Tensor<B>>)>;

#[compiled_once]
impl<B: Backend> RecurrentLayers<B> {
    /// The result from given states, and the states after the last step: PyTorch's `y, (h_n, c_n) = lstm(x, (h_0, c_0))`.
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Layer, Rng, Tensor, layers::Lstm};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let lstm = Lstm::new(init, 8, 16)?;
    /// let x = Tensor::randn(&cpu, &[6, 3, 8], DType::F32, &mut Rng::new(0))?;
    /// // A sequence in two parts is the sequence.
    /// let (_, state) = lstm.forward_from(&x.narrow(0, 0, 4)?, None)?;
    /// let (y, state) = lstm.forward_from(&x.narrow(0, 4, 2)?, Some(&state))?;
    /// assert_eq!(state.h.shape().dims(), [1, 3, 16]);
    /// let apart = y.sub(&lstm.forward(&x)?.narrow(0, 4, 2)?)?.abs()?;
    /// assert!(apart.max(&[], false)?.item()? < 1e-6);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An input of another rank or width, no steps, states of other shapes, cells where there are none, memory.
    pub fn forward_from(
        &self,
        x: &Tensor<B>,
        state: Option<&RecurrentState<B>>,
    ) -> Result<(Tensor<B>, RecurrentState<B>)> {
        self.with_states(x, None, state)
    }

    /// As [`forward_from`](Self::forward_from), for sequences of i32 `lengths` `[N]` that are padded at their ends: results behind a sequence
    /// are 0, states are those after its own last step, and the reverse direction begins there. It is what PyTorch gives for
    /// `torch.nn.utils.rnn.pack_padded_sequence` with `enforce_sorted=False`, padded again.
    ///
    /// ```
    /// # use kiln_nn::{DType, Indices, Init, Tensor, layers::Gru};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let gru = Gru::builder(4, 2).batch_first(true).build(init)?;
    /// let lengths = Indices::from_slice(&cpu, &[3i32, 1], &[2])?;
    /// let (y, state) = gru.forward_packed(&Tensor::ones(&cpu, &[2, 3, 4], DType::F32)?, &lengths, None)?;
    /// let y = y.to_vec::<f32>()?;
    /// assert_eq!(y[8..], [0.0; 4]); // two steps of the second sequence
    /// assert_eq!(state.h.to_vec::<f32>()?, [&y[4..6], &y[6..8]].concat());
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `forward_from`; lengths of another shape or dtype, and those outside of `1..=T`.
    pub fn forward_packed(
        &self,
        x: &Tensor<B>,
        lengths: &Indices<B>,
        state: Option<&RecurrentState<B>>,
    ) -> Result<(Tensor<B>, RecurrentState<B>)> {
        self.with_states(x, Some(lengths), state)
    }

    fn with_states(
        &self,
        x: &Tensor<B>,
        lengths: Option<&Indices<B>>,
        state: Option<&RecurrentState<B>>,
    ) -> Result<(Tensor<B>, RecurrentState<B>)> {
        let mut last = Vec::new();
        let y = trace::scope(self, x, || self.steps(x, lengths, state, Some(&mut last)))?;
        let h: Vec<&Tensor<B>> = last.iter().map(|(h, _)| h).collect();
        let c: Vec<&Tensor<B>> = last.iter().filter_map(|(_, c)| c.as_ref()).collect();
        let state = RecurrentState {
            h: Tensor::stack(&h, 0)?,
            c: (!c.is_empty()).then(|| Tensor::stack(&c, 0)).transpose()?,
        };
        Ok((y, state))
    }

    /// The result, and the last states and cells of each direction if they are wanted.
    fn steps(
        &self,
        x: &Tensor<B>,
        lengths: Option<&Indices<B>>,
        state: Option<&RecurrentState<B>>,
        mut last: Option<&mut Last<B>>,
    ) -> Result<Tensor<B>> {
        let op = self.kind();
        if x.rank() != 3 {
            return Err(Error::Rank {
                op,
                expected: "3",
                rank: x.rank(),
            });
        }
        let mut y = if self.batch_first {
            x.transpose(0, 1)?
        } else {
            x.clone()
        };
        let count = 1 + usize::from(self.bidirectional);
        for (layer, directions) in self.directions.chunks(count).enumerate() {
            let mut results = Vec::with_capacity(count);
            for (i, direction) in directions.iter().enumerate() {
                let first = |of: &Tensor<B>| {
                    let all = self.directions.len();
                    if of.rank() != 3 || of.shape()[0] != all {
                        let expected = format!("[{all}, N, H]: a state for each layer and direction");
                        return Err(Error::invalid(op, "state", of.shape(), expected));
                    }
                    of.narrow(0, layer * count + i, 1)?.squeeze(0)
                };
                let h0 = state.map(|state| first(&state.h)).transpose()?;
                let c0 = state.and_then(|state| state.c.as_ref()).map(first).transpose()?;
                let reverse = i == 1;
                let (result, c) = direction.run(
                    &y,
                    &Recurrence {
                        h0: h0.as_ref(),
                        c0: c0.as_ref(),
                        lengths,
                        reverse,
                        last_cells: last.is_some() && self.cell == RecurrentCell::Lstm,
                        ..Recurrence::new(self.cell, &direction.weight_hh)
                    },
                )?;
                if let Some(last) = last.as_deref_mut() {
                    last.push((last_states(&result, lengths, reverse)?, c));
                }
                results.push(result);
            }
            y = match results.as_slice() {
                [one] => one.clone(),
                both => Tensor::concat(&both.iter().collect::<Vec<_>>(), -1)?,
            };
            if let Some(dropout) = self
                .dropout
                .as_ref()
                .filter(|_| (layer + 1) * count < self.directions.len())
            {
                y = dropout.forward(&y)?;
            }
        }
        if self.batch_first { y.transpose(0, 1) } else { Ok(y) }
    }
}

impl<B: Backend> Direction<B> {
    /// The states after each step, and the last cells.
    fn run(&self, x: &Tensor<B>, of: &Recurrence<'_, B>) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let products = x.linear(&self.weight_ih, self.bias_ih.as_deref(), Activation::None)?;
        products.recurrent(&Recurrence {
            bias: self.bias_hh.as_deref(),
            projection: self.weight_hr.as_deref(),
            ..*of
        })
    }

    /// The elements of all matrices: the multiply-adds of a step.
    fn products(&self) -> usize {
        let projection = self.weight_hr.as_ref().map_or(0, |w| w.size());
        self.weight_ih.size() + self.weight_hh.size() + projection
    }
}

impl<B: Backend> Walkable<B> for RecurrentLayers<B> {
    fn kind(&self) -> &'static str {
        match self.cell {
            RecurrentCell::Tanh | RecurrentCell::Relu => "RNN",
            RecurrentCell::Lstm => "LSTM",
            RecurrentCell::Gru => "GRU",
        }
    }
    fn copied(&self) -> Option<Box<dyn Runnable<B>>> {
        Some(Runnable::duplicate(self))
    }
    fn walk<'a>(&'a self, walk: &mut Walk<'_, 'a, B>) {
        for (i, direction) in self.directions.iter().enumerate() {
            let behind = suffix(i, self.bidirectional);
            walk.field(&format!("weight_ih{behind}"), &direction.weight_ih);
            walk.field(&format!("weight_hh{behind}"), &direction.weight_hh);
            walk.field(&format!("bias_ih{behind}"), &direction.bias_ih);
            walk.field(&format!("bias_hh{behind}"), &direction.bias_hh);
            walk.field(&format!("weight_hr{behind}"), &direction.weight_hr);
        }
        walk.field("dropout", &self.dropout);
    }
    fn walk_mut<'a>(&'a mut self, walk: &mut WalkMut<'_, 'a, B>) {
        for (i, direction) in self.directions.iter_mut().enumerate() {
            let behind = suffix(i, self.bidirectional);
            walk.field(&format!("weight_ih{behind}"), &mut direction.weight_ih);
            walk.field(&format!("weight_hh{behind}"), &mut direction.weight_hh);
            walk.field(&format!("bias_ih{behind}"), &mut direction.bias_ih);
            walk.field(&format!("bias_hh{behind}"), &mut direction.bias_hh);
            walk.field(&format!("weight_hr{behind}"), &mut direction.weight_hr);
        }
        walk.field("dropout", &mut self.dropout);
    }
}

/// The end of the names of direction `i`: `_l0`, `_l0_reverse`, …
fn suffix(i: usize, bidirectional: bool) -> String {
    match bidirectional {
        true => format!("_l{}{}", i / 2, ["", "_reverse"][i % 2]),
        false => format!("_l{i}"),
    }
}

#[compiled_once]
impl<B: Backend> Layer<B> for RecurrentLayers<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        self.steps(x, None, None, None)
    }

    fn flops(&self, input: &Shape, _: &Shape) -> u64 {
        let width = self.directions.first().map_or(1, |d| d.weight_ih.shape()[1]).max(1);
        let products: usize = self.directions.iter().map(Direction::products).sum();
        2 * (input.size() / width) as u64 * products as u64
    }
}
