//! Convolutions and their gradients, by every algorithm that supports them and by the backend's choice.

use crate::measure::{Bench, Cost, random};
use kiln_core::ops::{ConvOps, ConvParams, Window};
use kiln_core::{DType, Result, Runtime, Shape};
use kiln_cuda::Cuda;
use kiln_cuda::conv::{Algorithm, Pass};

/// Name, batch, input channels, size, output channels, kernel, stride, padding, as in benches/peers/torch_cuda.py.
const SIZES: [(&str, [usize; 7]); 7] = [
    ("mnist2-b128", [128, 32, 13, 64, 3, 1, 0]),
    ("lenet1-b128", [128, 3, 32, 6, 5, 1, 0]),
    ("resnet-64-b128", [128, 64, 32, 64, 3, 1, 1]),
    ("resnet-128-b128", [128, 128, 16, 128, 3, 1, 1]),
    ("resnet-down-b128", [128, 64, 32, 128, 3, 2, 1]),
    ("resnet50-256-b64", [64, 256, 14, 256, 3, 1, 1]),
    ("resnet50-1x1-b64", [64, 1024, 14, 256, 1, 1, 0]),
];

/// Name, batch, channels, size and stride of depthwise convolutions with a window of 3×3.
const DEPTHWISE: [(&str, [usize; 4]); 3] = [
    ("depthwise-32-b4", [4, 32, 16, 1]),
    ("depthwise-144-b64", [64, 144, 56, 1]),
    ("depthwise-down-b64", [64, 144, 56, 2]),
];

pub(crate) fn run(bench: &Bench, exact: &Cuda, tf32: &Cuda) -> Result<()> {
    let kinds = [
        ("f32", DType::F32, exact),
        ("tf32", DType::F32, tf32),
        ("bf16", DType::BF16, exact),
        ("f16", DType::F16, exact),
    ];
    for (kind, dtype, cuda) in kinds {
        for (name, size) in SIZES {
            one(bench, cuda, dtype, &format!("{kind}/{name}"), size)?;
        }
        // TF32 is used by tensor cores alone, which depthwise convolutions do not use.
        for (name, size) in DEPTHWISE.into_iter().filter(|_| !cuda.options().tf32) {
            depthwise(bench, cuda, dtype, &format!("{kind}/{name}"), size)?;
        }
    }
    Ok(())
}

fn one(bench: &Bench, cuda: &Cuda, dtype: DType, place: &str, size: [usize; 7]) -> Result<()> {
    let [batch, input, side, output, kernel, stride, padding] = size;
    let x_shape = Shape::new(&[batch, side, side, input])?;
    let w_shape = Shape::new(&[output, kernel, kernel, input])?;
    let window = Window::new([kernel; 2]).stride([stride; 2]).padding([padding; 2]);
    let (p, y_shape) = ConvParams::new("conv", &x_shape, &w_shape, &window, 1)?;
    let cost = Cost {
        flops: 2 * (y_shape.size() * kernel * kernel * input) as u64,
        bytes: ((x_shape.size() + w_shape.size() + y_shape.size()) * dtype.size()) as u64,
        ..Cost::default()
    };
    let id = |pass: &str| format!("{pass}/{place}");
    if !["conv-forward", "conv-data-grad", "conv-weight-grad"]
        .iter()
        .any(|pass| bench.wants(&id(pass), cost))
    {
        return Ok(());
    }
    let x = random(cuda, 0, dtype, x_shape.size())?;
    let w = random(cuda, 1, dtype, w_shape.size())?;
    let g = random(cuda, 2, dtype, y_shape.size())?;
    let mut y = cuda.alloc(dtype, y_shape.size())?;
    let mut dx = cuda.alloc(dtype, x_shape.size())?;
    let mut dw = cuda.alloc(dtype, w_shape.size())?;
    bench.measure(cuda, &id("conv-forward"), "auto", cost, || {
        cuda.conv(&p, &x, &w, None, &mut y)
    })?;
    bench.measure(cuda, &id("conv-data-grad"), "auto", cost, || {
        cuda.conv_data_grad(&p, &g, &w, &mut dx)
    })?;
    bench.measure(cuda, &id("conv-weight-grad"), "auto", cost, || {
        cuda.conv_weight_grad(&p, &g, &x, &mut dw)
    })?;
    for variant in Algorithm::ALL {
        let wanted = |pass| cuda.conv_fits(variant, pass, &p, dtype) && measured(variant, dtype, cuda.options().tf32);
        if wanted(Pass::Forward) {
            bench.measure(cuda, &id("conv-forward"), variant.name(), cost, || {
                cuda.conv_with(variant, &p, &x, &w, None, &mut y)
            })?;
        }
        if wanted(Pass::DataGrad) {
            bench.measure(cuda, &id("conv-data-grad"), variant.name(), cost, || {
                cuda.conv_data_grad_with(variant, &p, &g, &w, &mut dx)
            })?;
        }
        if wanted(Pass::WeightGrad) {
            bench.measure(cuda, &id("conv-weight-grad"), variant.name(), cost, || {
                cuda.conv_weight_grad_with(variant, &p, &g, &x, &mut dw)
            })?;
        }
    }
    Ok(())
}

fn depthwise(bench: &Bench, cuda: &Cuda, dtype: DType, place: &str, size: [usize; 4]) -> Result<()> {
    let [batch, channels, side, stride] = size;
    let x_shape = Shape::new(&[batch, side, side, channels])?;
    let w_shape = Shape::new(&[channels, 3, 3, 1])?;
    let window = Window::new([3; 2]).stride([stride; 2]).padding([1; 2]);
    let (p, y_shape) = ConvParams::new("conv", &x_shape, &w_shape, &window, channels)?;
    let cost = Cost {
        flops: 2 * 9 * y_shape.size() as u64,
        bytes: ((x_shape.size() + w_shape.size() + y_shape.size()) * dtype.size()) as u64,
        ..Cost::default()
    };
    let passes = ["conv-forward", "conv-data-grad", "conv-weight-grad"];
    let [forward, data, weight] = passes.map(|pass| format!("{pass}/{place}"));
    if ![&forward, &data, &weight].iter().any(|id| bench.wants(id, cost)) {
        return Ok(());
    }
    let x = random(cuda, 0, dtype, x_shape.size())?;
    let w = random(cuda, 1, dtype, w_shape.size())?;
    let g = random(cuda, 2, dtype, y_shape.size())?;
    let mut y = cuda.alloc(dtype, y_shape.size())?;
    let mut dx = cuda.alloc(dtype, x_shape.size())?;
    let mut dw = cuda.alloc(dtype, w_shape.size())?;
    bench.measure(cuda, &forward, "auto", cost, || cuda.conv(&p, &x, &w, None, &mut y))?;
    bench.measure(cuda, &data, "auto", cost, || cuda.conv_data_grad(&p, &g, &w, &mut dx))?;
    bench.measure(cuda, &weight, "auto", cost, || {
        cuda.conv_weight_grad(&p, &g, &x, &mut dw)
    })?;
    for variant in [Algorithm::Naive, Algorithm::Depthwise] {
        if cuda.conv_fits(variant, Pass::Forward, &p, dtype) {
            bench.measure(cuda, &forward, variant.name(), cost, || {
                cuda.conv_with(variant, &p, &x, &w, None, &mut y)
            })?;
        }
        if cuda.conv_fits(variant, Pass::DataGrad, &p, dtype) {
            bench.measure(cuda, &data, variant.name(), cost, || {
                cuda.conv_data_grad_with(variant, &p, &g, &w, &mut dx)
            })?;
        }
        if cuda.conv_fits(variant, Pass::WeightGrad, &p, dtype) {
            bench.measure(cuda, &weight, variant.name(), cost, || {
                cuda.conv_weight_grad_with(variant, &p, &g, &x, &mut dw)
            })?;
        }
    }
    Ok(())
}

/// True for variants with the precision of dtype and option: tensor cores round f32 to TF32, all others do not.
fn measured(variant: Algorithm, dtype: DType, tf32: bool) -> bool {
    let tensor = matches!(variant, Algorithm::Tensor(_) | Algorithm::Padded);
    dtype != DType::F32 || tensor == tf32
}
