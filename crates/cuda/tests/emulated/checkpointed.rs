//! Steps with layers that are computed again for their gradients, and with norms of gradients: recorded, op by op, and without.

use crate::step::{data, digits, run, step};
use crate::with;
use kiln_cuda::Options;
use kiln_nn::DType;
use kiln_nn::optim::Adam;
use kiln_train::{Clip, GradNorm, TrainOptions};

/// A recorded step with a batch norm and dropouts that are computed again is the step without: the same random numbers, running
/// statistics that move once, and the same norms of gradients.
#[test]
fn layers_that_are_computed_again_are_replayed() {
    let (cuda, data) = (with(Options::default()), data([10, 10, 1]));
    let train = |capture: bool, recompute: &[&str], autocast: Option<DType>| {
        let options = TrainOptions {
            epochs: 2,
            log_every: 3,
            capture,
            autocast,
            clip: Some(Clip::Norm(0.5)),
            recompute: recompute.iter().map(|name| name.parse().unwrap()).collect(),
            grad_norm: GradNorm::Layers,
            ..Default::default()
        };
        run(&cuda, digits(&cuda), Adam::new(1e-2), &data, options, &step)
    };
    for autocast in [None, Some(DType::BF16)] {
        let plain = train(true, &[], autocast);
        assert!(plain.report.history.epochs()[1].train["grad_norm/3"] > 0.0);
        for (capture, made) in [(true, (2, 2, 8)), (false, (12, 0, 0))] {
            let saving = train(capture, &["2", "3", "6", "8", "9"], autocast);
            assert_eq!(plain.bits(), saving.bits(), "{autocast:?} {capture}");
            assert_eq!((saving.made(), saving.report.execution.allocations), (made, 0));
        }
    }
}
