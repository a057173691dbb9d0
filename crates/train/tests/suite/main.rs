//! Training small models through the public interface.

mod common;
mod fit;
mod metrics;
mod non_finite;
mod phases;
mod plateau;
mod reproducible;
mod steady;
mod stopping;
