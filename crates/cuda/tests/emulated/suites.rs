//! The suites of testkit: every op of the public interface.

kiln_testkit::suites!(crate::cuda());

use kiln_core::ops::Op;
use kiln_core::{DType, Runtime};

/// All ops have kernels but the two that are composed of others.
#[test]
fn all_but_two_are_fused() {
    let cuda = crate::cuda();
    for &op in Op::PRIMITIVES.iter().chain(Op::FUSED) {
        let composed = [Op::Attention, Op::ConvMaxPool].contains(&op);
        assert_eq!(cuda.supports(op, DType::F32), !composed, "{op:?}");
    }
}
