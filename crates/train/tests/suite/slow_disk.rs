//! Checkpoints on a disk that is slow: the run goes on while one is written, and what is written is the state of its step.
//!
//! A writer waits for the lock on the temporary file of its name, so a test that holds the lock is a disk that takes its time.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::Adam;
use kiln_train::{Checkpoint, Checkpoints, End, Flow, Report, RunFolder, StopHandle, TrainOptions, Trainer};
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
