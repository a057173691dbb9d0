//! Linear layers of a few rows: a launch forward, and one for all gradients.

use super::Epilogue;
use crate::buffer::maybe;
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{
    Activation, ElementwiseOps, LinearGrads, LinearInputs, MatmulOps, MatmulParams, ReduceOps, Unary, UnaryParams,
};
use kiln_core::{Buffer, Result};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{PerFloat, matmul_few as kernels};

/// The rows that the larger and the smaller kernels take.
const MOST: u64 = 8;
const FEW: u64 = 4;
/// Warps of a block, each with a row of the weight.
const WARPS: u64 = 8;

/// True if the linear layer of `p` has so few rows that it takes these kernels.
pub(super) fn takes(p: &MatmulParams) -> bool {
    let plain = p.batch_rank == 0 && p.trans_a == 0 && p.trans_b == 1;
    plain && (1..=MOST).contains(&p.m) && p.k > 0 && p.n.div_ceil(WARPS) + p.k < 1 << 31
}

fn geometry(blocks: u64) -> Geometry {
    Geometry {
        grid: [blocks as u32, 1, 1],
        block: [256, 1, 1],
        shared: 0,
    }
}

fn by_rows(p: &MatmulParams, few: &'static PerFloat, most: &'static PerFloat) -> &'static PerFloat {
    if p.m <= FEW { few } else { most }
}

impl Cuda {
    pub(super) fn linear_few(
        &self,
        p: &MatmulParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        h: Option<&mut CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        let kernel = by_rows(p, &kernels::LINEAR_FEW4, &kernels::LINEAR_FEW8);
        let h = h.map_or(maybe(None), CudaBuffer::out);
        let args = [Arg::value(p), x.arg(), w.arg(), maybe(bias), h, y.out()];
        self.launch(instance(kernel, x.dtype()), geometry(p.n.div_ceil(WARPS)), &args)
    }

    pub(super) fn linear_grad_few(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, CudaBuffer>,
        g: &CudaBuffer,
        to: LinearGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        let kernel = by_rows(p, &kernels::LINEAR_GRAD_FEW4, &kernels::LINEAR_GRAD_FEW8);
        let of_weight = match to.dw.is_some() || to.db.is_some() {
            true => p.n.div_ceil(WARPS) as u32,
            false => 0,
        };
        let columns = if p.m <= FEW { 128 } else { 64 };
        let of_input = if to.dx.is_some() { p.k.div_ceil(columns) } else { 0 };
        let mut again = to.x;
        if let (Some(x), Some(slope)) = (again.as_deref_mut(), &of.slope)
            && let Some(f) = slope.f.function()
        {
            self.unary(&UnaryParams::new(f, x.len(), 0.0, 0.0), slope.at, x)?;
        }
        if let (Some(x), Some(norm)) = (again.as_deref_mut(), &of.norm) {
            self.remake(norm, x)?;
        }
        let x = of.x.or(again.as_deref());
        let [dx, dw, db] = [to.dx, to.dw, to.db].map(|to| to.map_or(maybe(None), CudaBuffer::out));
        let slope = of.slope.as_ref().map_or(Activation::None, |slope| slope.f) as u32;
        let args = [
            Arg::value(p),
            maybe(x),
            of.w.arg(),
            maybe(of.y),
            maybe(of.slope.as_ref().map(|slope| slope.at)),
            Arg::value(&slope),
            g.arg(),
            dx,
            dw,
            db,
            Arg::value(&of_weight),
        ];
        self.launch(
            instance(kernel, g.dtype()),
            geometry(u64::from(of_weight) + of_input),
            &args,
        )
    }

    /// The gradients of a linear layer by the kernels of other ops.
    pub(super) fn linear_grad_apart(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, CudaBuffer>,
        g: &CudaBuffer,
        to: LinearGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        let masked = match of.y {
            Some(y) => {
                let mut masked = self.scratch(g.dtype(), g.len())?;
                let relu = UnaryParams::new(Unary::Relu, g.len(), 0.0, 0.0);
                self.unary_grad(&relu, y, y, g, &mut masked)?;
                Some(masked)
            }
            None => None,
        };
        let g = masked.as_ref().unwrap_or(g);
        let mut again = to.x;
        if let Some(dx) = to.dx {
            let mut p = p.data_grad();
            let plan = self.matmul_plan(&p, dx.dtype());
            p.activation = of.slope.as_ref().map_or(Activation::None, |slope| slope.f) as u32;
            let slope_at = of.slope.as_ref().map(|slope| slope.at);
            let epilogue = Epilogue {
                bias: None,
                kept: again.as_deref_mut(),
                slope_at,
                norm: of.norm.as_ref(),
            };
            self.product_with(plan, &p, (g, of.w), epilogue, dx)?;
        }
        let p = p.weight_grad();
        match (to.dw.zip(of.x.or(again.as_deref())), to.db) {
            (Some((dw, x)), Some(db)) => self.linear_weight_grad(self.matmul_plan(&p, dw.dtype()), &p, g, x, dw, db),
            (Some((dw, x)), None) => self.matmul(&p, g, x, dw),
            (None, Some(db)) => self.reduce(&p.bias_grad()?, g, db),
            (None, None) => Ok(()),
        }
    }
}
