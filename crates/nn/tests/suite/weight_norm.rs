//! Layers whose weight is computed from other parameters.

use kiln_cpu::Cpu;
use kiln_nn::layers::{Conv2d, ConvTranspose2d, Linear, SpectralNorm, WeightNorm, Weighted};
use kiln_nn::{DType, Init, Layer, Module, Result, Rng, Tensor};

fn init(cpu: &Cpu) -> Init<Cpu> {
    Init::new(cpu, 5).dtype(DType::F64)
}

fn close(got: &Tensor<Cpu>, want: &Tensor<Cpu>) {
    assert_eq!(got.shape(), want.shape());
    for (g, w) in got.to_f64().unwrap().iter().zip(want.to_f64().unwrap()) {
        assert!((g - w).abs() < 1e-12, "{g}, expected {w}");
    }
}

fn random(cpu: &Cpu, shape: &[usize]) -> Tensor<Cpu> {
    Tensor::randn(cpu, shape, DType::F64, &mut Rng::new(2)).unwrap()
}

/// It begins as the layer itself, a length scales its row, and no gradient of a direction is along it.
fn check_weight_norm<L: Weighted<Cpu>>(make: impl Fn(&mut Init<Cpu>) -> Result<L>, x: &Tensor<Cpu>) {
    let cpu = x.backend();
    let (plain, mut normed) = (
        make(&mut init(cpu)).unwrap(),
        make(&mut init(cpu)).map(WeightNorm::new).unwrap().unwrap(),
    );
    let y = plain.forward(x).unwrap();
    close(&normed.forward(x).unwrap(), &y);
    let names: Vec<String> = normed.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight_g", "layer.weight"]);

    let grads = normed
        .forward(x)
        .unwrap()
        .square()
        .unwrap()
        .sum(&[], false)
        .unwrap()
        .backward()
        .unwrap();
    let v = normed.layer.weight();
    let axes: Vec<isize> = (1..v.rank() as isize).collect();
    let along = grads.get(v).unwrap().mul(v).unwrap().sum(&axes, false).unwrap();
    assert!(along.to_f64().unwrap().iter().all(|a| a.abs() < 1e-10), "{along:?}");
    assert!(grads.get(&normed.weight_g).is_some());

    let doubled = normed.weight_g.detach().mul_scalar(2.0).unwrap();
    normed.weight_g.assign(&doubled).unwrap();
    close(&normed.forward(x).unwrap(), &y.mul_scalar(2.0).unwrap());
}

#[test]
fn weights_have_a_length_and_a_direction() {
    let cpu = Cpu::poisoned();
    check_weight_norm(|i| Linear::builder(4, 3).bias(false).build(i), &random(&cpu, &[5, 4]));
    let image = random(&cpu, &[2, 5, 5, 3]);
    check_weight_norm(|i| Conv2d::builder(3, 4, 3).bias(false).build(i), &image);
    check_weight_norm(
        |i| ConvTranspose2d::builder(3, 4, 3).stride(2).bias(false).build(i),
        &image,
    );
}

/// The weight has the largest singular value 1, which a layer's own scale does not change.
fn check_spectral_norm<L: Weighted<Cpu>>(make: impl Fn(&mut Init<Cpu>) -> Result<L>, x: &Tensor<Cpu>) {
    let cpu = x.backend();
    let mut i = init(cpu);
    let layer = make(&mut i).unwrap();
    let weight = layer.weight().detach();
    let mut norm = SpectralNorm::new(&mut i, layer).unwrap().power_iterations(60);
    let y = norm.forward(x).unwrap();
    norm.eval();
    close(&norm.forward(x).unwrap(), &y);
    // y = layer(x)/σ: the ratio of both is one number, the largest of the lengths of W·a for unit vectors a.
    let plain = make(&mut init(cpu)).unwrap().forward(x).unwrap();
    let ratio = plain.to_f64().unwrap()[0] / y.to_f64().unwrap()[0];
    close(&y.mul_scalar(ratio).unwrap(), &plain);
    let rows = match weight.rank() {
        2 => weight.clone(),
        _ if norm.layer.output_axis() == 0 => weight.flatten(1, -1).unwrap(),
        _ => weight.flatten(0, -2).unwrap().transpose(0, 1).unwrap(),
    };
    let mut largest = 0f64;
    for seed in 0..50 {
        let mut a = Tensor::randn(cpu, &[rows.shape()[1]], DType::F64, &mut Rng::new(seed)).unwrap();
        a = a.div(&a.norm(2.0, &[], false).unwrap()).unwrap();
        largest = largest.max(rows.matmul(&a).unwrap().norm(2.0, &[], false).unwrap().item().unwrap());
    }
    assert!(
        largest <= ratio * (1.0 + 1e-12) && ratio < 3.0 * largest,
        "{largest}, {ratio}"
    );

    let loss = norm.forward(x).unwrap().square().unwrap().sum(&[], false).unwrap();
    let grads = loss.backward().unwrap();
    let along = grads
        .get(norm.layer.weight())
        .unwrap()
        .mul(&weight)
        .unwrap()
        .sum(&[], false)
        .unwrap();
    assert!(along.item().unwrap().abs() < 1e-10, "{along:?}");
}

#[test]
fn weights_stretch_no_vector() {
    let cpu = Cpu::poisoned();
    check_spectral_norm(|i| Linear::builder(4, 3).bias(false).build(i), &random(&cpu, &[5, 4]));
    let image = random(&cpu, &[2, 5, 5, 3]);
    check_spectral_norm(|i| Conv2d::builder(3, 4, 3).bias(false).build(i), &image);
    check_spectral_norm(|i| ConvTranspose2d::builder(3, 4, 3).bias(false).build(i), &image);
}
