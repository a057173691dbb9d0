//! Attention, which `kiln-nn` composes of products, softmax and copies here: a recording of it.

use crate::cuda;
use kiln_core::Runtime;
use kiln_core::{DType, Result};
use kiln_cuda::Cuda;
use kiln_nn::Tensor;

const SHAPE: [usize; 3] = [2, 17, 24];

/// The result of attention and its gradient.
fn run(x: &Tensor<Cuda>, g: &Tensor<Cuda>) -> Result<[Tensor<Cuda>; 2]> {
    let y = x.self_attention(2, true)?;
    let dx = y.backward_with(g)?.remove(x).expect("x is tracked");
    Ok([y.detach(), dx])
}

/// A recording contains the mask, and follows changes of its input.
#[test]
fn a_recording_repeats_it() {
    let cuda = cuda();
    let values = |n: usize, of: fn(f64) -> f64| (0..n).map(|i| of(i as f64)).collect::<Vec<_>>();
    let g = Tensor::from_f64(&cuda, &values(2 * 17 * 8, f64::cos), &[2, 17, 8], DType::F32).unwrap();
    let mut x = Tensor::from_f64(&cuda, &values(2 * 17 * 24, f64::sin), &SHAPE, DType::F32)
        .unwrap()
        .requires_grad();
    // The first call loads the kernels, which no capture can.
    drop(run(&x, &g).unwrap());
    let mut recorded = None;
    let graph = cuda.capture(&mut || {
        recorded = Some(run(&x, &g)?);
        Ok(())
    });
    let mut graph = graph.unwrap().expect("CUDA captures");
    let other = Tensor::from_f64(&cuda, &values(2 * 17 * 24, |x| (x * 0.7).sin()), &SHAPE, DType::F32).unwrap();
    x.assign(&other).unwrap();
    cuda.replay(&mut graph).unwrap();
    let numbers = |of: &[Tensor<Cuda>; 2]| of.each_ref().map(|t| t.to_f64().unwrap());
    let replayed = numbers(&recorded.expect("the capture ran"));
    assert_eq!(replayed, numbers(&run(&x, &g).unwrap()));
    assert!(replayed.iter().flatten().all(|x| x.is_finite()));
}
