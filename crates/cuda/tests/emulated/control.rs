//! Learning rates that are changed while recorded steps are replayed.

use crate::step::{data, digits};
use crate::with;
use kiln_cuda::{Cuda, Options};
use kiln_data::LabelledOn;
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adam, Schedule};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Layer, Sequential};
use kiln_train::{Control, Flow, Output, TrainOptions, Trainer};
use std::cell::RefCell;
use std::rc::Rc;

/// The weights after two epochs, the rates of all steps, and the number of replayed steps.
fn run(cuda: &Cuda, capture: bool, scheduled: bool, changes: bool) -> (Vec<u8>, Vec<f64>, u64) {
    let options = TrainOptions {
        epochs: 2,
        capture,
        ..Default::default()
    };
    let control = Control::new();
    let rates: Rc<RefCell<Vec<f64>>> = Rc::default();
    let (asking, seen) = (control.clone(), Rc::clone(&rates));
    let mut trainer = Trainer::new(cuda, options).control(control).on_step(move |info| {
        seen.borrow_mut().push(info.lr);
        match info.step {
            4 if changes => asking.scale_lr(0.25)?,
            9 if changes => asking.set_lr(0.02)?,
            _ => {}
        }
        Ok(Flow::Continue)
    });
    if scheduled {
        trainer = trainer.schedule(Schedule::Cosine {
            lr: 0.01,
            min: 0.001,
            steps: 20,
        });
    }
    let closure = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
        Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    };
    let mut model = digits(cuda);
    let report = trainer
        .fit(&mut model, &mut Adam::new(0.01), closure, &data([10, 10, 1]), None)
        .unwrap();
    let weights = encode(&StateDict::of(&model), &Metadata::new()).unwrap();
    let rates: Vec<f64> = rates.borrow().clone();
    (weights, rates, report.execution.replayed)
}

#[test]
fn a_changed_rate_reaches_replayed_steps() {
    let cuda = with(Options::default());
    for scheduled in [false, true] {
        let (captured, rates, replayed) = run(&cuda, true, scheduled, true);
        let (plain, same, none) = run(&cuda, false, scheduled, true);
        let (unchanged, before, _) = run(&cuda, true, scheduled, false);
        assert!(captured == plain && captured != unchanged, "scheduled: {scheduled}");
        assert!(replayed > 0 && none == 0);
        assert_eq!(rates, same);
        assert_eq!((rates[3], rates[4]), (before[3], 0.25 * before[4]));
        let set = rates[9];
        assert!((set - 0.02).abs() < 1e-12, "{set}");
    }
}
