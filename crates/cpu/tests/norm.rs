//! Norms against f64 loops.

mod common;

use common::{at_threads, close, random};
use kiln_core::ops::{BatchNormParams, GroupNormParams, NormOps};
use kiln_core::{DType, Runtime, Shape};
use kiln_cpu::{Cpu, CpuBuffer};
use proptest::prelude::*;

const EPS: f64 = 1e-5;

/// Which entries belong together: (statistic, channel) of element `i`.
type Layout<'a> = &'a dyn Fn(usize) -> (usize, usize);

struct Input {
    x: Vec<f32>,
    g: Vec<f32>,
    scale: Option<Vec<f32>>,
    shift: Option<Vec<f32>>,
}

impl Input {
    fn new(n: usize, channels: usize, affine: bool, offset: f32) -> Self {
        Input {
            x: random(n, 1).into_iter().map(|v| v + offset).collect(),
            g: random(n, 2),
            scale: affine.then(|| random(channels, 3)),
            shift: affine.then(|| random(channels, 4)),
        }
    }

    /// y, mean, rstd, dx, dscale, dshift, each as the formulas of the trait read.
    fn oracle(&self, stats: usize, channels: usize, rms: bool, at: Layout<'_>) -> [Vec<f64>; 6] {
        let x: Vec<f64> = self.x.iter().map(|&v| f64::from(v)).collect();
        let of = |v: &Option<Vec<f32>>, c: usize, d: f64| v.as_ref().map_or(d, |v| f64::from(v[c]));
        let sums = |f: &dyn Fn(usize) -> f64| {
            let mut out = vec![0.0; stats];
            (0..x.len()).for_each(|i| out[at(i).0] += f(i));
            out
        };
        let n = (x.len() / stats.max(1)) as f64;
        let mean: Vec<f64> = sums(&|i| if rms { 0.0 } else { x[i] })
            .into_iter()
            .map(|s| s / n)
            .collect();
        let rstd: Vec<f64> = sums(&|i| (x[i] - mean[at(i).0]).powi(2))
            .into_iter()
            .map(|s| 1.0 / (s / n + EPS).sqrt())
            .collect();
        let hat = |i: usize| (x[i] - mean[at(i).0]) * rstd[at(i).0];
        let gs = |i: usize| f64::from(self.g[i]) * of(&self.scale, at(i).1, 1.0);
        let a = sums(&|i| if rms { 0.0 } else { gs(i) });
        let b = sums(&|i| gs(i) * hat(i));
        let y = (0..x.len()).map(|i| hat(i) * of(&self.scale, at(i).1, 1.0) + of(&self.shift, at(i).1, 0.0));
        let dx = (0..x.len()).map(|i| rstd[at(i).0] * (gs(i) - a[at(i).0] / n - hat(i) * b[at(i).0] / n));
        let (y, dx) = (y.collect(), dx.collect());
        let (mut dscale, mut dshift) = (vec![0.0; channels], vec![0.0; channels]);
        for i in 0..x.len() {
            dscale[at(i).1] += f64::from(self.g[i]) * hat(i);
            dshift[at(i).1] += f64::from(self.g[i]);
        }
        [y, mean, rstd, dx, dscale, dshift]
    }

    /// The same from the backend.
    fn run(&self, stats: usize, channels: usize, p: &GroupNormParams) -> [Vec<f32>; 6] {
        let cpu = Cpu::poisoned();
        let up = |v: &[f32]| cpu.upload(v).unwrap();
        let (x, g) = (up(&self.x), up(&self.g));
        let (scale, shift) = (self.scale.as_deref().map(up), self.shift.as_deref().map(up));
        let new = |n: usize| cpu.alloc(DType::F32, n).unwrap();
        let (mut y, mut dx) = (new(self.x.len()), new(self.x.len()));
        let (mut mean, mut rstd, mut ds, mut db) = (new(stats), new(stats), new(channels), new(channels));
        let (s, b): (Option<&CpuBuffer>, _) = (scale.as_ref(), shift.as_ref());
        cpu.group_norm(p, &x, s, b, &mut y, &mut mean, &mut rstd).unwrap();
        cpu.group_norm_grad(p, &x, s, &mean, &rstd, &g, &mut dx, &mut ds, &mut db)
            .unwrap();
        [y, mean, rstd, dx, ds, db].map(|b| cpu.download(&b).unwrap())
    }
}

#[track_caller]
fn compare(got: &[Vec<f32>; 6], want: &[Vec<f64>; 6], offset: f64) {
    // Subtracting a mean of `offset` loses about log₂(offset) of the 24 bits: that error belongs to the input.
    let lost = 1e-6 * (1.0 + offset);
    for (got, want) in got.iter().zip(want) {
        close(got, want, 2e-5 + 4.0 * lost, 2e-5 + 100.0 * lost);
    }
}

fn batch(rows: usize, c: usize, affine: bool, offset: f32) {
    let input = Input::new(rows * c, c, affine, offset);
    let p = GroupNormParams::batch("test", &Shape::new(&[rows, c]).unwrap(), EPS).unwrap();
    compare(
        &input.run(c, c, &p),
        &input.oracle(c, c, false, &|i| (i % c, i % c)),
        f64::from(offset),
    );
}

fn group(dims: [usize; 4], affine: bool) {
    let [samples, positions, groups, width] = dims;
    let c = groups * width;
    let input = Input::new(samples * positions * c, c, affine, 0.0);
    let shape = Shape::new(&[samples, positions, c]).unwrap();
    let p = GroupNormParams::group("test", &shape, groups, EPS).unwrap();
    let at = |i: usize| (i / (positions * c) * groups + i % c / width, i % c);
    let want = input.oracle(samples * groups, c, false, &at);
    compare(&input.run(samples * groups, c, &p), &want, 0.0);
}

fn layer(rows: usize, width: usize, affine: bool, rms: bool) {
    let input = Input::new(rows * width, width, affine, 0.0);
    let shapes = (Shape::new(&[rows, width]).unwrap(), Shape::new(&[width]).unwrap());
    let p = GroupNormParams::layer("test", &shapes.0, &shapes.1, EPS, rms).unwrap();
    let want = input.oracle(rows, width, rms, &|i| (i / width, i % width));
    compare(&input.run(rows, width, &p), &want, 0.0);
}

fn width() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 1usize..9, 1 => prop::sample::select(vec![31usize, 33, 64, 65, 127, 128, 129])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn batch_norm_agrees_with_loops(rows in 2usize..200, c in width(), affine in any::<bool>()) {
        batch(rows, c, affine, 0.0);
    }

    #[test]
    fn group_norm_agrees_with_loops(
        samples in 0usize..4, positions in 1usize..40, groups in 1usize..6, width in width(), affine in any::<bool>(),
    ) {
        // A single value per statistic has a gradient of zero times 1/√eps: only noise to compare.
        let positions = if width == 1 { positions + 2 } else { positions };
        group([samples, positions, groups, width], affine);
    }

    #[test]
    fn layer_and_rms_norm_agree_with_loops(
        rows in 0usize..40, width in width(), affine in any::<bool>(), rms in any::<bool>(),
    ) {
        layer(rows, width + 1, affine, rms);
    }
}

#[test]
fn large_tensors_agree() {
    batch(30_000, 3, true, 0.0);
    batch(1200, 200, true, 0.0);
    group([2, 9000, 2, 3], true);
    group([2, 700, 130, 1], true);
    layer(700, 130, true, false);
    layer(5, 70_000, true, true);
}

#[test]
fn a_large_mean_does_not_drown_the_variance() {
    batch(20_000, 3, true, 1000.0);
    batch(300, 130, true, 1000.0);
}

#[test]
fn bits_do_not_depend_on_threads() {
    let shape = Shape::new(&[6, 3000, 12]).unwrap();
    let input = Input::new(shape.size(), 12, true, 0.5);
    let p = GroupNormParams::batch("test", &shape, EPS).unwrap();
    at_threads(|| input.run(12, 12, &p).concat());
    let p = GroupNormParams::group("test", &shape, 4, EPS).unwrap();
    at_threads(|| input.run(24, 12, &p).concat());
    let p = GroupNormParams::layer("test", &shape, &Shape::new(&[12]).unwrap(), EPS, false).unwrap();
    at_threads(|| input.run(18_000, 12, &p).concat());
}

#[test]
fn evaluation_uses_the_given_statistics() {
    let cpu = Cpu::poisoned();
    let p = BatchNormParams::new("test", &Shape::new(&[2, 2]).unwrap(), 0.0).unwrap();
    let up = |v: &[f32]| cpu.upload(v).unwrap();
    let mut y = cpu.alloc(DType::F32, 4).unwrap();
    let (x, mean, var) = (up(&[1.0, 2.0, 3.0, 4.0]), up(&[1.0, 2.0]), up(&[4.0, 0.25]));
    let (scale, shift) = (up(&[2.0, 1.0]), up(&[0.0, 10.0]));
    cpu.batch_norm_eval(&p, &x, None, Some(&scale), Some(&shift), &mean, &var, &mut y)
        .unwrap();
    assert_eq!(cpu.download::<f32>(&y).unwrap(), [0.0, 10.0, 2.0, 14.0]);
    cpu.batch_norm_eval(&p, &x, None, None, None, &mean, &var, &mut y)
        .unwrap();
    assert_eq!(cpu.download::<f32>(&y).unwrap(), [0.0, 0.0, 1.0, 4.0]);
}
