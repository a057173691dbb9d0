//! Attention: no kernel fuses it yet, so it is composed of other ops above.

use crate::Cuda;
use kiln_core::ops::AttentionOps;

impl AttentionOps for Cuda {}
