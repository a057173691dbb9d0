//! Reductions, and ops along one axis.

use super::{Reference, ReferenceBuffer};
use kiln_core::ops::{AxisParams, Reduce, ReduceOps, ReduceParams};
use kiln_core::{Result, checks};
use std::cmp::Ordering;

/// The offsets of the elements of each line along the axis.
fn lines(p: &AxisParams) -> impl Iterator<Item = Vec<usize>> {
    let [outer, n, inner] = [p.outer, p.n, p.inner].map(|d| d as usize);
    (0..outer * inner).map(move |line| {
        let (o, i) = (line / inner, line % inner);
        (0..n).map(|j| (o * n + j) * inner + i).collect()
    })
}

/// The order of a sort with the largest first, or the smallest first; NaN counts as the largest.
fn order(a: f64, b: f64, smallest: bool) -> Ordering {
    let largest_first = match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => b.total_cmp(&a).then(Ordering::Equal),
    };
    match a == b {
        // Zeros of either sign are equal.
        true => Ordering::Equal,
        false if smallest => largest_first.reverse(),
        false => largest_first,
    }
}

/// The output that element `i` is reduced into.
pub(super) fn place(p: &ReduceParams, i: usize) -> usize {
    let (mut rest, mut at, mut step) = (i, 0, 1);
    for d in (0..p.rank as usize).rev() {
        let size = p.shape[d] as usize;
        if p.reduced >> d & 1 == 0 {
            at += rest % size * step;
            step *= size;
        }
        rest /= size;
    }
    at
}

impl ReduceOps for Reference {
    fn reduce(&self, p: &ReduceParams, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::reduce(self, p, x, y)?;
        let f = p.op();
        y.data.fill(match f {
            Reduce::Max => f64::NEG_INFINITY,
            Reduce::Min => f64::INFINITY,
            _ => 0.0,
        });
        for (i, &x) in x.data.iter().enumerate() {
            let y = &mut y.data[place(p, i)];
            *y = match f {
                Reduce::Sum | Reduce::Mean => *y + x,
                Reduce::SumSquares => *y + x * x,
                Reduce::Max | Reduce::Min if x.is_nan() || y.is_nan() => f64::NAN,
                Reduce::Max => y.max(x),
                Reduce::Min => y.min(x),
            };
        }
        if f == Reduce::Mean {
            y.data /= p.count as f64;
        }
        Ok(())
    }

    fn arg_reduce(&self, p: &AxisParams, x: &ReferenceBuffer, index: &mut ReferenceBuffer) -> Result<()> {
        checks::arg_reduce(self, p, x, index)?;
        for (line, index) in lines(p).zip(&mut index.data) {
            let mut best = 0;
            for (j, &at) in line.iter().enumerate() {
                let (new, old) = (x.data[at], x.data[line[best]]);
                let wins = if p.reverse == 1 { new < old } else { new > old };
                if !old.is_nan() && (wins || new.is_nan()) {
                    best = j;
                }
            }
            *index = best as f64;
        }
        Ok(())
    }

    fn cumsum(&self, p: &AxisParams, x: &ReferenceBuffer, y: &mut ReferenceBuffer) -> Result<()> {
        checks::cumsum(self, p, x, y)?;
        for mut line in lines(p) {
            if p.reverse == 1 {
                line.reverse();
            }
            let mut sum = 0.0;
            for at in line {
                sum += x.data[at];
                y.data[at] = sum;
            }
        }
        Ok(())
    }

    fn top_k(
        &self,
        p: &AxisParams,
        x: &ReferenceBuffer,
        values: &mut ReferenceBuffer,
        index: &mut ReferenceBuffer,
    ) -> Result<()> {
        checks::top_k(self, p, x, values, index)?;
        let kept = AxisParams { n: p.k, ..*p };
        for (line, outputs) in lines(p).zip(lines(&kept)) {
            let mut places: Vec<usize> = (0..line.len()).collect();
            places.sort_by(|&a, &b| order(x.data[line[a]], x.data[line[b]], p.reverse == 1));
            for (place, at) in places.into_iter().zip(outputs) {
                values.data[at] = x.data[line[place]];
                index.data[at] = place as f64;
            }
        }
        Ok(())
    }
}
