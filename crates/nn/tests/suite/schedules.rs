//! Schedules against PyTorch; the golden values come from `../golden/optimizers.py`.

use kiln_cpu::Cpu;
use kiln_nn::optim::{ReduceOnPlateau, Schedule, Sgd};
use kiln_nn::{Error, Optimizer};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/optimizers.json")).unwrap()
}

fn floats(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance, "{what}[{i}]: {g}, expected {w}");
    }
}

#[test]
fn schedules_equal_pytorch() {
    let golden = golden();
    let lr = 0.1;
    let cosine = |steps| Schedule::Cosine { lr, min: 0.001, steps };
    let restarts = |min, steps, factor| Schedule::CosineRestarts { lr, min, steps, factor };
    let warm = |start, steps, then| Schedule::Warmup {
        start,
        steps,
        then: Box::new(then),
    };
    let early = Schedule::OneCycle {
        max: 0.3,
        steps: 41,
        up: 0.1,
        start_divisor: 10.0,
        end_divisor: 100.0,
    };
    let cases = [
        ("constant", Schedule::Constant { lr }),
        (
            "step",
            Schedule::Step {
                lr,
                every: 7,
                gamma: 0.5,
            },
        ),
        (
            "multi_step",
            Schedule::MultiStep {
                lr,
                milestones: vec![3, 9, 30],
                gamma: 0.3,
            },
        ),
        ("exponential", Schedule::Exponential { lr, gamma: 0.9 }),
        (
            "polynomial",
            Schedule::Polynomial {
                lr,
                steps: 12,
                power: 2.0,
            },
        ),
        (
            "inverse",
            Schedule::function(move |step| lr / (1.0 + 0.1 * step as f64)),
        ),
        (
            "cosine",
            Schedule::Cosine {
                lr,
                min: 0.01,
                steps: 25,
            },
        ),
        ("cosine_restarts", restarts(0.01, 5, 2)),
        ("cosine_restarts_even", restarts(0.0, 6, 1)),
        ("one_cycle", Schedule::one_cycle(0.1, 41)),
        ("one_cycle_early", early),
        ("warm_up", warm(0.25, 8, Schedule::Constant { lr })),
        ("warm_cosine", warm(0.2, 5, cosine(30))),
    ];
    let all = golden["schedules"].as_object().unwrap();
    assert_eq!(all.len(), cases.len());
    for (name, schedule) in cases {
        schedule.check().unwrap();
        let want = floats(&all[name]);
        let got: Vec<f64> = (0..want.len() as u64).map(|s| schedule.lr(s)).collect();
        close(&got, &want, 1e-12, name);
    }
}

#[test]
fn schedules_refuse_nonsense_and_survive_any_step() {
    let bad = [
        Schedule::Constant { lr: f64::NAN },
        Schedule::Step {
            lr: 0.1,
            every: 0,
            gamma: 0.5,
        },
        Schedule::Cosine {
            lr: 0.1,
            min: 0.0,
            steps: 0,
        },
        Schedule::CosineRestarts {
            lr: 0.1,
            min: 0.0,
            steps: 5,
            factor: 0,
        },
        Schedule::OneCycle {
            max: 0.1,
            steps: 10,
            up: 1.5,
            start_divisor: 25.0,
            end_divisor: 1e4,
        },
        Schedule::one_cycle(0.1, 0),
        Schedule::Constant { lr: -1.0 }.warmed_up(5),
    ];
    for schedule in bad {
        let refused = schedule.check().unwrap_err();
        assert!(
            matches!(refused, Error::InvalidArgument { op: "schedule", .. }),
            "{schedule:?}: {refused}"
        );
        for step in [0, 1, u64::MAX] {
            let _ = schedule.lr(step);
        }
    }
    let mut sgd: Sgd<Cpu> = Sgd::new(1.0);
    Schedule::Exponential { lr: 0.5, gamma: 0.5 }
        .apply(2, &mut sgd)
        .unwrap();
    assert_eq!(sgd.lr(), 0.125);
}

#[test]
fn plateaus_equal_pytorch() {
    let golden = golden();
    let plain = ReduceOnPlateau {
        patience: 2,
        ..Default::default()
    };
    let cooled = ReduceOnPlateau {
        patience: 1,
        factor: 0.5,
        cooldown: 2,
        threshold: 0.01,
        min_lr: 0.03,
        ..Default::default()
    };
    let maximal = ReduceOnPlateau {
        patience: 1,
        maximize: true,
        absolute: true,
        threshold: 0.05,
        ..Default::default()
    };
    for (mut plateau, case) in [plain, cooled, maximal]
        .into_iter()
        .zip(golden["plateau"].as_array().unwrap())
    {
        let mut lr = 0.1;
        let mut got = Vec::new();
        for (i, metric) in floats(&case["metrics"]).into_iter().enumerate() {
            if i == 4 {
                // The state is saved and restored in the middle.
                let state = std::mem::take(&mut plateau.state);
                plateau = ReduceOnPlateau {
                    state,
                    ..plateau.clone()
                };
            }
            lr = plateau.observe(metric, lr).unwrap();
            got.push(lr);
        }
        close(&got, &floats(&case["rates"]), 1e-12, &format!("{plateau:?}"));
    }
    let mut bad = ReduceOnPlateau {
        factor: 1.0,
        ..Default::default()
    };
    assert!(bad.observe(1.0, 0.1).is_err());
}
