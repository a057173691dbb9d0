//! Runs of recorded steps that average their weights, stop and go on.

use crate::step::{data, digits};
use crate::with;
use kiln_cuda::{Cuda, Options};
use kiln_data::LabelledOn;
use kiln_nn::optim::{Adam, Optimizer};
use kiln_nn::{Layer, Sequential};
use kiln_train::{Accuracy, Average, Checkpoint, End, Flow, Output, Report, RunFolder, TrainOptions, Trainer};
use std::path::Path;

/// Runs in `folder`, from its newest checkpoint if there is one, to the end or up to a batch of the second epoch.
fn run(cuda: &Cuda, folder: &Path, capture: bool, stop_at: Option<u64>) -> Report {
    let options = TrainOptions {
        epochs: 4,
        log_every: 3,
        average: Some(Average::Ema { decay: 0.8 }),
        capture,
        ..Default::default()
    };
    let opened = match folder.exists() {
        true => RunFolder::reopen(folder),
        false => RunFolder::create(folder),
    }
    .unwrap();
    let mut trainer = Trainer::new(cuda, options)
        .metric(Accuracy::new())
        .on_step(move |step| {
            Ok(match step.epoch == 2 && Some(step.batch) == stop_at {
                true => Flow::Stop,
                false => Flow::Continue,
            })
        });
    if let Ok(checkpoint) = Checkpoint::latest(&opened) {
        trainer = trainer.resume(checkpoint);
    }
    let closure = |model: &Sequential<Cuda>, batch: &LabelledOn<Cuda>| {
        let logits = model.forward(&batch.inputs)?;
        Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
    };
    let (train, valid) = (data([10, 10, 1]), data([10, 10, 1]));
    let optimizer: &mut dyn Optimizer<Cuda> = &mut Adam::new(1e-2);
    let mut trainer = trainer.folder(opened);
    trainer
        .fit(&mut digits(cuda), optimizer, closure, &train, Some(&valid))
        .unwrap()
}

/// Weights, averages and measurements are those of a run that never stopped and of one that was never recorded.
#[test]
fn recorded_runs_are_resumed_to_the_same_bits() {
    let cuda = with(Options::default());
    let parent = tempfile::tempdir().unwrap();
    let [whole, parts, plain] = ["whole", "parts", "plain"].map(|name| parent.path().join(name));
    let expected = run(&cuda, &whole, true, None);
    assert!(expected.execution.replayed == 20, "{:?}", expected.execution);
    assert_eq!(run(&cuda, &parts, true, Some(3)).end, End::Stopped);
    let resumed = run(&cuda, &parts, true, None);
    assert!(resumed.execution.replayed > 10, "{:?}", resumed.execution);
    let eager = run(&cuda, &plain, false, None);
    assert_eq!(eager.execution.replayed, 0);
    for (report, folder) in [(&resumed, &parts), (&eager, &plain)] {
        for name in [RunFolder::LAST, RunFolder::AVERAGED, RunFolder::BEST] {
            let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
            assert!(read(&whole) == read(folder), "{name} in {}", folder.display());
        }
        let values = |report: &Report| {
            let epochs = report.history.epochs().iter();
            epochs
                .map(|e| (e.train.clone(), e.valid.clone(), e.best))
                .collect::<Vec<_>>()
        };
        assert_eq!(values(report), values(&expected));
    }
}
