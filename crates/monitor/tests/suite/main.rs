//! The machine of a run, and NVIDIA's management library.

mod nvml;
mod run;
