use kiln_cpu::Cpu;
use kiln_testkit::ops::norm;

#[test]
fn batch_norm() {
    norm::batch_norm(&Cpu::poisoned());
}

#[test]
fn batch_norm_eval() {
    norm::batch_norm_eval(&Cpu::poisoned());
}

#[test]
fn layer_norm() {
    norm::layer_norm(&Cpu::poisoned());
}

#[test]
fn rms_norm() {
    norm::rms_norm(&Cpu::poisoned());
}

#[test]
fn group_norm() {
    norm::group_norm(&Cpu::poisoned());
}

#[test]
fn instance_norm() {
    norm::instance_norm(&Cpu::poisoned());
}

#[test]
fn refused() {
    norm::refused(&Cpu::poisoned());
}
