//! A line search for steps that satisfy the strong Wolfe conditions, with the constants and the order of decisions of PyTorch's.

use crate::Result;

/// A function at one point of a line: its value, derivative and gradient.
#[derive(Clone)]
pub(super) struct Point<G> {
    /// The distance along the line.
    pub(super) t: f64,
    /// The value.
    pub(super) f: f64,
    /// The derivative along the line.
    pub(super) slope: f64,
    /// The gradient.
    pub(super) grad: G,
}

/// A decrease of at least this share of the first slope's promise.
const DECREASE: f64 = 1e-4;
/// A slope of at most this share of the first one.
const CURVATURE: f64 = 0.9;

/// Python's `max`: the first of two where either is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// Python's `min`: the first of two where either is NaN.
fn smaller(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// Where the cubic through two values and slopes is least, moved into `bounds`; their middle where that is no number.
fn cubic<G>(a: &Point<G>, b: &Point<G>, bounds: (f64, f64)) -> f64 {
    let d1 = a.slope + b.slope - 3.0 * (a.f - b.f) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    if square >= 0.0 {
        let d2 = square.sqrt();
        let least = if a.t <= b.t {
            b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2))
        } else {
            a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2.0 * d2))
        };
        // Squares of huge values overflow.
        if !least.is_nan() {
            return smaller(larger(least, bounds.0), bounds.1);
        }
    }
    (bounds.0 + bounds.1) / 2.0
}

/// The place of the lower of two values, and that of the other.
fn lower<G>(bracket: &[Point<G>; 2]) -> (usize, usize) {
    if bracket[0].f <= bracket[1].f { (0, 1) } else { (1, 0) }
}

/// A point that satisfies the strong Wolfe conditions (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6),
/// or the lowest that was found in `most` evaluations after the first, searched from the step `t` on; and the number of evaluations.
/// `size` is the largest element of the direction: the search ends where the positions that are left are less than `tolerance`
/// apart.
pub(super) fn strong_wolfe<G: Clone>(
    start: &Point<G>,
    t: f64,
    (size, tolerance): (f64, f64),
    most: usize,
    at: &mut dyn FnMut(f64) -> Result<Point<G>>,
) -> Result<(Point<G>, usize)> {
    let high = |p: &Point<G>| p.f > start.f + DECREASE * p.t * start.slope;
    let flat = |p: &Point<G>| p.slope.abs() <= -CURVATURE * start.slope;
    let (mut prev, mut new) = (start.clone(), at(t)?);
    let (mut evals, mut iter) = (1, 0);
    // An interval with a point inside that will do.
    let mut bracket = None;
    while iter < most {
        let above = high(&new) || (iter > 1 && new.f >= prev.f);
        if !above && flat(&new) {
            return Ok((new, evals));
        }
        if above || new.slope >= 0.0 {
            bracket = Some([prev.clone(), new.clone()]);
            break;
        }
        let bounds = (new.t + 0.01 * (new.t - prev.t), new.t * 10.0);
        let t = cubic(&prev, &new, bounds);
        prev = std::mem::replace(&mut new, at(t)?);
        evals += 1;
        iter += 1;
    }
    let mut bracket = bracket.unwrap_or_else(|| [start.clone(), new]);
    let (mut low, mut far) = lower(&bracket);
    let mut stuck = false;
    while iter < most {
        let [a, b] = &bracket;
        let (first, last) = (smaller(a.t, b.t), larger(a.t, b.t));
        if (b.t - a.t).abs() * size < tolerance {
            break;
        }
        let mut t = cubic(a, b, if a.t <= b.t { (a.t, b.t) } else { (b.t, a.t) });
        // Close to an end twice in turn, or at one, the next point is a tenth of the interval away from it.
        let tenth = 0.1 * (last - first);
        if smaller(last - t, t - first) < tenth {
            if stuck || t >= last || t <= first {
                t = if (t - last).abs() < (t - first).abs() {
                    last - tenth
                } else {
                    first + tenth
                };
                stuck = false;
            } else {
                stuck = true;
            }
        } else {
            stuck = false;
        }
        let new = at(t)?;
        evals += 1;
        iter += 1;
        if high(&new) || new.f >= bracket[low].f {
            bracket[far] = new;
            (low, far) = lower(&bracket);
            continue;
        }
        let done = flat(&new);
        if !done && new.slope * (bracket[far].t - bracket[low].t) >= 0.0 {
            bracket[far] = bracket[low].clone();
        }
        bracket[low] = new;
        if done {
            break;
        }
    }
    let [a, b] = bracket;
    Ok((if low == 0 { a } else { b }, evals))
}
