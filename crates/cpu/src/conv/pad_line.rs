//! Images with few channels, copied with their padding: lines of the window are then whole runs.

use crate::conv::Geometry;
use crate::parallel::try_chunks_mut;
use crate::scalar::Scalar;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;

/// Channels below which a run of one element of the window is too short to be worth a pointer.
const FEW: usize = 16;

/// The largest factor by which padding may lengthen a line: beyond, the line is mostly padding.
const MOST: usize = 8;

/// An image with the zeros of its padding written out.
pub(crate) struct PaddedInput(CpuBuffer);

impl PaddedInput {
    pub(crate) fn as_slice<A: Scalar>(&self) -> &[A] {
        self.0.as_slice()
    }
}

/// The convolution without padding in the last dimension that is equal to `g` on `x`, and its input, where that pays.
pub(crate) fn pad_lines<A: Scalar>(cpu: &Cpu, g: &Geometry, x: &[A]) -> Result<Option<(Geometry, PaddedInput)>> {
    let (width, cut) = (g.span(2), g.padding[2] > 0 || g.span(2) > g.input[2]);
    let is_profitable = g.groups == 1 && g.dilation[2] == 1 && g.channels < FEW && g.kernel[2] > 1;
    if !cut || !is_profitable || g.empty() || width > MOST * g.input[2] {
        return Ok(None);
    }
    let mut wide = *g;
    wide.input[2] = width;
    wide.padding[2] = 0;
    let (line, from) = (width * g.channels, g.input[2] * g.channels);
    let before = g.padding[2] * g.channels;
    let count = from.min(line - before);
    let mut buffer = cpu.scratch(A::DTYPE, g.batch * g.input[0] * g.input[1] * line)?;
    let to = buffer.as_mut_slice::<A>();
    let lines = (1usize << 15).div_ceil(line);
    try_chunks_mut(to, lines * line, true, |at, to| {
        for (to, from) in to.chunks_exact_mut(line).zip(x[at / line * from..].chunks_exact(from)) {
            to[..before].fill(A::default());
            to[before..before + count].copy_from_slice(&from[..count]);
            to[before + count..].fill(A::default());
        }
        Ok(())
    })?;
    Ok(Some((wide, PaddedInput(buffer))))
}
