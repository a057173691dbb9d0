//! Runs that go back to a state of some epochs ago, because keeping one takes too long to do it often.

use crate::common::{Net, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adam, Optimizer, ReduceOnPlateau};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Result, Tensor};
use kiln_train::{Average, Metric, NonFinite, Output, Report, TrainError, TrainOptions, Trainer, Values, Warning};
use std::cell::Cell;
use std::time::Duration;

/// The sum of the scores. The state of a slow one takes long to take.
struct Scores {
    slow: bool,
}

impl Metric<Cpu> for Scores {
    fn name(&self) -> String {
        if self.slow {
            std::thread::sleep(Duration::from_millis(20));
        }
        "scores".to_string()
    }
    fn measure(&self, output: &Output<Cpu>) -> Result<Tensor<Cpu>> {
        output.floats("scores")?.sum(&[], false)
    }
    fn value(&mut self, sum: &[f64], samples: u64) -> f64 {
        sum[0] / samples as f64
    }
}

const EPOCHS: u64 = 4;

/// The labels of a batch of the third epoch that no batch of another has.
fn bad_labels() -> (Vec<i32>, u64) {
    let data = loader(images(48, 0), 6, true, 0);
    let labels = |epoch| -> Vec<Vec<i32>> {
        let batches = data.epoch(epoch).unwrap();
        batches
            .map(|b| b.unwrap().to_device(&Cpu::new()).unwrap().labels.to_vec().unwrap())
            .collect()
    };
    let all: Vec<Vec<i32>> = (0..EPOCHS).flat_map(labels).collect();
    let once = |found: &&Vec<i32>| all.iter().filter(|l| l == found).count() == 1;
    let third = labels(2);
    let found = third.iter().skip(2).find(once).expect("48 images of four classes");
    (found.clone(), 1 + third.iter().position(|l| l == found).unwrap() as u64)
}

/// The results of a run, and the number of calls of its closure.
struct Ran {
    result: std::result::Result<Report, TrainError>,
    tensors: [Vec<u8>; 2],
    calls: u32,
}

fn run(slow: bool, non_finite: NonFinite, bad: Option<&[i32]>) -> Ran {
    let (cpu, calls) = (Cpu::new(), Cell::new(0));
    let options = TrainOptions {
        epochs: EPOCHS,
        non_finite,
        average: Some(Average::Ema { decay: 0.9 }),
        ..Default::default()
    };
    let trained = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        calls.set(calls.get() + 1);
        let output = step(model, batch)?;
        let is_bad = bad == Some(&batch.labels.to_vec::<i32>()?[..]);
        Ok(match is_bad {
            true => Output::new(output.loss.mul_scalar(-1.0)?.sqrt()?),
            false => output,
        })
    };
    let (mut model, mut adam) = (Net::with_dropout(&cpu, 1, 0.3), Adam::new(0.05));
    let result = Trainer::new(&cpu, options)
        .metric(Scores { slow })
        .reduce_on_plateau(ReduceOnPlateau {
            patience: 0,
            factor: 0.5,
            ..Default::default()
        })
        .fit(
            &mut model,
            &mut adam,
            trained,
            &loader(images(48, 0), 6, true, 0),
            Some(&loader(images(12, 1), 4, false, 0)),
        );
    let tensors = [StateDict::of(&model), adam.state_dict().unwrap()];
    Ran {
        result,
        tensors: tensors.map(|dict| encode(&dict, &Metadata::new()).unwrap()),
        calls: calls.get(),
    }
}

#[test]
fn a_run_goes_back_across_the_ends_of_epochs_to_the_same_bits() {
    let (bad, batch) = bad_labels();
    let calm = run(false, NonFinite::Stop, None).calls;

    let error = run(true, NonFinite::Stop, Some(&bad)).result.unwrap_err();
    let TrainError::NonFiniteLoss { cause: Some(cause), .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (cause.step, cause.epoch, cause.batch),
        (16 + batch, 3, batch),
        "{error}"
    );
    assert!(error.to_string().contains("op `sqrt`"), "{error}");

    let rollback = NonFinite::Rollback {
        in_a_row: 2,
        lr_factor: 0.5,
    };
    let [fast, slow] = [false, true].map(|slow| run(slow, rollback, Some(&bad)));
    // Two passes over the two epochs before.
    assert!(slow.calls >= calm + 2 * 16, "{} of {calm}", slow.calls);
    assert!(slow.tensors == fast.tensors);
    let [fast, slow] = [fast, slow].map(|ran| ran.result.unwrap());
    let values = |report: &Report| -> Vec<(Values, Option<Values>, f64, bool, u64)> {
        let epochs = report.history.epochs().iter();
        epochs
            .map(|e| (e.train.clone(), e.valid.clone(), e.lr, e.best, e.step))
            .collect()
    };
    assert_eq!(values(&slow), values(&fast));
    assert!(matches!(&slow.warnings[..], [Warning::RolledBack { .. }]));
}
