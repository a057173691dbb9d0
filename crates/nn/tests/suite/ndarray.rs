//! Arrays of the `ndarray` crate as tensors, and back.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_nn::{DType, Error, Indices, Rng, Tensor};
use ndarray::{Array1, Array2, Array3, Axis, s};

#[test]
fn arrays_of_any_layout_go_there_and_back() {
    let cpu = Cpu::poisoned();
    let a = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f32);
    let x = Tensor::from_ndarray(&cpu, &a).unwrap();
    assert_eq!(x.shape().dims(), [2, 3, 4]);
    assert_eq!(x.to_ndarray::<f32>().unwrap(), a.clone().into_dyn());
    assert_eq!(x.view::<f32>().unwrap(), a.view().into_dyn());
    // Transposed, reversed, stepped and cut out.
    for view in [a.t().to_owned().t().to_owned(), a.slice(s![.., ..;-1, 1..3]).to_owned()] {
        let x = Tensor::from_ndarray(&cpu, &view).unwrap();
        assert_eq!(x.to_ndarray::<f32>().unwrap(), view.into_dyn());
    }
    let view = a.slice(s![.., ..;-1, ..;2]);
    assert_eq!(
        Tensor::from_ndarray(&cpu, &view).unwrap().view::<f32>().unwrap(),
        view.into_dyn()
    );
    let column = a.index_axis(Axis(2), 1);
    assert_eq!(
        Tensor::from_ndarray(&cpu, &column.t()).unwrap().view::<f32>().unwrap(),
        column.t().into_dyn()
    );

    let labels = Array1::from(vec![3i32, -1, 4]);
    let x = Indices::from_ndarray(&cpu, &labels).unwrap();
    assert_eq!(x.to_ndarray::<i32>().unwrap(), labels.into_dyn());
    assert_eq!(x.view::<i32>().unwrap().len(), 3);
}

/// A view reads the tensor's own memory.
#[test]
fn a_view_copies_nothing() {
    let cpu = Cpu::new();
    let x = Tensor::randn(&cpu, &[50, 70], DType::F64, &mut Rng::new(1)).unwrap();
    let before = cpu.memory().live;
    let view = x.view::<f64>().unwrap();
    assert_eq!(cpu.memory().live, before);
    assert_eq!(view.as_ptr(), x.as_slice::<f64>().unwrap().as_ptr());
    assert_eq!(view.iter().copied().collect::<Vec<_>>(), x.to_vec::<f64>().unwrap());
    let empty = Tensor::zeros(&cpu, &[0, 3], DType::F32).unwrap();
    assert_eq!(empty.view::<f32>().unwrap().shape(), [0, 3]);
}

#[test]
fn other_element_types_are_refused() {
    let cpu = Cpu::new();
    let x = Tensor::zeros(&cpu, &[2], DType::F32).unwrap();
    assert!(matches!(x.view::<f64>(), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(x.to_ndarray::<i32>(), Err(Error::DTypeMismatch { .. })));
    assert!(Tensor::from_ndarray(&cpu, &Array2::<i32>::zeros((1, 2))).is_err());
    let nine = ndarray::ArrayD::<f32>::zeros(ndarray::IxDyn(&[1; 9]));
    assert!(Tensor::from_ndarray(&cpu, &nine).is_err());
}
