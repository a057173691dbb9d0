//! State that closures and callbacks keep on the host, in runs that stop, go on and go back.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{Arrays, LabelledOn, Labels, Loader, LoaderOptions};
use kiln_nn::layers::Linear;
use kiln_nn::optim::{Adam, Sgd};
use kiln_nn::{Error, Init, Layer, Shape};
use kiln_train::{
    Checkpoint, Checkpoints, End, Flow, NonFinite, Output, RunFolder, StopHandle, TrainError, TrainOptions, Trainer,
};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A generator of random numbers that the closure draws from, and the numbers of batches and epochs that callbacks count.
type State = (u64, u64, u64);

struct Left {
    end: End,
    state: State,
    weights: Vec<u8>,
}

/// Two epochs of six batches and of two in validation. The call of this number of the closure does not end.
fn run(folder: &Path, resumes: bool, accumulate: usize, stuck: Option<u64>) -> Left {
    let (cpu, stop) = (Cpu::new(), StopHandle::new());
    let state = Rc::new(Cell::new((7, 0, 0)));
    let options = TrainOptions {
        epochs: 2,
        accumulate,
        log_every: 2,
        checkpoints: Some(Checkpoints {
            every_steps: Some(2),
            ..Default::default()
        }),
        ..Default::default()
    };
    let [saved, loaded, batches, epochs] = [(); 4].map(|()| state.clone());
    let mut trainer = Trainer::new(&cpu, options)
        .stop_handle(stop.clone())
        .grace(Duration::ZERO)
        .host_state("counts", move || saved.get(), move |state: State| loaded.set(state))
        .on_step(move |_| {
            let (random, seen, ended) = batches.get();
            batches.set((random, seen + 1, ended));
            Ok(Flow::Continue)
        })
        .on_epoch_end(move |_| {
            let (random, seen, ended) = epochs.get();
            epochs.set((random, seen, ended + 1));
            Ok(Flow::Continue)
        });
    trainer = match resumes {
        false => trainer.folder(RunFolder::create(folder).unwrap()),
        true => {
            let folder = RunFolder::reopen(folder).unwrap();
            let newest = Checkpoint::latest(&folder).unwrap();
            trainer.folder(folder).resume(newest)
        }
    };
    let calls = Cell::new(0);
    let noisy = |model: &Net<Cpu>, batch: &LabelledOn<Cpu>| {
        let (random, seen, ended) = state.get();
        let random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.set((random, seen, ended));
        calls.set(calls.get() + 1);
        if stuck == Some(calls.get()) {
            stop.request();
            return Err(Error::Interrupted {
                device: "cpu".to_string(),
            });
        }
        let output = step(model, batch)?;
        let factor = 0.5 + (random >> 40) as f64 / f64::from(1 << 24);
        Ok(Output::new(output.loss.mul_scalar(factor)?))
    };
    let mut model = Net::with_dropout(&cpu, 1, 0.2);
    let (train, valid) = (loader(images(24, 0), 4, true, 0), loader(images(8, 1), 4, false, 0));
    let report = trainer
        .fit(&mut model, &mut Adam::new(1e-2), noisy, &train, Some(&valid))
        .unwrap();
    Left {
        end: report.end,
        state: state.get(),
        weights: bytes(&model),
    }
}

#[test]
fn it_goes_on_where_a_run_stopped_at_any_call_of_its_closure() {
    for accumulate in [1, 2] {
        let parent = tempfile::tempdir().unwrap();
        let whole = run(&parent.path().join("whole"), false, accumulate, None);
        assert_eq!((whole.end, whole.state.1, whole.state.2), (End::Finished, 12, 2));
        for call in 1..=16 {
            let folder = parent.path().join(format!("{call}"));
            assert_eq!(run(&folder, false, accumulate, Some(call)).end, End::Stopped);
            let resumed = run(&folder, true, accumulate, None);
            assert_eq!(resumed.state, whole.state, "{accumulate} {call}");
            assert!(resumed.weights == whole.weights, "{accumulate} {call}");
        }
    }
}

/// Runs two epochs of four batches, the third of which has no finite loss; returns the closure's count of them, and the weights.
fn with_a_bad_step(non_finite: NonFinite) -> (u64, Vec<u8>) {
    let cpu = Cpu::new();
    let data = Arrays::new(
        Shape::new(&[1]).unwrap(),
        vec![1.0, 2.0, 0.0, 4.0],
        Labels::Classes(vec![0, 1, 0, 1], 2),
    );
    let options = LoaderOptions {
        batch_size: 1,
        ..Default::default()
    };
    let data = Loader::new(Arc::new(data.unwrap()), options).unwrap();
    let count = Rc::new(Cell::new(0));
    let (saved, loaded) = (count.clone(), count.clone());
    let options = TrainOptions {
        epochs: 2,
        non_finite,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options).host_state("count", move || saved.get(), move |n: u64| loaded.set(n));
    let step = |model: &Linear<Cpu>, batch: &LabelledOn<Cpu>| {
        count.set(count.get() + 1);
        let loss = model.forward(&batch.inputs.log()?)?.cross_entropy(&batch.labels)?;
        Ok(Output::new(loss.mul_scalar(1.0 / count.get() as f64)?))
    };
    let mut model = Linear::new(&mut Init::new(&cpu, 0), 1, 2).unwrap();
    trainer.fit(&mut model, &mut Sgd::new(0.1), step, &data, None).unwrap();
    (count.get(), bytes(&model))
}

#[test]
fn a_step_that_is_left_out_leaves_no_trace_in_it() {
    let skipped = with_a_bad_step(NonFinite::Skip { in_a_row: 3 });
    let rolled_back = with_a_bad_step(NonFinite::Rollback {
        in_a_row: 3,
        lr_factor: 1.0,
    });
    assert_eq!((skipped.0, rolled_back.0), (6, 6));
    assert!(skipped.1 == rolled_back.1);
}

/// Trains for an epoch with states of these names, all of this value.
fn with_states(folder: RunFolder, names: &[&str], value: f64, resumes: bool) -> kiln_train::Result<f64> {
    let (cpu, last) = (Cpu::new(), Rc::new(RefCell::new(value)));
    let mut trainer = Trainer::new(&cpu, TrainOptions::default());
    if resumes {
        trainer = trainer.resume(Checkpoint::latest(&folder)?);
    }
    for name in names {
        let (saved, loaded) = (last.clone(), last.clone());
        trainer = trainer.host_state(*name, move || *saved.borrow(), move |x: f64| *loaded.borrow_mut() = x);
    }
    let data = loader(images(8, 0), 4, true, 0);
    trainer
        .folder(folder)
        .fit(&mut Net::new(&cpu, 1), &mut Adam::new(1e-2), step, &data, None)?;
    let last = *last.borrow();
    Ok(last)
}

#[test]
fn numbers_are_exact_and_what_cannot_be_kept_is_an_error_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a");
    with_states(RunFolder::create(&path).unwrap(), &["x"], 0.1 + 0.2, false).unwrap();
    let read = with_states(RunFolder::reopen(&path).unwrap(), &["x"], 0.0, true).unwrap();
    assert_eq!(read.to_bits(), (0.1_f64 + 0.2).to_bits());

    let other = with_states(RunFolder::reopen(&path).unwrap(), &["y"], 0.0, true).unwrap_err();
    assert_eq!(
        other.to_string(),
        "the checkpoint is of another run: its host state is x, here it is y"
    );
    let none = with_states(RunFolder::reopen(&path).unwrap(), &[], 0.0, true).unwrap_err();
    assert!(matches!(none, TrainError::OtherRun { .. }), "{none}");

    let folder = || RunFolder::numbered(parent.path(), "b").unwrap();
    let nan = with_states(folder(), &["x"], f64::NAN, false).unwrap_err();
    assert!(
        nan.to_string()
            .starts_with("the state `x` of the host cannot be saved: "),
        "{nan}"
    );
    let twice = with_states(folder(), &["x", "x"], 0.0, false).unwrap_err();
    assert!(twice.to_string().contains("`x` twice"), "{twice}");
}
