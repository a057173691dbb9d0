//! Attention made of other ops: copies of queries, keys and values, products, a mask, softmax. Memory for all scores is
//! taken for the call.

use super::{AttentionOps, AttentionParams};
use crate::ops::{BroadcastParams, MatmulParams, SoftmaxParams, Unary, UnaryParams, ViewParams};
use crate::{Buffer, DType, Result, Shape};

const OP: &str = "attention";

/// `y` of [`AttentionOps::attention`], composed of the backend's other ops; halves round after each of them.
///
/// # Errors
/// Memory, and what the ops return.
pub fn composed_attention<B: AttentionOps>(
    backend: &B,
    p: &AttentionParams,
    qkv: &B::Buffer,
    y: &mut B::Buffer,
) -> Result<()> {
    if qkv.is_empty() {
        return Ok(());
    }
    let call = Call::new(backend, p, qkv.dtype())?;
    let softmax = call.softmax(&call.queries(qkv)?, &call.part(qkv, 3, 1)?)?;
    let joined = call.product((&softmax, false), (&call.part(qkv, 3, 2)?, false))?;
    backend.view_write(&call.view(1, 0), &joined.buffer, y)
}

/// `dqkv` of [`AttentionOps::attention_grad`], composed of the backend's other ops; the softmax is computed again.
///
/// # Errors
/// As [`composed_attention`].
pub fn composed_attention_grad<B: AttentionOps>(
    backend: &B,
    p: &AttentionParams,
    qkv: &B::Buffer,
    g: &B::Buffer,
    dqkv: &mut B::Buffer,
) -> Result<()> {
    if qkv.is_empty() {
        return Ok(());
    }
    let call = Call::new(backend, p, qkv.dtype())?;
    let (q, k, v) = (call.queries(qkv)?, call.part(qkv, 3, 1)?, call.part(qkv, 3, 2)?);
    let g = call.part(g, 1, 0)?;
    let softmax = call.softmax(&q, &k)?;
    let dv = call.product((&softmax, true), (&g, false))?;
    backend.view_write(&call.view(3, 2), &dv.buffer, dqkv)?;
    let slopes = call.product((&g, false), (&v, true))?;
    let mut ds = call.alloc(call.pairs)?;
    let along = SoftmaxParams::new(OP, &call.pairs, -1, false)?;
    backend.softmax_grad(&along, &softmax.buffer, &slopes.buffer, &mut ds.buffer)?;
    let dk = call.product((&ds, true), (&q, false))?;
    backend.view_write(&call.view(3, 1), &dk.buffer, dqkv)?;
    let dq = call.scaled(&call.product((&ds, false), (&k, false))?)?;
    backend.view_write(&call.view(3, 0), &dq.buffer, dqkv)
}

/// One call, in which every head's vectors lie together.
struct Call<'a, B: AttentionOps> {
    backend: &'a B,
    p: &'a AttentionParams,
    dtype: DType,
    /// `[batch, heads, positions, width]`
    vectors: Shape,
    /// `[batch, heads, positions, positions]`
    pairs: Shape,
}

/// Memory of a call.
struct Scratch<B: AttentionOps> {
    buffer: B::Buffer,
    shape: Shape,
}

impl<'a, B: AttentionOps> Call<'a, B> {
    fn new(backend: &'a B, p: &'a AttentionParams, dtype: DType) -> Result<Self> {
        let [n, t, h, d] = [p.batch, p.positions, p.heads, p.width].map(|d| d as usize);
        Ok(Call {
            backend,
            p,
            dtype,
            vectors: Shape::new(&[n, h, t, d])?,
            pairs: Shape::new(&[n, h, t, t])?,
        })
    }

    fn alloc(&self, shape: Shape) -> Result<Scratch<B>> {
        let buffer = self.backend.alloc(self.dtype, shape.size())?;
        Ok(Scratch { buffer, shape })
    }

    /// Part number `part` of the `parts` that lie side by side at every position, as [`Call::vectors`].
    fn view(&self, parts: usize, part: usize) -> ViewParams {
        let [t, h, d] = [self.p.positions, self.p.heads, self.p.width].map(|d| d as usize);
        let step = parts * h * d;
        let strides = [t * step, d, step, 1].map(|s| s as i64);
        ViewParams::new(&self.vectors, &strides, part * h * d)
    }

    /// A copy of what [`Call::view`] names.
    fn part(&self, x: &B::Buffer, parts: usize, part: usize) -> Result<Scratch<B>> {
        let mut out = self.alloc(self.vectors)?;
        self.backend.view_read(&self.view(parts, part), x, &mut out.buffer)?;
        Ok(out)
    }

    /// The queries, scaled: fewer values than the scores.
    fn queries(&self, qkv: &B::Buffer) -> Result<Scratch<B>> {
        self.scaled(&self.part(qkv, 3, 0)?)
    }

    fn scaled(&self, x: &Scratch<B>) -> Result<Scratch<B>> {
        let mut y = self.alloc(x.shape)?;
        let p = UnaryParams::new(Unary::Affine, x.shape.size(), self.p.scale, 0.0);
        self.backend.unary(&p, &x.buffer, &mut y.buffer)?;
        Ok(y)
    }

    /// The product of two operands, each transposed where its flag says so.
    fn product(&self, a: (&Scratch<B>, bool), b: (&Scratch<B>, bool)) -> Result<Scratch<B>> {
        let (p, shape) = MatmulParams::new(OP, &a.0.shape, &b.0.shape, a.1, b.1)?;
        let mut c = self.alloc(shape)?;
        self.backend.matmul(&p, &a.0.buffer, &b.0.buffer, &mut c.buffer)?;
        Ok(c)
    }

    /// `softmax(q·kᵀ)`, masked when causal.
    fn softmax(&self, q: &Scratch<B>, k: &Scratch<B>) -> Result<Scratch<B>> {
        let mut scores = self.product((q, false), (k, true))?;
        if self.p.causal == 1 && self.p.positions > 1 {
            scores = self.masked(&scores)?;
        }
        let mut y = self.alloc(self.pairs)?;
        let along = SoftmaxParams::new(OP, &self.pairs, -1, false)?;
        self.backend.softmax(&along, &scores.buffer, &mut y.buffer)?;
        Ok(y)
    }

    /// The scores with −∞ where a position would see a later one. Nothing of the mask comes from the host.
    fn masked(&self, scores: &Scratch<B>) -> Result<Scratch<B>> {
        let (backend, t) = (self.backend, self.p.positions as usize);
        // t zeros, then t − 1 ones: row i of the mask is the t values from i before the last zero on.
        let mut line = backend.alloc(DType::U8, 2 * t - 1)?;
        let mut ones = backend.alloc(DType::U8, t - 1)?;
        backend.fill(0.0, &mut line)?;
        backend.fill(1.0, &mut ones)?;
        backend.view_write(&ViewParams::new(&Shape::new(&[t - 1])?, &[1], t), &ones, &mut line)?;
        let square = Shape::new(&[t, t])?;
        let mut mask = backend.alloc(DType::U8, square.size())?;
        backend.view_read(&ViewParams::new(&square, &[-1, 1], t - 1), &line, &mut mask)?;
        let mut never = backend.alloc(self.dtype, 1)?;
        backend.fill(f64::NEG_INFINITY, &mut never)?;
        let mut y = self.alloc(self.pairs)?;
        let (p, _) = BroadcastParams::new(OP, 0, &Shape::scalar(), &self.pairs, Some(&square))?;
        backend.select(&p, &mask, &never, &scores.buffer, &mut y.buffer)?;
        Ok(y)
    }
}
