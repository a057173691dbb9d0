use kiln_cpu::Cpu;
use kiln_testkit::ops::elementwise;

#[test]
fn add() {
    elementwise::add(&Cpu::poisoned());
}
