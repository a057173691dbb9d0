//! An op with kernels of its own, as a user of Kiln writes one: the squared rectifier of Primer (So et al. 2021), y = max(x, 0)².
//!
//! A trait says what the op takes from a backend, and is implemented for the CPU by a closure over slices and for CUDA by
//! kernels that the build script compiles. The function [`squared_relu`] gives it a gradient, which is the second kernel, and the
//! gradient one of its own, which is composed of Kiln's ops.

use kiln_core::Buffer;
use kiln_cpu::{Cpu, CpuBuffer};
use kiln_cuda::{Cuda, CudaBuffer, Geometry, KernelArg};
use kiln_nn::autograd::{function, kernel};
use kiln_nn::{Backend, DType, Result, Tensor};
use rayon::prelude::*;

/// The compiled kernels.
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// A backend with the op.
pub trait SquaredRelu: Backend {
    /// y = max(x, 0)².
    ///
    /// # Errors
    /// Those of the device.
    fn squared_relu(&self, x: &Self::Buffer, y: &mut Self::Buffer) -> Result<()>;

    /// dx = 2·max(x, 0)·dy.
    ///
    /// # Errors
    /// Those of the device.
    fn squared_relu_grad(&self, x: &Self::Buffer, dy: &Self::Buffer, dx: &mut Self::Buffer) -> Result<()>;
}

impl SquaredRelu for Cpu {
    fn squared_relu(&self, x: &CpuBuffer, y: &mut CpuBuffer) -> Result<()> {
        let (x, y) = (x.as_slice::<f32>(), y.as_mut_slice::<f32>());
        y.par_iter_mut().zip(x).for_each(|(y, x)| *y = x.max(0.0).powi(2));
        Ok(())
    }

    fn squared_relu_grad(&self, x: &CpuBuffer, dy: &CpuBuffer, dx: &mut CpuBuffer) -> Result<()> {
        let (x, dy, dx) = (x.as_slice::<f32>(), dy.as_slice::<f32>(), dx.as_mut_slice::<f32>());
        let pairs = x.par_iter().zip(dy);
        dx.par_iter_mut()
            .zip(pairs)
            .for_each(|(dx, (x, dy))| *dx = 2.0 * x.max(0.0) * dy);
        Ok(())
    }
}

/// A grid with a thread for each of `n` elements.
fn threads(n: usize) -> Geometry {
    Geometry {
        grid: [n.div_ceil(256) as u32, 1, 1],
        block: [256, 1, 1],
        shared: 0,
    }
}

impl SquaredRelu for Cuda {
    fn squared_relu(&self, x: &CudaBuffer, y: &mut CudaBuffer) -> Result<()> {
        let grid = threads(y.len());
        let args = [KernelArg::Input(x), KernelArg::Output(y)];
        self.launch_kernel(&kernels::squared_relu::SQUARED_RELU, grid, &args)
    }

    fn squared_relu_grad(&self, x: &CudaBuffer, dy: &CudaBuffer, dx: &mut CudaBuffer) -> Result<()> {
        let grid = threads(dx.len());
        let args = [
            KernelArg::Input(x),
            KernelArg::Input(dy),
            KernelArg::Output(dx),
            KernelArg::value(&2f32),
        ];
        self.launch_kernel(&kernels::squared_relu::SQUARED_RELU_GRAD, grid, &args)
    }
}

/// max(x, 0)² of f32 values, of any shape.
///
/// # Errors
/// Another dtype, those of the device.
pub fn squared_relu<B: SquaredRelu>(x: &Tensor<B>) -> Result<Tensor<B>> {
    let saved = x.clone();
    let forward = || {
        kernel("squared_relu", &[x.into()], x.shape(), DType::F32, |on, inputs, y| {
            on.squared_relu(inputs[0].of(DType::F32)?, y)
        })
    };
    function("squared_relu", &[x], forward, move |cx| {
        Ok(vec![Some(squared_relu_grad(&saved, cx.grad)?)])
    })
}

/// 2·max(x, 0)·dy, by its kernel; its own gradients, 2·(x > 0)·dy and 2·max(x, 0), are composed.
fn squared_relu_grad<B: SquaredRelu>(x: &Tensor<B>, dy: &Tensor<B>) -> Result<Tensor<B>> {
    let saved = (x.clone(), dy.clone());
    let forward = || {
        kernel(
            "squared_relu_grad",
            &[x.into(), dy.into()],
            x.shape(),
            DType::F32,
            |on, inputs, dx| on.squared_relu_grad(inputs[0].of(DType::F32)?, inputs[1].of(DType::F32)?, dx),
        )
    };
    function("squared_relu_grad", &[x, dy], forward, move |cx| {
        let (x, dy) = &saved;
        let step = x.gt_scalar(0.0)?.to_float(DType::F32)?;
        let of_x = ((2.0 * &step)? * dy)?.mul(cx.grad)?;
        let of_dy = (2.0 * x.relu()?)?.mul(cx.grad)?;
        Ok(vec![Some(of_x), Some(of_dy)])
    })
}
