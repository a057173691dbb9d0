//! The algorithms of a convolution with its pooling: which of them compute a case, and the choice among them.

use super::split::{BatchSplit, has_relu_or_none};
use crate::Cpu;
use crate::conv::plan::{Algorithm, choose};
use crate::conv::planar;
use crate::fused_pool::forward::PooledConv;
use crate::ops::pool::is_2x2_stride2;
use crate::scalar::Scalar;
use kiln_core::ops::{ConvPass, ConvPoolParams};

pub(super) const REGISTERS: &str = "pooled in registers";
pub(super) const PLANAR: &str = "pooled planar";
pub(super) const CACHE: &str = "pooled in cache";
pub(super) const ARGMAX: &str = "argmax gradient";
pub(super) const SEPARATE: &str = "two ops";

/// The names of all algorithms. The argmax gradient has no forward pass, the planar one no gradient.
pub(crate) const NAMES: &[&str] = &[REGISTERS, PLANAR, CACHE, ARGMAX, SEPARATE];

/// The algorithm that the device was asked for, if it is one of these.
pub(super) fn preferred(cpu: &Cpu) -> Option<&'static str> {
    cpu.preferred_algorithm().filter(|name| NAMES.contains(name))
}

/// The algorithm of a forward pass.
pub(super) enum Forward<A: 'static> {
    /// The results of a window stay in registers until the largest is known.
    Registers(Box<PooledConv<A>>),
    /// The results of a channel's lines are pooled in pairs of lines.
    Planar,
    /// The results of a few images stay in cache, where they are pooled.
    Cache,
    /// A convolution of all images, then the pooling.
    Separate,
}

impl<A: Scalar> Forward<A> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Forward::Registers(_) => REGISTERS,
            Forward::Planar => PLANAR,
            Forward::Cache => CACHE,
            Forward::Separate => SEPARATE,
        }
    }

    /// The preferred algorithm if it computes this case, else the one estimated to be the fastest.
    pub(super) fn choose(cpu: &Cpu, p: &ConvPoolParams, parts: &BatchSplit) -> Self {
        let preferred = preferred(cpu).and_then(|name| Self::named(name, p, parts));
        preferred.unwrap_or_else(|| {
            let conv = &parts.conv;
            if !parts.is_profitable(cpu) {
                return Forward::Separate;
            }
            let registers = PooledConv::<A>::is_profitable(conv).then(|| Self::named(REGISTERS, p, parts));
            let in_planes = || {
                matches!(
                    choose::<A>(ConvPass::Forward, conv, A::DTYPE, true, None),
                    Algorithm::Planar
                )
            };
            let planar = || in_planes().then(|| Self::named(PLANAR, p, parts)).flatten();
            registers.flatten().or_else(planar).unwrap_or(Forward::Cache)
        })
    }

    /// The algorithm of a name; `None` if it cannot compute the case.
    fn named(name: &str, p: &ConvPoolParams, parts: &BatchSplit) -> Option<Self> {
        let windows = has_relu_or_none(p) && is_2x2_stride2(&parts.pool);
        match name {
            REGISTERS if windows => {
                PooledConv::new(&parts.conv, &parts.pool).map(|pooled| Forward::Registers(Box::new(pooled)))
            }
            PLANAR if windows => planar::is_supported(&parts.conv).then_some(Forward::Planar),
            CACHE if parts.conv.batch > 0 => Some(Forward::Cache),
            SEPARATE => Some(Forward::Separate),
            _ => None,
        }
    }
}
