use kiln_cpu::Cpu;
use kiln_testkit::ops::matmul;

#[test]
fn matmul() {
    matmul::matmul(&Cpu::poisoned());
}

#[test]
fn matmul_vectors() {
    matmul::matmul_vectors(&Cpu::poisoned());
}

#[test]
fn linear() {
    matmul::linear(&Cpu::poisoned());
}

#[test]
fn fused_activations() {
    matmul::fused_activations(&Cpu::poisoned());
}

#[test]
fn refused() {
    matmul::refused(&Cpu::poisoned());
}
