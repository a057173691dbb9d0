use crate::Cpu;
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
