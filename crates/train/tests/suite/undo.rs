//! A step of several phases that is given up in any of them leaves no trace.

use crate::common::{images, loader};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::layers::{BatchNorm, Dropout, Flatten, Linear};
use kiln_nn::module::StateDict;
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Error, Init, Layer, Sequential, Tensor};
use kiln_train::{
    Accuracy, Checkpoint, Clip, End, GradNorm, NonFinite, Output, Phase, RunFolder, StopHandle, TrainOptions, Trainer,
    Values,
};
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

/// Runs ops until one fails because it was interrupted; returns that error.
fn endless(x: &Tensor<Cpu>) -> Error {
    loop {
        if let Err(e) = x.exp() {
            return e;
        }
    }
}

/// The results of a run.
#[derive(Debug, PartialEq)]
struct Left {
    end: End,
    steps: u64,
    tensors: Vec<Vec<u8>>,
    epochs: Vec<Values>,
}

/// Runs in `folder`, from its newest checkpoint if it `resumes`. The call of this number of the closure of a phase does not end.
fn run(folder: &Path, resumes: bool, non_finite: NonFinite, stuck: Option<(usize, u32)>) -> Left {
    let (cpu, stop) = (Cpu::new(), StopHandle::new());
    let init = &mut Init::new(&cpu, 0);
    let mut model = Sequential::new()
        .push(BatchNorm::new(init, 1).unwrap())
        .push(Flatten::default())
        .push(Dropout::new(init, 0.3).unwrap())
        .push(Linear::new(init, 64, 4).unwrap());
    let options = TrainOptions {
        epochs: 3,
        accumulate: 2,
        clip: Some(Clip::Norm(1.0)),
        grad_norm: GradNorm::Total,
        non_finite,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options)
        .metric(Accuracy::new())
        .stop_handle(stop.clone())
        // Every step counts as a long one.
        .grace(Duration::ZERO);
    trainer = match resumes {
        false => trainer.folder(RunFolder::create(folder).unwrap()),
        true => {
            let folder = RunFolder::reopen(folder).unwrap();
            let newest = Checkpoint::latest(&folder).unwrap();
            trainer.folder(folder).resume(newest)
        }
    };
    let calls = [0, 1, 2].map(|_| Cell::new(0));
    let step = |phase: usize| {
        let (calls, stop) = (&calls, &stop);
        move |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
            let logits = model.forward(&batch.inputs)?;
            calls[phase].set(calls[phase].get() + 1);
            if stuck == Some((phase, calls[phase].get())) {
                stop.request();
                return Err(endless(&logits));
            }
            Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
        }
    };
    let mut optimizers = [Adam::new(1e-2), Adam::new(1e-2), Adam::new(1e-2)];
    let [a, b, c] = &mut optimizers;
    let phases = vec![
        Phase::new("a", a, step(0)).trains(|name| name.starts_with('3')),
        Phase::new("b", b, step(1)).trains(|name| name.starts_with('0')),
        Phase::new("c", c, step(2)).every(2),
    ];
    let report = trainer
        .fit_phases(&mut model, phases, &loader(images(24, 0), 4, true, 0), None)
        .unwrap();
    let bytes = |dict: &StateDict<Cpu>| encode(dict, &Metadata::new()).unwrap();
    let mut tensors = vec![bytes(&StateDict::of(&model))];
    tensors.extend(optimizers.iter().map(|o| bytes(&o.state_dict().unwrap())));
    Left {
        end: report.end,
        steps: report.steps,
        tensors,
        epochs: report
            .history
            .epochs()
            .iter()
            .map(|epoch| epoch.train.clone())
            .collect(),
    }
}

#[test]
fn a_step_that_is_given_up_in_any_phase_is_undone_and_made_again() {
    for non_finite in [NonFinite::Stop, NonFinite::Skip { in_a_row: 3 }] {
        let parent = tempfile::tempdir().unwrap();
        let whole = run(&parent.path().join("whole"), false, non_finite, None);
        assert_eq!((whole.end, whole.steps), (End::Finished, 9));
        // The first step; the second, in which the third phase has its first turn; the sixth, which ends an epoch.
        for (phase, call, steps) in [(0, 8, 3), (1, 1, 0), (1, 4, 1), (2, 2, 1), (2, 5, 5), (1, 12, 5)] {
            let folder = parent.path().join(format!("{phase}-{call}"));
            let stopped = run(&folder, false, non_finite, Some((phase, call)));
            assert_eq!((stopped.end, stopped.steps), (End::Stopped, steps), "{phase} {call}");
            let resumed = run(&folder, true, non_finite, None);
            assert!(
                resumed == whole,
                "{phase} {call}: {:?} {:?}",
                resumed.epochs,
                whole.epochs
            );
        }
    }
}
