//! Poolings: every kernel against the CPU, bit for bit, on channels that choose it.

use crate::cuda;
use crate::twin::{EDGES, bits, empty, read, upload, values, wide};
use half::{bf16, f16};
use kiln_core::ops::{AdaptivePoolParams, Padding, PoolParams, Window};
use kiln_core::{Backend, DType, Float, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::Cuda;
use kiln_testkit::assert_close;

/// Values with ties, NaN and infinities among them.
fn special<T: Float>(n: usize, salt: u64) -> Vec<T> {
    let of = |(i, x): (usize, T)| match i % 11 {
        3 => T::of(f64::NAN),
        5 => T::of(f64::NEG_INFINITY),
        _ => T::of((x.f64() * 4.0).round()),
    };
    values::<T>(n, salt).into_iter().enumerate().map(of).collect()
}

/// Max pooling, its gradient, that behind a ReLU, and the gradient of the gradient, in bits.
fn max<B: Backend, T: Float>(b: &B, p: &PoolParams, [inputs, outputs]: [usize; 2]) -> [Vec<u8>; 5] {
    let (x, g) = (upload(b, &special::<T>(inputs, 1)), upload(b, &values::<T>(outputs, 2)));
    let (mut y, mut gathered) = (empty::<B, T>(b, outputs), empty::<B, T>(b, outputs));
    let (mut dx, mut masked) = (empty::<B, T>(b, inputs), empty::<B, T>(b, inputs));
    let mut index = b.alloc(DType::I32, outputs).unwrap();
    b.max_pool(p, &x, &mut y, &mut index)
        .and_then(|()| b.max_pool_grad(p, &g, None, &index, &mut dx))
        .and_then(|()| b.max_pool_grad(p, &g, Some(&y), &index, &mut masked))
        .and_then(|()| b.max_pool_gather(p, &x, &index, &mut gathered))
        .unwrap();
    // The bits of a NaN are not promised.
    let clean = |v: Vec<T>| {
        let same = |x: T| if x.f64().is_nan() { T::of(f64::NAN) } else { x };
        bits(&v.into_iter().map(same).collect::<Vec<_>>()).to_vec()
    };
    let index: Vec<i32> = b.download(&index).unwrap();
    [
        clean(read(b, &y)),
        bytemuck::cast_slice(&index).to_vec(),
        clean(read(b, &dx)),
        clean(read(b, &masked)),
        clean(read(b, &gathered)),
    ]
}

/// Average pooling and its gradient.
fn average<B: Backend, T: Float>(b: &B, p: &PoolParams, [inputs, outputs]: [usize; 2]) -> [Vec<f64>; 2] {
    let (x, g) = (upload(b, &values::<T>(inputs, 1)), upload(b, &values::<T>(outputs, 2)));
    let (mut y, mut dx) = (empty::<B, T>(b, outputs), empty::<B, T>(b, inputs));
    b.avg_pool(p, &x, &mut y)
        .and_then(|()| b.avg_pool_grad(p, &g, &mut dx))
        .unwrap();
    [wide(read::<B, T>(b, &y)), wide(read::<B, T>(b, &dx))]
}

fn adaptive<B: Backend, T: Float>(b: &B, p: &AdaptivePoolParams, [inputs, outputs]: [usize; 2]) -> [Vec<f64>; 2] {
    let (x, g) = (upload(b, &values::<T>(inputs, 1)), upload(b, &values::<T>(outputs, 2)));
    let (mut y, mut dx) = (empty::<B, T>(b, outputs), empty::<B, T>(b, inputs));
    b.adaptive_avg_pool(p, &x, &mut y)
        .and_then(|()| b.adaptive_avg_pool_grad(p, &g, &mut dx))
        .unwrap();
    [wide(read::<B, T>(b, &y)), wide(read::<B, T>(b, &dx))]
}

fn window(kernel: [usize; 3], stride: [usize; 3], dilation: [usize; 3], padding: [usize; 3]) -> Window {
    Window {
        rank: 3,
        kernel,
        stride,
        padding: Padding::Explicit(padding),
        dilation,
    }
}

/// Sums over a large box may be added in another order, and the gradient fuses its products into its sums; everything else
/// is the same arithmetic.
fn close<T: Float>(what: &str, got: [Vec<f64>; 2], want: [Vec<f64>; 2], shared: bool) {
    let spacing = match T::DTYPE {
        DType::BF16 => 2f64.powi(-7),
        DType::F16 => 2f64.powi(-10),
        _ => 1e-6,
    };
    let near = |want: &[f64]| want.iter().map(|w| 1e-6 + spacing * w.abs()).collect::<Vec<_>>();
    let values = if shared {
        near(&want[0])
    } else {
        vec![0.0; want[0].len()]
    };
    let what = format!("{} {what}", T::DTYPE);
    assert_close(&what, &got[0], &want[0], &values);
    assert_close(&format!("gradient of {what}"), &got[1], &want[1], &near(&want[1]));
}

fn windows<T: Float>(cuda: &Cuda, x: [usize; 5], window: &Window, ceil: bool) {
    let cpu = Cpu::poisoned();
    let shape = Shape::new(&x).unwrap();
    let what = format!("{x:?} {window:?} ceil {ceil}");
    let (p, y) = PoolParams::new("max_pool", &shape, window, ceil, false).unwrap();
    let lens = [shape.size(), y.size()];
    for (name, (got, want)) in ["y", "index", "dx", "masked", "gathered"]
        .into_iter()
        .zip(max::<_, T>(cuda, &p, lens).into_iter().zip(max::<_, T>(&cpu, &p, lens)))
    {
        assert!(got == want, "{} {what}: {name}", T::DTYPE);
    }
    if window.dilation != [1; 3] {
        return;
    }
    for count_include_pad in [false, true] {
        let (p, _) = PoolParams::new("avg_pool", &shape, window, ceil, count_include_pad).unwrap();
        let shared = window.kernel.iter().product::<usize>() >= 32;
        close::<T>(
            &what,
            average::<_, T>(cuda, &p, lens),
            average::<_, T>(&cpu, &p, lens),
            shared,
        );
    }
}

/// One channel a thread and 16 bytes of channels a thread; windows apart, next to each other and over each other.
#[test]
fn windows_of_any_channels() {
    let cuda = cuda();
    let ones = [1; 3];
    let shapes = [
        ([2, 1, 5, 6, 8], window([1, 2, 2], [1, 2, 2], ones, [0; 3]), false),
        ([1, 1, 7, 5, 24], window([1, 3, 3], [1, 2, 1], ones, [0, 1, 1]), true),
        ([2, 3, 4, 5, 4], window([2, 3, 2], [1, 2, 3], ones, [1, 1, 0]), true),
        (
            [1, 1, 9, 8, 33],
            window([1, 2, 3], [1, 1, 2], [1, 3, 2], [0, 1, 1]),
            false,
        ),
        ([1, 1, 2, 6, 8], window([1, 2, 2], ones, [1, 1, 5], [0, 1, 1]), false),
        ([3, 1, 8, 7, 40], window([1, 8, 7], ones, ones, [0; 3]), false),
        ([0, 1, 4, 4, 8], window([1, 2, 2], [1, 2, 2], ones, [0; 3]), false),
    ];
    for (x, window, ceil) in &shapes {
        windows::<f32>(&cuda, *x, window, *ceil);
        windows::<bf16>(&cuda, *x, window, *ceil);
        windows::<f16>(&cuda, *x, window, *ceil);
    }
    let window = window([1, 2, 3], [1, 1, 2], ones, [0, 1, 1]);
    for x in EDGES.into_iter().flat_map(|n| [[1, 1, 2, n, 3], [1, 1, 2, 3, n]]) {
        windows::<f32>(&cuda, x, &window, false);
        windows::<bf16>(&cuda, x, &window, false);
        windows::<f16>(&cuda, x, &window, false);
    }
}

fn cells<T: Float>(cuda: &Cuda, x: [usize; 5], output: [usize; 3]) {
    let cpu = Cpu::poisoned();
    let shape = Shape::new(&x).unwrap();
    let (p, y) = AdaptivePoolParams::new("adaptive_avg_pool", 3, &shape, output).unwrap();
    let lens = [shape.size(), y.size()];
    let want = adaptive::<_, T>(&cpu, &p, lens);
    close::<T>(
        &format!("{x:?} to {output:?}"),
        adaptive::<_, T>(cuda, &p, lens),
        want,
        true,
    );
}

/// Cells that overlap, cells of one element, and the global mean, whose box is shared by a block.
#[test]
fn cells_of_any_channels() {
    let cuda = cuda();
    let shapes = [
        ([2, 1, 7, 5, 8], [1, 3, 2]),
        ([1, 2, 3, 4, 12], [3, 5, 2]),
        ([2, 1, 9, 7, 40], [1, 1, 1]),
        ([1, 1, 40, 33, 3], [1, 1, 1]),
        ([1, 3, 13, 6, 65], [1, 2, 1]),
    ];
    let edges = EDGES
        .into_iter()
        .flat_map(|n| [([1, 1, 2, n, 3], [1, 1, 2]), ([1, 1, 2, 3, n], [1; 3])]);
    for (x, output) in shapes.into_iter().chain(edges) {
        cells::<f32>(&cuda, x, output);
        cells::<bf16>(&cuda, x, output);
        cells::<f16>(&cuda, x, output);
    }
}
