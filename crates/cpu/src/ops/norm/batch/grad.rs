//! The gradient of batch norm: sums of each channel, then that of the tensor.

use super::{chunk_rows, map_rows, partials, positive, tiles, update_rows, widened};
use crate::Cpu;
use crate::parallel::{THREADS, try_zip2_mut};
use crate::scalar::Stored;
use crate::simd::column_tile::{Lanes, Tile};
use crate::simd::lanes::lanes;
use crate::simd::real::Real;
use crate::simd::upcast::{update_upcast_to, write_upcast_to};
use kiln_core::Result;
use kiln_core::ops::GroupNormParams;

/// The gradient of the result, of one or two terms, and the result if it is that of a ReLU; or, without a residual, the shift of each
/// channel, from which the result is made again.
pub(in crate::ops::norm) struct ResultGrad<'a, T: Stored> {
    /// Without it, what is written over `dr`.
    pub(in crate::ops::norm) g: Option<&'a [T]>,
    pub(in crate::ops::norm) more: Option<&'a [T]>,
    pub(in crate::ops::norm) y: Option<&'a [T]>,
    pub(in crate::ops::norm) relu: Option<&'a [T::Acc]>,
}

/// Computes the sums `[Σ g, Σ g·(x − mean)]` of each column.
#[inline(always)]
fn sums<A: Real>(c: usize, mean: &[A], [x, g]: [&[A]; 2], out: &mut [A]) {
    let (sum, dot) = out.split_at_mut(c);
    for tile in Tile::cover(c, 0..c, x.len() / c) {
        let (mut s, mut d) = (Lanes::filled(A::ZERO), Lanes::filled(A::ZERO));
        let centre = tile.spread(mean);
        tile.rows(
            0,
            x.len() / c,
            #[inline(always)]
            |at| {
                let values = x[at.clone()].iter().zip(&g[at]).zip(centre.iter());
                for ((s, d), ((&x, &g), &centre)) in s.iter_mut().zip(d.iter_mut()).zip(values) {
                    *s += g;
                    *d += g * (x - centre);
                }
            },
        );
        sum[tile.columns.clone()].copy_from_slice(tile.join(&mut s, |a, b| a + b));
        dot[tile.columns.clone()].copy_from_slice(tile.join(&mut d, |a, b| a + b));
    }
}

/// As [`partials`] of [`sums`] of `x` and of the gradient before residual and ReLU, which is written to `dr`.
fn partials_of_result<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, grad): (&[T], &ResultGrad<'_, T>),
    [mean, a]: [&[A]; 2],
    dr: &mut [T],
    partial: &mut [A],
) -> Result<()> {
    let (rows, c) = (p.positions as usize, p.groups as usize);
    let step = chunk_rows(c) * c;
    try_zip2_mut((dr, step), (partial, 2 * c), rows * c > THREADS, |i, dr, out| {
        let at = i * step..i * step + dr.len();
        let chunk = |of: Option<&'_ [T]>| of.map_or(0..0, |_| at.clone());
        let [more, mut y] = [grad.more, grad.y].map(|of| &of.unwrap_or_default()[chunk(of)]);
        let mut again = None;
        if let (None, Some(shift)) = (grad.y, grad.relu) {
            let again = again.insert(cpu.scratch(T::DTYPE, at.len())?);
            let [x] = widened(cpu, [&x[at.clone()]])?;
            write_upcast_to::<T>(cpu, again.as_mut_slice(), |y| {
                lanes::<A, _>(
                    #[inline(always)]
                    || tiles([mean, a, shift], x.slice(), None, y, positive),
                );
                Ok(())
            })?;
            y = again.as_slice();
        }
        let wide = widened(cpu, [&grad.g.unwrap_or_default()[chunk(grad.g)], more, y])?;
        let [g, more, y] = [0, 1, 2].map(|i| wide[i].slice());
        let write = |dr: &mut [A]| {
            lanes::<A, _>(
                #[inline(always)]
                || before_relu(grad.g.map(|_| g), more, y, dr),
            );
            Ok(())
        };
        match grad.g {
            Some(_) => write_upcast_to::<T>(cpu, dr, write)?,
            None => update_upcast_to::<T>(cpu, dr, write)?,
        }
        let wide = widened(cpu, [&x[at], &*dr])?;
        lanes::<A, _>(
            #[inline(always)]
            || sums(c, mean, [wide[0].slice(), wide[1].slice()], out),
        );
        Ok(())
    })
}

/// `dr = g + more`, zero where `y ≤ 0`; `more` and `y` may be empty. Without `g`, it lies in `dr`.
#[inline(always)]
fn before_relu<A: Real>(g: Option<&[A]>, more: &[A], y: &[A], dr: &mut [A]) {
    let n = dr.len();
    let Some(g) = g else {
        for (dr, &more) in dr.iter_mut().zip(more) {
            *dr += more;
        }
        for (dr, &y) in dr.iter_mut().zip(y) {
            if y <= A::ZERO {
                *dr = A::ZERO;
            }
        }
        return;
    };
    let g = &g[..n];
    match (more.len() == n, y.len() == n) {
        (false, false) => dr.copy_from_slice(g),
        (true, false) => {
            for i in 0..n {
                dr[i] = g[i] + more[i];
            }
        }
        (false, true) => {
            for i in 0..n {
                dr[i] = if y[i] <= A::ZERO { A::ZERO } else { g[i] };
            }
        }
        (true, true) => {
            for i in 0..n {
                dr[i] = if y[i] <= A::ZERO { A::ZERO } else { g[i] + more[i] };
            }
        }
    }
}

/// The gradients, and in `dr`, if it is given, the gradient before residual and ReLU.
pub(in crate::ops::norm) fn grad<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, of): (&[T], ResultGrad<'_, T>),
    scale: &[A],
    (mean, rstd): (&[A], &[A]),
    (dx, mut dr): (&mut [T], Option<&mut [T]>),
    dscale: &mut [A],
    dshift: &mut [A],
) -> Result<()> {
    let (rows, c) = (p.positions as usize, p.groups as usize);
    let mut partial = cpu.scratch(A::DTYPE, rows.div_ceil(chunk_rows(c)) * 2 * c)?;
    let partial = partial.as_mut_slice::<A>();
    let mut factors = cpu.scratch(A::DTYPE, 3 * c)?;
    let (a, rest) = factors.as_mut_slice::<A>().split_at_mut(c);
    let (shift, slope) = rest.split_at_mut(c);
    for i in 0..c {
        a[i] = rstd[i] * scale[i];
    }
    // A gradient that differs from that of the result lies in `dr`, or else where dx is written.
    let differs = of.more.is_some() || of.y.is_some() || of.relu.is_some();
    match (dr.as_deref_mut(), differs) {
        (Some(dr), _) => partials_of_result(cpu, p, (x, &of), [mean, a], dr, partial)?,
        (None, true) => partials_of_result(cpu, p, (x, &of), [mean, a], dx, partial)?,
        (None, false) => partials(
            cpu,
            p,
            [x, of.g.unwrap_or_default()],
            partial,
            #[inline(always)]
            |xg: [&[A]; 2], out: &mut [A]| sums(c, mean, xg, out),
        )?,
    }
    let g = match (dr.as_deref(), differs) {
        (_, false) => of.g,
        (dr, true) => dr,
    };
    totals(partial, rstd, dscale, dshift);
    let n = A::of(p.positions as f64);
    for i in 0..c {
        shift[i] = dshift[i] / n;
        slope[i] = rstd[i] * dscale[i] / n;
    }
    let factors = [&*a, mean, &*shift, &*slope];
    match g {
        Some(g) => map_rows(
            cpu,
            (c, 2),
            [x, g],
            dx,
            #[inline(always)]
            |[x, g]: [&[A]; 2], dx: &mut [A]| input_grad(factors, x, Some(g), dx),
        ),
        None => update_rows(
            cpu,
            (c, 2),
            x,
            dx,
            #[inline(always)]
            |x: &[A], dx: &mut [A]| input_grad(factors, x, None, dx),
        ),
    }
}

/// The sums of all partial results of [`sums`].
fn totals<A: Real>(partial: &mut [A], rstd: &[A], dscale: &mut [A], dshift: &mut [A]) {
    let c = rstd.len();
    let (total, rest) = partial.split_at_mut(2 * c);
    for part in rest.chunks_exact(2 * c) {
        for (a, &b) in total.iter_mut().zip(part) {
            *a += b;
        }
    }
    for i in 0..c {
        (dshift[i], dscale[i]) = (total[i], total[c + i] * rstd[i]);
    }
}

/// The first half of [`grad`]: makes the gradient before residual and ReLU of what lies in `d`, and its sums.
pub(in crate::ops::norm) fn grad_sums<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    (x, of): (&[T], ResultGrad<'_, T>),
    scale: &[A],
    (mean, rstd): (&[A], &[A]),
    d: &mut [T],
    dscale: &mut [A],
    dshift: &mut [A],
) -> Result<()> {
    let (rows, c) = (p.positions as usize, p.groups as usize);
    let mut partial = cpu.scratch(A::DTYPE, rows.div_ceil(chunk_rows(c)) * 2 * c)?;
    let mut factor = cpu.scratch(A::DTYPE, c)?;
    let (partial, a) = (partial.as_mut_slice::<A>(), factor.as_mut_slice::<A>());
    for i in 0..c {
        a[i] = rstd[i] * scale[i];
    }
    partials_of_result(cpu, p, (x, &of), [mean, a], d, partial)?;
    totals(partial, rstd, dscale, dshift);
    Ok(())
}

/// The second half of [`grad`]: dx from the gradient before residual and ReLU, and its sums.
pub(in crate::ops::norm) fn data_grad<T: Stored<Acc = A>, A: Real>(
    cpu: &Cpu,
    p: &GroupNormParams,
    [x, d]: [&[T]; 2],
    scale: &[A],
    (mean, rstd): (&[A], &[A]),
    (dscale, dshift): (&[A], &[A]),
    dx: &mut [T],
) -> Result<()> {
    let (c, n) = (p.groups as usize, A::of(p.positions as f64));
    let mut factors = cpu.scratch(A::DTYPE, 3 * c)?;
    let (a, rest) = factors.as_mut_slice::<A>().split_at_mut(c);
    let (shift, slope) = rest.split_at_mut(c);
    for i in 0..c {
        a[i] = rstd[i] * scale[i];
        shift[i] = dshift[i] / n;
        slope[i] = rstd[i] * dscale[i] / n;
    }
    let factors = [&*a, mean, &*shift, &*slope];
    map_rows(
        cpu,
        (c, 2),
        [x, d],
        dx,
        #[inline(always)]
        |[x, d]: [&[A]; 2], dx: &mut [A]| input_grad(factors, x, Some(d), dx),
    )
}

/// `dx = a·(g − shift − (x − mean)·slope)` for each column; g is in `dx` if it is not given.
#[inline(always)]
fn input_grad<A: Real>(factors: [&[A]; 4], x: &[A], g: Option<&[A]>, dx: &mut [A]) {
    let c = factors[0].len();
    for tile in Tile::cover(c, 0..c, dx.len() / c) {
        let [a, mean, shift, slope] = factors.map(|f| tile.spread(f));
        tile.rows(
            0,
            dx.len() / c,
            #[inline(always)]
            |at| {
                let (x, g, dx) = (&x[at.clone()], g.map(|g| &g[at.clone()]), &mut dx[at]);
                let n = dx.len();
                let (a, mean, shift, slope) = (&a[..n], &mean[..n], &shift[..n], &slope[..n]);
                match g {
                    Some(g) => {
                        for i in 0..n {
                            let centred = x[i] - mean[i];
                            dx[i] = a[i] * (g[i] - shift[i] - centred * slope[i]);
                        }
                    }
                    None => {
                        for i in 0..n {
                            let centred = x[i] - mean[i];
                            dx[i] = a[i] * (dx[i] - shift[i] - centred * slope[i]);
                        }
                    }
                }
            },
        );
    }
}
