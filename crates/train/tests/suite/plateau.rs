//! Learning rates that fall when the monitored metric stops improving.

use crate::common::{Net, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::{ReduceOnPlateau, Sgd};
use kiln_nn::{Result, Tensor};
use kiln_train::{Goal, Metric, Monitor, Output, TrainOptions, Trainer};

/// A metric that begins at 1 and changes by a fixed amount with every epoch.
struct Moving {
    value: f64,
    by: f64,
}

impl Metric<Cpu> for Moving {
    fn name(&self) -> String {
        "moving".to_string()
    }

    fn measure(&self, output: &Output<Cpu>) -> Result<Tensor<Cpu>> {
        output.floats("scores")?.sum(&[], false)
    }

    fn value(&mut self, _: &[f64], _: u64) -> f64 {
        self.value += self.by;
        self.value - self.by
    }
}

fn trainer(goal: Goal, by: f64, plateau: ReduceOnPlateau) -> Trainer<Cpu> {
    let options = TrainOptions {
        epochs: 4,
        monitor: Monitor::new("moving", goal),
        ..Default::default()
    };
    Trainer::new(&Cpu::new(), options)
        .metric(Moving { value: 1.0, by })
        .reduce_on_plateau(plateau)
}

/// The learning rate of each epoch.
fn rates(trainer: &mut Trainer<Cpu>) -> Vec<f64> {
    let cpu = Cpu::new();
    let data = loader(images(8, 0), 8, false, 0);
    let report = trainer.fit(&mut Net::new(&cpu, 0), &mut Sgd::new(1.0), step, &data, None);
    report.unwrap().history.epochs().iter().map(|e| e.lr).collect()
}

#[test]
fn the_watch_tells_which_way_is_better() {
    for maximize in [false, true] {
        let plateau = ReduceOnPlateau {
            factor: 0.5,
            patience: 0,
            maximize,
            ..Default::default()
        };
        for (goal, by) in [(Goal::Max, 0.1), (Goal::Min, -0.1)] {
            assert_eq!(rates(&mut trainer(goal, by, plateau.clone())), [1.0; 4], "better");
            assert_eq!(
                rates(&mut trainer(goal, -by, plateau.clone())),
                [1.0, 1.0, 0.5, 0.25],
                "worse"
            );
        }
    }
}

#[test]
fn a_fit_forgets_what_the_last_one_saw() {
    let plateau = ReduceOnPlateau {
        factor: 0.5,
        patience: 2,
        ..Default::default()
    };
    // The metric also rises from one fit to the next, so a best value kept from the last fit would make every epoch a bad one.
    let mut trainer = trainer(Goal::Min, 0.1, plateau);
    for fit in 0..3 {
        assert_eq!(rates(&mut trainer), [1.0; 4], "fit {fit}");
    }
}
