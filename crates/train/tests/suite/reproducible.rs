//! Equal seeds give equal bits.

use crate::common::{Net, bytes, digits, images, loader, mnist_cnn, step};
use kiln_cpu::Cpu;
use kiln_data::Loader;
use kiln_nn::optim::Adam;
use kiln_nn::{Layer, Module};
use kiln_train::{Accuracy, TrainOptions, Trainer};

/// The bytes of the model after this many steps, on a pool of this many threads; `None` for the global pool.
fn trained<M: Module<Cpu> + Layer<Cpu>>(
    model: impl Fn(&Cpu) -> M + Sync,
    data: &Loader,
    steps: u64,
    threads: Option<usize>,
) -> Vec<u8> {
    let run = || {
        let cpu = Cpu::new();
        let mut model = model(&cpu);
        let options = TrainOptions {
            epochs: steps / data.batches() as u64,
            ..Default::default()
        };
        let report = Trainer::new(&cpu, options)
            .metric(Accuracy::new())
            .fit(&mut model, &mut Adam::new(1e-3), step, data, None)
            .unwrap();
        assert_eq!(report.steps, steps);
        bytes(&model)
    };
    match threads {
        Some(n) => rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap()
            .install(run),
        None => run(),
    }
}

#[test]
fn weights_are_the_same_bits_in_every_run_at_any_number_of_threads_and_workers() {
    let run = |seed, threads, workers| {
        let data = loader(images(1600, 0), 32, true, workers);
        trained(|cpu| Net::with_dropout(cpu, seed, 0.25), &data, 200, threads)
    };
    let one = run(0, Some(1), 0);
    for threads in [Some(1), Some(2), Some(4), None] {
        for (nth, workers) in [0, 2, 1, 0, 3].into_iter().enumerate() {
            assert!(
                run(0, threads, workers) == one,
                "{threads:?} threads, {workers} workers, run {nth}"
            );
        }
    }
    assert!(run(1, Some(1), 0) != one, "another seed");
}

/// The ops of this network, unlike those of the small one, are large enough for the backend to divide them among threads.
#[test]
fn a_net_that_is_split_among_threads_has_the_same_bits() {
    let run = |threads| trained(|cpu| mnist_cnn(cpu, 0), &loader(digits(96), 16, true, 1), 12, threads);
    let one = run(Some(1));
    for threads in [Some(2), Some(3), Some(4), None] {
        for nth in 0..2 {
            assert!(run(threads) == one, "{threads:?} threads, run {nth}");
        }
    }
}
