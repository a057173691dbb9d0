//! Every op of the public interface on the CPU backend, with poisoned buffers.

kiln_testkit::suites!(kiln_cpu::Cpu::poisoned());

use kiln_core::ops::Op;
use kiln_core::{DType, Runtime};
use kiln_cpu::Cpu;

/// The CPU has all fused ops.
#[test]
fn all_is_fused() {
    let cpu = Cpu::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        for &op in Op::FUSED.iter().chain(Op::PRIMITIVES) {
            assert!(cpu.supports(op, dtype), "{op:?} in {dtype}");
        }
    }
}
