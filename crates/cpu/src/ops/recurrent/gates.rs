//! A step of one sequence: the functions of the gates, and their slopes, over blocks of the elements of a state.
//!
//! A block is an array, because the compiler would have to prove of more than ten slices at once that they do not overlap.

// Loops over an index become vector instructions; those over iterators of several arrays do not always.
#![allow(clippy::needless_range_loop)]

use crate::pointwise::{Pointwise, Relu, Sigmoid, Tanh};
use crate::simd::lanes::lanes;
use crate::simd::math::Math;
use kiln_core::ops::RecurrentCell;

/// The elements of a block: a vector of f32 in AVX-512.
const LANES: usize = 16;

/// The products of a step, of its input and of the state before it.
pub(super) struct Step<'a, A> {
    pub(super) x: &'a [A],
    pub(super) products: &'a [A],
}

/// The values that the gradient of a step reads.
pub(super) struct Back<'a, A> {
    /// The gradient of the state as a result of the layer.
    pub(super) g: &'a [A],
    /// The state after the step, and before.
    pub(super) y: &'a [A],
    pub(super) before: &'a [A],
    pub(super) kept: &'a [A],
    /// The cells before the step, of an LSTM.
    pub(super) c: &'a [A],
}

#[inline(always)]
fn load<A: Math>(x: &[A], at: usize, n: usize) -> [A; LANES] {
    let mut block = [A::ZERO; LANES];
    if n == LANES {
        block.copy_from_slice(&x[at..at + LANES]);
    } else {
        block[..n].copy_from_slice(&x[at..at + n]);
    }
    block
}

#[inline(always)]
fn store<A: Math>(block: [A; LANES], x: &mut [A], at: usize, n: usize) {
    if n == LANES {
        x[at..at + LANES].copy_from_slice(&block);
    } else {
        x[at..at + n].copy_from_slice(&block[..n]);
    }
}

/// The block of an expression of elements of blocks.
macro_rules! each {
    ($($x:ident),+ => $f:expr) => {{
        let mut to = [A::ZERO; LANES];
        for i in 0..LANES {
            $(let $x = $x[i];)+
            to[i] = $f;
        }
        to
    }};
}

/// The blocks of several gates: those of `$x` that begin at each of `$k` times `$len`, and `$at` behind.
///
/// A macro, because the closure of an array's `map` becomes a function of its own, without the instructions of the loop around it.
macro_rules! gates {
    ($x:expr, $len:expr, $at:expr, $n:expr, [$($k:literal),+]) => {
        [$(load($x, $k * $len + $at, $n)),+]
    };
}

/// Runs `$body` with the place `$at` and the size `$n` of each block of `$len` elements.
macro_rules! blocks {
    ($len:expr, $at:ident, $n:ident, $body:block) => {
        lanes::<A, _>(
            #[inline(always)]
            || {
                let len = $len;
                let mut $at = 0;
                while $at < len {
                    let $n = LANES.min(len - $at);
                    $body
                    $at += LANES;
                }
            },
        )
    };
}

#[inline(always)]
fn sigmoid<A: Math>(x: A) -> A {
    Sigmoid::value(x, A::ZERO, A::ZERO)
}

#[inline(always)]
fn tanh<A: Math>(x: A) -> A {
    Tanh::value(x, A::ZERO, A::ZERO)
}

/// `g` times the slope of the sigmoid where its value is `y`.
#[inline(always)]
fn sigmoid_slope<A: Math>(y: A, g: A) -> A {
    Sigmoid::slope(y, y, g, A::ZERO, A::ZERO)
}

#[inline(always)]
fn tanh_slope<A: Math>(y: A, g: A) -> A {
    Tanh::slope(y, y, g, A::ZERO, A::ZERO)
}

/// Makes the state `h` and the cells `c` after a step of those before.
pub(super) fn forward<A: Math>(
    cell: RecurrentCell,
    step: &Step<'_, A>,
    h: &mut [A],
    c: Option<&mut [A]>,
    kept: Option<&mut [A]>,
) {
    match (cell, c) {
        (RecurrentCell::Lstm, Some(c)) => lstm(step, h, c, kept),
        (RecurrentCell::Gru, _) => gru(step, h, kept),
        (RecurrentCell::Relu, _) => elman::<A, Relu>(step, h),
        _ => elman::<A, Tanh>(step, h),
    }
}

fn elman<A: Math, F: Pointwise<A>>(step: &Step<'_, A>, h: &mut [A]) {
    blocks!(h.len(), at, n, {
        let (x, r) = (load(step.x, at, n), load(step.products, at, n));
        store(each!(x, r => F::value(x + r, A::ZERO, A::ZERO)), h, at, n);
    });
}

fn lstm<A: Math>(step: &Step<'_, A>, h: &mut [A], c: &mut [A], mut kept: Option<&mut [A]>) {
    let len = h.len();
    blocks!(len, at, n, {
        let [x0, x1, x2, x3] = gates!(step.x, len, at, n, [0, 1, 2, 3]);
        let [r0, r1, r2, r3] = gates!(step.products, len, at, n, [0, 1, 2, 3]);
        let i = each!(x0, r0 => sigmoid(x0 + r0));
        let f = each!(x1, r1 => sigmoid(x1 + r1));
        let g = each!(x2, r2 => tanh(x2 + r2));
        let o = each!(x3, r3 => sigmoid(x3 + r3));
        let old = load(c, at, n);
        let new = {
            let input = each!(i, g => i * g);
            each!(f, old, input => f * old + input)
        };
        store(each!(o, new => o * tanh(new)), h, at, n);
        store(new, c, at, n);
        if let Some(kept) = kept.as_deref_mut() {
            store(i, kept, at, n);
            store(f, kept, len + at, n);
            store(g, kept, 2 * len + at, n);
            store(o, kept, 3 * len + at, n);
            store(new, kept, 4 * len + at, n);
        }
    });
}

fn gru<A: Math>(step: &Step<'_, A>, h: &mut [A], mut kept: Option<&mut [A]>) {
    let len = h.len();
    blocks!(len, at, n, {
        let [x0, x1, x2] = gates!(step.x, len, at, n, [0, 1, 2]);
        let [r0, r1, q] = gates!(step.products, len, at, n, [0, 1, 2]);
        let r = each!(x0, r0 => sigmoid(x0 + r0));
        let z = each!(x1, r1 => sigmoid(x1 + r1));
        let new = each!(x2, r, q => tanh(x2 + r * q));
        let old = load(h, at, n);
        store(each!(new, old, z => new + z * (old - new)), h, at, n);
        if let Some(kept) = kept.as_deref_mut() {
            store(r, kept, at, n);
            store(z, kept, len + at, n);
            store(new, kept, 2 * len + at, n);
            store(q, kept, 3 * len + at, n);
        }
    });
}

/// Makes the gradients `dh` and `dc` of what was before a step, but for what goes through the products of its state, of those of what is
/// after it; writes those of the products of the input to `dx` and of the state to `dr`.
pub(super) fn backward<A: Math>(
    cell: RecurrentCell,
    of: &Back<'_, A>,
    dh: &mut [A],
    dc: Option<&mut [A]>,
    dx: &mut [A],
    dr: &mut [A],
) {
    match (cell, dc) {
        (RecurrentCell::Lstm, Some(dc)) => lstm_back(of, dh, dc, dx),
        (RecurrentCell::Gru, _) => return gru_back(of, dh, dx, dr),
        (RecurrentCell::Relu, _) => elman_back::<A, Relu>(of, dh, dx),
        _ => elman_back::<A, Tanh>(of, dh, dx),
    }
    dr.copy_from_slice(dx);
}

fn elman_back<A: Math, F: Pointwise<A>>(of: &Back<'_, A>, dh: &mut [A], dx: &mut [A]) {
    blocks!(dh.len(), at, n, {
        let (g, later, y) = (load(of.g, at, n), load(dh, at, n), load(of.y, at, n));
        let d = each!(g, later, y => F::slope(y, y, g + later, A::ZERO, A::ZERO));
        store(d, dx, at, n);
        store([A::ZERO; LANES], dh, at, n);
    });
}

fn lstm_back<A: Math>(of: &Back<'_, A>, dh: &mut [A], dc: &mut [A], dx: &mut [A]) {
    let len = dh.len();
    blocks!(len, at, n, {
        let [i, f, g, o, c] = gates!(of.kept, len, at, n, [0, 1, 2, 3, 4]);
        let (own, later, old) = (load(of.g, at, n), load(dh, at, n), load(of.c, at, n));
        let d = each!(own, later => own + later);
        let t = each!(c => tanh(c));
        let of_cells = load(dc, at, n);
        let through = each!(d, o, t => tanh_slope(t, d * o));
        let d_c = each!(of_cells, through => of_cells + through);
        store(each!(d_c, g, i => sigmoid_slope(i, d_c * g)), dx, at, n);
        store(each!(d_c, old, f => sigmoid_slope(f, d_c * old)), dx, len + at, n);
        store(each!(d_c, g, i => tanh_slope(g, d_c * i)), dx, 2 * len + at, n);
        store(each!(d, t, o => sigmoid_slope(o, d * t)), dx, 3 * len + at, n);
        store(each!(d_c, f => d_c * f), dc, at, n);
        store([A::ZERO; LANES], dh, at, n);
    });
}

fn gru_back<A: Math>(of: &Back<'_, A>, dh: &mut [A], dx: &mut [A], dr: &mut [A]) {
    let len = dh.len();
    blocks!(len, at, n, {
        let [r, z, new, q] = gates!(of.kept, len, at, n, [0, 1, 2, 3]);
        let (own, later, old) = (load(of.g, at, n), load(dh, at, n), load(of.before, at, n));
        let d = each!(own, later => own + later);
        let d_n = each!(d, z, new => tanh_slope(new, d * (A::ONE - z)));
        let d_z = each!(d, old, new, z => sigmoid_slope(z, d * (old - new)));
        let d_r = each!(d_n, q, r => sigmoid_slope(r, d_n * q));
        store(d_r, dx, at, n);
        store(d_z, dx, len + at, n);
        store(d_n, dx, 2 * len + at, n);
        store(d_r, dr, at, n);
        store(d_z, dr, len + at, n);
        store(each!(d_n, r => d_n * r), dr, 2 * len + at, n);
        store(each!(d, z => d * z), dh, at, n);
    });
}
