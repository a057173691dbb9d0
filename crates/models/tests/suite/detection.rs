//! Networks that find objects, through the interface of the table.

use kiln_core::DType;
use kiln_cpu::Cpu;
use kiln_data::LoaderOptions;
use kiln_models::{Batches, Model, OptimizerOptions, OutputKind, Update};
use kiln_nn::{Module, Tensor};
use kiln_train::MeanAveragePrecision;

fn detectors() -> impl Iterator<Item = Model> {
    Model::ALL
        .into_iter()
        .filter(|model| matches!(model.card().output, OutputKind::Boxes(_)))
}

#[test]
fn every_detector_has_the_parameters_that_its_row_says() {
    assert!(detectors().count() >= 6);
    let built = |model: Model| (model, model.build(&Cpu::new(), 0).unwrap().num_parameters());
    let said = |model: Model| (model, model.card().parameters);
    assert_eq!(
        detectors().map(built).collect::<Vec<_>>(),
        detectors().map(said).collect::<Vec<_>>()
    );
}

/// A step of training, an evaluation, and an answer, for images with made-up objects.
#[test]
fn small_detectors_are_trained_measured_and_asked() {
    let cpu = Cpu::new();
    for model in detectors().filter(|model| model.card().parameters < 5_000_000 && model.input().shape[0] <= 160) {
        let mut steps = model.steps(&cpu, 0, 2).unwrap();
        let mut updates: Vec<Update<Cpu>> = vec![Update {
            optimizer: OptimizerOptions {
                lr: 1e-3,
                ..model.recipe().optimizer
            }
            .build(),
            schedule: None,
            every: 1,
        }];
        let mut step = || steps.train(&mut updates, &|_, part| part()).unwrap()[0].item().unwrap();
        let (first, mut last) = (step(), 0.0);
        for _ in 0..3 {
            last = step();
        }
        assert!(first.is_finite() && last < first, "{model}: {first} to {last}");

        let mut net = model.build(&cpu, 0).unwrap();
        let batches = Batches {
            dataset: model.input().samples(3, model.outputs(), 1).unwrap(),
            options: LoaderOptions {
                batch_size: 2,
                ..Default::default()
            },
            transform: model.transform(None).unwrap(),
        };
        let mut map = MeanAveragePrecision::corners();
        let found = net.evaluate(&cpu, batches, &mut [&mut map]).unwrap();
        let values = found.values;
        assert!(
            values["loss"].is_finite() && (0.0..=1.0).contains(&values["map"]),
            "{model}"
        );
        net.eval();
        let [h, w, c] = model.input().image().unwrap();
        let images = Tensor::zeros(&cpu, &[2, h, w, c], DType::F32).unwrap();
        let found = net.detect(&images).unwrap().unwrap();
        assert_eq!(found.len(), 2, "{model}");
        for found in found {
            assert!(found.scores.is_sorted_by(|a, b| a >= b), "{model}");
            let inside = |edge: &f32| (0.0..=h as f32).contains(edge);
            assert!(found.boxes.iter().all(|b| b.iter().all(inside)), "{model}");
        }
        assert!(net.classify(&images).is_none(), "{model}");
    }
}
