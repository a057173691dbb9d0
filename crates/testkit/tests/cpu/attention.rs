use kiln_cpu::Cpu;
use kiln_testkit::ops::attention;

#[test]
fn self_attention() {
    attention::self_attention(&Cpu::poisoned());
}

#[test]
fn refused() {
    attention::refused(&Cpu::poisoned());
}
