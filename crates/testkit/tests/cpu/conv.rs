use kiln_cpu::Cpu;
use kiln_testkit::ops::conv;

#[test]
fn conv() {
    conv::conv(&Cpu::poisoned());
}

#[test]
fn conv_transpose() {
    conv::conv_transpose(&Cpu::poisoned());
}

#[test]
fn refused() {
    conv::refused(&Cpu::poisoned());
}
