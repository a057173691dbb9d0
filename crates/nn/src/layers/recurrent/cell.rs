//! Single steps of recurrent networks.

use crate::init::Initializer;
use crate::ops::{Recurrence, RecurrentCell};
use crate::{Activation, Backend, Error, Init, Module, Param, Result, Tensor, trace};

/// The parameters of a cell, all drawn from U(−1/√H, 1/√H).
struct Parameters<B: Backend> {
    weight_ih: Param<B>,
    weight_hh: Param<B>,
    bias_ih: Option<Param<B>>,
    bias_hh: Option<Param<B>>,
}

impl<B: Backend> Parameters<B> {
    fn new(init: &mut Init<B>, cell: RecurrentCell, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        for (name, value) in [("inputs", inputs), ("hidden", hidden)] {
            if value == 0 {
                return Err(Error::invalid("recurrent", name, 0, "at least 1"));
            }
        }
        let bound = 1.0 / (hidden as f64).sqrt();
        let drawn = Initializer::Uniform {
            low: -bound,
            high: bound,
        };
        let mut draw = |dims: &[usize]| init.tensor(dims, &drawn).map(Param::new);
        let too_large = || Error::invalid("recurrent", "hidden", hidden, "a size that fits memory");
        let rows = hidden.checked_mul(cell.gates()).ok_or_else(too_large)?;
        Ok(Parameters {
            weight_ih: draw(&[rows, inputs])?,
            weight_hh: draw(&[rows, hidden])?,
            bias_ih: bias.then(|| draw(&[rows])).transpose()?,
            bias_hh: bias.then(|| draw(&[rows])).transpose()?,
        })
    }
}

/// Declares a cell with its parameters.
macro_rules! cells {
    ($($(#[$doc:meta])* pub struct $name:ident, $kind:literal { $($option:ident: $type:ty),* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Module)]
        #[module(kind = $kind)]
        pub struct $name<B: Backend> {
            /// The weight of inputs, `[G·H, in]`.
            pub weight_ih: Param<B>,
            /// The weight of states, `[G·H, H]`.
            pub weight_hh: Param<B>,
            /// The bias of the products of inputs, `[G·H]`.
            pub bias_ih: Option<Param<B>>,
            /// The bias of the products of states, `[G·H]`.
            pub bias_hh: Option<Param<B>>,
            $($option: $type,)*
        }

        impl<B: Backend> $name<B> {
            /// One step of the formulas of `cell`: the state and the cells after it.
            fn step(
                &self,
                cell: RecurrentCell,
                x: &Tensor<B>,
                h: Option<&Tensor<B>>,
                c: Option<&Tensor<B>>,
            ) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
                let mut last = None;
                let h = trace::scope(self, x, || {
                    let products = x.linear(&self.weight_ih, self.bias_ih.as_deref(), Activation::None)?;
                    let (y, c) = products.unsqueeze(0)?.recurrent(&Recurrence {
                        bias: self.bias_hh.as_deref(),
                        h0: h,
                        c0: c,
                        last_cells: cell == RecurrentCell::Lstm,
                        ..Recurrence::new(cell, &self.weight_hh)
                    })?;
                    last = c;
                    y.squeeze(0)
                })?;
                Ok((h, last))
            }
        }
    )*};
}

cells! {
    /// One step of an [`Rnn`](super::Rnn) (`torch.nn.RNNCell`): inputs `[N, in]` and states `[N, H]` to states.
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Tensor, layers::RnnCell};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let cell = RnnCell::new(&mut Init::new(&cpu, 0), 8, 16, true)?;
    /// let x = Tensor::zeros(&cpu, &[3, 8], DType::F32)?;
    /// let h = cell.forward(&x, None)?;
    /// assert_eq!(cell.forward(&x, Some(&h))?.shape().dims(), [3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct RnnCell, "RNNCell" { relu: bool }
    /// One step of an [`Lstm`](super::Lstm) (`torch.nn.LSTMCell`): inputs `[N, in]`, states and cells `[N, H]` to states and cells.
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Tensor, layers::LstmCell};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let cell = LstmCell::new(&mut Init::new(&cpu, 0), 8, 16, true)?;
    /// let x = Tensor::zeros(&cpu, &[3, 8], DType::F32)?;
    /// let (h, c) = cell.forward(&x, None)?;
    /// assert_eq!(cell.forward(&x, Some((&h, &c)))?.1.shape().dims(), [3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct LstmCell, "LSTMCell" {}
    /// One step of a [`Gru`](super::Gru) (`torch.nn.GRUCell`): inputs `[N, in]` and states `[N, H]` to states.
    ///
    /// ```
    /// use kiln_nn::{DType, Init, Tensor, layers::GruCell};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let cell = GruCell::new(&mut Init::new(&cpu, 0), 8, 16, true)?;
    /// let x = Tensor::zeros(&cpu, &[3, 8], DType::F32)?;
    /// let h = cell.forward(&x, None)?;
    /// assert_eq!(cell.forward(&x, Some(&h))?.shape().dims(), [3, 16]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub struct GruCell, "GRUCell" {}
}

impl<B: Backend> RnnCell<B> {
    /// A cell from `inputs` elements to states of `hidden`, with or without biases.
    ///
    /// See the example of [`RnnCell`].
    ///
    /// # Errors
    /// Sizes of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        let p = Parameters::new(init, RecurrentCell::Tanh, inputs, hidden, bias)?;
        Ok(RnnCell {
            weight_ih: p.weight_ih,
            weight_hh: p.weight_hh,
            bias_ih: p.bias_ih,
            bias_hh: p.bias_hh,
            relu: false,
        })
    }

    /// The same cell with a ReLU in place of the hyperbolic tangent (`nonlinearity='relu'`).
    ///
    /// ```
    /// # use kiln_nn::{DType, Init, Tensor, layers::RnnCell};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// # let init = &mut Init::new(&cpu, 0);
    /// let h = RnnCell::new(init, 8, 16, true)?.relu().forward(&Tensor::ones(&cpu, &[1, 8], DType::F32)?, None)?;
    /// assert!(h.to_vec::<f32>()?.iter().all(|&h| h >= 0.0));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn relu(self) -> Self {
        RnnCell { relu: true, ..self }
    }

    /// The states `[N, H]` after a step with inputs `[N, in]` from states `[N, H]`, or from zeros.
    ///
    /// See the example of [`RnnCell`].
    ///
    /// # Errors
    /// Inputs or states of other shapes or dtypes, memory.
    pub fn forward(&self, x: &Tensor<B>, h: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        let cell = if self.relu {
            RecurrentCell::Relu
        } else {
            RecurrentCell::Tanh
        };
        Ok(self.step(cell, x, h, None)?.0)
    }
}

impl<B: Backend> GruCell<B> {
    /// A cell from `inputs` elements to states of `hidden`, with or without biases.
    ///
    /// See the example of [`GruCell`].
    ///
    /// # Errors
    /// Sizes of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        let p = Parameters::new(init, RecurrentCell::Gru, inputs, hidden, bias)?;
        Ok(GruCell {
            weight_ih: p.weight_ih,
            weight_hh: p.weight_hh,
            bias_ih: p.bias_ih,
            bias_hh: p.bias_hh,
        })
    }

    /// The states `[N, H]` after a step with inputs `[N, in]` from states `[N, H]`, or from zeros.
    ///
    /// See the example of [`GruCell`].
    ///
    /// # Errors
    /// As [`RnnCell::forward`].
    pub fn forward(&self, x: &Tensor<B>, h: Option<&Tensor<B>>) -> Result<Tensor<B>> {
        Ok(self.step(RecurrentCell::Gru, x, h, None)?.0)
    }
}

impl<B: Backend> LstmCell<B> {
    /// A cell from `inputs` elements to states of `hidden`, with or without biases.
    ///
    /// See the example of [`LstmCell`].
    ///
    /// # Errors
    /// Sizes of 0, memory.
    pub fn new(init: &mut Init<B>, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        let p = Parameters::new(init, RecurrentCell::Lstm, inputs, hidden, bias)?;
        Ok(LstmCell {
            weight_ih: p.weight_ih,
            weight_hh: p.weight_hh,
            bias_ih: p.bias_ih,
            bias_hh: p.bias_hh,
        })
    }

    /// The states and cells `[N, H]` after a step with inputs `[N, in]` from states and cells `[N, H]`, or from zeros.
    ///
    /// See the example of [`LstmCell`].
    ///
    /// # Errors
    /// As [`RnnCell::forward`].
    pub fn forward(&self, x: &Tensor<B>, state: Option<(&Tensor<B>, &Tensor<B>)>) -> Result<(Tensor<B>, Tensor<B>)> {
        let (h, c) = state.unzip();
        match self.step(RecurrentCell::Lstm, x, h, c)? {
            (h, Some(c)) => Ok((h, c)),
            (_, None) => unreachable!("last cells were asked for"),
        }
    }
}
