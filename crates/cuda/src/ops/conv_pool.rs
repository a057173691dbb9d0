//! A convolution and its pooling: the two ops, as core defines it. There is no kernel that fuses them yet.

use crate::Cuda;
use kiln_core::ops::ConvPoolOps;

impl ConvPoolOps for Cuda {}
