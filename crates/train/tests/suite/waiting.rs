//! The time in which the loop waits for batches.

use crate::common::{Net, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{Dataset, Sample};
use kiln_nn::Shape;
use kiln_nn::optim::Sgd;
use kiln_train::{Callback, Checkpoint, EpochRecord, Flow, Over, Reading, RunFolder, TrainOptions, Trainer};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The sleep in the read of each sample. A sleep is never shorter than what was asked for.
const SLEEP: Duration = Duration::from_millis(2);

struct Slow(Arc<dyn Dataset<Sample = Sample>>);

impl Dataset for Slow {
    type Sample = Sample;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn read(&self, index: usize, sample: &mut Sample) -> kiln_data::Result<()> {
        std::thread::sleep(SLEEP);
        self.0.read(index, sample)
    }
    fn shape(&self) -> Option<Shape> {
        self.0.shape()
    }
    fn classes(&self) -> Option<usize> {
        self.0.classes()
    }
}

/// Trains for two epochs of 6 batches of 4 samples, from the newest checkpoint in `folder` if there is one, and stops after
/// `stop` batches. Returns the epochs and, for each batch of this call, the seconds of the epoch that were spent waiting and all.
fn run(folder: RunFolder, stop: Option<usize>) -> (Vec<EpochRecord>, Vec<(f64, f64)>) {
    let cpu = Cpu::new();
    let seen: Arc<Mutex<Vec<(f64, f64)>>> = Arc::default();
    let steps = Arc::clone(&seen);
    let options = TrainOptions {
        epochs: 2,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options).on_step(move |info| {
        let mut steps = steps.lock().unwrap();
        steps.push((info.waiting, info.seconds));
        Ok(match stop == Some(steps.len()) {
            true => Flow::Stop,
            false => Flow::Continue,
        })
    });
    if !Checkpoint::steps(folder.path()).unwrap().is_empty() {
        trainer = trainer.resume(Checkpoint::latest(&folder).unwrap());
    }
    let data = loader(Arc::new(Slow(images(24, 0))), 4, true, 0);
    let report = trainer
        .folder(folder)
        .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &data, None)
        .unwrap();
    let seen = seen.lock().unwrap().clone();
    (report.history.epochs().to_vec(), seen)
}

#[test]
fn what_the_loader_takes_is_measured_also_across_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let (epochs, first) = run(RunFolder::create(&path).unwrap(), Some(10));
    assert_eq!((epochs.len(), first.len()), (1, 10));
    let (epochs, second) = run(RunFolder::reopen(&path).unwrap(), None);
    assert_eq!((epochs.len(), second.len()), (2, 2));
    let slept = |batches: usize| (4 * batches) as f64 * SLEEP.as_secs_f64();
    let batches = first.iter().chain(&second).zip((1..=6).chain(1..=6));
    for ((waiting, seconds), batches) in batches {
        assert!(
            slept(batches) <= *waiting && waiting <= seconds,
            "{waiting} of {seconds}"
        );
    }
    for epoch in &epochs {
        assert!(slept(6) <= epoch.waiting && epoch.waiting <= epoch.seconds, "{epoch:?}");
        assert!(epoch.waiting_share() > 0.0 && epoch.waiting_share() <= 1.0);
    }
    let read = |name: &str| std::fs::read_to_string(path.join(name)).unwrap();
    let lines: Vec<EpochRecord> = read(RunFolder::HISTORY)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, epochs);
    assert!(read(RunFolder::TABLE).contains(&format!(",{:?},", epochs[1].waiting)));
}

#[test]
fn epochs_of_earlier_versions_have_waited_for_nothing() {
    let golden = include_str!("../golden/checkpoint-v1/history.jsonl");
    let record: EpochRecord = serde_json::from_str(golden.lines().next().unwrap()).unwrap();
    assert_eq!((record.waiting, record.waiting_share()), (0.0, 0.0));
}

/// Measures a number of joules that grows by one at every call.
struct Meter(f64);

impl Callback for Meter {
    fn readings(&mut self) -> Vec<Reading> {
        self.0 += 1.0;
        vec![Reading {
            name: "joules".to_string(),
            value: self.0,
            over: Over::Sum,
        }]
    }
}

#[test]
fn readings_of_callbacks_are_in_the_history_also_across_a_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let run = |folder: RunFolder, resumes: bool, stop: u64| {
        let cpu = Cpu::new();
        let options = TrainOptions {
            epochs: 2,
            ..Default::default()
        };
        let mut trainer = Trainer::new(&cpu, options)
            .callback(Meter(0.0))
            .on_step(move |info| Ok(if info.step == stop { Flow::Stop } else { Flow::Continue }));
        if resumes {
            trainer = trainer.resume(Checkpoint::latest(&folder).unwrap());
        }
        let data = loader(images(24, 0), 4, true, 0);
        let fitted = trainer
            .folder(folder)
            .fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.01), step, &data, Some(&data));
        fitted.unwrap().history.epochs().to_vec()
    };
    // Epoch 1: 1 is dropped, 2 counts, and of its validation 3 is dropped, 4 counts. Epoch 2: 5 is dropped, 6 counts; after the resume 1
    // is dropped, 2 counts, and of the validation 3 is dropped, 4 counts.
    let first = run(RunFolder::create(&path).unwrap(), false, 9);
    assert_eq!(first.len(), 1);
    let all = run(RunFolder::reopen(&path).unwrap(), true, 0);
    let joules = |name: &str| all.iter().map(|epoch| epoch.machine[name]).collect::<Vec<f64>>();
    assert_eq!(
        (joules("joules"), joules("valid_joules")),
        (vec![2.0, 8.0], vec![4.0, 4.0])
    );
    let table = std::fs::read_to_string(path.join(RunFolder::TABLE)).unwrap();
    let ends = ["machine/joules,machine/valid_joules", "2.0,4.0", "8.0,4.0"];
    assert!(
        table
            .lines()
            .zip(ends)
            .all(|(row, end)| row.ends_with(&format!(",{end}"))),
        "{table}"
    );
}
