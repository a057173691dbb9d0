//! The packing of B: B is cut along k into blocks that stay in cache, and copied to panels that the micro-kernels read
//! front to back.

use crate::fork::in_pool;
use crate::gemm::kernels::Gemm;
use crate::gemm::kernels::Kernels;
use crate::gemm::transpose::transpose;
use crate::parallel::GRAIN;
use crate::simd::isa::vectorized;
use crate::simd::vector::fetch;
use crate::{Cpu, CpuBuffer};
use kiln_core::Result;
use rayon::prelude::*;
use std::ops::Range;

/// The approximate number of steps of k in one block, BLIS's `KC`. A panel of it is as large as an L1 cache. It is the same
/// on every machine, because sums are rounded at the ends of blocks.
pub(crate) const UNIT: usize = 384;

/// A block of k: the steps `steps` of each of `taps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KBlock {
    pub(crate) taps: Range<usize>,
    pub(crate) steps: Range<usize>,
}

impl KBlock {
    fn len(&self) -> usize {
        self.taps.len() * self.steps.len()
    }
}

/// Cuts `taps · steps` into blocks of about [`UNIT`].
pub(crate) fn units(taps: usize, steps: usize) -> Vec<KBlock> {
    units_of(taps, steps, UNIT)
}

/// Cuts `taps · steps` into blocks of about `unit`: several taps where they are short, a part of one where they are long.
fn units_of(taps: usize, steps: usize, unit: usize) -> Vec<KBlock> {
    let mut out = Vec::new();
    if steps > unit {
        let parts = steps.div_ceil(unit);
        let part = steps.div_ceil(parts);
        for tap in 0..taps {
            for from in (0..steps).step_by(part) {
                out.push(KBlock {
                    taps: tap..tap + 1,
                    steps: from..(from + part).min(steps),
                });
            }
        }
    } else if taps * steps > 0 {
        let parts = taps.div_ceil((unit / steps).max(1));
        let part = taps.div_ceil(parts);
        for from in (0..taps).step_by(part) {
            out.push(KBlock {
                taps: from..(from + part).min(taps),
                steps: 0..steps,
            });
        }
    }
    out
}

/// B in memory: element `(tap, k, n)` is at `taps[tap] + k·k_step + n·n_step`, and one of the steps is 1.
#[derive(Clone, Copy)]
pub(crate) struct BOperand<'a, A> {
    pub(crate) data: &'a [A],
    pub(crate) taps: &'a [usize],
    pub(crate) steps: usize,
    pub(crate) columns: usize,
    pub(crate) k_step: usize,
    pub(crate) n_step: usize,
}

/// B in the layout that the micro-kernels read.
pub(crate) struct Panels<'a, A> {
    data: Data<'a, A>,
    pub(crate) units: Vec<KBlock>,
    pub(crate) columns: usize,
    /// The number of columns of all panels but the last.
    width: usize,
    lanes: usize,
}

enum Data<'a, A> {
    /// Rows read in place, with their distance.
    Direct(&'a [A], usize),
    /// For each block of k, panels of `[unit, width]`.
    Packed(CpuBuffer),
    /// Panels of `[steps, width]`, with their distance.
    Lent(&'a [A], usize),
}

impl<'a, A: Gemm> Panels<'a, A> {
    /// Reads `source` in place, without copying, if it has one tap and contiguous rows; `None` otherwise.
    pub(crate) fn direct(kernels: &Kernels<A>, source: BOperand<'a, A>) -> Option<Self> {
        (source.n_step == 1 && source.taps.len() == 1 && source.steps > 0 && source.columns > 0).then(|| {
            let data = &source.data[source.taps[0]..];
            assert!((source.steps - 1) * source.k_step + source.columns <= data.len());
            Panels {
                data: Data::Direct(data, source.k_step),
                units: units(1, source.steps),
                columns: source.columns,
                width: kernels.panel(),
                lanes: kernels.lanes,
            }
        })
    }

    /// Panels that the caller has filled in, of one tap. Panel `p` is `[steps, width]` from `p·apart` of `data` on, where
    /// `width` is that of a panel, or the remaining columns rounded up to vectors. Blocks of k have at most `unit` steps.
    pub(crate) fn lent(
        kernels: &Kernels<A>,
        data: &'a [A],
        apart: usize,
        [steps, columns]: [usize; 2],
        unit: usize,
    ) -> Self {
        Panels {
            data: Data::Lent(data, apart),
            units: units_of(1, steps, unit),
            columns,
            width: kernels.panel(),
            lanes: kernels.lanes,
        }
    }

    /// Packs `source` into panels, on all threads if it is large.
    pub(crate) fn packed(cpu: &Cpu, kernels: &Kernels<A>, source: BOperand<'_, A>) -> Result<Panels<'static, A>> {
        Panels::packed_in(cpu, kernels, source, units(source.taps.len(), source.steps))
    }

    /// As [`Panels::packed`], cut along k into `units`, which have every step of every tap once.
    pub(crate) fn packed_in(
        cpu: &Cpu,
        kernels: &Kernels<A>,
        source: BOperand<'_, A>,
        units: Vec<KBlock>,
    ) -> Result<Panels<'static, A>> {
        let parallel = source.taps.len() * source.steps * source.columns > 2 * GRAIN;
        Panels::pack(cpu, kernels, source, units, parallel)
    }

    /// As [`Panels::packed`], but on the calling thread, whose caches then hold the panels.
    pub(crate) fn packed_here(cpu: &Cpu, kernels: &Kernels<A>, source: BOperand<'_, A>) -> Result<Panels<'static, A>> {
        let units = units(source.taps.len(), source.steps);
        Panels::pack(cpu, kernels, source, units, false)
    }

    fn pack(
        cpu: &Cpu,
        kernels: &Kernels<A>,
        source: BOperand<'_, A>,
        units: Vec<KBlock>,
        parallel: bool,
    ) -> Result<Panels<'static, A>> {
        let (lanes, width) = (kernels.lanes, kernels.panel());
        let padded = source.columns.next_multiple_of(lanes);
        let mut packed = cpu.scratch(A::DTYPE, source.taps.len() * source.steps * padded)?;
        // Rows are copied to several panels at a time, but every thread has panels.
        let group = if !parallel {
            PANELS_AT_ONCE
        } else {
            let all = units.len() * source.columns.div_ceil(width);
            (all / (4 * rayon::current_num_threads())).clamp(1, PANELS_AT_ONCE)
        };
        let mut jobs = Vec::new();
        let mut rest = packed.as_mut_slice::<A>();
        for unit in &units {
            for from in (0..source.columns).step_by(group * width) {
                let columns = (group * width).min(source.columns - from);
                let (panels, after) = rest.split_at_mut(unit.len() * columns.next_multiple_of(lanes));
                jobs.push((unit, from..from + columns, panels));
                rest = after;
            }
        }
        let run =
            |(unit, columns, to): (&KBlock, Range<usize>, &mut [A])| pack(&source, unit, columns, [width, lanes], to);
        if parallel {
            in_pool(|| jobs.into_par_iter().with_max_len(1).for_each(run));
        } else {
            jobs.into_iter().for_each(run);
        }
        Ok(Panels {
            data: Data::Packed(packed),
            units,
            columns: source.columns,
            width,
            lanes,
        })
    }

    /// The first `steps` steps of packed panels of one block of k.
    ///
    /// # Panics
    /// If they are others, or there are fewer steps: a bug in the op.
    pub(crate) fn up_to(&self, steps: usize) -> Panels<'_, A> {
        let (Data::Packed(data), [unit]) = (&self.data, self.units.as_slice()) else {
            panic!("packed panels of one block of k");
        };
        assert!(unit.taps == (0..1) && steps <= unit.steps.len(), "steps of the block");
        Panels {
            data: Data::Lent(data.as_slice(), unit.len() * self.width),
            units: units_of(1, steps, unit.len()),
            ..*self
        }
    }

    /// The number of steps of the longest block of k.
    pub(crate) fn longest(&self) -> usize {
        self.units.iter().map(KBlock::len).max().unwrap_or(0)
    }

    /// The rows of block `u` of k in the panel that starts at column `column`, and the distance between rows.
    pub(crate) fn rows(&self, u: usize, column: usize) -> (&[A], usize) {
        debug_assert!(column.is_multiple_of(self.width));
        match &self.data {
            Data::Direct(data, step) => (&data[self.units[u].steps.start * step + column..], *step),
            Data::Packed(data) => {
                let padded = self.columns.next_multiple_of(self.lanes);
                let before: usize = self.units[..u].iter().map(KBlock::len).sum();
                let width = self.width.min(padded - column);
                let (len, at) = (self.units[u].len(), before * padded);
                (&data.as_slice::<A>()[at + len * column..][..len * width], width)
            }
            Data::Lent(data, apart) => {
                let width = self.width.min(self.columns.next_multiple_of(self.lanes) - column);
                let steps = &self.units[u].steps;
                let from = column / self.width * apart;
                (&data[from + steps.start * width..from + steps.end * width], width)
            }
        }
    }
}

/// The largest number of panels to which a row is copied before the next row is. Rows of B are read in long runs, and each panel is
/// still written front to back.
const PANELS_AT_ONCE: usize = 8;

/// The distance, in copies of a row of a panel, at which packing prefetches.
const FETCH: usize = 16;

/// Fills panels of `width` columns, `[unit, columns rounded up to vectors]`, one after the other in `to`; the elements past `columns` are
/// never read.
fn pack<A: Gemm>(s: &BOperand<'_, A>, unit: &KBlock, columns: Range<usize>, [width, lanes]: [usize; 2], to: &mut [A]) {
    let whole = columns.len() / width;
    let (panels, rest) = to.split_at_mut(whole * unit.len() * width);
    let steps = unit.steps.len();
    for (i, tap) in unit.taps.clone().enumerate() {
        let at = s.taps[tap] + unit.steps.start * s.k_step + columns.start * s.n_step;
        if s.n_step != 1 {
            for (p, panel) in panels.chunks_exact_mut(unit.len() * width).enumerate() {
                let to = &mut panel[i * steps * width..][..steps * width];
                transpose(&s.data[at + p * width * s.n_step..], s.n_step, steps, width, to, width);
            }
        } else if whole > 0 {
            let from = &s.data[at..];
            let (ahead, panels) = (
                FETCH.div_ceil(whole),
                (&mut panels[i * steps * width..], whole, unit.len() * width),
            );
            // A copy of constant length compiles to a few moves instead of a call.
            match width {
                32 => copy_rows::<A, 32, 32>(from, s.k_step, steps, ahead, panels),
                16 => copy_rows::<A, 16, 16>(from, s.k_step, steps, ahead, panels),
                8 => copy_rows::<A, 8, 8>(from, s.k_step, steps, ahead, panels),
                _ => unreachable!("a panel is two vectors of 4, 8 or 16 elements"),
            }
        }
        // The last panel may be narrower.
        let count = columns.len() % width;
        if count > 0 {
            let padded = count.next_multiple_of(lanes);
            let at = at + whole * width * s.n_step;
            let to = &mut rest[i * steps * padded..][..steps * padded];
            if s.n_step != 1 {
                transpose(&s.data[at..], s.n_step, steps, count, to, padded);
            } else {
                for (k, to) in to.chunks_exact_mut(padded).enumerate() {
                    to[..count].copy_from_slice(&s.data[at + k * s.k_step..][..count]);
                }
            }
        }
    }
}

/// Copies `steps` rows, `step` apart, each as rows of `N` elements of `panels` panels that are `apart` apart.
///
/// The rows of all panels but the last are copied by moves of `MOVED` elements, of which those past `N` are overwritten by the next row,
/// or lie between two panels. The row that is `ahead` rows farther is prefetched.
pub(crate) fn copy_rows<A: Gemm, const N: usize, const MOVED: usize>(
    from: &[A],
    step: usize,
    steps: usize,
    ahead: usize,
    (to, panels, apart): (&mut [A], usize, usize),
) {
    const { assert!(N <= MOVED && MOVED <= 2 * N) };
    debug_assert!(panels == 1 || apart >= steps * N + MOVED - N, "room between panels");
    vectorized(
        #[inline(always)]
        || {
            for k in 0..steps {
                let row = &from[k * step..][..panels * N];
                fetch(row.as_ptr().wrapping_add(ahead * step), panels * N);
                for p in 0..panels - 1 {
                    to[p * apart + k * N..][..MOVED].copy_from_slice(&row[p * N..][..MOVED]);
                }
                let last = panels - 1;
                to[last * apart + k * N..][..N].copy_from_slice(&row[last * N..][..N]);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_cover_every_step_once() {
        for (taps, steps) in [(1, 1), (1, 5000), (9, 64), (25, 3), (9, 512), (3, 0), (0, 7), (2, 385)] {
            let mut seen = vec![0; taps * steps];
            for unit in units(taps, steps) {
                assert!(unit.len() <= UNIT + UNIT / 2, "{unit:?}");
                for tap in unit.taps.clone() {
                    unit.steps.clone().for_each(|k| seen[tap * steps + k] += 1);
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{taps} taps of {steps}");
        }
    }

    #[test]
    fn panels_hold_the_operand() {
        let cpu = Cpu::poisoned();
        for kernels in f32::all_kernels() {
            for (steps, columns) in [(5, 1), (17, 16), (33, 49), (500, 40), (400, 300)] {
                let data: Vec<f32> = (0..2 * steps * columns).map(|i| i as f32).collect();
                for (k_step, n_step) in [(columns, 1), (1, steps)] {
                    let taps = [steps * columns, 0];
                    let source = BOperand {
                        data: &data,
                        taps: &taps,
                        steps,
                        columns,
                        k_step,
                        n_step,
                    };
                    let panels = Panels::packed(&cpu, kernels, source).unwrap();
                    for (u, unit) in panels.units.iter().enumerate() {
                        for from in (0..columns).step_by(kernels.panel()) {
                            let (rows, step) = panels.rows(u, from);
                            for n in from..columns.min(from + kernels.panel()) {
                                let mut row = 0;
                                for tap in unit.taps.clone() {
                                    for k in unit.steps.clone() {
                                        let want = data[taps[tap] + k * k_step + n * n_step];
                                        assert_eq!(rows[row * step + n - from], want);
                                        row += 1;
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
