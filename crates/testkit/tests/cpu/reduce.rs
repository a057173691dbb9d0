use kiln_cpu::Cpu;
use kiln_testkit::ops::reduce;

#[test]
fn sum_and_mean() {
    reduce::sum_and_mean(&Cpu::poisoned());
}

#[test]
fn extremes() {
    reduce::extremes(&Cpu::poisoned());
}

#[test]
fn var_and_std() {
    reduce::var_and_std(&Cpu::poisoned());
}

#[test]
fn norms() {
    reduce::norms(&Cpu::poisoned());
}

#[test]
fn along_one_axis() {
    reduce::along_one_axis(&Cpu::poisoned());
}

#[test]
fn ties_and_limits() {
    reduce::ties_and_limits(&Cpu::poisoned());
}

#[test]
fn refused() {
    reduce::refused(&Cpu::poisoned());
}
