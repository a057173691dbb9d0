use kiln_cpu::Cpu;
use kiln_testkit::halves;

#[test]
fn rounded_once() {
    halves::rounded_once(&Cpu::poisoned());
}

#[test]
fn losses() {
    halves::losses(&Cpu::poisoned());
}

#[test]
fn gradients() {
    halves::gradients(&Cpu::poisoned());
}
