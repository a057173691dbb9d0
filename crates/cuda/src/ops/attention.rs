//! Attention: composed of products, softmax and copies, as core defines it. There is no kernel that fuses them yet.

use crate::Cuda;
use kiln_core::ops::AttentionOps;

impl AttentionOps for Cuda {}
