//! Training small models through the public interface.

mod common;
mod fit;
mod metrics;
mod non_finite;
mod plateau;
mod reproducible;
mod steady;
mod stopping;
