//! Every op of the CUDA backend, by the kernels that a GPU runs, on the emulated driver or on the one that
//! `KILN_CUDA_DRIVER` names.

mod attention;
mod both;
mod checkpointed;
mod checks;
mod compute_capability_9;
mod control;
mod conv;
mod conv_moments;
mod conv_norm;
mod conv_pool;
#[allow(dead_code)]
#[path = "../../examples/cuda_graph.rs"]
mod cuda_graph;
mod elementwise;
mod halves;
mod index;
mod loss;
mod matmul;
mod misfit;
mod norm;
mod optim;
mod out_of_memory;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod resident;
mod residual;
mod resume;
mod runtime;
mod softmax;
mod step;
mod suites;
mod twin;

use kiln_cuda::{Cuda, Options};

/// A device whose buffers are poisoned and as long as the driver's allocations, and whose errors name their op. Under a
/// checker, which tracks memory that was never written, there is no poison: it would count as a write.
pub(crate) fn cuda() -> Cuda {
    let checked = ["KILN_EMULATOR_CHECK", "KILN_SANITIZER"];
    with(Options {
        blocking: true,
        poison: checked.iter().all(|name| std::env::var_os(name).is_none()),
        exact: true,
        ..Options::default()
    })
}

/// A device with other options.
pub(crate) fn with(options: Options) -> Cuda {
    kiln_device::emulator::use_beside().unwrap_or_else(|e| panic!("{e}"));
    Cuda::with_options(0, options).unwrap_or_else(|e| panic!("{e}"))
}

/// True if the device's tensor cores take products of warp groups.
pub(crate) fn has_warp_groups(cuda: &Cuda) -> bool {
    cuda.context().info().compute_capability == (9, 0)
}

/// True in `cargo xtask test --full`, where tests leave nothing out for the sake of time.
pub(crate) fn full() -> bool {
    std::env::var_os("KILN_TEST_FULL").is_some()
}
