//! The definition, one multiplication at a time in f64: what every fast path is compared with.

use crate::conv::Geometry;

/// Calls `f(y index, x index, w index)` for every product of the convolution.
pub(crate) fn products(g: &Geometry, mut f: impl FnMut(usize, usize, usize)) {
    let (per_in, per_out) = (g.group_in(), g.group_out());
    let index =
        |size: [usize; 3], n: usize, at: [usize; 3]| ((n * size[0] + at[0]) * size[1] + at[1]) * size[2] + at[2];
    let each = |size: [usize; 3]| {
        (0..size[0]).flat_map(move |d| (0..size[1]).flat_map(move |h| (0..size[2]).map(move |w| [d, h, w])))
    };
    for n in 0..g.batch {
        for o in each(g.output) {
            for (tap, k) in each(g.kernel).enumerate() {
                let at = [0, 1, 2].map(|i| g.tap(i, g.first(i, o[i]), k[i]));
                let [Some(d), Some(h), Some(w)] = at else { continue };
                for c in 0..g.outputs {
                    for i in 0..per_in {
                        f(
                            index(g.output, n, o) * g.outputs + c,
                            index(g.input, n, [d, h, w]) * g.channels + c / per_out * per_in + i,
                            (c * g.taps() + tap) * per_in + i,
                        );
                    }
                }
            }
        }
    }
}
