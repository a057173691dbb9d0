//! Running statistics of batch norms for averaged weights, against sums in f64.

use crate::common::{bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_data::{LabelledOn, Loader};
use kiln_nn::autograd::is_grad_enabled;
use kiln_nn::layers::{BatchNorm, Dropout, Flatten, Linear};
use kiln_nn::module::StateDict;
use kiln_nn::optim::Sgd;
use kiln_nn::weights::read;
use kiln_nn::{Init, LoadOptions, Module, Sequential};
use kiln_train::{Average, Checkpoint, End, RunFolder, StopHandle, TrainOptions, Trainer, Values, evaluate, update_bn};
use std::cell::Cell;
use std::path::Path;

fn net(cpu: &Cpu) -> Sequential<Cpu> {
    let init = &mut Init::new(cpu, 2);
    Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 64, 5).unwrap())
        .push(BatchNorm::new(init, 5).unwrap())
        .push(Dropout::new(init, 0.3).unwrap())
        .push(Linear::new(init, 5, 4).unwrap())
}

/// Batches of 5, 5, 5, 5 and 4.
fn data() -> Loader {
    loader(images(24, 0), 5, true, 0)
}

/// The mean and the variance, unbiased, of each output of the first dense layer in a batch, and their means over the batches.
fn expected(weights: &StateDict<Cpu>, epoch: u64) -> [Vec<f64>; 2] {
    let [w, b] = ["1.weight", "1.bias"].map(|name| weights.float(name).unwrap().to_f64().unwrap());
    let mut sums = [vec![0.0; 5], vec![0.0; 5]];
    let batches = data().epoch(epoch).unwrap();
    let count = batches.len() as f64;
    for batch in batches {
        let x = batch.unwrap().to_device(&Cpu::new()).unwrap().inputs.to_f64().unwrap();
        for o in 0..5 {
            let dot = |x: &[f64]| b[o] + x.iter().zip(&w[64 * o..64 * (o + 1)]).map(|(x, w)| x * w).sum::<f64>();
            let y: Vec<f64> = x.chunks_exact(64).map(dot).collect();
            let n = y.len() as f64;
            let mean = y.iter().sum::<f64>() / n;
            sums[0][o] += mean / count;
            sums[1][o] += y.iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / (n - 1.0) / count;
        }
    }
    sums
}

fn statistics(weights: &StateDict<Cpu>) -> [Vec<f64>; 2] {
    ["2.running_mean", "2.running_var"].map(|name| weights.float(name).unwrap().to_f64().unwrap())
}

fn is_near(found: &[Vec<f64>; 2], expected: &[Vec<f64>; 2]) -> bool {
    let mut pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.all(|(f, e)| (f - e).abs() <= 1e-5 * (1.0 + e.abs()))
}

/// The results of a run: how it ended, its weights, its averaged weights, what was measured.
type Left = (End, Vec<u8>, Vec<u8>, Vec<Option<Values>>);

/// Runs in `folder`, and asks for a stop in the forward pass of this number without gradients.
fn run(folder: &Path, resumes: bool, average: Option<Average>, update_bn: Option<bool>, stop_at: Option<u32>) -> Left {
    let (cpu, stop, passes) = (Cpu::new(), StopHandle::new(), Cell::new(0));
    let options = TrainOptions {
        epochs: 2,
        average,
        update_bn,
        ..Default::default()
    };
    let mut trainer = Trainer::new(&cpu, options).stop_handle(stop.clone());
    trainer = match resumes {
        false => trainer.folder(RunFolder::create(folder).unwrap()),
        true => {
            let folder = RunFolder::reopen(folder).unwrap();
            let newest = Checkpoint::latest(&folder).unwrap();
            trainer.folder(folder).resume(newest)
        }
    };
    let closure = |model: &Sequential<Cpu>, batch: &LabelledOn<Cpu>| {
        if !is_grad_enabled() {
            passes.set(passes.get() + 1);
            if stop_at == Some(passes.get()) {
                stop.request();
            }
        }
        step(model, batch)
    };
    let valid = loader(images(12, 1), 4, false, 0);
    let mut model = net(&cpu);
    let report = trainer
        .fit(&mut model, &mut Sgd::new(0.1), closure, &data(), Some(&valid))
        .unwrap();
    let averaged = std::fs::read(folder.join(RunFolder::AVERAGED)).unwrap_or_default();
    let valid = report.history.epochs().iter().map(|epoch| epoch.valid.clone());
    (report.end, bytes(&model), averaged, valid.collect())
}

const SWA: Average = Average::Swa { from: 0, every: 2 };
const EMA: Average = Average::Ema { decay: 0.5 };

#[test]
fn the_statistics_of_averaged_weights_are_means_over_the_batches() {
    let (cpu, parent) = (Cpu::new(), tempfile::tempdir().unwrap());
    let (_, plain, ..) = run(&parent.path().join("plain"), false, None, None, None);
    for (i, (average, update_bn, anew)) in [
        (SWA, None, true),
        (SWA, Some(false), false),
        (EMA, None, false),
        (EMA, Some(true), true),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = parent.path().join(i.to_string());
        let (_, weights, _, valid) = run(&folder, false, Some(average), update_bn, None);
        // The run itself is the one without averages, its counters of random layers included.
        assert!(weights == plain, "{average} {update_bn:?}");
        let path = folder.join(RunFolder::AVERAGED);
        let (averaged, _) = read(&path, &cpu).unwrap();
        let (found, expected) = (statistics(&averaged), expected(&averaged, 1));
        assert_eq!(
            is_near(&found, &expected),
            anew,
            "{average} {update_bn:?}: {found:?} {expected:?}"
        );
        let mut model = net(&cpu);
        model.load(&path, LoadOptions::strict()).unwrap();
        let measured = evaluate(&cpu, &mut model, &step, &loader(images(12, 1), 4, false, 0), &mut []).unwrap();
        assert_eq!(valid[1].as_ref(), Some(&measured.values));
    }
}

#[test]
fn a_pass_that_is_stopped_is_made_again_when_the_run_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let whole = run(&parent.path().join("whole"), false, Some(SWA), None, None);
    // In the first pass, and in the second, behind five batches of statistics and three of validation.
    for stop in [3, 10] {
        let folder = parent.path().join(stop.to_string());
        let stopped = run(&folder, false, Some(SWA), None, Some(stop));
        assert_eq!((stopped.0, stopped.3.len()), (End::Stopped, usize::from(stop > 8)));
        assert!(run(&folder, true, Some(SWA), None, None) == whole, "{stop}");
    }
}

#[test]
fn weights_of_a_users_own_get_statistics_too() {
    let cpu = Cpu::new();
    let mut model = net(&cpu);
    assert!(update_bn(&cpu, &mut model, &step, &data()).unwrap());
    let own = model.state_dict();
    assert!(is_near(&statistics(&own), &expected(&own, 0)));
    let init = &mut Init::new(&cpu, 0);
    let mut without = Sequential::new()
        .push(Flatten::default())
        .push(Linear::new(init, 64, 4).unwrap());
    assert!(!update_bn(&cpu, &mut without, &step, &data()).unwrap());
}
