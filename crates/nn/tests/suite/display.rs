//! Tensors as text. The expected lines are PyTorch's, but for the shape and the names of dtypes and devices.

use kiln_cpu::Cpu;
use kiln_nn::{DType, Indices, Tensor};

fn text(values: &[f64], shape: &[usize]) -> String {
    let x = Tensor::from_f64(&Cpu::poisoned(), values, shape, DType::F32).unwrap();
    assert_eq!(format!("{x}"), format!("{x:?}"));
    format!("{x}")
}

/// The text without what follows the values.
fn values(v: &[f64], shape: &[usize]) -> String {
    let text = text(v, shape);
    let end = text.rfind("shape=").unwrap();
    text[..end].trim_end().trim_end_matches(',').to_string()
}

fn count(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

#[test]
fn numbers_have_one_notation_and_width() {
    assert_eq!(values(&[2.34567], &[]), "tensor(2.3457");
    assert_eq!(values(&[0.0], &[1]), "tensor([0.]");
    assert_eq!(values(&[f64::NAN], &[1]), "tensor([nan]");
    assert_eq!(values(&[1.0, -20.0, 300.0], &[3]), "tensor([  1., -20., 300.]");
    assert_eq!(values(&[0.5, -1.25], &[2]), "tensor([ 0.5000, -1.2500]");
    assert_eq!(values(&[1e-5, 2.0], &[2]), "tensor([1.0000e-05, 2.0000e+00]");
    assert_eq!(values(&[1.5, 1e9], &[2]), "tensor([1.5000e+00, 1.0000e+09]");
    assert_eq!(values(&[1.0, f64::NAN, f64::INFINITY], &[3]), "tensor([1., nan, inf]");
    assert_eq!(values(&[0.5, f64::NEG_INFINITY], &[2]), "tensor([0.5000,   -inf]");
}

#[test]
fn lists_nest_and_lines_break() {
    assert_eq!(values(&count(4), &[2, 2]), "tensor([[0., 1.],\n        [2., 3.]]");
    assert_eq!(
        values(&count(4), &[2, 1, 2]),
        "tensor([[[0., 1.]],\n\n        [[2., 3.]]]"
    );
    let line = values(&count(30), &[30]);
    assert_eq!(
        line,
        "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n        \
         14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,\n        \
         28., 29.]"
    );
}

#[test]
fn long_axes_show_their_ends() {
    assert_eq!(
        values(&count(1001), &[1001]),
        "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.]"
    );
    assert!(values(&count(1000), &[1000]).contains("500."));
    let fractions: Vec<f64> = count(2000).iter().map(|x| x / 2000.0 + 1.0).collect();
    assert_eq!(
        values(&fractions, &[1000, 2]),
        "tensor([[1.0000, 1.0005],\n        [1.0010, 1.0015],\n        [1.0020, 1.0025],\n        ...,\n        \
         [1.9970, 1.9975],\n        [1.9980, 1.9985],\n        [1.9990, 1.9995]]"
    );
    let fractions: Vec<f64> = count(4000).iter().map(|x| x / 4000.0 + 1.0).collect();
    let planes = values(&fractions, &[2, 20, 100]);
    assert!(planes.starts_with("tensor([[[1.0000, 1.0002, 1.0005,  ..., 1.0243, 1.0245, 1.0247],\n         [1.0250,"));
    assert!(
        planes.contains("1.0747],\n         ...,\n         [1.4250,"),
        "{planes}"
    );
    assert!(planes.contains("1.4998]],\n\n        [[1.5000,"), "{planes}");
}

#[test]
fn shape_dtype_device_and_graph_follow() {
    assert_eq!(text(&[1.0], &[1]), "tensor([1.], shape=[1], dtype=f32, device=cpu)");
    assert_eq!(text(&[], &[0, 3]), "tensor([], shape=[0, 3], dtype=f32, device=cpu)");
    let x = Tensor::from_slice(&Cpu::poisoned(), &[1.0f64], &[])
        .unwrap()
        .requires_grad();
    assert_eq!(
        format!("{x}"),
        "tensor(1., shape=[], dtype=f64, device=cpu, requires_grad=true)"
    );
    let y = x.exp().unwrap();
    assert_eq!(
        format!("{y}"),
        "tensor(2.7183, shape=[], dtype=f64, device=cpu, grad_fn=exp)"
    );
    let long = text(&count(30), &[30]);
    assert!(long.ends_with("29.], shape=[30], dtype=f32, device=cpu)"), "{long}");
}

#[test]
fn integers_and_masks() {
    let cpu = Cpu::poisoned();
    let i = Indices::from_slice(&cpu, &[7, -10, 0], &[3]).unwrap();
    assert_eq!(
        format!("{i}"),
        "tensor([  7, -10,   0], shape=[3], dtype=i32, device=cpu)"
    );
    let mask = Indices::from_slice(&cpu, &[1u8, 0], &[1, 2]).unwrap();
    assert_eq!(
        format!("{mask:?}"),
        "tensor([[ true, false]], shape=[1, 2], dtype=u8, device=cpu)"
    );
    let many: Vec<i32> = (0..1200).collect();
    let many = Indices::from_slice(&cpu, &many, &[1200]).unwrap();
    assert!(format!("{many}").starts_with("tensor([   0,    1,    2,  ..., 1197, 1198, 1199]"));
}
