//! Data gradients of convolutions with the sums of the batch norm before them, by every variant.

use crate::twin::{bits, buffer, empty, read, wide};
use crate::{cuda, has_warp_groups, with};
use half::{bf16, f16};
use kiln_core::ops::{Activation, BatchNormGrads, BatchNormInputs, ConvNormGrads, ConvParams, NormOps, Window};
use kiln_core::{Float, Shape};
use kiln_cuda::conv::{Algorithm, Pass};
use kiln_cuda::{Cuda, CudaBuffer, Options};

/// The gradient before residual and ReLU has the bits of the two ops, the data gradient by the same variant; sums are those of what it stored,
/// and the same in every run.
fn same<T: Float>(cuda: &Cuda, x: [usize; 4], w: [usize; 4], stride: usize, groups: usize) -> usize {
    let shape = |s: &[usize]| Shape::new(s).unwrap();
    let window = Window::new([w[1], w[2]]).stride([stride, stride]);
    let (mut p, y) = ConvParams::new("conv2d", &shape(&x), &shape(&w), &window, groups).unwrap();
    p.activation = Activation::Relu as u32;
    let (n, channels) = (x.iter().product::<usize>(), x[3]);
    let tensor = |n, salt| buffer::<_, T>(cuda, n, salt);
    let (g, w) = (tensor(y.size(), 1), tensor(w.iter().product(), 2));
    let (x, y, more) = (tensor(n, 3), tensor(n, 4), tensor(n, 5));
    let vector = |salt| buffer::<_, f32>(cuda, channels, salt);
    let (mean, rstd, scale, shift) = (vector(6), vector(7), vector(8), vector(9));
    let fits = |a: &Algorithm| cuda.conv_fits(*a, Pass::DataGrad, &p, T::DTYPE);
    let variants: Vec<_> = Algorithm::ALL.into_iter().filter(fits).collect();
    for &algorithm in &variants {
        for (residual, more) in [(false, None), (true, Some(&more)), (true, None)] {
            let what = format!("{algorithm:?} {residual} {} {p:?}", more.is_some());
            let of = BatchNormInputs {
                x: &x,
                scale: Some(&scale),
                shift: Some(&shift),
                mean: &mean,
                rstd: &rstd,
                y: residual.then_some(&y),
            };
            let run = |again: Option<&mut CudaBuffer>| {
                let (mut d, mut dscale, mut dshift) = (
                    empty::<_, T>(cuda, n),
                    empty::<_, f32>(cuda, channels),
                    empty::<_, f32>(cuda, channels),
                );
                let to = ConvNormGrads {
                    d: &mut d,
                    dscale: &mut dscale,
                    dshift: &mut dshift,
                    y: again,
                };
                cuda.conv_norm_grad_with(algorithm, &p, &g, &w, &of, more, to).unwrap();
                let sums = [read::<_, f32>(cuda, &dscale), read::<_, f32>(cuda, &dshift)];
                (read::<_, T>(cuda, &d), sums)
            };
            let (d, sums) = run(None);
            let mut result = (!residual).then(|| empty::<_, T>(cuda, n));
            let again = run(result.as_mut());
            assert!(bits(&d) == bits(&again.0) && sums == again.1, "{what}");
            let [mut plain, mut dx, mut dr] = [(); 3].map(|()| empty::<_, T>(cuda, n));
            if let Some(result) = result {
                let p = p.norm_of_input();
                cuda.batch_norm_apply(&p, &x, None, Some(&scale), Some(&shift), &mean, &rstd, &mut dx)
                    .unwrap();
                assert!(
                    bits(&read::<_, T>(cuda, &result)) == bits(&read::<_, T>(cuda, &dx)),
                    "{what}"
                );
            }
            let [mut a, mut b] = [(); 2].map(|()| empty::<_, f32>(cuda, channels));
            cuda.conv_data_grad_with(algorithm, &p, &g, &w, &mut plain).unwrap();
            let to = BatchNormGrads {
                dx: &mut dx,
                dr: Some(&mut dr),
                dscale: &mut a,
                dshift: &mut b,
            };
            cuda.batch_norm_grad(&p.norm_of_input(), &of, &plain, more, to).unwrap();
            assert!(bits(&d) == bits(&read::<_, T>(cuda, &dr)), "{what}");
            let (d, x) = (wide(d), wide(read::<_, T>(cuda, &x)));
            let (mean, rstd) = (wide(read::<_, f32>(cuda, &mean)), wide(read::<_, f32>(cuda, &rstd)));
            for c in 0..channels {
                let [mut dot, mut total, mut size] = [0.0; 3];
                for i in (c..n).step_by(channels) {
                    let hat = (x[i] - mean[c]) * rstd[c];
                    (dot, total) = (dot + d[i] * hat, total + d[i]);
                    size += d[i].abs() * (1.0 + hat.abs());
                }
                let bound = 2e-6 * size + 1e-30;
                let found = [f64::from(sums[0][c]), f64::from(sums[1][c])];
                assert!(
                    (found[0] - dot).abs() <= bound && (found[1] - total).abs() <= bound,
                    "{what} {c}: {found:?}, expected {dot} and {total}"
                );
            }
        }
    }
    variants.len()
}

#[test]
fn sums_are_those_of_the_gradient() {
    let tf32 = with(Options {
        tf32: true,
        ..Options::default()
    });
    for (cuda, tf32) in [(cuda(), false), (tf32, true)] {
        // Edges of every tile; classes of remainders that differ in size, and without taps; groups; more blocks of rows than one joins.
        for (x, w, stride, groups) in [
            ([2, 9, 11, 40], [16, 3, 3, 40], 1, 1),
            ([2, 13, 12, 24], [32, 3, 3, 24], 2, 1),
            ([1, 9, 7, 264], [32, 1, 1, 264], 2, 1),
            ([3, 12, 11, 32], [64, 1, 1, 16], 1, 2),
            ([1, 95, 89, 8], [8, 1, 1, 8], 1, 1),
            ([3, 43, 46, 8], [8, 3, 3, 8], 1, 1),
        ] {
            assert!(same::<f32>(&cuda, x, w, stride, groups) > 2);
            if !tf32 {
                assert!(same::<bf16>(&cuda, x, w, stride, groups) > 2);
                assert!(same::<f16>(&cuda, x, w, stride, groups) > 2);
            }
        }
    }
}

#[test]
fn warp_groups_sum_too() {
    let cuda = cuda();
    let tiles = if has_warp_groups(&cuda) { 3 } else { 0 };
    // A data gradient that takes the positions class by class, and columns past the widest tile.
    assert!(same::<bf16>(&cuda, [2, 13, 12, 24], [64, 3, 3, 24], 2, 1) > 5 + tiles);
    assert!(same::<f16>(&cuda, [1, 9, 17, 264], [64, 1, 1, 264], 1, 1) > 5 + tiles);
}
