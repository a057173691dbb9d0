//! Convolutions that give the moments of their channels, by every variant.

use crate::twin::{bits, buffer, empty, read, wide};
use crate::{cuda, has_warp_groups, with};
use half::{bf16, f16};
use kiln_core::ops::{ConvParams, Window};
use kiln_core::{Float, Shape};
use kiln_cuda::conv::{Algorithm, Pass};
use kiln_cuda::{Cuda, Options};

/// The result has the bits of the convolution by the same variant; the moments are those of what it stored, and the same in every run.
fn same<T: Float>(cuda: &Cuda, x: [usize; 4], w: [usize; 4], groups: usize) -> usize {
    let shape = |s: &[usize]| Shape::new(s).unwrap();
    let window = Window::new([w[1], w[2]]);
    let (p, y) = ConvParams::new("conv2d", &shape(&x), &shape(&w), &window, groups).unwrap();
    let (x, w) = (
        buffer::<_, T>(cuda, x.iter().product(), 1),
        buffer::<_, T>(cuda, w.iter().product(), 2),
    );
    let (channels, rows) = (p.out_channels as usize, y.size() / p.out_channels as usize);
    let fits = |a: &Algorithm| cuda.conv_fits(*a, Pass::Forward, &p, T::DTYPE);
    let run = |algorithm| {
        let (mut to, mut moments) = (empty::<_, T>(cuda, y.size()), empty::<_, f32>(cuda, 2 * channels));
        cuda.conv_moments_with(algorithm, &p, &x, &w, &mut to, &mut moments)
            .unwrap();
        (read::<_, T>(cuda, &to), read::<_, f32>(cuda, &moments))
    };
    let variants: Vec<_> = Algorithm::ALL.into_iter().filter(fits).collect();
    for &algorithm in &variants {
        let what = format!("{algorithm:?} {p:?}");
        let mut plain = empty::<_, T>(cuda, y.size());
        cuda.conv_with(algorithm, &p, &x, &w, None, &mut plain).unwrap();
        let (stored, moments) = run(algorithm);
        assert!(bits(&stored) == bits(&read::<_, T>(cuda, &plain)), "{what}");
        assert!(bits(&moments) == bits(&run(algorithm).1), "{what}");
        let stored = wide(stored);
        for c in 0..channels {
            let column = || stored.iter().skip(c).step_by(channels);
            let mean = column().sum::<f64>() / rows as f64;
            let m2 = column().map(|v| (v - mean).powi(2)).sum::<f64>();
            let (got, square) = (f64::from(moments[c]), f64::from(moments[channels + c]));
            let spread = mean.abs() + (m2 / rows as f64).sqrt();
            assert!(
                (got - mean).abs() <= 5e-6 * spread,
                "{what} {c}: mean {got}, expected {mean}"
            );
            assert!(
                (square - m2).abs() <= 1e-4 * m2 + 1e-9,
                "{what} {c}: {square}, expected {m2}"
            );
        }
    }
    variants.len()
}

#[test]
fn moments_are_those_of_the_result() {
    let tf32 = with(Options {
        tf32: true,
        ..Options::default()
    });
    for (cuda, tf32) in [(cuda(), false), (tf32, true)] {
        // Edges of every tile, three channels that are padded, groups; then more blocks of rows than one block joins.
        for (x, w, groups) in [
            ([2, 7, 9, 16], [40, 3, 3, 16], 1),
            ([1, 65, 64, 3], [24, 2, 2, 3], 1),
            ([3, 12, 11, 32], [144, 1, 1, 16], 2),
            ([1, 95, 89, 8], [8, 1, 1, 8], 1),
            ([3, 43, 46, 4], [68, 3, 3, 4], 1),
        ] {
            assert!(same::<f32>(&cuda, x, w, groups) > 2);
            if !tf32 {
                assert!(same::<bf16>(&cuda, x, w, groups) > 2);
                assert!(same::<f16>(&cuda, x, w, groups) > 2);
            }
        }
    }
}

#[test]
fn warp_groups_have_moments_too() {
    let cuda = cuda();
    let tiles = if has_warp_groups(&cuda) { 3 } else { 0 };
    assert!(same::<bf16>(&cuda, [2, 13, 12, 24], [72, 3, 3, 24], 1) > 5 + tiles);
    assert!(same::<f16>(&cuda, [3, 12, 11, 32], [528, 1, 1, 16], 2) > 5 + tiles);
}
