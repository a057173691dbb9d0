//! Every op of the public interface on a backend that has only the primitives; `kiln-nn` composes the rest.

kiln_testkit::suites!(kiln_testkit::Reference);

use kiln_core::ops::Op;
use kiln_core::{DType, Error, Runtime};
use kiln_testkit::Reference;

#[test]
fn primitives_are_enough() {
    assert!(Op::PRIMITIVES.iter().all(|&op| Reference.supports(op, DType::F32)));
    assert!(Op::FUSED.iter().all(|&op| !Reference.supports(op, DType::F32)));
    assert!(Op::PRIMITIVES.len() <= 25, "{}", Op::PRIMITIVES.len());
}

/// A call of an op that a backend does not have is an error with the op's name.
#[test]
fn a_missing_op_says_so() {
    use kiln_core::ops::{SoftmaxOps, SoftmaxParams};
    let p = SoftmaxParams::new("softmax", &kiln_core::Shape::new(&[2, 3]).unwrap(), -1, false).unwrap();
    let (x, mut y) = (
        Reference.upload(&[0f32; 6]).unwrap(),
        Reference.upload(&[0f32; 6]).unwrap(),
    );
    let e = Reference.softmax(&p, &x, &mut y).unwrap_err();
    let (op, device) = ("softmax", "reference".to_string());
    assert_eq!(e, Error::UnsupportedOp { op, device });
    assert_eq!(e.to_string(), "softmax: reference has no such op");
}
