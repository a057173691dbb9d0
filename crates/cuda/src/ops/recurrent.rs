//! Recurrent layers, which are composed of other ops here.

use crate::Cuda;
use kiln_core::ops::RecurrentOps;

impl RecurrentOps for Cuda {}
