use kiln_cpu::Cpu;
use kiln_testkit::ops::loss;

#[test]
fn cross_entropy() {
    loss::cross_entropy(&Cpu::poisoned());
}

#[test]
fn cross_entropy_from_probabilities() {
    loss::cross_entropy_from_probabilities(&Cpu::poisoned());
}

#[test]
fn nll_loss() {
    loss::nll_loss(&Cpu::poisoned());
}

#[test]
fn pointwise() {
    loss::pointwise(&Cpu::poisoned());
}

#[test]
fn limits() {
    loss::limits(&Cpu::poisoned());
}

#[test]
fn refused() {
    loss::refused(&Cpu::poisoned());
}
