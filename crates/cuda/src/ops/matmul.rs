//! Matrix products: kernel variants, from a thread an element to tensor cores, and the choice between them.
//!
//! Every variant computes any sizes, either side transposed, batches, bias and activation, in f32, bf16 and f16; the larger
//! tiles of tensor cores want operands whose rows are multiples of 16 bytes, and the fastest a device of compute capability 9.0
//! ([`Algorithm::fits`]).
//! [`Cuda::matmul_plan`] says which variant an op takes; [`Cuda::matmul_with`] takes a given one, for benches, tests and
//! readers who want to learn from the steps between the variants (docs/gpu-guide.md).

mod choose;
mod epilogue;
mod few;
mod plan;
mod weight_grad;

pub use epilogue::Epilogue;
pub use plan::{Algorithm, Plan};

use super::instance;
use crate::buffer::maybe;
use crate::{Cuda, CudaBuffer};
use bytemuck::{Pod, Zeroable};
use kiln_core::ops::{LinearGrads, LinearInputs, MatmulOps, MatmulParams};
use kiln_core::{Buffer, DType, Error, Result, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{
    Kernel, matmul as plain, matmul_registers as registers, matmul_tensor_bf16 as bf16, matmul_tensor_f16 as f16,
    matmul_tensor_tf32 as tf32, matmul_warpgroup_bf16_sm90a as group_bf16, matmul_warpgroup_f16_sm90a as group_f16,
};

/// The division of the work into blocks: `Cut` of kernels/src/matmul.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Cut {
    blocks: u64,
    part: u64,
    splits: u32,
    sharers: u32,
}
const _: () = assert!(size_of::<Cut>() == 24);

/// Threads of a block of the kernels that have a thread for each element.
const THREADS: u64 = 256;

impl MatmulOps for Cuda {
    fn matmul_algorithm(&self, p: &MatmulParams, dtype: DType) -> Option<&'static str> {
        Some(self.matmul_plan(p, dtype).algorithm().name())
    }

    fn matmul(&self, p: &MatmulParams, a: &CudaBuffer, b: &CudaBuffer, c: &mut CudaBuffer) -> Result<()> {
        checks::matmul(self, p, a, b, c)?;
        self.matmul_with(self.matmul_plan(p, c.dtype()), p, a, b, None, c)
    }

    fn linear(
        &self,
        p: &MatmulParams,
        x: &CudaBuffer,
        w: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        h: Option<&mut CudaBuffer>,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::linear(self, p, x, w, bias, h.as_deref(), y)?;
        if few::takes(p) {
            return self.linear_few(p, x, w, bias, h, y);
        }
        let epilogue = Epilogue {
            bias,
            kept: h,
            ..Epilogue::default()
        };
        self.product_with(self.matmul_plan(p, y.dtype()), p, (x, w), epilogue, y)
    }

    fn linear_grad(
        &self,
        p: &MatmulParams,
        of: &LinearInputs<'_, CudaBuffer>,
        g: &CudaBuffer,
        to: LinearGrads<'_, CudaBuffer>,
    ) -> Result<()> {
        checks::linear_grad(self, p, of, g, &to)?;
        match few::takes(p) {
            true => self.linear_grad_few(p, of, g, to),
            false => self.linear_grad_apart(p, of, g, to),
        }
    }

    fn remakes_input(&self, p: &MatmulParams, dtype: DType) -> bool {
        let of_input = p.data_grad();
        !few::takes(p) && self.matmul_plan(&of_input, dtype).algorithm().remakes(&of_input)
    }
}

impl Cuda {
    /// The plan that [`matmul`](MatmulOps::matmul) and [`linear`](MatmulOps::linear) follow on this device.
    pub fn matmul_plan(&self, p: &MatmulParams, dtype: DType) -> Plan {
        Plan::choose(p, dtype, self.processors(), self.options().tf32)
    }

    /// True if `algorithm` can compute the product `p` in `dtype` on this device.
    pub fn matmul_fits(&self, algorithm: Algorithm, p: &MatmulParams, dtype: DType) -> bool {
        algorithm.fits(p, dtype, self.processors())
    }

    fn refuse_misfit(&self, plan: Plan, p: &MatmulParams, dtype: DType) -> Result<()> {
        if self.matmul_fits(plan.algorithm(), p, dtype) {
            return Ok(());
        }
        let expected = "a variant for this product here: tiles of tensor cores but one take rows of multiples of 16 bytes, those of warp \
                        groups halves on devices of compute capability 9.0";
        Err(Error::invalid("matmul", "plan", plan.algorithm().name(), expected))
    }

    /// `C[b] = f(op(A[b])·op(B[b]) + bias)` by `plan`, with the buffers that [`MatmulOps`] takes. The tensor-core variants
    /// round operands of f32 to TF32.
    ///
    /// # Errors
    /// Operands that the parameters do not fit, a plan that does not fit the product, those of a launch, and no memory for the partial sums of a split product.
    pub fn matmul_with(
        &self,
        plan: Plan,
        p: &MatmulParams,
        a: &CudaBuffer,
        b: &CudaBuffer,
        bias: Option<&CudaBuffer>,
        c: &mut CudaBuffer,
    ) -> Result<()> {
        let epilogue = Epilogue {
            bias,
            ..Epilogue::default()
        };
        self.product_with(plan, p, (a, b), epilogue, c)
    }

    /// As [`matmul_with`](Self::matmul_with), with all that a product's kernels can do to its sums.
    ///
    /// # Errors
    /// As [`matmul_with`](Self::matmul_with); a slope together with a bias.
    pub fn product_with(
        &self,
        plan: Plan,
        p: &MatmulParams,
        (a, b): (&CudaBuffer, &CudaBuffer),
        epilogue: Epilogue<'_>,
        c: &mut CudaBuffer,
    ) -> Result<()> {
        checks::product(self, "matmul", p, (a, b), epilogue.bias, c)?;
        epilogue.check(p, c)?;
        let p = &plan::fold(p);
        let dtype = c.dtype();
        self.refuse_misfit(plan, p, dtype)?;
        let len = c.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let (part, splits) = plan.parts(p.k);
        if !epilogue.is_of(plan.algorithm(), p) {
            return self.product_composed(plan, p, (a, b), epilogue, c);
        }
        let Epilogue {
            bias,
            kept,
            slope_at,
            norm,
        } = epilogue;
        let norm = self.row_norm(norm)?;
        let kept = kept.map_or(maybe(None), CudaBuffer::out);
        let kernel = kernel(plan.algorithm(), p, dtype);
        if plan.algorithm() == Algorithm::Naive {
            let args = [
                Arg::value(p),
                a.arg(),
                b.arg(),
                maybe(bias),
                kept,
                maybe(slope_at),
                c.out(),
                Arg::value(&len),
            ];
            return self.launch(kernel, grid(len.div_ceil(THREADS), THREADS), &args);
        }
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
        if plan.algorithm() == Algorithm::Tiled {
            let args = [
                Arg::value(p),
                a.arg(),
                b.arg(),
                maybe(bias),
                kept,
                maybe(slope_at),
                c.out(),
                Arg::value(&cut),
            ];
            return self.launch(kernel, geometry, &args);
        }
        if splits == 1 {
            let args = [
                Arg::value(p),
                a.arg(),
                b.arg(),
                maybe(bias),
                kept,
                maybe(slope_at),
                c.out(),
                maybe(None),
                Arg::value(&norm),
                Arg::value(&cut),
            ];
            return self.launch(kernel, geometry, &args);
        }
        // Each part of k writes its sums, which are added up in their order, so that the result does not depend on which block was the
        // first: by the last blocks of each tile, or where tiles are more than their counters by a second kernel.
        let sharers = self.sharers(kernel, geometry, cut.blocks / u64::from(splits), u64::from(splits))?;
        let cut = Cut { sharers, ..cut };
        let mut parts = self.scratch(DType::F32, len as usize * splits as usize)?;
        if sharers > 0 {
            let args = [
                Arg::value(p),
                a.arg(),
                b.arg(),
                maybe(bias),
                kept,
                maybe(slope_at),
                c.out(),
                parts.out(),
                Arg::value(&norm),
                Arg::value(&cut),
            ];
            return self.launch(kernel, geometry, &args);
        }
        // A norm is written by the blocks of the first part, everything else where the sums are whole.
        let (first, last) = match norm.s {
            0 => (maybe(None), kept),
            _ => (kept, maybe(None)),
        };
        let args = [
            Arg::value(p),
            a.arg(),
            b.arg(),
            maybe(None),
            first,
            maybe(None),
            maybe(None),
            parts.out(),
            Arg::value(&norm),
            Arg::value(&cut),
        ];
        self.launch(kernel, geometry, &args)?;
        let reduce = instance(&plain::MATMUL_REDUCE, dtype);
        let args = [
            Arg::value(p),
            parts.arg(),
            maybe(bias),
            last,
            maybe(slope_at),
            c.out(),
            Arg::value(&len),
            Arg::value(&splits),
        ];
        self.launch(reduce, grid(len.div_ceil(THREADS), THREADS), &args)
    }
}

/// A grid of `blocks` blocks of `threads`, in two dimensions where one cannot hold them.
fn grid(blocks: u64, threads: u64) -> Geometry {
    const LONGEST: u64 = (1 << 31) - 1;
    let rows = blocks.div_ceil(LONGEST);
    debug_assert!(rows < 1 << 16, "{blocks} blocks: more than any memory has elements for");
    Geometry {
        grid: [blocks.div_ceil(rows.max(1)) as u32, rows as u32, 1],
        block: [threads as u32, 1, 1],
        shared: 0,
    }
}

/// The tensor-core kernels of a dtype and tile, by `[trans_a][trans_b]`.
type ByTransposition = [[&'static Kernel; 2]; 2];

fn kernel(algorithm: Algorithm, p: &MatmulParams, dtype: DType) -> &'static Kernel {
    macro_rules! by_transposition {
        ($($algorithm:pat, $dtype:pat => $module:ident, $nn:ident $nt:ident $tn:ident $tt:ident;)*) => {
            match (algorithm, dtype) {
                (Algorithm::Naive, _) => return instance(&plain::MATMUL_NAIVE, dtype),
                (Algorithm::Tiled, _) => return instance(&plain::MATMUL_TILED, dtype),
                (Algorithm::Registers64, _) => return instance(&registers::MATMUL_REGISTERS_64, dtype),
                (Algorithm::Registers128, _) => return instance(&registers::MATMUL_REGISTERS_128, dtype),
                $(($algorithm, $dtype) => &[[&$module::$nn, &$module::$nt], [&$module::$tn, &$module::$tt]],)*
            }
        };
    }
    use Algorithm::{
        Tensor64x64, Tensor64x64Any, Tensor128x64, Tensor128x128, Tensor128x256, Warpgroup128x128, Warpgroup128x256,
    };
    #[rustfmt::skip]
    let tensor: &ByTransposition = by_transposition! {
        Tensor64x64Any, DType::BF16 => bf16, MATMUL_TENSOR_64X64_ANY_NN_BF16 MATMUL_TENSOR_64X64_ANY_NT_BF16 MATMUL_TENSOR_64X64_ANY_TN_BF16 MATMUL_TENSOR_64X64_ANY_TT_BF16;
        Tensor64x64Any, DType::F16 => f16, MATMUL_TENSOR_64X64_ANY_NN_F16 MATMUL_TENSOR_64X64_ANY_NT_F16 MATMUL_TENSOR_64X64_ANY_TN_F16 MATMUL_TENSOR_64X64_ANY_TT_F16;
        Tensor64x64Any, _ => tf32, MATMUL_TENSOR_64X64_ANY_NN_TF32 MATMUL_TENSOR_64X64_ANY_NT_TF32 MATMUL_TENSOR_64X64_ANY_TN_TF32 MATMUL_TENSOR_64X64_ANY_TT_TF32;
        Tensor64x64, DType::BF16 => bf16, MATMUL_TENSOR_64X64_NN_BF16 MATMUL_TENSOR_64X64_NT_BF16 MATMUL_TENSOR_64X64_TN_BF16 MATMUL_TENSOR_64X64_TT_BF16;
        Tensor64x64, DType::F16 => f16, MATMUL_TENSOR_64X64_NN_F16 MATMUL_TENSOR_64X64_NT_F16 MATMUL_TENSOR_64X64_TN_F16 MATMUL_TENSOR_64X64_TT_F16;
        Tensor64x64, _ => tf32, MATMUL_TENSOR_64X64_NN_TF32 MATMUL_TENSOR_64X64_NT_TF32 MATMUL_TENSOR_64X64_TN_TF32 MATMUL_TENSOR_64X64_TT_TF32;
        Tensor128x64, DType::BF16 => bf16, MATMUL_TENSOR_128X64_NN_BF16 MATMUL_TENSOR_128X64_NT_BF16 MATMUL_TENSOR_128X64_TN_BF16 MATMUL_TENSOR_128X64_TT_BF16;
        Tensor128x64, DType::F16 => f16, MATMUL_TENSOR_128X64_NN_F16 MATMUL_TENSOR_128X64_NT_F16 MATMUL_TENSOR_128X64_TN_F16 MATMUL_TENSOR_128X64_TT_F16;
        Tensor128x64, _ => tf32, MATMUL_TENSOR_128X64_NN_TF32 MATMUL_TENSOR_128X64_NT_TF32 MATMUL_TENSOR_128X64_TN_TF32 MATMUL_TENSOR_128X64_TT_TF32;
        Tensor128x128, DType::BF16 => bf16, MATMUL_TENSOR_128X128_NN_BF16 MATMUL_TENSOR_128X128_NT_BF16 MATMUL_TENSOR_128X128_TN_BF16 MATMUL_TENSOR_128X128_TT_BF16;
        Tensor128x128, DType::F16 => f16, MATMUL_TENSOR_128X128_NN_F16 MATMUL_TENSOR_128X128_NT_F16 MATMUL_TENSOR_128X128_TN_F16 MATMUL_TENSOR_128X128_TT_F16;
        Tensor128x128, _ => tf32, MATMUL_TENSOR_128X128_NN_TF32 MATMUL_TENSOR_128X128_NT_TF32 MATMUL_TENSOR_128X128_TN_TF32 MATMUL_TENSOR_128X128_TT_TF32;
        Tensor128x256, DType::BF16 => bf16, MATMUL_TENSOR_128X256_NN_BF16 MATMUL_TENSOR_128X256_NT_BF16 MATMUL_TENSOR_128X256_TN_BF16 MATMUL_TENSOR_128X256_TT_BF16;
        Tensor128x256, DType::F16 => f16, MATMUL_TENSOR_128X256_NN_F16 MATMUL_TENSOR_128X256_NT_F16 MATMUL_TENSOR_128X256_TN_F16 MATMUL_TENSOR_128X256_TT_F16;
        Tensor128x256, _ => tf32, MATMUL_TENSOR_128X256_NN_TF32 MATMUL_TENSOR_128X256_NT_TF32 MATMUL_TENSOR_128X256_TN_TF32 MATMUL_TENSOR_128X256_TT_TF32;
        Warpgroup128x128, DType::BF16 => group_bf16, MATMUL_WARPGROUP_128X128_NN_BF16 MATMUL_WARPGROUP_128X128_NT_BF16 MATMUL_WARPGROUP_128X128_TN_BF16 MATMUL_WARPGROUP_128X128_TT_BF16;
        Warpgroup128x128, _ => group_f16, MATMUL_WARPGROUP_128X128_NN_F16 MATMUL_WARPGROUP_128X128_NT_F16 MATMUL_WARPGROUP_128X128_TN_F16 MATMUL_WARPGROUP_128X128_TT_F16;
        Warpgroup128x256, DType::BF16 => group_bf16, MATMUL_WARPGROUP_128X256_NN_BF16 MATMUL_WARPGROUP_128X256_NT_BF16 MATMUL_WARPGROUP_128X256_TN_BF16 MATMUL_WARPGROUP_128X256_TT_BF16;
        Warpgroup128x256, _ => group_f16, MATMUL_WARPGROUP_128X256_NN_F16 MATMUL_WARPGROUP_128X256_NT_F16 MATMUL_WARPGROUP_128X256_TN_F16 MATMUL_WARPGROUP_128X256_TT_F16;
    };
    tensor[usize::from(p.trans_a == 1)][usize::from(p.trans_b == 1)]
}
