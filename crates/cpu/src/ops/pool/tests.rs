use super::paired::{self, is_2x2_stride2};
use crate::Cpu;
use crate::conv::geometry::Geometry;
use kiln_core::ops::{PoolOps, PoolParams, Window};
use kiln_core::{DType, Runtime, Shape};

fn max_pool(x: &[f32], size: usize, window: &Window) -> (Vec<f32>, Vec<i32>) {
    let cpu = Cpu::poisoned();
    let shape = Shape::new(&[1, size, x.len() / size]).unwrap();
    let (p, out) = PoolParams::new("max_pool", &shape, window, false, true).unwrap();
    let mut y = cpu.alloc(DType::F32, out.size()).unwrap();
    let mut index = cpu.alloc(DType::I32, out.size()).unwrap();
    cpu.max_pool(&p, &cpu.upload(x).unwrap(), &mut y, &mut index).unwrap();
    (y.as_slice().to_vec(), index.as_slice().to_vec())
}

#[test]
fn nan_wins_and_the_first_of_equals_is_named() {
    let nan = f32::NAN;
    let window = Window::new([3]).stride([3]);
    let (y, index) = max_pool(&[1.0, 1.0, 0.0, 0.0, nan, nan, -9.0, -8.0, -9.0], 9, &window);
    assert_eq!((y[0], y[2]), (1.0, -8.0));
    assert!(y[1].is_nan());
    assert_eq!(index, [0, 4, 7]);
    let inf = f32::NEG_INFINITY;
    assert_eq!(max_pool(&[inf, inf, inf], 3, &window), (vec![inf], vec![0]));
}

#[test]
fn a_window_that_steps_over_the_input_sees_nothing() {
    let window = Window::new([2]).padding([1]).dilation([3]);
    assert_eq!(max_pool(&[5.0, 6.0], 2, &window), (vec![f32::NEG_INFINITY], vec![-1]));
}

/// Coarse values, so that windows contain equal elements, and some NaN.
fn coarse(n: usize) -> Vec<f32> {
    let key = kiln_core::philox::Key::new(5, 1, 0);
    let value = |word: u32| {
        if word.is_multiple_of(29) {
            f32::NAN
        } else {
            (word % 5) as f32 - 2.0
        }
    };
    (0..n as u64).map(|i| value(key.word(i) >> 8)).collect()
}

/// Compares the loops for 2×2 windows of stride 2, for every number of channels per vector, with those for any windows.
#[test]
fn windows_side_by_side_are_windows() {
    for channels in (1..=18).chain([24, 33, 64]) {
        for [batch, height, width] in [[1, 2, 2], [2, 5, 7], [3, 4, 6], [1, 9, 3], [40, 16, 18]] {
            if batch > 3 && ![1, 6, 16, 64].contains(&channels) {
                continue;
            }
            let shape = Shape::new(&[batch, height, width, channels]).unwrap();
            let window = Window::new([2, 2]).stride([2, 2]);
            let (p, out) = PoolParams::new("max_pool", &shape, &window, false, true).unwrap();
            let g = Geometry::pooling(&p);
            assert!(is_2x2_stride2(&g));
            let x = coarse(shape.size());
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            let (mut y, mut index) = (vec![f32::NAN; out.size()], vec![-7; out.size()]);
            paired::max_pool(&g, &x, &mut y, &mut index);
            let (mut want, mut want_index) = (vec![f32::NAN; out.size()], vec![-7; out.size()]);
            super::max_pool(&g, &x, &mut want, &mut want_index);
            assert_eq!(bits(&y), bits(&want), "{shape}");
            assert_eq!(index, want_index, "{shape}");

            let dy: Vec<f32> = (1..=out.size()).map(|i| i as f32).collect();
            let (mut dx, mut want) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            paired::max_pool_grad(&g, &dy, &index, &mut dx);
            super::max_pool_grad(&g, &dy, &index, &mut want).unwrap();
            assert_eq!(dx, want, "{shape}");
        }
    }
}
