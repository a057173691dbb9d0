//! The suites of testkit: every op of the public interface.

kiln_testkit::suites!(crate::cuda());

use kiln_core::ops::Op;
use kiln_core::{DType, Runtime};

/// All ops have kernels but the one that is composed of others.
#[test]
fn all_but_one_are_fused() {
    let cuda = crate::cuda();
    for &op in Op::PRIMITIVES.iter().chain(Op::FUSED) {
        assert_eq!(cuda.supports(op, DType::F32), op != Op::ConvMaxPool, "{op:?}");
    }
}
