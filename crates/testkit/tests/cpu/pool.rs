use kiln_cpu::Cpu;
use kiln_testkit::ops::pool;

#[test]
fn max_pool() {
    pool::max_pool(&Cpu::poisoned());
}

#[test]
fn avg_pool() {
    pool::avg_pool(&Cpu::poisoned());
}

#[test]
fn adaptive_avg_pool() {
    pool::adaptive_avg_pool(&Cpu::poisoned());
}

#[test]
fn ties_and_nan() {
    pool::ties_and_nan(&Cpu::poisoned());
}

#[test]
fn refused() {
    pool::refused(&Cpu::poisoned());
}
