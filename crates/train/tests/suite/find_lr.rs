//! The search for a learning rate.

use crate::common::{Net, bytes, images, loader, step};
use kiln_core::Error;
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::optim::{Adam, Sgd};
use kiln_train::{LrCurve, LrPoint, LrRange, Output, TrainError, find_lr};

#[test]
fn the_curve_falls_then_diverges_and_the_model_stays() {
    let cpu = Cpu::new();
    let data = loader(images(24, 0), 4, true, 0);
    let mut model = Net::with_dropout(&cpu, 1, 0.2);
    let before = bytes(&model);
    let range = LrRange {
        min: 1e-5,
        max: 1e3,
        ..Default::default()
    };
    let curve = find_lr(&cpu, &mut model, Sgd::new(1.0), step, &data, range).unwrap();
    assert!(bytes(&model) == before);
    assert!(curve.diverged && curve.points.len() < 100);
    let lrs: Vec<f64> = curve.points.iter().map(|p| p.lr).collect();
    assert_eq!(lrs[0], 1e-5);
    assert!(
        lrs.windows(2)
            .all(|w| ((w[1] / w[0]).ln() - 1e8f64.ln() / 99.0).abs() < 1e-9)
    );
    let lr = curve.suggestion().unwrap();
    assert!((1e-3..100.0).contains(&lr), "{lr}");
    // The same search gives the same curve.
    let again = find_lr(&cpu, &mut model, Sgd::new(1.0), step, &data, range).unwrap();
    assert_eq!(again, curve);
    let short = LrRange {
        steps: 7,
        ..Default::default()
    };
    let curve = find_lr(&cpu, &mut model, Adam::new(1.0), step, &data, short).unwrap();
    assert!((curve.points.len(), curve.diverged) == (7, false) && (curve.points[6].lr - 1.0).abs() < 1e-12);
}

#[test]
fn the_steepest_descent_is_suggested() {
    let curve = |losses: &[f64]| LrCurve {
        points: (0..)
            .zip(losses)
            .map(|(i, &smoothed)| LrPoint {
                lr: 10f64.powi(i),
                loss: 0.0,
                smoothed,
            })
            .collect(),
        diverged: false,
    };
    assert_eq!(curve(&[5.0, 4.9, 4.0, 2.0, 1.9, 3.0]).suggestion(), Some(100.0));
    assert_eq!(curve(&[1.0, 2.0, 3.0]).suggestion(), None);
    assert_eq!(curve(&[]).suggestion(), None);
}

#[test]
fn ranges_are_checked_and_errors_leave_the_model_alone() {
    let cpu = Cpu::new();
    let data = loader(images(8, 0), 4, false, 0);
    let mut model = Net::new(&cpu, 1);
    let before = bytes(&model);
    let fine = LrRange::default();
    for range in [
        LrRange { min: 0.0, ..fine },
        LrRange { max: 1e-9, ..fine },
        LrRange { max: f64::NAN, ..fine },
        LrRange { steps: 2, ..fine },
        LrRange { diverged: 1.0, ..fine },
    ] {
        let found = find_lr(&cpu, &mut model, Sgd::new(1.0), step, &data, range);
        assert!(matches!(found, Err(TrainError::InvalidArgument { .. })), "{range:?}");
    }
    let calls = std::cell::Cell::new(0);
    let failing = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| -> kiln_core::Result<Output<Cpu>> {
        calls.set(calls.get() + 1);
        match calls.get() {
            5 => Err(Error::invalid("step", "call", 5, "fewer")),
            _ => step(model, batch),
        }
    };
    let range = LrRange {
        min: 0.1,
        max: 1.0,
        ..fine
    };
    assert!(find_lr(&cpu, &mut model, Sgd::new(1.0), failing, &data, range).is_err());
    assert!(calls.get() == 5 && bytes(&model) == before);
}
