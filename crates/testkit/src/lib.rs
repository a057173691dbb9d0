//! How anything in Kiln is known to be right.
//!
//! A [`Case`] is one call of a public op: its inputs as f64 arrays, the call itself on any backend, and an obvious f64
//! oracle. [`check`] runs a strategy of cases through every proof that a backend can give: forward against the
//! oracle, gradients against central differences, gradients of gradients likewise, and the low-precision dtypes within
//! a bound derived from their rounding. [`conformance`] compares two backends on one case.

pub mod array;
mod bounded;
mod case;
mod compare;
mod conformance;
pub mod golden;
mod gradcheck;
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
pub use layout::layouts;
pub use reference::{Reference, ReferenceBuffer};
pub use run::{check, check_with};
pub use suites::SUITES;
