//! Repeated steps take no new memory from the system.
//!
//! The tests count the blocks of the backend's allocator, which hold every tensor (values, gradients, optimizer state) and
//! the scratch memory of ops. There are as many scratch buffers as were ever in use at the same time, so the count is exact
//! on one thread, and for networks whose ops are too small to be split. Memory of the host is not counted: the nodes of the
//! graph, lists of gradients, the panels that the matrix product packs into, the loader's batches.

use crate::common::{Net, digits, images, loader, mnist_cnn, step};
use kiln_core::Runtime;
use kiln_cpu::Cpu;
use kiln_data::Loader;
use kiln_nn::optim::Adam;
use kiln_nn::{Layer, Module};
use kiln_train::{Accuracy, Callback, Flow, StepInfo, TrainOptions, Trainer};
use std::sync::{Arc, Mutex};

/// A callback that records the epoch, the batch and the number of blocks taken from the system so far, after each batch.
struct Allocations(Cpu, Arc<Mutex<Vec<(u64, u64, u64)>>>);

impl Callback for Allocations {
    fn on_step(&mut self, info: &StepInfo) -> kiln_train::Result<Flow> {
        let taken = self.0.memory().allocations;
        self.1.lock().unwrap().push((info.epoch, info.batch, taken));
        Ok(Flow::Continue)
    }
}

/// The records of [`Allocations`] of a run.
fn counts<M: Module<Cpu> + Layer<Cpu>>(
    model: impl Fn(&Cpu) -> M,
    data: &Loader,
    epochs: u64,
    valid: Option<&Loader>,
    find_non_finite: bool,
) -> Vec<(u64, u64, u64)> {
    let (cpu, seen) = (Cpu::new(), Arc::default());
    let options = TrainOptions {
        epochs,
        log_every: 3,
        find_non_finite,
        ..Default::default()
    };
    Trainer::new(&cpu, options)
        .metric(Accuracy::new())
        .callback(Allocations(cpu.clone(), Arc::clone(&seen)))
        .fit(&mut model(&cpu), &mut Adam::new(1e-3), step, data, valid)
        .unwrap();
    seen.lock().unwrap().clone()
}

#[test]
fn a_steady_state_allocates_nothing() {
    let run = |samples, valid| {
        let data = loader(images(samples, 0), 16, true, 0);
        counts(|cpu| Net::with_dropout(cpu, 0, 0.2), &data, 5, valid, false)
    };
    let seen = run(96, None);
    let warm = seen[5].2;
    assert!(warm > 0 && seen.len() == 5 * 6);
    assert!(seen[6..].iter().all(|s| s.2 == warm), "{seen:?}");

    // A short last batch and a validation of another size may evict each other's blocks from the cache at the edges of an
    // epoch; the steps between allocate nothing.
    let seen = run(100, Some(&loader(images(20, 1), 10, false, 0)));
    let taken = |epoch, batch| seen.iter().find(|s| (s.0, s.1) == (epoch, batch)).unwrap().2;
    for epoch in 2..=5 {
        assert_eq!(taken(epoch, 3), taken(epoch, 6), "{seen:?}");
    }
}

/// The state that a run keeps to go back to lies in memory that is taken once: as many blocks as it has tensors, and when it is kept again,
/// those of the time before.
#[test]
fn the_state_that_is_kept_takes_its_memory_once() {
    let data = loader(images(96, 0), 16, true, 0);
    let seen = counts(|cpu| Net::with_dropout(cpu, 0, 0.2), &data, 60, None, true);
    // Four parameters with two moments and a count each, a counter, a sum.
    let state = 4 * 4 + 2;
    let (first, last) = (seen[5].2, seen.last().unwrap().2);
    assert!(last - first <= 2 * state, "{first} to {last}");
}

/// The number of blocks taken so far after each of 32 steps of `mnist_cnn`.
fn of_the_digits_net(threads: usize) -> Vec<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let seen = pool.install(|| counts(|cpu| mnist_cnn(cpu, 0), &loader(digits(32), 8, true, 0), 8, None, false));
    seen.into_iter().map(|s| s.2).collect()
}

#[test]
fn a_steady_state_of_the_digits_net_allocates_nothing_beyond_what_threads_work_in() {
    let one = of_the_digits_net(1);
    let warm = one[3];
    assert!(warm > 0 && one.len() == 32);
    assert!(one[4..].iter().all(|&n| n == warm), "{one:?}");

    // Chunks that run at the same time hold a block each, and their timing changes from step to step, so the count rises slowly
    // to a bound; two new blocks per step would exceed the limit here.
    let four = of_the_digits_net(4);
    assert!(four[31] - four[3] < 2 * 28, "{four:?}");
}
