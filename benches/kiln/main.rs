//! Criterion benches of ops: `cargo bench -p kiln-benches`, or `cargo xtask bench` for a comparison with the peers.

mod attention;
mod conv;
mod conv_pool;
mod gemm;
mod loss;
mod norm;
mod optim;
mod pool;
mod recurrent;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_main};
use kiln_core::Result;

/// Runs one bench, and panics if the op fails, so that an error is not measured as a fast op.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, id: impl Into<String>, mut work: impl FnMut() -> Result<()>) {
    let id = id.into();
    group.bench_function(&id, |bench| {
        bench.iter(|| {
            if let Err(e) = work() {
                panic!("{id}: {e}");
            }
        });
    });
}

/// Runs one family of benches; an error in the set-up ends the run.
fn family(c: &mut Criterion, name: &str, run: fn(&mut Criterion) -> Result<()>) {
    if let Err(e) = run(c) {
        eprintln!("{name}: {e}");
        std::process::exit(1);
    }
}

fn all() {
    let mut c = Criterion::default().configure_from_args();
    family(&mut c, "gemm", gemm::run);
    family(&mut c, "conv", conv::run);
    family(&mut c, "conv_pool", conv_pool::run);
    family(&mut c, "pool", pool::run);
    family(&mut c, "norm", norm::run);
    family(&mut c, "loss", loss::run);
    family(&mut c, "attention", attention::run);
    family(&mut c, "recurrent", recurrent::run);
    family(&mut c, "optim", optim::run);
    c.final_summary();
}

criterion_main!(all);
