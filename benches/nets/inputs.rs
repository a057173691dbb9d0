//! The file that every worker reads for a row: initial weights and the batches of its steps.

use crate::row::{Row, STEPS};
use crate::{Outcome, sequences};
use kiln_core::philox::Key;
use kiln_core::{DType, Result};
use kiln_cpu::Cpu;
use kiln_data::{Draw, Object, Transform};
use kiln_nn::module::{StateDict, Value};
use kiln_nn::weights::{self, Metadata};
use kiln_nn::{Indices, Rng, Tensor};

/// Objects of an image, those that are none included.
const OBJECTS: usize = 8;

/// Writes the initial weights and the batches.
pub(crate) fn write(row: Row, file: &str) -> Outcome<()> {
    let mut dict = StateDict::of(&row.model.build(&Cpu::new(), 1)?);
    let batches = match (sequences::are_of(row.model), row.latent(), row.detected()) {
        (true, ..) => sequences::arrays(row)?,
        (_, Some(latent), _) => drawn(row, latent)?,
        (.., Some(classes)) => objects(row, classes)?,
        _ => labelled(row)?,
    };
    for name in batches.names() {
        if let Some(value) = batches.get(name) {
            dict.insert(name, value.clone());
        }
    }
    Ok(weights::write(file, &dict, &Metadata::new())?)
}

/// Random images with random labels, or random tokens with the next ones.
fn labelled(row: Row) -> Result<StateDict<Cpu>> {
    let (cpu, samples) = (Cpu::new(), STEPS * row.batch);
    let (x, y) = match row.pixels() {
        Some(pixels) => {
            let shape = [&[STEPS, row.batch][..], &pixels].concat();
            let x = Tensor::rand(&cpu, &shape, DType::F32, &mut Rng::new(2))?;
            let y = below(samples, row.model.outputs());
            (Value::Float(x), Indices::from_slice(&cpu, &y, &[STEPS, row.batch])?)
        }
        None => {
            let t = row.model.input().shape[0];
            let ids = below(samples * t + 1, row.model.outputs());
            let of = |ids: &[i32]| Indices::from_slice(&cpu, ids, &[STEPS, row.batch, t]);
            (Value::Int(of(&ids[..samples * t])?), of(&ids[1..])?)
        }
    };
    Ok(named([("x", x), ("y", Value::Int(y))]))
}

/// Random images, and the noise that others are made of.
fn drawn(row: Row, latent: usize) -> Result<StateDict<Cpu>> {
    let (cpu, each) = (Cpu::new(), [STEPS, row.batch]);
    let [h, w, c] = row.image().unwrap_or_default();
    let x = Tensor::rand(&cpu, &[each[0], each[1], h, w, c], DType::F32, &mut Rng::new(2))?;
    let noise = Tensor::randn(&cpu, &[each[0], each[1], latent], DType::F32, &mut Rng::new(3))?;
    Ok(named([("x", Value::Float(x)), ("noise", Value::Float(noise))]))
}

/// Images with rectangles, as the network takes them, and their boxes.
fn objects(row: Row, classes: usize) -> Outcome<StateDict<Cpu>> {
    let (cpu, samples) = (Cpu::new(), STEPS * row.batch);
    let made = row.model.input().samples(samples, classes, 2)?;
    let transform = row.model.transform(None)?;
    let (mut pixels, mut boxes) = (Vec::new(), vec![0f32; samples * OBJECTS * 4]);
    let (mut labels, mut exists) = (vec![0i32; samples * OBJECTS], vec![0u8; samples * OBJECTS]);
    for i in 0..samples {
        let mut sample = made.get(i)?;
        transform.apply(&mut sample, &Draw::new(0, 0, i))?;
        pixels.extend_from_slice(&sample.input);
        for (at, object) in (i * OBJECTS..(i + 1) * OBJECTS).zip(Object::of_targets(&sample.targets)) {
            boxes[4 * at..4 * at + 4].copy_from_slice(&object.bounds);
            (labels[at], exists[at]) = (object.class as i32, 1);
        }
    }
    let [h, w, c] = row.image().unwrap_or_default();
    let (n, each) = (row.batch, [STEPS, row.batch, OBJECTS]);
    let pixels = Tensor::from_slice(&cpu, &pixels, &[STEPS, n, h, w, c])?;
    let boxes = Tensor::from_slice(&cpu, &boxes, &[STEPS, n, OBJECTS, 4])?;
    let crowds = vec![0i32; labels.len()];
    Ok(named([
        ("x", Value::Float(pixels)),
        ("boxes", Value::Float(boxes)),
        ("classes", Value::Int(Indices::from_slice(&cpu, &labels, &each)?)),
        ("exists", Value::Int(Indices::from_slice(&cpu, &exists, &each)?)),
        ("crowds", Value::Int(Indices::from_slice(&cpu, &crowds, &each)?)),
    ]))
}

fn named<const N: usize>(arrays: [(&str, Value<Cpu>); N]) -> StateDict<Cpu> {
    let mut dict = StateDict::new();
    for (name, value) in arrays {
        dict.insert(name, value);
    }
    dict
}

/// `n` random integers below `bound`.
fn below(n: usize, bound: usize) -> Vec<i32> {
    let key = Key::new(3, 0, 0);
    (0..n as u64).map(|i| key.below(i, bound as u32) as i32).collect()
}
