//! A convolution with its pooling: no kernel fuses them yet, so they are two ops.

use crate::Cuda;
use kiln_core::ops::ConvPoolOps;

impl ConvPoolOps for Cuda {}
