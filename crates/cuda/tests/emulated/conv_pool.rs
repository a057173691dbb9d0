//! All gradients of a convolution with its pooling in one kernel, against the kernels one by one.

use crate::cuda;
use crate::twin::{bits, buffer, empty, read, wide};
use half::{bf16, f16};
use kiln_core::ops::{Activation, ConvOps, ConvPoolGrads, ConvPoolOps, ConvPoolParams, PoolOps, PooledGrad, Window};
use kiln_core::{DType, Float, Runtime, Shape};

/// The gradients of the image, if it is wanted, the weight and the bias are those of the kernels one by one, up to the order of sums, and the
/// same in every run.
fn same<T: Float>(x: [usize; 4], w: [usize; 4], conv: &Window, pool: &Window, f: Activation) {
    let cuda = cuda();
    let shape = |s: &[usize]| Shape::new(s).unwrap();
    let (mut p, y) = ConvPoolParams::new("conv", &shape(&x), &shape(&w), (conv, 1), (pool, false)).unwrap();
    p.conv.activation = f as u32;
    let what = format!("{} {p:?}", T::DTYPE);
    let (inputs, weights, outputs) = (x.iter().product(), w.iter().product(), y.size());
    let (x, w, bias) = (
        buffer::<_, T>(&cuda, inputs, 1),
        buffer::<_, T>(&cuda, weights, 2),
        buffer::<_, T>(&cuda, w[0], 3),
    );
    let channels = p.conv.out_channels as usize;
    let (mut y, mut index) = (empty::<_, T>(&cuda, outputs), cuda.alloc(DType::I32, outputs).unwrap());
    cuda.conv_max_pool(&p, &x, &w, Some(&bias), &mut y, &mut index).unwrap();
    let g = buffer::<_, T>(&cuda, outputs, 4);
    let run = |image: bool| {
        let mut dx = empty::<_, T>(&cuda, inputs);
        let (mut dw, mut db) = (empty::<_, T>(&cuda, weights), empty::<_, T>(&cuda, channels));
        let of = PooledGrad {
            g: &g,
            y: &y,
            index: &index,
        };
        let to = ConvPoolGrads {
            dx: image.then_some(&mut dx),
            dw: Some(&mut dw),
            db: Some(&mut db),
        };
        cuda.conv_max_pool_grad(&p, &of, &x, &w, to).unwrap();
        let dx = if image { read::<_, T>(&cuda, &dx) } else { Vec::new() };
        [dx, read::<_, T>(&cuda, &dw), read::<_, T>(&cuda, &db)]
    };
    let found = run(true);
    for ((found, again), weight_alone) in found.iter().zip(&run(true)).zip(&run(false)) {
        assert!(bits(found) == bits(again), "{what}");
        assert!(weight_alone.is_empty() || bits(found) == bits(weight_alone), "{what}");
    }
    let mut between = empty::<_, T>(&cuda, p.between());
    let (mut dx, mut dw) = (empty::<_, T>(&cuda, inputs), empty::<_, T>(&cuda, weights));
    let relu = (f == Activation::Relu).then_some(&y);
    cuda.max_pool_grad(&p.pool, &g, relu, &index, &mut between)
        .and_then(|()| cuda.conv_data_grad(&p.linear(), &between, &w, &mut dx))
        .and_then(|()| cuda.conv_weight_grad(&p.linear(), &between, &x, &mut dw))
        .unwrap();
    let (g, y) = (wide(read::<_, T>(&cuda, &g)), wide(read::<_, T>(&cuda, &y)));
    let open = |i: usize| {
        if f == Activation::Relu && y[i] <= 0.0 {
            0.0
        } else {
            g[i]
        }
    };
    let total = |c| (c..outputs).step_by(channels).map(open).sum::<f64>();
    let expected = [
        wide(read::<_, T>(&cuda, &dx)),
        wide(read::<_, T>(&cuda, &dw)),
        (0..channels).map(total).collect(),
    ];
    // Terms are at most 1 in magnitude; the dtype rounds once.
    let terms = (outputs / channels.max(1)).max(weights) as f64;
    let unit = match T::DTYPE {
        DType::BF16 => 2f64.powi(-7),
        DType::F16 => 2f64.powi(-10),
        _ => 0.0,
    };
    for (found, expected) in found.into_iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (a, b) in wide(found).into_iter().zip(expected) {
            assert!(
                (a - b).abs() <= 2e-7 * terms + unit * b.abs(),
                "{what}: {a}, expected {b}"
            );
        }
    }
}

#[test]
fn gradients_in_one_kernel_are_those_of_several() {
    let two = Window::new([2, 2]).stride([2, 2]);
    let apart = Window::new([2, 1]).stride([3, 2]);
    for (x, w, conv, pool) in [
        // Convolutions of LeNet, its first a little smaller: more windows than the lanes of a block's warps have at a time.
        ([2, 14, 14, 6], [16, 5, 5, 6], Window::new([5, 5]), &two),
        ([4, 30, 31, 3], [6, 5, 5, 3], Window::new([5, 5]), &two),
        ([5, 24, 25, 1], [3, 3, 3, 1], Window::new([3, 3]), &two),
        // Padding, strides and dilations of the convolution, and places that no window of the pooling sees.
        (
            [2, 9, 11, 5],
            [7, 3, 2, 5],
            Window::new([3, 2]).padding([1, 1]).stride([1, 2]),
            &two,
        ),
        (
            [1, 15, 12, 4],
            [2, 3, 3, 4],
            Window::new([3, 3]).dilation([2, 1]).padding([2, 0]),
            &apart,
        ),
        // Windows that overlap, which the kernels one by one take.
        (
            [1, 9, 9, 2],
            [4, 3, 3, 2],
            Window::new([3, 3]),
            &Window::new([3, 3]).stride([2, 2]),
        ),
    ] {
        for f in [Activation::Relu, Activation::None] {
            same::<f32>(x, w, &conv, pool, f);
        }
        same::<bf16>(x, w, &conv, pool, Activation::Relu);
        same::<f16>(x, w, &conv, pool, Activation::Relu);
    }
}
