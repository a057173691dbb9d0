//! Checks that ops give correct values and gradients on every backend.
//!
//! A [`Case`] is one call of a public op: its inputs as f64 arrays, the call itself on any backend, and a simple f64
//! oracle. [`check`] runs a proptest strategy of cases through every check that the backend supports: forward values are
//! compared with the oracle, gradients and gradients of gradients with central differences, and all dtypes within bounds
//! derived from rounding. [`conformance`] compares two backends on one case.

pub mod array;
mod bounded;
mod case;
mod compare;
mod conformance;
pub mod detection;
pub mod golden;
mod gradcheck;
mod half_gradients;
pub mod halves;
mod layout;
pub mod misfit;
pub mod ops;
mod reference;
mod refused;
mod run;
pub mod shapes;
mod slopes;
mod suites;

pub use array::Array;
pub use case::{Case, Proof};
pub use compare::{Rounding, accepts, assert_close};
pub use conformance::conformance;
pub use gradcheck::{gradcheck, gradcheck_by_oracle, gradgradcheck, gradgradcheck_by_oracle};
pub use half_gradients::half_gradcheck;
pub use layout::layouts;
pub use reference::{Reference, ReferenceBuffer};
pub use run::{check, check_with};
pub use suites::SUITES;
