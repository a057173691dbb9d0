//! Attention as products, softmax and copies: testkit's suites, and a recording of it.

use crate::cuda;
use kiln_core::ops::{AttentionOps, AttentionParams};
use kiln_core::{DType, Runtime, Shape};
use kiln_testkit::ops::attention;

macro_rules! suite {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            attention::$name(&cuda());
        }
    )*};
}

suite!(self_attention, refused);

/// Scratch and the mask are part of a recording: it follows its input.
#[test]
fn a_recording_repeats_it() {
    let cuda = cuda();
    let (p, shape) = AttentionParams::new("test", &Shape::new(&[2, 17, 24]).unwrap(), 2, true).unwrap();
    let values = |of: fn(f32) -> f32| (0..2 * 17 * 24).map(|i| of(i as f32)).collect::<Vec<_>>();
    let g = cuda.upload(&values(f32::cos)[..shape.size()]).unwrap();
    let mut qkv = cuda.upload(&values(f32::sin)).unwrap();
    let mut y = cuda.alloc(DType::F32, shape.size()).unwrap();
    let mut dqkv = cuda.alloc(DType::F32, 3 * shape.size()).unwrap();
    let mut lse = cuda.alloc(DType::F32, p.rows()).unwrap();
    let mut run = |qkv: &kiln_cuda::CudaBuffer| {
        cuda.attention(&p, qkv, &mut y, &mut lse)?;
        cuda.attention_grad(&p, qkv, &lse, &g, &mut dqkv)
    };
    // The first call loads the kernels, which no capture can.
    run(&qkv).unwrap();
    let graph = cuda.capture(&mut || run(&qkv)).unwrap();
    let mut graph = graph.expect("CUDA captures");
    cuda.write(&values(|x| (x * 0.7).sin()), &mut qkv).unwrap();
    cuda.replay(&mut graph).unwrap();
    let replayed = [&y, &dqkv].map(|x| cuda.download::<f32>(x).unwrap());
    let mut run = |qkv: &kiln_cuda::CudaBuffer| {
        cuda.attention(&p, qkv, &mut y, &mut lse)?;
        cuda.attention_grad(&p, qkv, &lse, &g, &mut dqkv)
    };
    run(&qkv).unwrap();
    assert_eq!(replayed, [&y, &dqkv].map(|x| cuda.download::<f32>(x).unwrap()));
    assert!(replayed.iter().flatten().all(|x| x.is_finite()));
}
