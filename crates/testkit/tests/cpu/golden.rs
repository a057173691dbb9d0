use kiln_cpu::Cpu;
use kiln_testkit::golden;

#[test]
fn pytorch() {
    golden::pytorch(&Cpu::poisoned());
}

#[test]
fn edges() {
    golden::edges(&Cpu::poisoned());
}
