use kiln_cpu::Cpu;
use kiln_testkit::ops::softmax;

#[test]
fn softmax() {
    softmax::softmax(&Cpu::poisoned());
}

#[test]
fn refused() {
    softmax::refused(&Cpu::poisoned());
}
