//! Matrix products and the linear layer's fused form.

mod joined;

use super::activation::{Fused, activate, activation_grad};
use crate::autograd::{Cast, Rule, RuleContext, SavedInput, Slope, is_grad_enabled};
use crate::tensor::same_dtype;
use crate::{Backend, Error, Result, Shape, Tensor};
use kiln_core::ops::{self, Activation, LinearGrads, LinearInputs, MatmulParams, Op};

#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// The matrix product `self · other` (`torch.matmul`): `[…, m, k] · […, k, n] → […, m, n]` with leading dimensions
    /// that broadcast. A vector on the left is a row, one on the right a column, and that dimension is dropped from
    /// the result; two vectors give their inner product as a scalar.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let x = Tensor::from_slice(&cpu, &[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let v = Tensor::from_slice(&cpu, &[1f32, 10.0], &[2])?;
    /// assert_eq!(x.matmul(&v)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// let batches = Tensor::ones(&cpu, &[8, 3, 2], DType::F32)?;
    /// assert_eq!(batches.matmul(&x)?.shape().dims(), [8, 3, 2]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A scalar operand, inner dimensions that differ, batches that do not broadcast, dtypes that differ.
    pub fn matmul(&self, other: &Tensor<B>) -> Result<Tensor<B>> {
        const OP: &str = "matmul";
        if let Some(cast) = Cast::low() {
            return cast.of(self)?.matmul(&*cast.of(other)?);
        }
        for t in [self, other] {
            if t.rank() == 0 {
                return Err(Error::Rank {
                    op: OP,
                    expected: "1 or more",
                    rank: 0,
                });
            }
        }
        if self.rank() > 1 && other.rank() > 1 {
            return product(OP, self, other, false, false);
        }
        let (k, inner) = (
            self.shape()[self.rank() - 1],
            other.shape()[other.rank().saturating_sub(2)],
        );
        if k != inner {
            return Err(Error::ShapeMismatch {
                op: OP,
                lhs: *self.shape(),
                rhs: *other.shape(),
            });
        }
        let row = (self.rank() == 1).then(|| self.reshape(&[1, k])).transpose()?;
        let column = (other.rank() == 1).then(|| other.reshape(&[k, 1])).transpose()?;
        let y = product(
            OP,
            row.as_ref().unwrap_or(self),
            column.as_ref().unwrap_or(other),
            false,
            false,
        )?;
        let mut dims = y.shape().to_vec();
        if column.is_some() {
            dims.pop();
        }
        if row.is_some() {
            dims.remove(dims.len() - usize::from(column.is_none()) - 1);
        }
        y.reshape(&dims)
    }

    /// The product of matrices of which either may be stored transposed: `op(self) · op(other)`, where op swaps the
    /// last two dimensions of an operand whose flag is set. Both operands have rank 2 or more.
    ///
    /// ```
    /// # use kiln_nn::{DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (q, k) = (Tensor::ones(&cpu, &[5, 4], DType::F32)?, Tensor::ones(&cpu, &[7, 4], DType::F32)?);
    /// assert_eq!(q.matmul_t(&k, false, true)?.shape().dims(), [5, 7]); // q·kᵀ
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Ranks below 2; as [`Tensor::matmul`].
    pub fn matmul_t(&self, other: &Tensor<B>, trans_self: bool, trans_other: bool) -> Result<Tensor<B>> {
        if let Some(cast) = Cast::low() {
            return cast.of(self)?.matmul_t(&*cast.of(other)?, trans_self, trans_other);
        }
        product("matmul", self, other, trans_self, trans_other)
    }

    /// `f(self · wᵀ + bias)` (`torch.nn.functional.linear` with its activation): `self […, in]`, `w [out, in]`,
    /// `bias [out]`, result `[…, out]`.
    ///
    /// ```
    /// # use kiln_nn::{Activation, DType, Tensor};
    /// # let cpu = kiln_cpu::Cpu::new();
    /// let (x, w) = (Tensor::ones(&cpu, &[2, 3], DType::F32)?, Tensor::ones(&cpu, &[4, 3], DType::F32)?);
    /// let bias = Tensor::full(&cpu, &[4], DType::F32, -5.0)?;
    /// assert_eq!(x.linear(&w, Some(&bias), Activation::None)?.to_vec::<f32>()?, [-2.0; 8]);
    /// assert_eq!(x.linear(&w, Some(&bias), Activation::Relu)?.to_vec::<f32>()?, [0.0; 8]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A scalar, a weight that is not a matrix, sizes or dtypes that do not agree.
    pub fn linear(&self, w: &Tensor<B>, bias: Option<&Tensor<B>>, f: Activation) -> Result<Tensor<B>> {
        const OP: &str = "linear";
        if let Some(cast) = Cast::low() {
            return cast.of(self)?.linear(&*cast.of(w)?, cast.option(bias)?.as_deref(), f);
        }
        let mismatch = |rhs: &Tensor<B>| Error::ShapeMismatch {
            op: OP,
            lhs: *self.shape(),
            rhs: *rhs.shape(),
        };
        if w.rank() != 2 {
            return Err(Error::Rank {
                op: OP,
                expected: "2 (the weight)",
                rank: w.rank(),
            });
        }
        let (&inner, lead) = self.shape().dims().split_last().ok_or(Error::Rank {
            op: OP,
            expected: "1 or more",
            rank: 0,
        })?;
        let outputs = w.shape()[0];
        if inner != w.shape()[1] {
            return Err(mismatch(w));
        }
        same_dtype(OP, self, w)?;
        check_bias(OP, w, bias, outputs)?;
        let rows: usize = lead.iter().product();
        let flat = Shape::new(&[rows, inner])?;
        let to = Shape::new(&[lead, &[outputs]].concat())?;
        if !self.has_op(Op::Linear) {
            let mut y = self.reshape(&flat)?.matmul_t(w, false, true)?;
            if let Some(bias) = bias {
                y = y.add(bias)?;
            }
            return activate(f, y)?.reshape(&to);
        }
        let fused = Fused::new(f, [Some(self), Some(w), bias]);
        let (mut p, _) = MatmulParams::new(OP, &flat, w.shape(), false, true)?;
        p.activation = f as u32;
        // The input of an activation whose gradient reads it.
        let mut h = fused.behind().map(|_| self.alloc_like(to)).transpose()?;
        let mut y = self.alloc_like(to)?;
        let (b, bias_buffer) = (self.backend(), bias.map(Tensor::buffer));
        b.linear(&p, self.buffer(), w.buffer(), bias_buffer, h.as_mut(), &mut y)?;
        let inputs = [self, w, bias.unwrap_or(w)];
        let record = |y: B::Buffer| {
            let y = Tensor::from_buffer(b, y, to);
            y.record(OP, &inputs[..2 + usize::from(bias.is_some())], || Linear {
                x: SavedInput::remade(self, || b.remakes_input(&p, self.dtype())),
                flat,
                w: w.clone(),
                bias: bias.is_some(),
                fused,
            })
        };
        match (fused.behind(), h) {
            (Some(f), Some(h)) => Ok(record(h).unary_from(f.function().name, f, [0.0, 0.0], y)),
            _ => Ok(record(y)),
        }
    }
}

/// Refuses a bias that is not `[channels]` of the weight's dtype.
pub(super) fn check_bias<B: Backend>(
    op: &'static str,
    w: &Tensor<B>,
    bias: Option<&Tensor<B>>,
    channels: usize,
) -> Result<()> {
    let Some(bias) = bias else { return Ok(()) };
    if bias.shape().dims() != [channels] {
        return Err(Error::ShapeMismatch {
            op,
            lhs: *w.shape(),
            rhs: *bias.shape(),
        });
    }
    same_dtype(op, w, bias)
}

fn product<B: Backend>(
    op: &'static str,
    a: &Tensor<B>,
    b: &Tensor<B>,
    trans_a: bool,
    trans_b: bool,
) -> Result<Tensor<B>> {
    same_dtype(op, a, b)?;
    let (p, shape) = MatmulParams::new(op, a.shape(), b.shape(), trans_a, trans_b)?;
    // A batch of matrices times one matrix is the product of one tall matrix with it.
    if a.rank() > 2 && b.rank() == 2 && !trans_a {
        let k = a.shape()[a.rank() - 1];
        let rows: usize = a.shape()[..a.rank() - 1].iter().product();
        return product(op, &a.reshape(&[rows, k])?, b, false, trans_b)?.reshape(shape.dims());
    }
    let mut c = a.alloc_like(shape)?;
    a.backend().matmul(&p, a.buffer(), b.buffer(), &mut c)?;
    Ok(
        Tensor::from_buffer(a.backend(), c, shape).record(op, &[a, b], || Product {
            a: SavedInput::new(a),
            b: b.clone(),
            trans_a,
            trans_b,
        }),
    )
}

struct Product<B: Backend> {
    a: SavedInput<B>,
    b: Tensor<B>,
    trans_a: bool,
    trans_b: bool,
}

impl<B: Backend> Rule<B> for Product<B> {
    /// For C = A·B and its gradient G: dA = G·Bᵀ and dB = Aᵀ·G, each transposed if its operand is stored transposed.
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        const OP: &str = "matmul_grad";
        let (a, b, ta, tb) = (&self.a, &self.b, self.trans_a, self.trans_b);
        let da = |g| match ta {
            false => product(OP, g, b, false, !tb),
            true => product(OP, b, g, tb, true),
        };
        let db = |g| match tb {
            false => product(OP, &a.tensor()?, g, !ta, false),
            true => product(OP, g, &a.tensor()?, true, ta),
        };
        let da = cx.needs(0).then(|| da(cx.grad)?.sum_to_size(a.shape())).transpose()?;
        let db = cx.needs(1).then(|| db(cx.grad)?.sum_to_size(b.shape())).transpose()?;
        Ok(vec![da, db])
    }
}

struct Linear<B: Backend> {
    x: SavedInput<B>,
    /// The shape of `x` as a matrix.
    flat: Shape,
    w: Tensor<B>,
    bias: bool,
    fused: Fused,
}

impl<B: Backend> Linear<B> {
    /// True if the gradients are one op: where nothing is empty and no gradient of gradients is wanted.
    fn has_fused_grads(&self) -> bool {
        !is_grad_enabled() && !self.flat.contains(&0) && !self.w.shape().contains(&0)
    }

    /// The gradients as one op, from that of the result; `y` is the result, if it is that of a ReLU whose zeros are not in `g`.
    fn fused_grads(
        &self,
        needs: [bool; 3],
        g: &Tensor<B>,
        y: Option<&Tensor<B>>,
        slope: Option<&Slope<B>>,
    ) -> Result<Vec<Option<Tensor<B>>>> {
        let (w, b) = (&self.w, g.backend());
        // An input that is not there is made again beside its gradient, or by an op of its own.
        let absent = self.x.absent().filter(|_| needs[0] && needs[1]);
        let norm = absent
            .as_ref()
            .filter(|_| slope.is_none())
            .and_then(|saved| saved.row_norm());
        let remade = norm.is_some() || slope.is_some_and(|slope| slope.input.is_some());
        let mut again = match absent.is_some() && remade {
            true => Some(w.alloc_like(*self.x.shape())?),
            false => None,
        };
        let reads = needs[1] || slope.is_some_and(|slope| slope.input.is_none());
        let x = (again.is_none() && reads).then(|| self.x.tensor()).transpose()?;
        let (mut p, _) = MatmulParams::new("linear_grad", &self.flat, w.shape(), false, true)?;
        p.activation = match y {
            Some(_) => Activation::Relu as u32,
            None => Activation::None as u32,
        };
        let outputs = Shape::new(&w.shape()[..1])?;
        let shapes = [(0, *self.x.shape()), (1, *w.shape()), (2, outputs)];
        let wanted = |(i, shape): (usize, Shape)| needs[i].then(|| w.alloc_like(shape)).transpose();
        let [mut dx, mut dw, mut db] = [wanted(shapes[0])?, wanted(shapes[1])?, wanted(shapes[2])?];
        let of = LinearInputs {
            x: x.as_ref().map(Tensor::buffer),
            w: w.buffer(),
            y: y.map(Tensor::buffer),
            slope: slope.and_then(|slope| {
                let at = slope.input.as_ref().or(x.as_ref())?.buffer();
                Some(ops::Slope { f: slope.f, at })
            }),
            norm,
        };
        let to = LinearGrads {
            x: again.as_mut(),
            dx: dx.as_mut(),
            dw: dw.as_mut(),
            db: db.as_mut(),
        };
        b.linear_grad(&p, &of, g.buffer(), to)?;
        if let Some(x) = again {
            self.x.made(Tensor::from_buffer(b, x, *self.x.shape()));
        }
        let grads = [dx, dw, db].into_iter().zip(shapes).take(2 + usize::from(self.bias));
        Ok(grads
            .map(|(d, (_, shape))| d.map(|d| Tensor::from_buffer(b, d, shape)))
            .collect())
    }
}

impl<B: Backend> Rule<B> for Linear<B> {
    fn backward(&self, cx: &RuleContext<'_, B>) -> Result<Vec<Option<Tensor<B>>>> {
        let (fused, needs) = (self.has_fused_grads(), [0, 1, 2].map(|i| cx.needs(i)));
        if self.fused.is_relu() && fused {
            let y = (!cx.slope_applied()).then(|| cx.output());
            return self.fused_grads(needs, cx.grad, y, cx.slope());
        }
        let g = activation_grad(self.fused, cx)?;
        if fused {
            return self.fused_grads(needs, &g, None, cx.slope());
        }
        let g = g.reshape(&[self.flat[0], self.w.shape()[0]])?;
        let dx = || g.matmul_t(&self.w, false, false)?.reshape(self.x.shape());
        let dw = || g.matmul_t(&self.x.tensor()?.reshape(&self.flat)?, true, false);
        let dx = cx.needs(0).then(dx).transpose()?;
        let dw = cx.needs(1).then(dw).transpose()?;
        let mut grads = vec![dx, dw];
        if self.bias {
            grads.push(cx.needs(2).then(|| g.sum_to_size(&self.w.shape()[..1])).transpose()?);
        }
        Ok(grads)
    }

    fn saves_output(&self) -> bool {
        self.fused.needs_output()
    }

    fn activation(&self) -> Option<Slope<B>> {
        self.fused.slope()
    }

    fn applies_slope(&self, _: Activation) -> Option<usize> {
        self.has_fused_grads().then_some(0)
    }
}
