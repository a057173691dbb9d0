//! Same seed, same bits.

use crate::common::{Net, bytes, images, loader, step};
use kiln_cpu::Cpu;
use kiln_nn::optim::Adam;
use kiln_train::{Accuracy, TrainOptions, Trainer};

/// The weights after 200 steps with dropout, on that many threads and loader workers.
fn trained(seed: u64, threads: usize, workers: usize) -> Vec<u8> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let cpu = Cpu::new();
        let mut model = Net::with_dropout(&cpu, seed, 0.25);
        let options = TrainOptions {
            epochs: 4,
            ..Default::default()
        };
        let report = Trainer::new(&cpu, options)
            .metric(Accuracy::new())
            .fit(
                &mut model,
                &mut Adam::new(1e-3),
                step,
                &loader(images(1600, 0), 32, true, workers),
                None,
            )
            .unwrap();
        assert_eq!(report.steps, 200);
        bytes(&model)
    })
}

#[test]
fn weights_are_the_same_bits_at_any_number_of_threads_and_workers() {
    let one = trained(0, 1, 0);
    for (threads, workers) in [(1, 0), (1, 2), (2, 1), (4, 0), (3, 3)] {
        assert!(
            trained(0, threads, workers) == one,
            "{threads} threads, {workers} workers"
        );
    }
    assert!(trained(1, 1, 0) != one, "another seed");
}
