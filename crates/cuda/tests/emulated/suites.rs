//! The suites of testkit: every op of the public interface.

kiln_testkit::suites!(crate::cuda());

use kiln_core::ops::Op;
use kiln_core::{DType, Runtime};

/// All ops have kernels.
#[test]
fn all_are_fused() {
    let cuda = crate::cuda();
    for &op in Op::PRIMITIVES.iter().chain(Op::FUSED) {
        assert!(cuda.supports(op, DType::F32), "{op:?}");
    }
}
