use crate::cuda;
use kiln_testkit::golden;

#[test]
fn pytorch() {
    golden::pytorch(&cuda());
}

#[test]
fn edges() {
    golden::edges(&cuda());
}
