//! The kernels on the CPU and on the emulated driver, or the one that `KILN_CUDA_DRIVER` names, against the op composed of Kiln's.

use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_cuda::{Cuda, Geometry, KernelArg, Options};
use kiln_example_kernel::{SquaredRelu, squared_relu};
use kiln_nn::{DType, Error, Result, Tensor, grad};
use proptest::prelude::*;

fn cuda() -> Cuda {
    kiln_device::emulator::use_beside().unwrap_or_else(|e| panic!("{e}"));
    let options = Options {
        exact: true,
        ..Options::default()
    };
    Cuda::with_options(0, options).unwrap_or_else(|e| panic!("{e}"))
}

/// Values, gradients and second gradients of Σ f(x)·w at `x`.
fn derivatives<B: SquaredRelu>(
    on: &B,
    x: &[f32],
    f: impl Fn(&Tensor<B>) -> Result<Tensor<B>>,
) -> Result<[Vec<f32>; 3]> {
    let w: Vec<f32> = (0..x.len()).map(|i| 0.5 + i as f32).collect();
    let (x, w) = (
        Tensor::from_slice(on, x, &[x.len()])?.requires_grad(),
        Tensor::from_slice(on, &w, &[w.len()])?,
    );
    let y = f(&x)?;
    let first = grad(&y.mul(&w)?.sum(&[], false)?, &[&x], None, true)?;
    let first = first.into_iter().flatten().next().unwrap_or_else(|| x.clone());
    let second = first.mul(&w)?.sum(&[], false)?.backward()?;
    let second = second.get(&x).map_or(Ok(vec![0.0; x.size()]), |g| g.to_vec())?;
    Ok([y.to_vec()?, first.to_vec()?, second])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn kernels_and_composition_agree(x in prop::collection::vec(-3f32..3.0, 1..600)) {
        let composed = derivatives(&Cpu::new(), &x, |x| x.relu()?.square()).unwrap();
        prop_assert_eq!(&derivatives(&Cpu::new(), &x, squared_relu).unwrap(), &composed);
        prop_assert_eq!(&derivatives(&cuda(), &x, squared_relu).unwrap(), &composed);
    }
}

#[test]
fn other_dtypes_are_refused() {
    let x = Tensor::ones(&Cpu::new(), &[2], DType::F64).unwrap();
    assert!(matches!(squared_relu(&x), Err(Error::DTypeMismatch { .. })));
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let cuda = cuda();
    let (x, mut y) = (cuda.upload(&[1f32]).unwrap(), cuda.alloc(DType::F32, 1).unwrap());
    let kernel = &kiln_example_kernel::kernels::squared_relu::SQUARED_RELU;
    let block = |threads| Geometry {
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        shared: 0,
    };
    let few = cuda.launch_kernel(kernel, block(32), &[KernelArg::Input(&x)]);
    assert!(matches!(few, Err(Error::Device { .. })), "{few:?}");
    let swapped = [KernelArg::value(&1f32), KernelArg::Output(&mut y)];
    assert!(cuda.launch_kernel(kernel, block(32), &swapped).is_err());
    for threads in [0, 4096] {
        let args = [KernelArg::Input(&x), KernelArg::Output(&mut y)];
        let refused = cuda.launch_kernel(kernel, block(threads), &args);
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
    let other = Cuda::new(0).unwrap().upload(&[1f32]).unwrap();
    let args = [KernelArg::Input(&other), KernelArg::Output(&mut y)];
    assert!(matches!(
        cuda.launch_kernel(kernel, block(32), &args),
        Err(Error::InvalidArgument { .. })
    ));
    cuda.sync().unwrap();
}
