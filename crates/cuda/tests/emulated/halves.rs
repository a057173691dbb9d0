//! Copies of weights in half precision in runs that go back, stop and go on: the bits are those of casting every weight at every step.

use crate::step::digits;
use crate::with;
use kiln_core::{Backend, DType, Result, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::Options;
use kiln_data::{Arrays, LabelledOn, Labels, Loader, LoaderOptions};
use kiln_nn::module::{NamePattern, StateDict};
use kiln_nn::optim::{Adam, Applied, Optimizer};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{Gradients, Indices, Layer, Module, Sequential, StorageSnapshot};
use kiln_train::{Checkpoint, Checkpoints, End, Execution, Flow, NonFinite, Output, RunFolder, TrainOptions, Trainer};
use std::path::Path;
use std::sync::Arc;

/// An optimizer that writes every parameter with its own values after each update, which no copy survives.
struct CastAnew<O>(O);

fn rewrite<B: Backend>(model: &mut dyn Module<B>) -> Result<()> {
    for (_, p) in model.named_parameters_mut() {
        let same = p.detach().copy()?;
        p.assign(&same)?;
    }
    Ok(())
}

impl<B: Backend, O: Optimizer<B>> Optimizer<B> for CastAnew<O> {
    fn prepare(&mut self, model: &dyn Module<B>) -> Result<()> {
        self.0.prepare(model)
    }
    fn apply(&mut self, model: &mut dyn Module<B>, grads: &Gradients<B>) -> Result<Applied> {
        let applied = self.0.apply(model, grads)?;
        rewrite(model).map(|()| applied)
    }
    fn apply_if_finite(
        &mut self,
        model: &mut dyn Module<B>,
        grads: &Gradients<B>,
        found_inf: &Indices<B>,
    ) -> Result<Applied> {
        let applied = self.0.apply_if_finite(model, grads, found_inf)?;
        rewrite(model).map(|()| applied)
    }
    fn count(&mut self, applied: &Applied) {
        self.0.count(applied);
    }
    fn settle(&mut self) -> Result<()> {
        self.0.settle()
    }
    fn storage(&self, storage: &mut StorageSnapshot) {
        self.0.storage(storage);
    }
    fn lr(&self) -> f64 {
        self.0.lr()
    }
    fn set_lr(&mut self, lr: f64) {
        self.0.set_lr(lr);
    }
    fn set_grad_scale(&mut self, scale: f64) {
        self.0.set_grad_scale(scale);
    }
    fn state_dict(&self) -> Result<StateDict<B>> {
        self.0.state_dict()
    }
    fn load_state_dict(&mut self, state: &StateDict<B>) -> Result<()> {
        self.0.load_state_dict(state)
    }
}

/// 16 images `[10, 10, 1]`, of which the tenth holds a NaN.
fn data() -> Loader {
    let value = |i: usize| if i == 925 { f32::NAN } else { (i as f32 * 0.7).sin() };
    let labels = Labels::Classes((0..16).map(|i| i % 4).collect(), 4);
    let images = Arrays::new(
        Shape::new(&[10, 10, 1]).unwrap(),
        (0..1600).map(value).collect(),
        labels,
    );
    let options = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    Loader::new(Arc::new(images.unwrap()), options).unwrap()
}

/// The options of a run with the first convolution frozen.
fn options(half: DType, non_finite: NonFinite, capture: bool) -> TrainOptions {
    TrainOptions {
        epochs: 2,
        log_every: 3,
        autocast: Some(half),
        non_finite,
        freeze: vec![NamePattern::new("0.*").unwrap()],
        checkpoints: Some(Checkpoints {
            every_steps: Some(3),
            ..Default::default()
        }),
        capture,
        ..Default::default()
    }
}

/// Runs in `folder`, from its newest checkpoint if there is one, to the end or to the sixth batch of the first epoch. The weights, and
/// how the steps were made.
fn run<B: Backend>(
    backend: &B,
    options: &TrainOptions,
    optimizer: &mut dyn Optimizer<B>,
    folder: &Path,
    stops: bool,
) -> (Vec<u8>, Execution) {
    let opened = match folder.exists() {
        true => RunFolder::reopen(folder),
        false => RunFolder::create(folder),
    }
    .unwrap();
    let mut trainer = Trainer::new(backend, options.clone()).on_step(move |step| {
        Ok(match stops && step.batch == 6 {
            true => Flow::Stop,
            false => Flow::Continue,
        })
    });
    if let Ok(checkpoint) = Checkpoint::latest(&opened) {
        trainer = trainer.resume(checkpoint);
    }
    let step = |model: &Sequential<B>, batch: &LabelledOn<B>| {
        Ok(Output::new(model.forward(&batch.inputs)?.cross_entropy(&batch.labels)?))
    };
    let mut model = digits(backend);
    let report = trainer.folder(opened).fit(&mut model, optimizer, step, &data(), None);
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.end, if stops { End::Stopped } else { End::Finished });
    (
        encode(&StateDict::of(&model), &Metadata::new()).unwrap(),
        report.execution,
    )
}

/// Runs that go on after a NaN, and those that besides stop and go on; recorded ones take longer, and each way has one dtype.
fn agree<B: Backend>(backend: &B) {
    let parent = tempfile::tempdir().unwrap();
    let back = NonFinite::Rollback {
        in_a_row: 1,
        lr_factor: 1.0,
    };
    for half in [DType::BF16, DType::F16] {
        for (name, non_finite) in [("back", back), ("skip", NonFinite::Skip { in_a_row: 1 })] {
            if B::CAPTURES && (half == DType::F16) != (name == "skip") {
                continue;
            }
            let path = |way: &str| parent.path().join(format!("{way}-{half}-{name}"));
            let plain = options(half, non_finite, false);
            let (cast, _) = run(backend, &plain, &mut CastAnew(Adam::new(1e-2)), &path("cast"), false);
            let recorded = options(half, non_finite, true);
            let adam = || Adam::new(1e-2);
            let (whole, made) = run(backend, &recorded, &mut adam(), &path("whole"), false);
            assert!(whole == cast, "{half} {non_finite:?}");
            assert!(!B::CAPTURES || made.replayed > 0, "{made:?}");
            run(backend, &recorded, &mut adam(), &path("parts"), true);
            let (resumed, _) = run(backend, &recorded, &mut adam(), &path("parts"), false);
            assert!(resumed == cast, "{half} {non_finite:?}, resumed");
        }
    }
}

#[test]
fn copies_follow_runs_that_go_back_and_go_on() {
    agree(&with(Options::default()));
}

#[test]
fn copies_follow_runs_of_the_cpu() {
    agree(&Cpu::new());
}
