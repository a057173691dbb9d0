//! Requests to runs in progress.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::LabelledOn;
use kiln_nn::optim::{ReduceOnPlateau, Schedule, Sgd};
use kiln_nn::{Layer, Result};
use kiln_train::{
    Callback, Checkpoint, Control, End, Event, Flow, JournalEntry, Output, Phase, Report, RunFolder, StepInfo,
    TrainError, TrainOptions, Trainer,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is asked of a run after a number of batches of this process.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Scale(f64),
    Set(f64),
    Save,
    Stop,
    /// A stop that nobody asks the control for.
    Leave,
}

/// What the callback sees: the learning rate after each batch, and the entries of the journal.
type Seen = Arc<Mutex<(Vec<f64>, Vec<JournalEntry>)>>;

struct Asker {
    control: Control,
    asks: Vec<(usize, Ask)>,
    batches: usize,
    seen: Seen,
}

impl Callback for Asker {
    fn on_step(&mut self, info: &StepInfo) -> kiln_train::Result<Flow> {
        self.seen.lock().unwrap().0.push(info.lr);
        self.batches += 1;
        let mut flow = Flow::Continue;
        for (_, ask) in self.asks.iter().filter(|(at, _)| *at == self.batches) {
            match ask {
                Ask::Scale(factor) => self.control.scale_lr(*factor)?,
                Ask::Set(lr) => self.control.set_lr(*lr)?,
                Ask::Save => self.control.save(),
                Ask::Stop => self.control.stop(),
                Ask::Leave => flow = Flow::Stop,
            }
        }
        Ok(flow)
    }
    fn on_journal(&mut self, entry: &JournalEntry) {
        self.seen.lock().unwrap().1.push(entry.clone());
    }
}

/// How the learning rate of a run is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rate {
    Fixed,
    Plateau,
    Cosine,
    /// Two phases, of which one has a schedule.
    Phases,
}

const COSINE: Schedule = Schedule::Cosine {
    lr: 0.05,
    min: 0.001,
    steps: 40,
};

/// Trains for 3 epochs of 6 batches, from the newest checkpoint if the folder has one.
fn run(path: &Path, rate: Rate, accumulate: usize, asks: &[(usize, Ask)]) -> (Report, Vec<u8>, Seen) {
    let (cpu, control, seen) = (Cpu::new(), Control::new(), Seen::default());
    let options = TrainOptions {
        epochs: 3,
        accumulate,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options).control(control.clone()).callback(Asker {
        control,
        asks: asks.to_vec(),
        batches: 0,
        seen: Arc::clone(&seen),
    });
    trainer = match path.exists() {
        false => trainer.folder(RunFolder::create(path).unwrap()),
        true => {
            let folder = RunFolder::reopen(path).unwrap();
            let checkpoint = Checkpoint::latest(&folder).unwrap();
            trainer.folder(folder).resume(checkpoint)
        }
    };
    match rate {
        Rate::Cosine => trainer = trainer.schedule(COSINE),
        Rate::Plateau => {
            trainer = trainer.reduce_on_plateau(ReduceOnPlateau {
                patience: 0,
                factor: 0.5,
                ..Default::default()
            });
        }
        Rate::Fixed | Rate::Phases => {}
    }
    let (mut first, mut second) = (Sgd::new(0.05).momentum(0.9), Sgd::new(0.02));
    let data = loader(images(24, 0), 4, true, 0);
    let mut model = Net::with_dropout(&cpu, 0, 0.2);
    let report = match rate {
        Rate::Phases => {
            let phases = vec![
                Phase::new("a", &mut first, step).schedule(COSINE),
                Phase::new("b", &mut second, step).every(2),
            ];
            trainer.fit_phases(&mut model, phases, &data, None)
        }
        _ => trainer.fit(&mut model, &mut first, step, &data, None),
    };
    (report.unwrap(), bytes(&model), seen)
}

fn journal(path: &Path) -> Vec<JournalEntry> {
    let text = std::fs::read_to_string(path.join(RunFolder::JOURNAL)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn rates() -> impl Strategy<Value = Rate> {
    prop::sample::select(vec![Rate::Fixed, Rate::Plateau, Rate::Cosine, Rate::Phases])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A run whose rate is changed, and that is stopped later and goes on, ends with the bits of one that is not stopped.
    #[test]
    fn a_changed_rate_survives_a_resume(
        rate in rates(),
        accumulate in 1usize..4,
        at in 1usize..12,
        later in 0usize..8,
        factor in 0.1f64..3.0,
        sets in any::<bool>(),
    ) {
        let ask = if sets { Ask::Set(factor / 100.0) } else { Ask::Scale(factor) };
        changed_rate_survives(rate, accumulate, at, later, ask);
    }
}

/// Of two phases, the one that makes every second update has made none.
#[test]
fn the_rate_of_an_optimizer_without_state_survives_a_resume() {
    changed_rate_survives(Rate::Phases, 3, 1, 0, Ask::Scale(0.1));
}

/// Asks for another rate at batch `at`, and stops `later` batches after the step in progress then.
fn changed_rate_survives(rate: Rate, accumulate: usize, at: usize, later: usize, ask: Ask) {
    let parent = tempfile::tempdir().unwrap();
    let (whole, parts) = (parent.path().join("whole"), parent.path().join("parts"));
    let (_, expected, _) = run(&whole, rate, accumulate, &[(at, ask)]);
    let (plain, unchanged, _) = run(&parent.path().join("plain"), rate, accumulate, &[]);
    assert_eq!(plain.end, End::Finished);
    assert!(expected != unchanged);
    // The step in progress at the request is finished first.
    let stop = at + accumulate + later;
    let (stopped, ..) = run(&parts, rate, accumulate, &[(at, ask), (stop, Ask::Leave)]);
    if stopped.end == End::Stopped {
        let (resumed, weights, _) = run(&parts, rate, accumulate, &[]);
        assert_eq!(resumed.end, End::Finished);
        assert!(weights == expected);
        let entries = journal(&parts);
        assert_eq!(&entries.last().unwrap().event, &Event::Resume);
        let changed = entries.iter().filter(|e| matches!(e.event, Event::Lr { .. })).count();
        assert_eq!(changed, if rate == Rate::Phases { 2 } else { 1 });
    }
}

#[test]
fn every_request_is_in_the_journal_with_its_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let asks = [
        (2, Ask::Scale(0.5)),
        (3, Ask::Save),
        (6, Ask::Set(0.01)),
        (8, Ask::Stop),
    ];
    let (report, _, seen) = run(&path, Rate::Fixed, 1, &asks);
    assert_eq!((report.end, report.steps), (End::Stopped, 8));
    let (rates, told) = seen.lock().unwrap().clone();
    assert_eq!(rates, [0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.01, 0.01]);
    let entries = journal(&path);
    assert_eq!(entries, told);
    let lr = |from, to| Event::Lr {
        phase: String::new(),
        from,
        to,
    };
    let saved = Event::Save {
        checkpoint: Some("checkpoint-000000003.json".to_string()),
    };
    let found: Vec<_> = entries
        .iter()
        .map(|e| (e.step, e.epoch, e.batch, e.event.clone()))
        .collect();
    // What is asked with the last batch of an epoch is done after the epoch.
    let expected = [
        (2, 1, 2, lr(0.05, 0.025)),
        (3, 1, 3, saved),
        (6, 2, 0, lr(0.025, 0.01)),
        (8, 2, 2, Event::Stop),
    ];
    assert_eq!(found, expected);
    assert!(entries.iter().all(|e| e.time.len() == 20 && e.time.ends_with('Z')));
    assert_eq!(
        entries[0].to_string(),
        "learning rate 5.000e-2 to 2.500e-2 after step 2"
    );
    assert_eq!(Checkpoint::steps(&path).unwrap(), [8, 6]);
}

#[test]
fn on_a_schedule_a_factor_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let (.., seen) = run(&path, Rate::Cosine, 1, &[(2, Ask::Scale(0.5)), (4, Ask::Scale(3.0))]);
    let rates = seen.lock().unwrap().0.clone();
    for (step, rate) in rates.iter().enumerate() {
        let factor = [1.0, 0.5, 1.5][usize::from(step >= 2) + usize::from(step >= 4)];
        assert_eq!(*rate, COSINE.lr(step as u64) * factor, "step {step}");
    }
    let [first, _] = &journal(&path)[..] else { panic!() };
    let (from, to) = (COSINE.lr(2), COSINE.lr(2) * 0.5);
    let phase = String::new();
    assert_eq!(first.event, Event::Lr { phase, from, to });
}

#[test]
fn a_checkpoint_that_was_asked_for_is_one_to_go_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let (_, expected, _) = run(&whole, Rate::Cosine, 1, &[]);
    run(&parts, Rate::Cosine, 1, &[(9, Ask::Save), (10, Ask::Leave)]);
    // As after a kill: the checkpoint of the stop is gone.
    for name in [Checkpoint::manifest_name(10), Checkpoint::tensors_name(10)] {
        std::fs::remove_file(parts.join(name)).unwrap();
    }
    let (_, weights, _) = run(&parts, Rate::Cosine, 1, &[]);
    assert!(weights == expected);
    assert_eq!(journal(&parts).last().unwrap().step, 9);
}

#[test]
fn a_run_without_a_folder_tells_only_its_callbacks() {
    let (cpu, control, seen) = (Cpu::new(), Control::new(), Seen::default());
    let asker = Asker {
        control: control.clone(),
        asks: vec![(1, Ask::Save), (2, Ask::Stop)],
        batches: 0,
        seen: Arc::clone(&seen),
    };
    let report = Trainer::new(&cpu, TrainOptions::default())
        .control(control)
        .callback(asker)
        .fit(
            &mut Net::new(&cpu, 0),
            &mut Sgd::new(0.1),
            step,
            &loader(images(24, 0), 4, true, 0),
            None,
        )
        .unwrap();
    assert_eq!(report.end, End::Stopped);
    let events: Vec<Event> = seen.lock().unwrap().1.iter().map(|e| e.event.clone()).collect();
    assert_eq!(events, [Event::Save { checkpoint: None }, Event::Stop]);
}

#[test]
fn a_stop_may_come_before_the_run_and_wrong_rates_are_errors() {
    let control = Control::new();
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            control.scale_lr(wrong),
            Err(TrainError::InvalidArgument { .. })
        ));
        assert!(matches!(control.set_lr(wrong), Err(TrainError::InvalidArgument { .. })));
    }
    // A stop that comes before the run: its flag is what the loop looks at.
    control.stop();
    assert!(control.stop_handle().is_requested());
    let cpu = Cpu::new();
    let objective = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| -> Result<Output<Cpu>> {
        Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    };
    let report = Trainer::new(&cpu, TrainOptions::default()).control(control).fit(
        &mut Net::new(&cpu, 0),
        &mut Sgd::new(0.1),
        objective,
        &loader(images(24, 0), 4, true, 1),
        None,
    );
    assert_eq!(report.unwrap().steps, 0);
}

#[test]
fn a_line_that_a_kill_cut_off_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    run(&path, Rate::Fixed, 1, &[(2, Ask::Scale(0.5)), (4, Ask::Leave)]);
    let file = path.join(RunFolder::JOURNAL);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}{{\"time\":\"20")).unwrap();
    run(&path, Rate::Fixed, 1, &[(1, Ask::Save)]);
    let events: Vec<Event> = journal(&path).into_iter().map(|e| e.event).collect();
    assert!(std::fs::read_to_string(&file).unwrap().starts_with(&text));
    assert!(
        matches!(&events[..], [Event::Lr { .. }, Event::Resume, Event::Save { .. }]),
        "{events:?}"
    );
}
