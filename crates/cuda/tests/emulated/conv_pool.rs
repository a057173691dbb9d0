//! A convolution and its pooling as the two ops: testkit's suites.

use crate::cuda;
use kiln_testkit::ops::conv_pool;

#[test]
fn conv_max_pool() {
    conv_pool::conv_max_pool(&cuda());
}

#[test]
fn as_two_ops() {
    conv_pool::as_two_ops(&cuda());
}

#[test]
fn refused() {
    conv_pool::refused(&cuda());
}
