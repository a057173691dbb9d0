//! The fused cross-entropy against f64 loops.

mod common;

use common::{at_threads, close, random};
use kiln_core::ops::{CrossEntropyParams, ElementwiseOps, LossOps};
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
    /// Loss, weight and gradient of row `r`'s loss times [`upstream`], one after the other.
    fn run(&self) -> Result<Vec<f32>> {
        let (cpu, rows) = (Cpu::poisoned(), self.labels.len());
        let shapes = (Shape::new(&[rows, self.classes])?, Shape::new(&[rows])?);
        let p = CrossEntropyParams::new("test", &shapes.0, &shapes.1, self.smoothing, -100)?;
        let [mut loss, mut weight] = [cpu.alloc(DType::F32, rows)?, cpu.alloc(DType::F32, rows)?];
        let mut dx = cpu.alloc(DType::F32, self.logits.len())?;
        let weights = self.weights.as_ref().map(|w| cpu.upload(w)).transpose()?;
        let (x, labels) = (cpu.upload(&self.logits)?, cpu.upload(&self.labels)?);
        let g: Vec<f32> = (0..rows).map(|r| self.upstream(r) as f32).collect();
        cpu.cross_entropy(&p, &x, &labels, weights.as_ref(), &mut loss, &mut weight)?;
        cpu.cross_entropy_grad(&p, &x, &labels, weights.as_ref(), &cpu.upload(&g)?, None, &mut dx)?;
        Ok([cpu.download(&loss)?, cpu.download(&weight)?, cpu.download(&dx)?].concat())
    }

    /// What the gradient of row `r` is multiplied by: NaN where the row is ignored.
    fn upstream(&self, r: usize) -> f64 {
        match self.labels[r] {
            -100 => f64::NAN,
            _ => (r % 3) as f64 - 0.5,
        }
    }

    fn oracle(&self) -> Vec<f64> {
        let (c, eps) = (self.classes, self.smoothing);
        let w = |i: usize| self.weights.as_ref().map_or(1.0, |w| f64::from(w[i]));
        let (mut loss, mut weight, mut dx) = (Vec::new(), Vec::new(), Vec::new());
        for (r, (x, &t)) in self.logits.chunks(c).zip(&self.labels).enumerate() {
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
            let g = self.upstream(r);
            dx.extend(l.iter().zip(&k).map(|(l, k)| g * (l.exp() * total - k)));
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
    close(&call.run().unwrap(), &[2f64.ln(), 1.0, 0.25, 0.0, -0.25], 1e-6, 1e-6);
}

/// A gradient too small for a half is scaled by what comes from the loss before it is rounded.
#[test]
fn halves_round_what_the_logits_get() {
    let cpu = Cpu::poisoned();
    let run = |dtype: DType, scale: f32| -> Result<Vec<f32>> {
        let shapes = (Shape::new(&[1, 4])?, Shape::new(&[1])?);
        let p = CrossEntropyParams::new("test", &shapes.0, &shapes.1, 0.0, -100)?;
        let (mut x, mut dx) = (cpu.alloc(dtype, 4)?, cpu.alloc(dtype, 4)?);
        cpu.cast(&cpu.upload(&[18f32, 0.0, 0.0, 0.0])?, &mut x)?;
        cpu.cross_entropy_grad(
            &p,
            &x,
            &cpu.upload(&[0i32])?,
            None,
            &cpu.upload(&[scale])?,
            None,
            &mut dx,
        )?;
        let mut wide = cpu.alloc(DType::F32, 4)?;
        cpu.cast(&dx, &mut wide)?;
        cpu.download(&wide)
    };
    let share = f64::from(32768f32) * (-18f64).exp();
    for (dtype, rounding) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        let got = run(dtype, 32768.0).unwrap();
        // The label's own share is 1 to the last bit of f32.
        close(&got, &[0.0, share, share, share], rounding, 0.0);
    }
}
