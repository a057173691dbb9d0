//! Dropout of whole channels and of whole samples.

use kiln_cpu::Cpu;
use kiln_nn::layers::{DropPath, Dropout1d, Dropout2d, Dropout3d};
use kiln_nn::{DType, Init, Layer, Module, Result, Tensor};

/// The values of a layer on ones, each `group` of elements that share a draw as one; the elements of a group are `stride` apart.
fn groups(layer: &dyn Layer<Cpu>, shape: &[usize], group: impl Fn(usize) -> usize, count: usize) -> Result<Vec<f64>> {
    let y = layer
        .forward(&Tensor::ones(&Cpu::poisoned(), shape, DType::F32)?)?
        .to_f64()?;
    let mut found = vec![None; count];
    for (i, y) in y.into_iter().enumerate() {
        assert_eq!(*found[group(i)].get_or_insert(y), y, "element {i} of {shape:?}");
    }
    Ok(found.into_iter().flatten().collect())
}

fn about_a_quarter(values: &[f64]) {
    let dropped = values.iter().filter(|v| **v == 0.0).count() as f64 / values.len() as f64;
    assert!((dropped - 0.25).abs() < 0.1, "{dropped}");
    assert!(values.iter().all(|v| *v == 0.0 || (v - 1.0 / 0.75).abs() < 1e-6));
}

#[test]
fn channels_are_dropped_whole() -> Result<()> {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    let (n, c) = (16, 32);
    let layers: [Box<dyn Layer<Cpu>>; 3] = [
        Box::new(Dropout1d::new(init, 0.25)?),
        Box::new(Dropout2d::new(init, 0.25)?),
        Box::new(Dropout3d::new(init, 0.25)?),
    ];
    let images: [&[usize]; 3] = [&[5], &[3, 4], &[2, 3, 2]];
    for (mut layer, image) in layers.into_iter().zip(images) {
        let shape = [&[n], image, &[c]].concat();
        let sample: usize = image.iter().product::<usize>() * c;
        let draws = groups(&*layer, &shape, |i| i / sample * c + i % c, n * c)?;
        about_a_quarter(&draws);
        assert_ne!(
            draws,
            groups(&*layer, &shape, |i| i / sample * c + i % c, n * c)?,
            "another draw"
        );
        layer.eval();
        assert_eq!(groups(&*layer, &shape, |_| 0, 1)?, [1.0]);
    }
    Ok(())
}

#[test]
fn samples_are_dropped_whole() -> Result<()> {
    let mut layer = DropPath::new(&mut Init::new(&Cpu::poisoned(), 1), 0.25)?;
    about_a_quarter(&groups(&layer, &[400, 2, 3], |i| i / 6, 400)?);
    layer.eval();
    assert_eq!(groups(&layer, &[4, 2], |_| 0, 1)?, [1.0]);
    Ok(())
}

#[test]
fn probabilities_are_checked_and_their_ends_work() -> Result<()> {
    let init = &mut Init::new(&Cpu::poisoned(), 1);
    assert!(Dropout2d::<Cpu>::new(init, 1.5).is_err() && DropPath::<Cpu>::new(init, f64::NAN).is_err());
    assert_eq!(groups(&Dropout2d::new(init, 0.0)?, &[2, 2, 2, 2], |_| 0, 1)?, [1.0]);
    assert_eq!(groups(&Dropout2d::new(init, 1.0)?, &[2, 2, 2, 2], |_| 0, 1)?, [0.0]);
    Ok(())
}
