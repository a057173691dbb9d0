//! The gradients of the weight and the bias of a linear layer: one kernel on tensor cores, otherwise a product and a sum.

use super::plan::{Algorithm, Plan};
use super::{Cut, grid};
use crate::buffer::maybe;
use crate::ops::instance;
use crate::{Cuda, CudaBuffer};
use kiln_core::ops::{MatmulParams, ReduceOps};
use kiln_core::{Buffer, DType, Error, Result, Runtime, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{
    Kernel, matmul as plain, matmul_tensor_bf16 as bf16, matmul_tensor_f16 as f16, matmul_tensor_tf32 as tf32,
    matmul_warpgroup_bf16_sm90a as group_bf16, matmul_warpgroup_f16_sm90a as group_f16,
};

/// The kernel that computes both gradients, if there is one for this variant.
#[rustfmt::skip]
fn kernel(algorithm: Algorithm, dtype: DType) -> Option<&'static Kernel> {
    Some(match (algorithm, dtype) {
        (Algorithm::Tensor64x64, DType::BF16) => &bf16::LINEAR_WEIGHT_GRAD_64X64_BF16,
        (Algorithm::Tensor64x64, DType::F16) => &f16::LINEAR_WEIGHT_GRAD_64X64_F16,
        (Algorithm::Tensor64x64, _) => &tf32::LINEAR_WEIGHT_GRAD_64X64_TF32,
        (Algorithm::Tensor128x64, DType::BF16) => &bf16::LINEAR_WEIGHT_GRAD_128X64_BF16,
        (Algorithm::Tensor128x64, DType::F16) => &f16::LINEAR_WEIGHT_GRAD_128X64_F16,
        (Algorithm::Tensor128x64, _) => &tf32::LINEAR_WEIGHT_GRAD_128X64_TF32,
        (Algorithm::Tensor128x128, DType::BF16) => &bf16::LINEAR_WEIGHT_GRAD_128X128_BF16,
        (Algorithm::Tensor128x128, DType::F16) => &f16::LINEAR_WEIGHT_GRAD_128X128_F16,
        (Algorithm::Tensor128x128, _) => &tf32::LINEAR_WEIGHT_GRAD_128X128_TF32,
        (Algorithm::Tensor128x256, DType::BF16) => &bf16::LINEAR_WEIGHT_GRAD_128X256_BF16,
        (Algorithm::Tensor128x256, DType::F16) => &f16::LINEAR_WEIGHT_GRAD_128X256_F16,
        (Algorithm::Tensor128x256, _) => &tf32::LINEAR_WEIGHT_GRAD_128X256_TF32,
        (Algorithm::Warpgroup128x128, DType::BF16) => &group_bf16::LINEAR_WEIGHT_GRAD_WARPGROUP_128X128_BF16,
        (Algorithm::Warpgroup128x128, _) => &group_f16::LINEAR_WEIGHT_GRAD_WARPGROUP_128X128_F16,
        (Algorithm::Warpgroup128x256, DType::BF16) => &group_bf16::LINEAR_WEIGHT_GRAD_WARPGROUP_128X256_BF16,
        (Algorithm::Warpgroup128x256, _) => &group_f16::LINEAR_WEIGHT_GRAD_WARPGROUP_128X256_F16,
        _ => return None,
    })
}

impl Cuda {
    /// `dw = gᵀ·x`, the product `p` ([`MatmulParams::weight_grad`]), and `db = Σ g` over the rows, `[m]`, by `plan`: in one launch on tensor cores.
    ///
    /// # Errors
    /// As [`matmul_with`](Self::matmul_with); a product in batches.
    pub fn linear_weight_grad_with(
        &self,
        plan: Plan,
        p: &MatmulParams,
        (g, x): (&CudaBuffer, &CudaBuffer),
        dw: &mut CudaBuffer,
        db: &mut CudaBuffer,
    ) -> Result<()> {
        checks::product(self, "linear_grad", p, (g, x), None, dw)?;
        let of_bias = (db.dtype(), db.len() as u64) == (dw.dtype(), p.m) && self.owns(db);
        if !of_bias || p.batch_rank > 0 || p.trans_a == 0 || p.trans_b == 1 || p.activation != 0 {
            let expected = "a product of a transposed matrix and another, and a bias for its rows";
            return Err(Error::invalid("linear_grad", "p", format!("{p:?}"), expected));
        }
        self.refuse_misfit(plan, p, dw.dtype())?;
        self.linear_weight_grad(plan, p, g, x, dw, db)
    }

    pub(super) fn linear_weight_grad(
        &self,
        plan: Plan,
        p: &MatmulParams,
        g: &CudaBuffer,
        x: &CudaBuffer,
        dw: &mut CudaBuffer,
        db: &mut CudaBuffer,
    ) -> Result<()> {
        let (dtype, len) = (dw.dtype(), dw.len() as u64);
        let kernel = kernel(plan.algorithm(), dtype).filter(|_| len > 0);
        let Some(kernel) = kernel else {
            self.matmul_with(plan, p, g, x, None, dw)?;
            return self.reduce(&p.bias_grad()?, g, db);
        };
        let (part, splits) = plan.parts(p.k);
        let cut = Cut {
            blocks: plan.algorithm().tiles(p) * u64::from(splits),
            part,
            splits,
            sharers: 0,
        };
        let geometry = Geometry {
            shared: plan.algorithm().dynamic_shared(),
            ..grid(cut.blocks, u64::from(kernel.max_threads))
        };
        if splits == 1 {
            let args = [
                Arg::value(p),
                g.arg(),
                x.arg(),
                dw.out(),
                db.out(),
                maybe(None),
                maybe(None),
                Arg::value(&cut),
            ];
            return self.launch(kernel, geometry, &args);
        }
        let mut parts = self.scratch(DType::F32, len as usize * splits as usize)?;
        let mut bias_parts = self.scratch(DType::F32, db.len() * splits as usize)?;
        let sharers = self.sharers(kernel, geometry, cut.blocks / u64::from(splits), u64::from(splits))?;
        let cut = Cut { sharers, ..cut };
        let args = [
            Arg::value(p),
            g.arg(),
            x.arg(),
            dw.out(),
            db.out(),
            parts.out(),
            bias_parts.out(),
            Arg::value(&cut),
        ];
        self.launch(kernel, geometry, &args)?;
        if sharers > 0 {
            return Ok(());
        }
        let args = [
            parts.arg(),
            bias_parts.arg(),
            dw.out(),
            db.out(),
            Arg::value(&len),
            Arg::value(&p.m),
            Arg::value(&splits),
        ];
        let reduce = instance(&plain::LINEAR_WEIGHT_GRAD_REDUCE, dtype);
        self.launch(reduce, grid((len + p.m).div_ceil(256), 256), &args)
    }
}
