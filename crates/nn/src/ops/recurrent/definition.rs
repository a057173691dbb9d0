//! The definition of a direction of a recurrent layer in other ops, a step after the other.

use crate::ops::reduce::acc_dtype;
use crate::{Activation, Backend, DType, Indices, Result, Tensor};
use kiln_core::ops::RecurrentCell;

/// A direction of a recurrent layer. Its inputs are the products of the inputs, the weight, the first states, the first cells of an LSTM,
/// the bias if it has one, and the weight of the projection if it has one.
pub(super) struct Definition<B: Backend> {
    pub(super) cell: RecurrentCell,
    pub(super) has_bias: bool,
    pub(super) projects: bool,
    pub(super) lengths: Option<Indices<B>>,
    pub(super) reverse: bool,
    pub(super) last_cells: bool,
}

/// Step `t` of a tensor whose first axis is steps.
pub(super) fn step<B: Backend>(x: &Tensor<B>, t: usize) -> Result<Tensor<B>> {
    x.narrow(0, t, 1)?.squeeze(0)
}

impl<B: Backend> Definition<B> {
    /// The number of the input that is the first cells.
    pub(super) fn cells(&self) -> Option<usize> {
        (self.cell == RecurrentCell::Lstm).then_some(3)
    }

    /// The number of the input that is the bias.
    pub(super) fn bias(&self) -> Option<usize> {
        self.has_bias.then(|| 3 + usize::from(self.cells().is_some()))
    }

    /// The results of all steps, with the last cells behind them if they are asked for.
    pub(super) fn joined(&self, x: &[Tensor<B>]) -> Result<Tensor<B>> {
        match self.apart(x)? {
            (y, Some(c)) => Tensor::concat(&[&y, &c.unsqueeze(0)?], 0),
            (y, None) => Ok(y),
        }
    }

    /// The results of all steps, and the last cells if they are asked for.
    pub(super) fn apart(&self, x: &[Tensor<B>]) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let (dtype, wide) = (x[0].dtype(), acc_dtype(x[0].dtype()));
        if wide == dtype {
            return self.steps(x);
        }
        // States of halves would be rounded before the products that read them, and cells at every step.
        let x = x.iter().map(|x| x.to_dtype(wide)).collect::<Result<Vec<_>>>()?;
        let (y, c) = self.steps(&x)?;
        Ok((y.to_dtype(dtype)?, c.map(|c| c.to_dtype(dtype)).transpose()?))
    }

    fn steps(&self, x: &[Tensor<B>]) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let (weight, bias) = (&x[1], self.bias().map(|i| &x[i]));
        let projection = self.projects.then(|| &x[x.len() - 1]);
        let (mut h, mut c) = (x[2].clone(), self.cells().map(|i| x[i].clone()));
        let inputs = x[0].unbind(0)?;
        let mut results: Vec<Tensor<B>> = Vec::with_capacity(inputs.len());
        let order = 0..inputs.len();
        let order: Vec<usize> = if self.reverse {
            order.rev().collect()
        } else {
            order.collect()
        };
        for t in order {
            let products = h.linear(weight, bias, Activation::None)?;
            let (mut new, new_c) = self.cell(&inputs[t], &products, &h, c.as_ref())?;
            if let Some(projection) = projection {
                new = new.linear(projection, None, Activation::None)?;
            }
            let Some(lengths) = &self.lengths else {
                results.push(new.clone());
                (h, c) = (new, new_c);
                continue;
            };
            let own = lengths.gt(t as i32)?.reshape(&[lengths.size(), 1])?;
            debug_assert_eq!(own.dtype(), DType::U8);
            results.push(Tensor::where_(
                &own,
                &new,
                &Tensor::zeros(new.backend(), &[], new.dtype())?,
            )?);
            h = Tensor::where_(&own, &new, &h)?;
            if let (Some(c), Some(new)) = (c.as_mut(), new_c) {
                *c = Tensor::where_(&own, &new, c)?;
            }
        }
        if self.reverse {
            results.reverse();
        }
        let y = Tensor::stack(&results.iter().collect::<Vec<_>>(), 0)?;
        Ok((y, c.filter(|_| self.last_cells)))
    }

    /// The state and the cells after a step, from the products of its input and of the state before it.
    fn cell(
        &self,
        x: &Tensor<B>,
        products: &Tensor<B>,
        h: &Tensor<B>,
        c: Option<&Tensor<B>>,
    ) -> Result<(Tensor<B>, Option<Tensor<B>>)> {
        let parts = |x: &Tensor<B>| x.chunk(self.cell.gates(), 1);
        match (self.cell, c) {
            (RecurrentCell::Lstm, Some(c)) => {
                let gates = parts(&x.add(products)?)?;
                let (i, f) = (gates[0].sigmoid()?, gates[1].sigmoid()?);
                let (g, o) = (gates[2].tanh()?, gates[3].sigmoid()?);
                let c = f.mul(c)?.add(&i.mul(&g)?)?;
                Ok((o.mul(&c.tanh()?)?, Some(c)))
            }
            (RecurrentCell::Gru, _) => {
                let (x, products) = (parts(x)?, parts(products)?);
                let r = x[0].add(&products[0])?.sigmoid()?;
                let z = x[1].add(&products[1])?.sigmoid()?;
                let n = x[2].add(&r.mul(&products[2])?)?.tanh()?;
                Ok((n.add(&z.mul(&h.sub(&n)?)?)?, None))
            }
            (RecurrentCell::Relu, _) => Ok((x.add(products)?.relu()?, None)),
            _ => Ok((x.add(products)?.tanh()?, None)),
        }
    }
}
