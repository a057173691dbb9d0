//! Predictions: a batch in parts, and errors.

use kiln_cpu::Cpu;
use kiln_nn::layers::{BatchNorm, Dropout, Linear};
use kiln_nn::{DType, Error, Init, Layer, Module, Rng, Sequential, Tensor};

fn random(cpu: &Cpu, shape: &[usize], seed: u64) -> Tensor<Cpu> {
    Tensor::randn(cpu, shape, DType::F32, &mut Rng::new(seed)).unwrap()
}

/// Parts of a batch, on any number of threads, give the outputs of the whole batch; a model in training mode is refused.
#[test]
fn predictions_in_parts_are_those_of_the_batch() {
    let cpu = Cpu::poisoned();
    let init = &mut Init::new(&cpu, 3);
    let mut model = Sequential::new()
        .push(Linear::new(init, 6, 5).unwrap())
        .push(BatchNorm::new(init, 5).unwrap())
        .push(Dropout::new(init, 0.5).unwrap());
    let x = random(&cpu, &[7, 6], 4).requires_grad();
    assert!(matches!(model.predict(&x, 2), Err(Error::InvalidArgument { .. })));
    model.eval();
    let whole = model.forward(&x).unwrap().to_f64().unwrap();
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for batch_size in [1, 2, 3, 6, 7, 100] {
            let y = pool.install(|| model.predict(&x, batch_size)).unwrap();
            assert!(!y.is_tracked());
            assert_eq!((y.shape().dims(), y.to_f64().unwrap()), (&[7, 5][..], whole.clone()));
        }
    }
    assert!(matches!(model.predict(&x, 0), Err(Error::InvalidArgument { .. })));
    let number = Tensor::from_slice(&cpu, &[1.0f32], &[]).unwrap();
    assert!(matches!(model.predict(&number, 1), Err(Error::InvalidArgument { .. })));
    // A function whose output has another number of samples is refused.
    let mixed = kiln_nn::predict(&model, &x, 2, |x| x.sum(&[0], false));
    assert!(matches!(mixed, Err(Error::ShapeMismatch { .. })));
    // The error of a part is that of the whole.
    let narrow = random(&cpu, &[7, 5], 4);
    assert!(model.predict(&narrow, 2).is_err());
}
