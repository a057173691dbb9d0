//! Training small models through the public interface.

mod average;
mod checkpoints;
mod common;
mod find_lr;
mod fit;
mod metrics;
mod non_finite;
mod phases;
mod plateau;
mod reproducible;
mod resume;
mod steady;
mod stopping;
