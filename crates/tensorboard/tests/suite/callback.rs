//! The callback of the trainer.

use super::reader::{Seen, events, files};
use kiln_cpu::Cpu;
use kiln_data::{LabelledOn, Loader, LoaderOptions, Synthetic};
use kiln_nn::layers::{Flatten, Linear};
use kiln_nn::{Init, Layer, Sequential, optim::Adam};
use kiln_tensorboard::TensorBoard;
use kiln_train::{Accuracy, Checkpoint, Flow, Output, RunFolder, TrainOptions, Trainer};
use std::path::Path;
use std::sync::Arc;

/// Trains for two epochs of four batches, from the beginning until it is stopped after `stop` batches, or going on.
fn train(path: &Path, stop: Option<u64>, resume: bool) {
    train_up_to(path, stop, resume, None);
}

/// As [`train`], to an end after so many updates.
fn train_up_to(path: &Path, stop: Option<u64>, resume: bool, max_steps: Option<u64>) {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let mut net = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 9, 2).unwrap());
    let options = LoaderOptions {
        batch_size: 8,
        ..Default::default()
    };
    let data = Loader::new(Arc::new(Synthetic::images(32, &[3, 3, 1], 2, 0).unwrap()), options).unwrap();
    let folder = match resume {
        true => RunFolder::reopen(path).unwrap(),
        false => RunFolder::create(path).unwrap(),
    };
    let board = TensorBoard::new(folder.file("tensorboard"))
        .text("config", "lr = 0.01")
        .weights_in(&folder, RunFolder::LAST, &cpu);
    let options = TrainOptions {
        epochs: 2,
        log_every: 2,
        max_steps,
        ..Default::default()
    };
    let mut batches = 0;
    let mut trainer = Trainer::new(&cpu, options)
        .metric(Accuracy::new())
        .callback(board)
        .on_step(move |_| {
            batches += 1;
            Ok(match Some(batches) == stop {
                true => Flow::Stop,
                false => Flow::Continue,
            })
        })
        .folder(folder.clone());
    if resume {
        trainer = trainer.resume(Checkpoint::latest(&folder).unwrap());
    }
    let step = |net: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        let logits = net.forward(&batch.inputs)?;
        Ok(Output::new(logits.cross_entropy(&batch.labels)?).with_scores(logits, &batch.labels))
    };
    trainer
        .fit(&mut net, &mut Adam::new(1e-2), step, &data, Some(&data))
        .unwrap();
}

/// What TensorBoard shows: the events of all files, without those that a later file hides.
fn shown(folder: &Path) -> Vec<(String, u64, Option<f32>)> {
    let mut all: Vec<Seen> = Vec::new();
    for event in files(folder).iter().flat_map(|path| events(path)) {
        if event.purges {
            all.retain(|e| e.step < event.step);
        }
        all.push(event);
    }
    let scalars = all.into_iter().filter_map(|e| Some((e.tag?, e.step, e.scalar)));
    scalars
        .filter(|(tag, ..)| !["samples_per_second", "waiting_share"].contains(&&tag[..]))
        .collect()
}

#[test]
fn a_run_is_shown_with_its_losses_metrics_rates_weights_and_settings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    train(&path, None, false);
    let shown = shown(&path.join("tensorboard"));
    let steps = |tag: &str| -> Vec<u64> {
        shown
            .iter()
            .filter(|(t, ..)| t == tag)
            .map(|(_, step, _)| *step)
            .collect()
    };
    assert_eq!(steps("config/text_summary"), [0]);
    assert_eq!((steps("loss/step"), steps("lr")), (vec![2, 4, 6, 8], vec![2, 4, 6, 8]));
    for tag in [
        "loss/train",
        "loss/valid",
        "accuracy/train",
        "accuracy/valid",
        "weights/1.bias",
        "weights/1.weight",
    ] {
        assert_eq!(steps(tag), [4, 8], "{tag}");
    }
    let history = std::fs::read_to_string(path.join(RunFolder::HISTORY)).unwrap();
    let last: kiln_train::EpochRecord = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    let loss = last.valid.unwrap()["loss"] as f32;
    assert!(shown.contains(&("loss/valid".to_string(), 8, Some(loss))));
}

#[test]
fn a_resumed_run_shows_the_same_as_one_that_never_stopped() {
    let dir = tempfile::tempdir().unwrap();
    train(&dir.path().join("whole"), None, false);
    let whole = shown(&dir.path().join("whole/tensorboard"));
    for stop in [1, 4, 7] {
        let path = dir.path().join(format!("stopped-{stop}"));
        train(&path, Some(stop), false);
        // What the run reported after its checkpoint, as if it had been killed.
        let mut late = kiln_tensorboard::SummaryWriter::new(path.join("tensorboard")).unwrap();
        late.add_scalar("loss/step", 9.0, stop + 1).unwrap();
        drop(late);
        train(&path, None, true);
        let folder = path.join("tensorboard");
        assert_eq!(files(&folder).len(), 3);
        let mut resumed = shown(&folder);
        resumed.retain(|(tag, step, _)| tag != "config/text_summary" || *step == 0);
        assert_eq!(resumed, whole, "stopped after {stop}");
    }
}

/// A run that ends within an epoch shows what it has measured of it; once it goes on, the whole epoch takes the place of that.
#[test]
fn a_part_of_an_epoch_is_hidden_once_the_epoch_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    train(&dir.path().join("whole"), None, false);
    let of_epochs = |path: &Path| -> Vec<(String, u64, Option<f32>)> {
        let mut shown = shown(&path.join("tensorboard"));
        shown.retain(|(tag, ..)| !tag.ends_with("/step") && !tag.starts_with("config") && tag != "lr");
        shown
    };
    let whole = of_epochs(&dir.path().join("whole"));
    // Within an epoch, and at the end of one.
    for cut in [1, 3, 4, 6] {
        let path = dir.path().join(format!("cut-{cut}"));
        train_up_to(&path, None, false, Some(cut));
        let part = of_epochs(&path);
        assert!(
            part.iter()
                .any(|(tag, step, _)| (&tag[..], *step) == ("loss/valid", cut)),
            "{part:?}"
        );
        train(&path, None, true);
        assert_eq!(of_epochs(&path), whole, "cut after {cut}");
    }
}
