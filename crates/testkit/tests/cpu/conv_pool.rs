use kiln_cpu::Cpu;
use kiln_testkit::ops::conv_pool;

#[test]
fn conv_max_pool() {
    conv_pool::conv_max_pool(&Cpu::poisoned());
}

#[test]
fn as_two_ops() {
    conv_pool::as_two_ops(&Cpu::poisoned());
}

#[test]
fn refused() {
    conv_pool::refused(&Cpu::poisoned());
}
