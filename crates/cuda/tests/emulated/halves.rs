use crate::cuda;
use kiln_testkit::halves;

#[test]
fn rounded_once() {
    halves::rounded_once(&cuda());
}

#[test]
fn losses() {
    halves::losses(&cuda());
}

#[test]
fn gradients() {
    halves::gradients(&cuda());
}
