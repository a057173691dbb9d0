//! Averages of the weights over the steps of a run.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::module::StateDict;
use kiln_nn::optim::{AveragedModel, Sgd};
use kiln_nn::weights::{Metadata, encode};
use kiln_nn::{LoadOptions, Module, Optimizer};
use kiln_train::{Accuracy, Average, RunFolder, TrainError, TrainOptions, Trainer, evaluate};

/// The averaged weights are those of a loop by hand; they are validated and saved as the best, and the model keeps its own.
#[test]
fn averaged_weights_are_validated_and_saved() {
    let cpu = Cpu::new();
    for average in [Average::Ema { decay: 0.75 }, Average::Swa { from: 2, every: 3 }] {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path().join("run")).unwrap();
        let (train, valid) = (loader(images(24, 0), 3, true, 5), loader(images(16, 1), 8, false, 0));
        let options = TrainOptions {
            epochs: 2,
            average: Some(average),
            ..Default::default()
        };
        let mut model = Net::new(&cpu, 1);
        let mut trainer = Trainer::new(&cpu, options)
            .metric(Accuracy::new())
            .folder(folder.clone());
        let report = trainer
            .fit(&mut model, &mut Sgd::new(0.5), step, &train, Some(&valid))
            .unwrap();

        let mut own = Net::new(&cpu, 1);
        let mut sgd = Sgd::new(0.5);
        let mut averaged = match average {
            Average::Ema { decay } => AveragedModel::ema(&own, decay),
            Average::Swa { .. } => AveragedModel::swa(&own),
        }
        .unwrap();
        let mut steps = 0;
        for (epoch, record) in report.history.epochs().iter().enumerate() {
            for batch in train.epoch(epoch as u64).unwrap() {
                let batch = batch.unwrap().to_device(&cpu).unwrap();
                let grads = step(&own, &batch).unwrap().loss.backward().unwrap();
                sgd.step(&mut own, &grads).unwrap();
                steps += 1;
                if matches!(average, Average::Ema { .. }) || [3, 6, 9, 12, 15].contains(&steps) {
                    averaged.update(&own).unwrap();
                }
            }
            let mut shown = Net::new(&cpu, 2);
            averaged.copy_to(&mut shown).unwrap();
            let measured = evaluate(&cpu, &mut shown, &step, &valid, &mut [&mut Accuracy::new()]).unwrap();
            assert_eq!(record.valid.as_ref(), Some(&measured.values), "{average}");
        }
        assert!(bytes(&model) == bytes(&own), "{average}");
        let file = std::fs::read(folder.file(RunFolder::AVERAGED)).unwrap();
        assert!(
            file == encode(&averaged.state_dict(), &Metadata::new()).unwrap(),
            "{average}"
        );
        let last = std::fs::read(folder.file(RunFolder::LAST)).unwrap();
        assert!(last != file);
        if report.best().is_some_and(|best| best.epoch == 2) {
            assert!(std::fs::read(folder.file(RunFolder::BEST)).unwrap() == file);
        }
        let mut read = Net::new(&cpu, 3);
        read.load(&folder.file(RunFolder::BEST), LoadOptions::strict()).unwrap();
        let best: StateDict<Cpu> = StateDict::of(&read);
        assert_eq!(best.len(), averaged.state_dict().len());
    }
}

#[test]
fn options_of_averages_are_checked() {
    let cpu = Cpu::new();
    let data = loader(images(4, 0), 4, false, 0);
    for average in [
        Average::Ema { decay: 1.5 },
        Average::Ema { decay: f64::NAN },
        Average::Swa { from: 0, every: 0 },
    ] {
        let options = TrainOptions {
            average: Some(average),
            ..Default::default()
        };
        let error = Trainer::new(&cpu, options).fit(&mut Net::new(&cpu, 0), &mut Sgd::new(0.1), step, &data, None);
        assert!(matches!(error, Err(TrainError::InvalidArgument { .. })), "{average}");
    }
}
