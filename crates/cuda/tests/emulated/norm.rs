//! Norms: every kernel and way of cutting against the CPU on shapes that choose it.

use crate::cuda;
use crate::twin::{EDGES, bits, buffer, empty, read, wide};
use half::{bf16, f16};
use kiln_core::ops::{BatchNormParams, GroupNormParams};
use kiln_core::{Backend, Float, Shape};
use kiln_cpu::Cpu;
use kiln_cuda::Cuda;
use kiln_cuda::norm::Algorithm;
use kiln_testkit::assert_close;

/// The results of a norm and of its gradient: values of the tensor's dtype, then statistics.
struct Written<T> {
    values: Vec<(&'static str, Vec<T>)>,
    stats: Vec<(&'static str, Vec<f32>)>,
}

/// The presence of a scale, and of a shift.
type Affine = (bool, bool);

const AFFINE: [Affine; 4] = [(true, true), (false, false), (true, false), (false, true)];

fn group<B: Backend, T: Float>(b: &B, p: &GroupNormParams, (scaled, shifted): Affine) -> Written<T> {
    let channels = (p.groups * p.width) as usize;
    let n = (p.samples * p.positions) as usize * channels;
    let groups = (p.samples * p.groups) as usize;
    let (x, g) = (buffer::<B, T>(b, n, 1), buffer::<B, T>(b, n, 2));
    let scale = scaled.then(|| buffer::<B, T>(b, channels, 3));
    let shift = shifted.then(|| buffer::<B, T>(b, channels, 4));
    let (mut mean, mut rstd) = (empty::<B, f32>(b, groups), empty::<B, f32>(b, groups));
    let (mut y, mut dx) = (empty::<B, T>(b, n), empty::<B, T>(b, n));
    let (mut dscale, mut dshift) = (empty::<B, T>(b, channels), empty::<B, T>(b, channels));
    let (a, s) = (scale.as_ref(), shift.as_ref());
    b.group_norm(p, &x, a, s, &mut y, &mut mean, &mut rstd)
        .and_then(|()| b.group_norm_grad(p, &x, a, &mean, &rstd, &g, &mut dx, &mut dscale, &mut dshift))
        .unwrap_or_else(|e| panic!("{p:?}: {e}"));
    Written {
        values: vec![
            ("y", read(b, &y)),
            ("dx", read(b, &dx)),
            ("dscale", read(b, &dscale)),
            ("dshift", read(b, &dshift)),
        ],
        stats: vec![("mean", read(b, &mean)), ("rstd", read(b, &rstd))],
    }
}

/// Batch norm in training is the group norm of one sample.
fn grouped(p: &BatchNormParams) -> GroupNormParams {
    let shape = Shape::new(&[p.rows as usize, p.channels as usize]).unwrap();
    GroupNormParams::batch("batch_norm", &shape, p.eps).unwrap()
}

fn batch<B: Backend, T: Float>(b: &B, p: &BatchNormParams, (scaled, shifted): Affine) -> Written<T> {
    let (channels, n) = (p.channels as usize, (p.rows * p.channels) as usize);
    let (x, g) = (buffer::<B, T>(b, n, 1), buffer::<B, T>(b, n, 2));
    let scale = scaled.then(|| buffer::<B, T>(b, channels, 3));
    let shift = shifted.then(|| buffer::<B, T>(b, channels, 4));
    let (mut mean, mut rstd) = (empty::<B, f32>(b, channels), empty::<B, f32>(b, channels));
    let (mut y, mut eval, mut dx) = (empty::<B, T>(b, n), empty::<B, T>(b, n), empty::<B, T>(b, n));
    let (mut dscale, mut dshift) = (empty::<B, T>(b, channels), empty::<B, T>(b, channels));
    let (a, s) = (scale.as_ref(), shift.as_ref());
    b.group_norm(&grouped(p), &x, a, s, &mut y, &mut mean, &mut rstd)
        // The statistics stand in for given ones: rstd is positive, as a variance is.
        .and_then(|()| b.batch_norm_eval(p, &x, None, a, s, &mean, &rstd, &mut eval))
        .and_then(|()| b.group_norm_grad(&grouped(p), &x, a, &mean, &rstd, &g, &mut dx, &mut dscale, &mut dshift))
        .unwrap_or_else(|e| panic!("{p:?}: {e}"));
    Written {
        values: vec![
            ("y", read(b, &y)),
            ("eval", read(b, &eval)),
            ("dx", read(b, &dx)),
            ("dscale", read(b, &dscale)),
            ("dshift", read(b, &dshift)),
        ],
        stats: vec![("mean", read(b, &mean)), ("rstd", read(b, &rstd))],
    }
}

/// Compares results whose sums were in another order and then rounded once: two neighbouring values of the dtype at most.
fn compare<T: Float>(what: &str, got: Written<T>, want: Written<T>) {
    let spacing = match T::DTYPE.size() {
        4 => 0.0,
        _ => {
            T::of(1.0 + 1.5 * 2f64.powi(-11))
                .f64()
                .max(T::of(1.0 + 1.5 * 2f64.powi(-8)).f64())
                - 1.0
        }
    };
    // A thousand roundings of f32 in a sum, and four hundred of a result of size 1.
    let near = |want: &[f64], spacing: f64, least: f64| -> Vec<f64> {
        want.iter().map(|w| least + (1e-4 + spacing) * w.abs()).collect()
    };
    for ((name, got), (_, want)) in got.values.into_iter().zip(want.values) {
        let what = format!("{} {what}: {name}", T::DTYPE);
        let want = wide(want);
        assert_close(&what, &wide(got), &want, &near(&want, spacing, 4e-5));
    }
    for ((name, got), (_, want)) in got.stats.into_iter().zip(want.stats) {
        let what = format!("{} {what}: {name}", T::DTYPE);
        let want = wide(want);
        assert_close(&what, &wide(got), &want, &near(&want, 0.0, 1e-5));
    }
}

fn same_group<T: Float>(cuda: &Cuda, shape: [u64; 4], rms: u32, affine: Affine) {
    let [samples, positions, groups, width] = shape;
    let p = GroupNormParams {
        samples,
        positions,
        groups,
        width,
        eps: 0.01,
        rms,
        pad: 0,
    };
    let want = group::<_, T>(&Cpu::poisoned(), &p, affine);
    compare(
        &format!("{shape:?} rms {rms} {affine:?}"),
        group::<_, T>(cuda, &p, affine),
        want,
    );
}

fn every_dtype(cuda: &Cuda, shape: [u64; 4], rms: u32, affine: Affine) {
    same_group::<f32>(cuda, shape, rms, affine);
    same_group::<bf16>(cuda, shape, rms, affine);
    same_group::<f16>(cuda, shape, rms, affine);
}

/// Compares every variant, on rows that it takes, with the backend's choice, which the tests below hold to the CPU.
fn variants<T: Float>(cuda: &Cuda, width: u64) {
    let p = GroupNormParams {
        samples: 3,
        positions: 1,
        groups: 1,
        width,
        eps: 0.01,
        rms: (width % 2) as u32,
        pad: 0,
    };
    let (n, channels) = (3 * width as usize, width as usize);
    let want = group::<_, T>(cuda, &p, (true, true));
    for algorithm in Algorithm::ALL.into_iter().filter(|a| a.widest() >= width) {
        let (x, g) = (buffer::<_, T>(cuda, n, 1), buffer::<_, T>(cuda, n, 2));
        let (scale, shift) = (buffer::<_, T>(cuda, channels, 3), buffer::<_, T>(cuda, channels, 4));
        let (mut y, mut dx) = (empty::<_, T>(cuda, n), empty::<_, T>(cuda, n));
        let (mut mean, mut rstd) = (empty::<_, f32>(cuda, 3), empty::<_, f32>(cuda, 3));
        let affine = (Some(&scale), Some(&shift));
        cuda.norm_rows_with(algorithm, &p, &x, affine, &mut y, &mut mean, &mut rstd)
            .and_then(|()| cuda.norm_rows_grad_with(algorithm, &p, &x, Some(&scale), (&mean, &rstd), &g, &mut dx))
            .unwrap_or_else(|e| panic!("{algorithm:?} {p:?}: {e}"));
        let got = Written {
            values: vec![("y", read(cuda, &y)), ("dx", read(cuda, &dx))],
            stats: vec![("mean", read(cuda, &mean)), ("rstd", read(cuda, &rstd))],
        };
        let want = Written {
            values: want.values[..2].to_vec(),
            stats: want.stats.clone(),
        };
        compare::<T>(&format!("{algorithm:?}, rows of {width}"), got, want);
    }
}

#[test]
fn variants_agree() {
    let cuda = cuda();
    for width in [32, 129, 600, 1024, 2056, 8192]
        .into_iter()
        .chain(EDGES)
        .map(|n| n as u64)
    {
        variants::<f32>(&cuda, width);
        variants::<bf16>(&cuda, width);
        variants::<f16>(&cuda, width);
    }
    let chosen = [1, 1024, 1025, 8192, 8193].map(Algorithm::choose);
    let (warps, blocks, long) = (Algorithm::Warps, Algorithm::Blocks, Algorithm::Long);
    assert_eq!(chosen, [warps, warps, blocks, blocks, long]);
}

/// Rows of every kernel: around a warp, and around what a warp and a block hold in registers.
#[test]
fn rows_of_any_width() {
    let cuda = cuda();
    let widths = [7, 32, 64, 129, 1024, 1032, 8191, 8192, 8193, 8200];
    for (width, affine) in widths.into_iter().chain(EDGES).zip(AFFINE.into_iter().cycle()) {
        let samples = if width > 1000 { 2 } else { 9 };
        for rms in [0, 1] {
            every_dtype(&cuda, [samples, 1, 1, width as u64], rms, affine);
        }
    }
}

/// One position of several groups, no samples at all, and so many that their sums are cut.
#[test]
fn rows_of_groups() {
    let cuda = cuda();
    let shapes = [
        [5, 1, 3, 7],
        [3, 1, 4, 8],
        [0, 1, 1, 33],
        [0, 1, 3, 8],
        [1, 1, 33, 1],
        [150, 1, 1, 40],
        [130, 1, 2, 33],
    ];
    for (shape, affine) in shapes.into_iter().zip(AFFINE.into_iter().cycle()) {
        every_dtype(&cuda, shape, 0, affine);
    }
}

/// Several positions: one chunk of rows and more, groups of a channel and of more than a block sums at once.
#[test]
fn columns_of_groups() {
    let cuda = cuda();
    let shapes = [
        [3, 5, 2, 3],
        [2, 70, 1, 33],
        [2, 300, 4, 2],
        [1, 7, 31, 1],
        [2, 129, 33, 1],
        [0, 5, 2, 4],
        [2, 2, 3, 150],
        [1, 600, 1, 16],
        [2, 67, 2, 65],
    ];
    let edges = EDGES.map(|n| [1, n as u64, 2, 3]);
    for (shape, affine) in shapes.into_iter().chain(edges).zip(AFFINE.into_iter().cycle()) {
        for rms in [0, 1] {
            every_dtype(&cuda, shape, rms, affine);
        }
    }
}

fn same_batch<T: Float>(cuda: &Cuda, rows: u64, channels: u64, affine: Affine) {
    let p = BatchNormParams {
        rows,
        channels,
        eps: 0.01,
        relu: 0,
        pad: 0,
    };
    let want = batch::<_, T>(&Cpu::poisoned(), &p, affine);
    compare(
        &format!("[{rows}, {channels}] {affine:?}"),
        batch::<_, T>(cuda, &p, affine),
        want,
    );
}

#[test]
fn batches_of_any_shape() {
    let cuda = cuda();
    let shapes = [
        (1, 5),
        (2, 1),
        (31, 2),
        (33, 3),
        (40, 4),
        (127, 8),
        (129, 31),
        (65, 33),
        (300, 64),
        (1100, 3),
        (2500, 4),
        (200, 130),
        (17, 257),
    ];
    let edges = EDGES.into_iter().flat_map(|n| [(n as u64, 3), (3, n as u64)]);
    for ((rows, channels), affine) in shapes.into_iter().chain(edges).zip(AFFINE.into_iter().cycle()) {
        same_batch::<f32>(&cuda, rows, channels, affine);
        same_batch::<bf16>(&cuda, rows, channels, affine);
        same_batch::<f16>(&cuda, rows, channels, affine);
    }
}

/// A mean of 10⁴ with deviations of 1 leaves nothing of a variance that is a difference of squares.
#[test]
fn variances_survive_a_large_mean() {
    let cuda = cuda();
    for (rows, channels) in [(700u64, 3u64), (300, 40)] {
        let n = (rows * channels) as usize;
        let x: Vec<f32> = (0..n)
            .map(|i| {
                1e4 + if (i / channels as usize).is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                }
            })
            .collect();
        let x = crate::twin::upload(&cuda, &x);
        let mut y = empty::<_, f32>(&cuda, n);
        let stats = || empty::<_, f32>(&cuda, channels as usize);
        let (mut mean, mut rstd) = (stats(), stats());
        let p = BatchNormParams {
            rows,
            channels,
            eps: 0.0,
            relu: 0,
            pad: 0,
        };
        use kiln_core::ops::NormOps;
        cuda.group_norm(&grouped(&p), &x, None, None, &mut y, &mut mean, &mut rstd)
            .unwrap();
        for (m, r) in read::<_, f32>(&cuda, &mean)
            .into_iter()
            .zip(read::<_, f32>(&cuda, &rstd))
        {
            assert!((m - 1e4).abs() <= 2e-3 && (r - 1.0).abs() <= 1e-4, "mean {m}, rstd {r}");
        }
    }
}

/// The same call gives the same bits: nothing is added in the order in which blocks happen to finish.
#[test]
fn bits_repeat() {
    let p = GroupNormParams {
        samples: 2,
        positions: 300,
        groups: 3,
        width: 12,
        eps: 0.01,
        rms: 0,
        pad: 0,
    };
    let rows = GroupNormParams {
        positions: 1,
        samples: 200,
        ..p
    };
    for p in [p, rows] {
        let run = || {
            let w = group::<_, f32>(&cuda(), &p, (true, true));
            let all = w.values.iter().chain(&w.stats);
            all.map(|(_, v)| bits(v).to_vec()).collect::<Vec<_>>()
        };
        assert!(run() == run(), "{p:?}");
    }
}
