//! A convolution and its pooling as two ops, with memory for the result between them: used where splitting the batch gains
//! nothing, and as the reference for tests.

use crate::{Cpu, CpuBuffer};
use kiln_core::ops::{
    Activation, ConvOps, ConvPoolGrads, ConvPoolParams, ElementwiseOps, GradReads, PoolOps, PooledGrad, Reduce,
    ReduceOps, ReduceParams, Unary, UnaryParams,
};
use kiln_core::{Buffer, Error, Result, Runtime, Shape};

/// [`ConvPoolOps::conv_max_pool`] as two ops.
///
/// # Errors
/// [`Error::OutOfMemory`](kiln_core::Error::OutOfMemory), and the errors of the ops.
pub(super) fn forward(
    cpu: &Cpu,
    p: &ConvPoolParams,
    (x, w, bias): (&CpuBuffer, &CpuBuffer, Option<&CpuBuffer>),
    (y, index): (&mut CpuBuffer, &mut CpuBuffer),
) -> Result<()> {
    let mut between = cpu.alloc(y.dtype(), p.between())?;
    cpu.conv(&p.conv, x, w, bias, &mut between)?;
    cpu.max_pool(&p.pool, &between, y, index)
}

/// [`ConvPoolOps::conv_max_pool_grad`] as separate ops.
///
/// # Errors
/// As [`forward`]; an error for an activation whose derivative cannot be computed from its output.
pub(super) fn gradients(
    cpu: &Cpu,
    p: &ConvPoolParams,
    of: &PooledGrad<'_, CpuBuffer>,
    (x, w): (&CpuBuffer, &CpuBuffer),
    to: ConvPoolGrads<'_, CpuBuffer>,
) -> Result<()> {
    let before;
    let g = match derivative(p.conv.activation())? {
        None => of.g,
        Some(f) => {
            let mut g = cpu.alloc(of.g.dtype(), of.g.len())?;
            let f = UnaryParams::new(f, of.g.len(), 0.0, 0.0);
            cpu.unary_grad(&f, of.y, of.y, of.g, &mut g)?;
            before = g;
            &before
        }
    };
    if let Some(db) = to.db {
        let channels = p.pool.channels as usize;
        let rows = Shape::new(&[g.len() / channels.max(1), channels])?;
        let (sum, _) = ReduceParams::new("conv_max_pool", Reduce::Sum, &rows, &[0], false)?;
        cpu.reduce(&sum, g, db)?;
    }
    if to.dx.is_none() && to.dw.is_none() {
        return Ok(());
    }
    let mut between = cpu.alloc(g.dtype(), p.between())?;
    cpu.max_pool_grad(&p.pool, g, None, of.index, &mut between)?;
    if let Some(dx) = to.dx {
        cpu.conv_data_grad(&p.linear(), &between, w, dx)?;
    }
    if let Some(dw) = to.dw {
        cpu.conv_weight_grad(&p.linear(), &between, x, dw)?;
    }
    Ok(())
}

/// The function whose gradient is that of the activation; `None` without an activation.
fn derivative(f: Activation) -> Result<Option<Unary>> {
    match f.function() {
        None => Ok(None),
        Some(function) if function.function().reads == GradReads::Output => Ok(Some(function)),
        Some(_) => {
            let expected = "none, ReLU, sigmoid or tanh, whose derivative follows from the result";
            Err(Error::invalid(
                "conv_max_pool",
                "activation",
                format!("{f:?}"),
                expected,
            ))
        }
    }
}
