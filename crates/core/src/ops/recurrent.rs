//! One direction of a layer of a recurrent network, over whole sequences.

use super::{Op, coded};
use crate::{Error, Result, Runtime, Shape};
use bytemuck::{Pod, Zeroable};

coded! {
    /// The cell of a recurrent layer. With `a = x[t] + W·h + b` in parts of `hidden` elements, in PyTorch's order of the gates:
    RecurrentCell {
        /// `h' = tanh(a)` (Elman 1990; `torch.nn.RNN`).
        Tanh,
        /// `h' = max(a, 0)` (`torch.nn.RNN` with `nonlinearity='relu'`).
        Relu,
        /// `i, f, o = σ(aᵢ), σ(a_f), σ(a_o)`, `g = tanh(a_g)`, `c' = f·c + i·g`, `h' = o·tanh(c')`, parts in the order i, f, g, o
        /// (Hochreiter & Schmidhuber 1997; `torch.nn.LSTM`).
        Lstm,
        /// `r, z = σ(a_r), σ(a_z)`, `n = tanh(x_n + r·(W_n·h + b_n))`, `h' = (1 − z)·n + z·h`, parts in the order r, z, n (Cho et al. 2014;
        /// `torch.nn.GRU`).
        Gru,
    }
}

impl RecurrentCell {
    /// The number of parts of the products of inputs and states: 1, 4 for an LSTM, 3 for a GRU.
    pub fn gates(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 1,
            RecurrentCell::Lstm => 4,
            RecurrentCell::Gru => 3,
        }
    }

    /// The number of vectors of `hidden` elements that each step keeps for the gradient: i, f, g, o and c' of an LSTM, r, z, n and
    /// `W_n·h + b_n` of a GRU, none of the others, whose result tells the slope.
    pub fn kept(self) -> usize {
        match self {
            RecurrentCell::Tanh | RecurrentCell::Relu => 0,
            RecurrentCell::Lstm => 5,
            RecurrentCell::Gru => 4,
        }
    }
}

/// Parameters of a direction of a recurrent layer over `steps` steps of `batch` sequences.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct RecurrentParams {
    /// The number of steps T.
    pub steps: u64,
    /// The number of sequences N.
    pub batch: u64,
    /// The number of elements H of a state.
    pub hidden: u64,
    /// The code of the [`RecurrentCell`].
    pub cell: u32,
    /// 1 for the direction from the last step of each sequence to its first.
    pub reverse: u32,
    /// 1 if the result has one step more, in which the last cells of an LSTM are.
    pub last_cells: u32,
    /// Zero.
    pub pad: u32,
}
const _: () = assert!(size_of::<RecurrentParams>() == 40);

impl RecurrentParams {
    /// Parameters for the products `x [T, N, G·H]` of inputs, with their biases, and the weight `w [G·H, H]` of states, and the shape of
    /// the result, `[T, N, H]`, or `[T + 1, N, H]` with the last cells.
    ///
    /// # Errors
    /// Other ranks, no hidden elements, a weight of another shape, last cells of a cell that has none.
    pub fn new(
        op: &'static str,
        cell: RecurrentCell,
        x: &Shape,
        w: &Shape,
        reverse: bool,
        last_cells: bool,
    ) -> Result<(Self, Shape)> {
        let (&[steps, batch, width], &[rows, hidden]) = (x.dims(), w.dims()) else {
            let (expected, rank) = match x.rank() {
                3 => ("2 of the weight", w.rank()),
                rank => ("3", rank),
            };
            return Err(Error::Rank { op, expected, rank });
        };
        let gates = cell.gates();
        if hidden == 0 {
            return Err(Error::invalid(op, "hidden", 0, "at least 1"));
        }
        if hidden.checked_mul(gates) != Some(rows) || width != rows {
            let expected = format!("{gates} times {hidden} rows, as many as the input has elements");
            return Err(Error::invalid(
                op,
                "weight",
                format!("{rows} rows for {width} elements"),
                expected,
            ));
        }
        if last_cells && cell != RecurrentCell::Lstm {
            return Err(Error::invalid(
                op,
                "cells",
                format!("{cell:?}"),
                "an LSTM, which has them",
            ));
        }
        let shape = Shape::new(&[steps.saturating_add(usize::from(last_cells)), batch, hidden])?;
        Shape::new(&[steps, batch, cell.kept().max(gates), hidden])?;
        let p = RecurrentParams {
            steps: steps as u64,
            batch: batch as u64,
            hidden: hidden as u64,
            cell: cell as u32,
            reverse: u32::from(reverse),
            last_cells: u32::from(last_cells),
            pad: 0,
        };
        Ok((p, shape))
    }

    /// The cell; that of code 0 for a code of none, which [`checks`](crate::checks) refuse.
    pub fn cell(&self) -> RecurrentCell {
        RecurrentCell::from_code(self.cell).unwrap_or(RecurrentCell::Tanh)
    }

    /// The number of elements of what the gradient reads: `T·N·H` times [`RecurrentCell::kept`].
    pub fn kept(&self) -> usize {
        self.steps as usize * self.batch as usize * self.hidden as usize * self.cell().kept()
    }

    /// The floating-point operations of the products of states with their weight. The gradient without that of the weight takes as many.
    pub fn flops(&self) -> u64 {
        let products = [self.steps, self.batch, self.hidden, self.hidden];
        products
            .into_iter()
            .fold(2 * self.cell().gates() as u64, u64::saturating_mul)
    }
}

/// The operands of [`RecurrentOps`] besides the products of the inputs.
#[derive(Debug)]
pub struct RecurrentOperands<'a, B> {
    /// The weight `[G·H, H]` of states, gate below gate.
    pub w: &'a B,
    /// The bias `[G·H]` of its products.
    pub bias: Option<&'a B>,
    /// The states `[N, H]` before the first step.
    pub h0: &'a B,
    /// The cells `[N, H]` before the first step, of an LSTM alone.
    pub c0: Option<&'a B>,
    /// The i32 lengths `[N]` of the sequences, all of which begin at step 0; without them all have T steps.
    pub lengths: Option<&'a B>,
}

impl<B> Clone for RecurrentOperands<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for RecurrentOperands<'_, B> {}

/// The results of [`RecurrentOps::recurrent_grad`].
#[derive(Debug)]
pub struct RecurrentGrads<'a, B> {
    /// The gradient of the products of the inputs, `[T, N, G·H]`.
    pub dx: &'a mut B,
    /// The gradient of the products of the states and their bias, `[T, N, G·H]`; of a GRU alone, for the others it is `dx`.
    pub dr: Option<&'a mut B>,
    /// The state before each step, `[T, N, H]`, and 0 where a sequence has no such step: with `dr` it gives the gradient of the weight,
    /// `drᵀ·before`.
    pub before: &'a mut B,
    /// The gradient of the first states `[N, H]`.
    pub dh0: &'a mut B,
    /// That of the first cells, of an LSTM alone.
    pub dc0: Option<&'a mut B>,
}

/// Recurrent layers of a backend, [`Op::Recurrent`].
///
/// Steps at and beyond the length of a sequence are none of its own: their results are 0 and the state is carried past them, so that the
/// reverse direction begins at the last step of each sequence, as PyTorch has it of packed sequences. Any number is a valid length.
pub trait RecurrentOps: Runtime {
    /// Computes `y[t]`, the state after each step, by the formulas of the [`RecurrentCell`], from the products `x [T, N, G·H]` of the
    /// inputs; with `last_cells` the cells after the last step of each sequence follow as `y[T]`.
    ///
    /// `kept`, `[T, N, K, H]` of the accumulation dtype with K of [`RecurrentCell::kept`], is what [`recurrent_grad`] reads, if it will
    /// be called; steps that are none of a sequence's need not be written.
    ///
    /// [`recurrent_grad`]: RecurrentOps::recurrent_grad
    fn recurrent(
        &self,
        p: &RecurrentParams,
        x: &Self::Buffer,
        of: &RecurrentOperands<'_, Self::Buffer>,
        kept: Option<&mut Self::Buffer>,
        y: &mut Self::Buffer,
    ) -> Result<()> {
        let _ = (p, x, of, kept, y);
        self.unsupported(Op::Recurrent)
    }

    /// Computes the gradients from `kept` and `y` of [`recurrent`](RecurrentOps::recurrent) and the gradient `g` of `y`, whose steps that
    /// are none of a sequence's do not count.
    fn recurrent_grad(
        &self,
        p: &RecurrentParams,
        of: &RecurrentOperands<'_, Self::Buffer>,
        kept: &Self::Buffer,
        y: &Self::Buffer,
        g: &Self::Buffer,
        to: RecurrentGrads<'_, Self::Buffer>,
    ) -> Result<()> {
        let _ = (p, of, kept, y, g, to);
        self.unsupported(Op::Recurrent)
    }
}
