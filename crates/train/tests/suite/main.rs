//! Training small models through the public interface.

mod average;
mod capsule;
mod cause;
mod checkpoints;
mod common;
mod detection;
mod edits;
mod f_score;
mod fid;
mod find_lr;
mod fit;
mod golden;
mod metrics;
mod non_finite;
mod phases;
mod plateau;
mod precision;
mod ranking;
mod regression;
mod reproducible;
mod resident;
mod resume;
mod steady;
mod stopping;
mod twin;
