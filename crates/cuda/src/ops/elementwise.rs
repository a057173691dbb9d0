//! Elementwise ops.
//!
//! Every kernel strides over packs of 16 bytes; broadcasts whose innermost dimension is no whole number of packs go
//! element by element. Blocks of 256 threads, at most 16 for each multiprocessor: more only wait.

use super::instance;
use crate::launch::{THREADS, linear};
use crate::tensors::{Tensors, WORDS, chunks_of};
use crate::{Cuda, CudaBuffer};
use half::{bf16, f16};
use kiln_core::ops::{BroadcastParams, ElementwiseOps, UnaryParams};
use kiln_core::{Buffer, DType, Float, Result, Runtime, checks};
use kiln_device::{Arg, Geometry};
use kiln_kernels::{Kernel, elementwise_binary as binary, elementwise_move as moves, elementwise_unary as unary};

impl Cuda {
    /// A grid that strides over `n` items, a thread taking `each` of them at a time.
    pub(crate) fn striding(&self, n: u64, each: u64) -> Geometry {
        linear(n.div_ceil(each), THREADS, 16 * self.multiprocessors())
    }

    /// A grid for `n` contiguous elements of `dtype`.
    fn packs(&self, n: u64, dtype: DType) -> Geometry {
        self.striding(n, 16 / dtype.size() as u64)
    }

    /// A grid for a broadcast into `n` elements of `dtype`.
    pub(super) fn broadcast(&self, p: &BroadcastParams, dtype: DType) -> Geometry {
        let lanes = 16 / dtype.size() as u64;
        let whole = p.rank < 2 || p.shape[p.rank as usize - 1].is_multiple_of(lanes);
        self.striding(p.n, if whole { lanes } else { 1 })
    }
}

/// The bits of `value` in `dtype`.
pub(super) fn bits(value: f64, dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => u32::from(<bf16 as Float>::of(value).to_bits()),
        DType::F16 => u32::from(<f16 as Float>::of(value).to_bits()),
        // The conversion truncates and saturates; NaN becomes 0.
        DType::I32 => value as i32 as u32,
        DType::U8 => u32::from(value as u8),
        DType::F32 | DType::F64 => (value as f32).to_bits(),
    }
}

/// The kernel that converts; none where the dtypes are the same.
fn conversion(from: DType, to: DType) -> Option<&'static Kernel> {
    use DType::{BF16, F16, F32, I32, U8};
    Some(match (from, to) {
        (F32, BF16) => &moves::CAST_F32_BF16,
        (F32, F16) => &moves::CAST_F32_F16,
        (F32, I32) => &moves::CAST_F32_I32,
        (F32, U8) => &moves::CAST_F32_U8,
        (BF16, F32) => &moves::CAST_BF16_F32,
        (BF16, F16) => &moves::CAST_BF16_F16,
        (BF16, I32) => &moves::CAST_BF16_I32,
        (BF16, U8) => &moves::CAST_BF16_U8,
        (F16, F32) => &moves::CAST_F16_F32,
        (F16, BF16) => &moves::CAST_F16_BF16,
        (F16, I32) => &moves::CAST_F16_I32,
        (F16, U8) => &moves::CAST_F16_U8,
        (I32, F32) => &moves::CAST_I32_F32,
        (I32, BF16) => &moves::CAST_I32_BF16,
        (I32, F16) => &moves::CAST_I32_F16,
        (I32, U8) => &moves::CAST_I32_U8,
        (U8, F32) => &moves::CAST_U8_F32,
        (U8, BF16) => &moves::CAST_U8_BF16,
        (U8, F16) => &moves::CAST_U8_F16,
        (U8, I32) => &moves::CAST_U8_I32,
        _ => return None,
    })
}

impl ElementwiseOps for Cuda {
    fn unary(&self, p: &UnaryParams, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::unary(self, p, x, y)?;
        let kernel = instance(&unary::UNARY, x.dtype());
        self.launch(kernel, self.packs(p.n, x.dtype()), &[Arg::value(p), x.arg(), y.out()])
    }

    fn unary_grad(
        &self,
        p: &UnaryParams,
        x: &CudaBuffer,
        y: &CudaBuffer,
        g: &CudaBuffer,
        dx: &mut CudaBuffer,
    ) -> Result<()> {
        checks::unary_grad(self, p, x, y, g, dx)?;
        let kernel = instance(&unary::UNARY_GRAD, x.dtype());
        let args = [Arg::value(p), x.arg(), y.arg(), g.arg(), dx.out()];
        self.launch(kernel, self.packs(p.n, x.dtype()), &args)
    }

    fn binary(&self, p: &BroadcastParams, a: &CudaBuffer, b: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::binary(self, p, a, b, y)?;
        let args = [Arg::value(p), a.arg(), b.arg(), y.out()];
        self.launch(
            instance(&binary::BINARY, a.dtype()),
            self.broadcast(p, a.dtype()),
            &args,
        )
    }

    fn compare(&self, p: &BroadcastParams, a: &CudaBuffer, b: &CudaBuffer, mask: &mut CudaBuffer) -> Result<()> {
        checks::compare(self, p, a, b, mask)?;
        let kernel = match a.dtype() {
            DType::I32 => &binary::COMPARE_I32,
            DType::U8 => &binary::COMPARE_U8,
            float => instance(&binary::COMPARE, float),
        };
        let args = [Arg::value(p), a.arg(), b.arg(), mask.out()];
        self.launch(kernel, self.broadcast(p, a.dtype()), &args)
    }

    fn select(
        &self,
        p: &BroadcastParams,
        mask: &CudaBuffer,
        a: &CudaBuffer,
        b: &CudaBuffer,
        y: &mut CudaBuffer,
    ) -> Result<()> {
        checks::select(self, p, mask, a, b, y)?;
        let kernel = match a.dtype().size() {
            1 => &binary::SELECT_B8,
            2 => &binary::SELECT_B16,
            _ => &binary::SELECT_B32,
        };
        let args = [Arg::value(p), mask.arg(), a.arg(), b.arg(), y.out()];
        self.launch(kernel, self.broadcast(p, a.dtype()), &args)
    }

    fn cast(&self, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::cast(self, x, y)?;
        let (from, to, n) = (x.dtype(), y.dtype(), x.len() as u64);
        match conversion(from, to) {
            None => self.copy(x, y),
            Some(kernel) => {
                let each = 16 / from.size().max(to.size()) as u64;
                self.launch(kernel, self.striding(n, each), &[Arg::value(&n), x.arg(), y.out()])
            }
        }
    }

    fn cast_each(&self, xs: &[&CudaBuffer], ys: &mut [&mut CudaBuffer]) -> Result<()> {
        checks::cast_each(self, xs, ys)?;
        let (kernel, size) = match (xs.first().map(|x| x.dtype()), ys.first().map(|y| y.dtype())) {
            (Some(DType::BF16), Some(DType::F32)) => (&moves::CAST_EACH_BF16_F32, WORDS / 4),
            (Some(DType::F16), Some(DType::F32)) => (&moves::CAST_EACH_F16_F32, WORDS / 4),
            _ => return xs.iter().zip(ys).try_for_each(|(x, y)| self.cast(x, y)),
        };
        let pairs: Vec<_> = xs.iter().zip(ys).filter(|(x, _)| !x.is_empty()).collect();
        for part in pairs.chunks(size) {
            for (x, y) in part {
                self.keep(x)?;
                self.keep(y)?;
            }
            let (list, chunks) = Tensors::of(part.iter().map(|(x, y)| {
                let addresses = [x.block.ptr(), y.block.ptr()];
                (addresses.into_iter(), x.len(), None)
            }));
            let geometry = chunks_of("cast", chunks, || part.iter().map(|(x, _)| x.len()).collect())?;
            self.launch(kernel, geometry, &[Arg::value(&list)])?;
        }
        Ok(())
    }

    fn fill(&self, value: f64, y: &mut CudaBuffer) -> Result<()> {
        checks::fill(self, y)?;
        let bits = bits(value, y.dtype());
        let word = match y.dtype().size() {
            1 => bits * 0x0101_0101,
            2 => bits * 0x0001_0001,
            _ => bits,
        };
        let bytes = y.bytes() as u64;
        let args = [Arg::value(&bytes), Arg::value(&word), y.out()];
        self.launch(&moves::FILL_B32, self.striding(bytes, 16), &args)
    }

    fn accumulate(&self, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        checks::accumulate(self, x, y)?;
        let n = x.len() as u64;
        let kernel = instance(&moves::ACCUMULATE, x.dtype());
        self.launch(kernel, self.packs(n, x.dtype()), &[Arg::value(&n), x.arg(), y.out()])
    }
}
