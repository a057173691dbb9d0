//! Checkpoints and weights on a disk that is slow: the run goes on while one is written, and what is written is the state of its step.
//!
//! A writer waits for the lock on the temporary file of its name, so a test that holds the lock is a disk that takes its time.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::Adam;
use kiln_train::{
    Average, Callback, Checkpoint, Checkpoints, End, EpochRecord, Flow, Report, RunFolder, StopHandle, TrainOptions,
    Trainer,
};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The lock on the temporary file of the checkpoint of a step.
type Lock = Arc<Mutex<Option<File>>>;

fn hold(folder: &Path, step: u64) -> Lock {
    let name = format!(".{}.kiln-tmp", Checkpoint::tensors_name(step));
    let file = File::create(folder.join(name)).unwrap();
    file.lock().unwrap();
    Arc::new(Mutex::new(Some(file)))
}

/// Runs twelve steps with a checkpoint after every fourth; `look` is called after each step.
fn run(folder: RunFolder, resumes: bool, stop: StopHandle, look: impl FnMut(u64) + 'static) -> (Report, Vec<u8>) {
    let cpu = Cpu::new();
    let options = TrainOptions {
        epochs: 2,
        checkpoints: Some(Checkpoints {
            every_steps: Some(4),
            every: None,
            keep: 100,
        }),
        ..Default::default()
    };
    let mut look = look;
    let mut trainer = Trainer::new(&cpu, options).stop_handle(stop).on_step(move |info| {
        look(info.step);
        Ok(Flow::Continue)
    });
    if resumes {
        trainer = trainer.resume(Checkpoint::latest(&folder).unwrap());
    }
    let mut model = Net::with_dropout(&cpu, 1, 0.3);
    let report = trainer
        .folder(folder)
        .fit(
            &mut model,
            &mut Adam::new(1e-2),
            step,
            &loader(images(24, 0), 4, true, 0),
            None,
        )
        .unwrap();
    (report, bytes(&model))
}

#[test]
fn training_goes_on_while_a_checkpoint_is_written_which_holds_the_state_of_its_step() {
    let parent = tempfile::tempdir().unwrap();
    let fast = RunFolder::create(parent.path().join("fast")).unwrap();
    let (_, weights) = run(fast, false, StopHandle::new(), |_| {});

    let path = parent.path().join("slow");
    let folder = RunFolder::create(&path).unwrap();
    let (lock, at) = (hold(&path, 4), path.clone());
    let (_, slow) = run(folder, false, StopHandle::new(), move |step| {
        let written = at.join(Checkpoint::manifest_name(4)).exists();
        match step {
            // It was begun after the fourth step, and the fifth was made.
            5 => {
                assert!(!written);
                drop(lock.lock().unwrap().take());
            }
            // The next one, at the end of the epoch, waits for it.
            7 => assert!(written),
            _ => {}
        }
    });
    assert!(slow == weights);
    for made in [4, 6, 10, 12] {
        let name = Checkpoint::tensors_name(made);
        let [a, b] = ["fast", "slow"].map(|run| std::fs::read(parent.path().join(run).join(&name)).unwrap());
        assert!(a == b, "{name}");
    }
}

#[test]
fn a_stop_while_a_checkpoint_is_written_waits_for_it_and_saves_its_own() {
    let parent = tempfile::tempdir().unwrap();
    let whole = RunFolder::create(parent.path().join("whole")).unwrap();
    let (_, weights) = run(whole, false, StopHandle::new(), |_| {});

    let path = parent.path().join("stopped");
    let folder = RunFolder::create(&path).unwrap();
    let (lock, stop) = (hold(&path, 4), StopHandle::new());
    let asked = stop.clone();
    let (report, _) = run(folder, false, stop, move |step| {
        if step == 5 {
            asked.request();
            let lock = lock.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(lock.lock().unwrap().take());
            });
        }
    });
    assert_eq!((report.end, report.steps), (End::Stopped, 5));
    assert_eq!(Checkpoint::steps(&path).unwrap(), [5, 4]);
    let (_, resumed) = run(RunFolder::reopen(&path).unwrap(), true, StopHandle::new(), |_| {});
    assert!(resumed == weights);
}

/// Notes the weights after each epoch, as they are on the disk when it is told.
struct Reader {
    file: std::path::PathBuf,
    reads: bool,
    seen: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
}

impl Callback for Reader {
    fn on_epoch_end(&mut self, _: &EpochRecord) -> kiln_train::Result<Flow> {
        self.seen.lock().unwrap().push(std::fs::read(&self.file).ok());
        Ok(Flow::Continue)
    }
    fn reads_weights(&self) -> bool {
        self.reads
    }
}

/// Trains for three epochs; while `held`, the last weights are not written before the second epoch has begun. Returns the weights at
/// the end of each epoch, as a callback finds them.
fn epochs(path: &Path, average: bool, reads: bool, held: bool) -> Vec<Option<Vec<u8>>> {
    let cpu = Cpu::new();
    let folder = RunFolder::create(path).unwrap();
    let lock = Mutex::new(held.then(|| {
        let file = File::create(path.join(format!(".{}.kiln-tmp", RunFolder::LAST))).unwrap();
        file.lock().unwrap();
        file
    }));
    let options = TrainOptions {
        epochs: 3,
        average: average.then_some(Average::Ema { decay: 0.5 }),
        ..Default::default()
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let last = path.join(RunFolder::LAST);
    let reader = Reader {
        file: last.clone(),
        reads,
        seen: seen.clone(),
    };
    let mut trainer = Trainer::new(&cpu, options)
        .folder(folder)
        .callback(reader)
        .on_step(move |info| {
            if (info.epoch, info.batch) == (2, 1) && held {
                assert!(!last.exists());
                drop(lock.lock().unwrap().take());
            }
            Ok(Flow::Continue)
        });
    let (mut model, data) = (Net::new(&cpu, 1), loader(images(24, 0), 4, true, 0));
    trainer
        .fit(&mut model, &mut Adam::new(1e-2), step, &data, Some(&data))
        .unwrap();
    assert!(std::fs::read(path.join(RunFolder::LAST)).unwrap() == bytes(&model));
    seen.lock().unwrap().clone()
}

#[test]
fn weights_are_written_while_training_goes_on_unless_a_callback_reads_them() {
    for average in [false, true] {
        let parent = tempfile::tempdir().unwrap();
        let read = epochs(&parent.path().join("read"), average, true, false);
        assert!(read.iter().all(Option::is_some) && read[0] != read[1] && read[1] != read[2]);
        let slow = epochs(&parent.path().join("slow"), average, false, true);
        assert_eq!(slow[0], None);
        let names = [
            Some(RunFolder::LAST),
            Some(RunFolder::BEST),
            average.then_some(RunFolder::AVERAGED),
        ];
        for name in names.into_iter().flatten() {
            let [a, b] = ["read", "slow"].map(|run| std::fs::read(parent.path().join(run).join(name)).unwrap());
            assert!(a == b, "{name}");
        }
    }
}
