//! The fused cross-entropy against f64 loops.

mod common;

use common::{at_threads, close, random};
use kiln_core::ops::{CrossEntropyParams, LossOps};
use kiln_core::{DType, Error, Result, Runtime, Shape};
use kiln_cpu::Cpu;
use proptest::prelude::*;

struct Call {
    logits: Vec<f32>,
    labels: Vec<i32>,
    classes: usize,
    weights: Option<Vec<f32>>,
    smoothing: f64,
}

impl Call {
    /// Loss, weight and gradient, one after the other.
    fn run(&self) -> Result<Vec<f32>> {
        let (cpu, rows) = (Cpu::poisoned(), self.labels.len());
        let shapes = (Shape::new(&[rows, self.classes])?, Shape::new(&[rows])?);
        let p = CrossEntropyParams::new("test", &shapes.0, &shapes.1, self.smoothing, -100)?;
        let [mut loss, mut weight] = [cpu.alloc(DType::F32, rows)?, cpu.alloc(DType::F32, rows)?];
        let mut dx = cpu.alloc(DType::F32, self.logits.len())?;
        let weights = self.weights.as_ref().map(|w| cpu.upload(w)).transpose()?;
        cpu.cross_entropy(
            &p,
            &cpu.upload(&self.logits)?,
            &cpu.upload(&self.labels)?,
            weights.as_ref(),
            &mut loss,
            &mut weight,
            &mut dx,
        )?;
        Ok([cpu.download(&loss)?, cpu.download(&weight)?, cpu.download(&dx)?].concat())
    }

    fn oracle(&self) -> Vec<f64> {
        let (c, eps) = (self.classes, self.smoothing);
        let w = |i: usize| self.weights.as_ref().map_or(1.0, |w| f64::from(w[i]));
        let (mut loss, mut weight, mut dx) = (Vec::new(), Vec::new(), Vec::new());
        for (x, &t) in self.logits.chunks(c).zip(&self.labels) {
            if t == -100 {
                loss.push(0.0);
                weight.push(0.0);
                dx.extend(vec![0.0; c]);
                continue;
            }
            let t = t as usize;
            let m = x.iter().map(|&v| f64::from(v)).fold(f64::NEG_INFINITY, f64::max);
            let log_s = x.iter().map(|&v| (f64::from(v) - m).exp()).sum::<f64>().ln();
            let l: Vec<f64> = x.iter().map(|&v| f64::from(v) - m - log_s).collect();
            // The coefficient of −ℓ[i] in the loss.
            let k: Vec<f64> = (0..c)
                .map(|i| w(i) * (eps / c as f64 + if i == t { 1.0 - eps } else { 0.0 }))
                .collect();
            loss.push(-k.iter().zip(&l).map(|(k, l)| k * l).sum::<f64>());
            weight.push(w(t));
            let total: f64 = k.iter().sum();
            dx.extend(l.iter().zip(&k).map(|(l, k)| l.exp() * total - k));
        }
        [loss, weight, dx].concat()
    }
}

fn labels(rows: usize, classes: usize) -> Vec<i32> {
    (0..rows)
        .map(|r| if r % 5 == 3 { -100 } else { (r * 7 % classes) as i32 })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_loops(
        rows in 0usize..40, classes in prop::sample::select(vec![1usize, 2, 10, 15, 16, 17, 127, 129]),
        weighted in any::<bool>(), smoothing in prop::sample::select(vec![0.0, 0.1, 1.0]), scale in 0.1f32..30.0,
    ) {
        let call = Call {
            logits: random(rows * classes, 1).into_iter().map(|v| v * scale).collect(),
            labels: labels(rows, classes),
            classes,
            weights: weighted.then(|| random(classes, 2).into_iter().map(f32::abs).collect()),
            smoothing,
        };
        close(&call.run().unwrap(), &call.oracle(), 5e-6, 5e-6);
    }
}

#[test]
fn large_batches_agree_at_any_number_of_threads() {
    for (rows, classes) in [(20_000, 10), (7, 50_000)] {
        let call = Call {
            logits: random(rows * classes, 1),
            labels: labels(rows, classes),
            classes,
            weights: None,
            smoothing: 0.1,
        };
        close(&at_threads(|| call.run().unwrap()), &call.oracle(), 5e-6, 5e-6);
    }
}

#[test]
fn a_label_out_of_range_is_named_with_its_position() {
    for bad in [10, -1, i32::MAX, i32::MIN] {
        let call = Call {
            logits: vec![0.0; 40],
            labels: vec![9, -100, bad, 77],
            classes: 10,
            weights: None,
            smoothing: 0.0,
        };
        let want = Error::IndexOutOfRange {
            op: "cross_entropy",
            index: i64::from(bad),
            position: 2,
            size: 10,
        };
        assert_eq!(call.run(), Err(want));
    }
}

#[test]
fn masked_logits_of_other_classes_do_no_harm() {
    let call = Call {
        logits: vec![0.0, f32::NEG_INFINITY, 0.0],
        labels: vec![0],
        classes: 3,
        weights: None,
        smoothing: 0.0,
    };
    close(&call.run().unwrap(), &[2f64.ln(), 1.0, -0.5, 0.0, 0.5], 1e-6, 1e-6);
}
