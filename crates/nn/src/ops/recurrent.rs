//! One direction of a recurrent layer as one fused op, and its definition in other ops. Gradients of gradients are taken of the
//! definition, and it runs on a backend that does not have the fused op, and where states are projected.

mod definition;

use crate::autograd::{Cast, Rule, RuleContext, is_grad_enabled, vjp};
use crate::ops::matmul::check_bias;
use crate::ops::reduce::acc_dtype;
use crate::tensor::same_dtype;
use crate::{Backend, DType, Error, Indices, Result, Shape, Tensor};
use definition::Definition;
use kiln_core::ops::{
    LinearGrads, LinearInputs, MatmulParams, Op, RecurrentCell, RecurrentGrads, RecurrentOperands, RecurrentParams,
};

const OP: &str = "recurrent";

/// The operands of a direction of a recurrent layer, besides the products of its inputs.
///
/// See the example of [`Tensor::recurrent`].
#[derive(Clone, Copy)]
pub struct Recurrence<'a, B: Backend> {
    /// The formulas.
    pub cell: RecurrentCell,
    /// The weight of states `[G·H, H]`, gate below gate in PyTorch's order (`weight_hh`); `[G·H, P]` of projected ones.
    pub weight: &'a Tensor<B>,
    /// The bias `[G·H]` of its products (`bias_hh`).
    pub bias: Option<&'a Tensor<B>>,
    /// The weight `[P, H]` by which the states of an LSTM are projected (`weight_hr`).
    pub projection: Option<&'a Tensor<B>>,
    /// The states before the first step, `[N, H]`, or `[N, P]`; zeros if it is `None`.
    pub h0: Option<&'a Tensor<B>>,
    /// The cells `[N, H]` of an LSTM before the first step; zeros if it is `None`.
    pub c0: Option<&'a Tensor<B>>,
    /// The i32 lengths `[N]` of the sequences; without them all have T steps. Results of steps beyond are 0.
    pub lengths: Option<&'a Indices<B>>,
    /// The direction: from the last step of each sequence to its first.
    pub reverse: bool,
    /// The last cells of an LSTM are a result too.
    pub last_cells: bool,
}

impl<'a, B: Backend> Recurrence<'a, B> {
    /// A cell with a weight, without a bias, from the first step to the last.
    ///
    /// See the example of [`Tensor::recurrent`].
    pub fn new(cell: RecurrentCell, weight: &'a Tensor<B>) -> Self {
        Recurrence {
            cell,
            weight,
            bias: None,
            projection: None,
            h0: None,
            c0: None,
            lengths: None,
            reverse: false,
            last_cells: false,
        }
    }
}

impl<B: Backend> std::fmt::Debug for Recurrence<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recurrence({:?}, {})", self.cell, self.weight.shape())
    }
}

struct Recurrent<B: Backend> {
    p: RecurrentParams,
    definition: Definition<B>,
    /// The operands in the order of [`Definition`].
    inputs: Vec<Tensor<B>>,
    kept: B::Buffer,
}

impl<B: Backend> Recurrent<B> {
    fn operands(&self) -> RecurrentOperands<'_, B::Buffer> {
        operands(&self.definition, &self.inputs)
    }

    /// The gradients of the weight and of the bias from that of their products and the states before each step.
    fn of_weight(&self, dr: &Tensor<B>, before: Tensor<B>, needs: [bool; 2]) -> Result<[Option<Tensor<B>>; 2]> {
        let (w, backend) = (&self.inputs[1], self.inputs[1].backend());
        let (flat, width) = (*before.shape(), w.shape()[0]);
        if !w.has_op(Op::Linear) || flat[0] == 0 {
            let dr = dr.reshape(&[flat[0], width])?;
            let dw = || dr.matmul_t(&before, true, false);
            let db = || dr.sum(&[0], false);
            return Ok([needs[0].then(dw).transpose()?, needs[1].then(db).transpose()?]);
        }
        let (p, _) = MatmulParams::new("linear_grad", &flat, w.shape(), false, true)?;
        let mut dw = needs[0].then(|| w.alloc_like(*w.shape())).transpose()?;
        let mut db = needs[1].then(|| backend.alloc(w.dtype(), width)).transpose()?;
        let of = LinearInputs {
            x: needs[0].then_some(before.buffer()),
            w: w.buffer(),
            y: None,
            slope: None,
            norm: None,
        };
        let to = LinearGrads {
            x: None,
            dx: None,
            dw: dw.as_mut(),
            db: db.as_mut(),
        };
        backend.linear_grad(&p, &of, dr.buffer(), to)?;
        let vector = Shape::new(&[width])?;
        Ok([
            dw.map(|dw| Tensor::from_buffer(backend, dw, *w.shape())),
            db.map(|db| Tensor::from_buffer(backend, db, vector)),
        ])
    }
}

/// The operands of the op from its inputs.
fn operands<'a, B: Backend>(of: &'a Definition<B>, x: &'a [Tensor<B>]) -> RecurrentOperands<'a, B::Buffer> {
    RecurrentOperands {
        w: x[1].buffer(),
        bias: of.bias().map(|i| x[i].buffer()),
        h0: x[2].buffer(),
        c0: of.cells().map(|i| x[i].buffer()),
        lengths: of.lengths.as_ref().map(Indices::buffer),
    }
}

impl<B: Backend> Rule<B> for Recurrent<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        if is_grad_enabled() {
            let inputs: Vec<&Tensor<B>> = self.inputs.iter().collect();
            return vjp(&inputs, cx.grad, |x| self.definition.joined(x));
        }
        let (p, x, backend) = (&self.p, &self.inputs[0], cx.grad.backend());
        let (steps, batch, hidden) = (p.steps as usize, p.batch as usize, p.hidden as usize);
        let like = |i: usize| x.alloc_like(*self.inputs[i].shape());
        let gru = p.cell() == RecurrentCell::Gru;
        let (mut dx, mut dr) = (like(0)?, gru.then(|| like(0)).transpose()?);
        let mut before = x.alloc_like(Shape::new(&[steps, batch, hidden])?)?;
        let (mut dh0, mut dc0) = (like(2)?, self.definition.cells().map(like).transpose()?);
        let to = RecurrentGrads {
            dx: &mut dx,
            dr: dr.as_mut(),
            before: &mut before,
            dh0: &mut dh0,
            dc0: dc0.as_mut(),
        };
        let (y, g) = (cx.output().buffer(), cx.grad.buffer());
        backend.recurrent_grad(p, &self.operands(), &self.kept, y, g, to)?;
        let dx = Tensor::from_buffer(backend, dx, *x.shape());
        let bias = self.definition.bias();
        let needs = [cx.needs(1), bias.is_some_and(|i| cx.needs(i))];
        let [dw, db] = match needs {
            [false, false] => [None, None],
            _ => {
                let before = Tensor::from_buffer(backend, before, Shape::new(&[steps * batch, hidden])?);
                let dr = dr.map(|dr| Tensor::from_buffer(backend, dr, *x.shape()));
                self.of_weight(dr.as_ref().unwrap_or(&dx), before, needs)?
            }
        };
        let state = |i: usize, buffer: B::Buffer| Some(Tensor::from_buffer(backend, buffer, *self.inputs[i].shape()));
        let mut grads = vec![Some(dx), dw, state(2, dh0)];
        if let (Some(i), Some(dc0)) = (self.definition.cells(), dc0) {
            grads.push(state(i, dc0));
        }
        if bias.is_some() {
            grads.push(db);
        }
        Ok(grads)
    }

    fn saves_output(&self) -> bool {
        true
    }
}

/// The last state `[N, H]` of each sequence from the states `[T, N, H]` of all steps.
///
/// # Errors
/// A length outside of `1..=T`.
pub(crate) fn last_states<B: Backend>(y: &Tensor<B>, lengths: Option<&Indices<B>>, reverse: bool) -> Result<Tensor<B>> {
    let &[steps, batch, width] = y.shape().dims() else {
        return Err(Error::Rank {
            op: OP,
            expected: "3",
            rank: y.rank(),
        });
    };
    let Some(lengths) = lengths.filter(|_| !reverse) else {
        let last = if reverse { 0 } else { steps.saturating_sub(1) };
        return y.narrow(0, last, 1)?.reshape(&[batch, width]);
    };
    // The number of the row, which is none of `y` for a length that is none. Nothing is uploaded, so that a step can be captured.
    let sequence = Indices::full(y.backend(), &[batch], 1i32)?.cumsum(0)?.sub(1)?;
    let row = lengths.sub(1)?.mul(batch as i32)?.add(&sequence)?;
    y.reshape(&[steps * batch, width])?.index_select(0, &row)
}

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// One direction of a recurrent layer over whole sequences: from the products `[T, N, G·H]` of the inputs with their weight, biases
    /// added, to the states `[T, N, H]` after each step, and the last cells `[N, H]` if they are asked for. The layers
    /// [`Rnn`](crate::layers::Rnn), [`Lstm`](crate::layers::Lstm) and [`Gru`](crate::layers::Gru) are made of it.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # use kiln_nn::ops::{Recurrence, RecurrentCell};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// // One sequence of two steps, and a state of one element: h' = max(x + 2·h, 0).
    /// let products = Tensor::from_slice(&cpu, &[1f32, 3.0], &[2, 1, 1])?;
    /// let weight = Tensor::full(&cpu, &[1, 1], DType::F32, 2.0)?;
    /// let (y, _) = products.recurrent(&Recurrence::new(RecurrentCell::Relu, &weight))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 5.0]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// No steps; other ranks, shapes and dtypes than those; cells or a projection where the cell is no LSTM; lengths that are not i32.
    /// Their values are not looked at: a sequence of length 0 or below has no steps.
    pub fn recurrent(&self, of: &Recurrence<'_, B>) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        if let Some(cast) = Cast::low() {
            let [bias, projection, h0, c0] = [of.bias, of.projection, of.h0, of.c0].map(|x| cast.option(x));
            let (bias, projection, h0, c0) = (bias?, projection?, h0?, c0?);
            return cast.of(self)?.recurrent(&Recurrence {
                weight: &*cast.of(of.weight)?,
                bias: bias.as_deref(),
                projection: projection.as_deref(),
                h0: h0.as_deref(),
                c0: c0.as_deref(),
                ..*of
            });
        }
        let (definition, inputs) = self.checked(of)?;
        let refs: Vec<&Tensor<B>> = inputs.iter().collect();
        if of.projection.is_some() || !self.has_op(Op::Recurrent) {
            return definition.apart(&inputs);
        }
        let (p, shape) = RecurrentParams::new(OP, of.cell, self.shape(), of.weight.shape(), of.reverse, of.last_cells)?;
        let (backend, dims) = (self.backend(), *self.shape());
        let tracked = is_grad_enabled() && inputs.iter().any(Tensor::is_tracked);
        let mut kept = tracked
            .then(|| backend.alloc(acc_dtype(self.dtype()), p.kept()))
            .transpose()?;
        let mut y = self.alloc_like(shape)?;
        backend.recurrent(
            &p,
            self.buffer(),
            &operands(&definition, &inputs),
            kept.as_mut(),
            &mut y,
        )?;
        let y = Tensor::from_buffer(backend, y, shape);
        let y = match kept {
            None => y,
            Some(kept) => y.record(OP, &refs, || Recurrent {
                p,
                definition,
                inputs: inputs.clone(),
                kept,
            }),
        };
        match of.last_cells {
            true => Ok((y.narrow(0, 0, dims[0])?, Some(definition::step(&y, dims[0])?))),
            false => Ok((y, None)),
        }
    }

    /// The definition of a call and its inputs, checked.
    fn checked(&self, of: &Recurrence<'_, B>) -> Result<(Definition<B>, Vec<Tensor<B>>)> {
        let (cell, w) = (of.cell, of.weight);
        let &[steps, batch, width] = self.shape().dims() else {
            return Err(Error::Rank {
                op: OP,
                expected: "3",
                rank: self.rank(),
            });
        };
        if steps == 0 {
            return Err(Error::invalid(OP, "steps", 0, "at least 1"));
        }
        let lstm = cell == RecurrentCell::Lstm;
        for (name, given) in [("c0", of.c0), ("projection", of.projection)] {
            if given.is_some() && !lstm {
                return Err(Error::invalid(OP, name, "one", "none: the cell is no LSTM"));
            }
        }
        let hidden = match of.projection {
            Some(weight) if weight.rank() == 2 => weight.shape()[1],
            Some(weight) => {
                return Err(Error::Rank {
                    op: OP,
                    expected: "2 (the projection)",
                    rank: weight.rank(),
                });
            }
            None => width / cell.gates(),
        };
        let state = of.projection.map_or(hidden, |weight| weight.shape()[0]);
        // Checks the ranks and the sizes of products that are not projected.
        let square = Shape::new(&[cell.gates().saturating_mul(hidden), hidden])?;
        RecurrentParams::new(OP, cell, self.shape(), &square, of.reverse, of.last_cells)?;
        let fits = |x: &Tensor<B>, dims: &[usize]| {
            if x.shape().dims() != dims {
                return Err(Error::ShapeMismatch {
                    op: OP,
                    lhs: Shape::new(dims)?,
                    rhs: *x.shape(),
                });
            }
            same_dtype(OP, self, x)
        };
        fits(w, &[width, state])?;
        check_bias(OP, w, of.bias, width)?;
        if let Some(lengths) = of.lengths {
            lengths.require(OP, DType::I32)?;
            if lengths.shape().dims() != [batch] {
                return Err(Error::invalid(OP, "lengths", lengths.shape(), format!("[{batch}]")));
            }
        }
        let first = |given: Option<&Tensor<B>>, width: usize| match given {
            Some(given) => fits(given, &[batch, width]).map(|()| given.clone()),
            None => Tensor::zeros(self.backend(), &[batch, width], self.dtype()),
        };
        let mut inputs = vec![self.clone(), w.clone(), first(of.h0, state)?];
        if lstm {
            inputs.push(first(of.c0, hidden)?);
        }
        inputs.extend(of.bias.cloned());
        if let Some(projection) = of.projection {
            same_dtype(OP, self, projection)?;
            inputs.push(projection.clone());
        }
        let definition = Definition {
            cell,
            has_bias: of.bias.is_some(),
            projects: of.projection.is_some(),
            lengths: of.lengths.cloned(),
            reverse: of.reverse,
            last_cells: of.last_cells,
        };
        Ok((definition, inputs))
    }
}
