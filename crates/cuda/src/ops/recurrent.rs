//! Recurrent layers: a launch for each step, which multiplies the states before it by their weight and makes the gates behind the products.

use super::instance;
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{ElementwiseOps, RecurrentCell, RecurrentGrads, RecurrentOperands, RecurrentOps, RecurrentParams};
use kiln_core::{Buffer, DType, Error, Result, Runtime, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::recurrent as kernels;

/// `RecurrentStep` of kernels/src/recurrent.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Step {
    t: u64,
    first: u32,
    last: u32,
}
const _: () = assert!(size_of::<Step>() == 16);

// The codes that the kernels have.
const _: () = assert!(RecurrentCell::Tanh as u32 == 0 && RecurrentCell::Relu as u32 == 1);
const _: () = assert!(RecurrentCell::Lstm as u32 == 2 && RecurrentCell::Gru as u32 == 3);

/// A grid of `columns` blocks beside each other, and of as many below each other as `rows` sequences each need.
fn geometry(p: &RecurrentParams, columns: u64, rows: u64) -> Result<Geometry> {
    let blocks = p.hidden.div_ceil(columns);
    if blocks > i32::MAX as u64 {
        return Err(Error::TooLarge {
            op: "recurrent",
            dims: vec![p.batch as usize, p.hidden as usize],
        });
    }
    Ok(Geometry {
        grid: [blocks as u32, p.batch.div_ceil(rows).min(65_535) as u32, 1],
        block: [256, 1, 1],
        shared: 0,
    })
}

impl Cuda {
    /// States in f32, which launches pass on.
    fn widened(&self, x: &CudaBuffer) -> Result<CudaBuffer> {
        let mut wide = self.scratch(DType::F32, x.len())?;
        match x.dtype() {
            DType::F32 => self.copy(x, &mut wide)?,
            _ => self.cast(x, &mut wide)?,
        }
        Ok(wide)
    }

    /// Rounds states to the dtype of `y`.
    fn rounded(&self, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        match y.dtype() {
            DType::F32 => self.copy(x, y),
            _ => self.cast(x, y),
        }
    }
}

/// The step that is made in place `i`.
fn step(p: &RecurrentParams, i: u64) -> u64 {
    if p.reverse == 1 { p.steps - 1 - i } else { i }
}

impl RecurrentOps for Cuda {
    fn recurrent(
        &self,
        p: &RecurrentParams,
        x: &CudaBuffer,
        of: &RecurrentOperands<'_, CudaBuffer>,
        kept: Option<&mut CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::recurrent(self, p, x, of, kept.as_deref(), y)?;
        if p.batch == 0 {
            return Ok(());
        }
        if let (0, 1, Some(c0)) = (p.steps, p.last_cells, of.c0) {
            return self.copy(c0, y);
        }
        let kernel = instance(&kernels::RECURRENT_STEP, y.dtype());
        let geometry = geometry(p, 8, 4)?;
        let mut h = [self.widened(of.h0)?, self.scratch(DType::F32, of.h0.len())?];
        let c = of.c0.map(|c0| self.widened(c0)).transpose()?;
        let kept = kept.filter(|kept| kept.len() > 0);
        for i in 0..p.steps {
            let at = Step {
                t: step(p, i),
                first: u32::from(i == 0),
                last: u32::from(i + 1 == p.steps),
            };
            let args = [
                Arg::value(p),
                Arg::value(&at),
                x.arg(),
                of.w.arg(),
                maybe(of.bias),
                maybe(of.lengths),
                h[0].arg(),
                h[1].arg(),
                maybe(c.as_ref()),
                y.arg(),
                maybe(kept.as_deref()),
            ];
            self.launch(kernel, geometry, &args)?;
            h.swap(0, 1);
        }
        Ok(())
    }

    fn recurrent_grad(
        &self,
        p: &RecurrentParams,
        of: &RecurrentOperands<'_, CudaBuffer>,
        kept: &CudaBuffer,
        y: &CudaBuffer,
        g: &CudaBuffer,
        to: RecurrentGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::recurrent_grad(self, p, of, kept, y, g, &to)?;
        if p.batch == 0 {
            return Ok(());
        }
        if p.steps == 0 {
            self.fill(0.0, to.dh0)?;
            return match (to.dc0, p.last_cells) {
                (Some(dc0), 1) => self.copy(g, dc0),
                (Some(dc0), _) => self.fill(0.0, dc0),
                (None, _) => Ok(()),
            };
        }
        let kernel = instance(&kernels::RECURRENT_GRAD_STEP, y.dtype());
        let geometry = geometry(p, 32, 8)?;
        let state = of.h0.len();
        let products = state * p.cell().gates();
        let mut dr = [self.scratch(DType::F32, products)?, self.scratch(DType::F32, products)?];
        let dh = self.scratch(DType::F32, state)?;
        let dc = to.dc0.as_ref().map(|_| self.scratch(DType::F32, state)).transpose()?;
        for i in (0..=p.steps).rev() {
            // The place behind the first step stands for the product of that step's gradients alone.
            let at = Step {
                t: if i == 0 { p.steps } else { step(p, i - 1) },
                first: u32::from(i == p.steps),
                last: u32::from(i == 0),
            };
            let args = [
                Arg::value(p),
                Arg::value(&at),
                of.w.arg(),
                maybe(of.lengths),
                kept.arg(),
                y.arg(),
                g.arg(),
                of.h0.arg(),
                maybe(of.c0),
                dr[0].arg(),
                dr[1].arg(),
                dh.arg(),
                maybe(dc.as_ref()),
                to.dx.arg(),
                maybe(to.dr.as_deref()),
                to.before.arg(),
            ];
            self.launch(kernel, geometry, &args)?;
            dr.swap(0, 1);
        }
        self.rounded(&dh, to.dh0)?;
        match (dc, to.dc0) {
            (Some(dc), Some(dc0)) => self.rounded(&dc, dc0),
            _ => Ok(()),
        }
    }
}
