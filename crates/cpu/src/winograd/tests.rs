//! Compares both tile sizes with the definition in f64, and measures the digits that they lose.

use super::*;
use crate::conv::Geometry;
use crate::conv::naive;
use crate::gemm::Gemm;
use crate::ops::conv;
use crate::winograd::kernels::TransformSet;
use crate::winograd::tiles::Sides;
use crate::winograd::tiling::LARGE;
use kiln_core::Shape;
use kiln_core::ops::Activation;
use kiln_core::ops::{ConvParams, Padding, Window};
use kiln_core::philox::{Key, uniform};
use proptest::prelude::*;

/// The bound on the error of the products that the ops promise ([`super`]), relative to the root mean square of the exact
/// results, for random operands; with a margin for tiles whose operands are larger than others.
const PROMISED: f64 = 4e-6;

/// Batch, height, width, channels, outputs, padding above, padding on the left.
type Sizes = [usize; 7];

fn geometry([batch, height, width, channels, outputs, top, left]: Sizes) -> Geometry {
    let shape = |dims: [usize; 4]| Shape::new(&dims).unwrap();
    let window = Window {
        padding: Padding::Explicit([0, top, left]),
        ..Window::new([3, 3])
    };
    let (x, w) = (
        shape([batch, height, width, channels]),
        shape([outputs, 3, 3, channels]),
    );
    Geometry::new(&ConvParams::new("conv", &x, &w, &window, 1).unwrap().0)
}

fn values(len: usize, stream: u32) -> Vec<f32> {
    let key = Key::new(3, stream, 0);
    (0..len as u64).map(|i| 2.0 * uniform(key.word(i)) - 1.0).collect()
}

/// Normally distributed values.
fn normal(len: usize, stream: u32) -> Vec<f32> {
    let (u, v) = (values(len, stream), values(len, stream + 10));
    let pairs = u.iter().zip(&v);
    let normal = |(u, v): (&f32, &f32)| (-2.0 * (0.5 - 0.5 * u).ln()).sqrt() * (std::f32::consts::PI * v).cos();
    pairs.map(normal).collect()
}

/// The distribution of the operands.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Uniform between −1 and 1.
    Even,
    /// As in a network: images after a ReLU, weights as they are initialised, gradients around zero.
    Net,
    /// Values of similar size, so that large sums cancel in the transforms.
    Flat,
}

/// The operands of a convolution, and its three products in f64.
struct Case {
    g: Geometry,
    operands: [Vec<f32>; 3],
    want: [Vec<f64>; 3],
}

impl Case {
    fn new(sizes: Sizes, kind: Kind) -> Self {
        let g = geometry(sizes);
        let lens = [
            g.batch * g.in_positions() * g.channels,
            g.outputs * g.depth(),
            g.rows() * g.outputs,
        ];
        let scale = (2.0 / g.depth() as f32).sqrt();
        let operands = match kind {
            Kind::Even => [0, 1, 2].map(|i| values(lens[i], i as u32)),
            Kind::Net => [
                normal(lens[0], 0).iter().map(|x| x.max(0.0)).collect(),
                normal(lens[1], 1).iter().map(|w| w * scale).collect(),
                normal(lens[2], 2),
            ],
            Kind::Flat => [0, 1, 2].map(|i| values(lens[i], i as u32).iter().map(|x| 1.0 + 0.01 * x).collect()),
        };
        let [x, w, dy] = operands
            .each_ref()
            .map(|v| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        let mut want = [lens[2], lens[0], lens[1]].map(|len| vec![0.0; len]);
        naive::products(&g, |yi, xi, wi| {
            want[0][yi] += x[xi] * w[wi];
            want[1][xi] += dy[yi] * w[wi];
            want[2][wi] += dy[yi] * x[xi];
        });
        Case { g, operands, want }
    }

    /// Computes the products with tiles of `sides` by every algorithm, each with its number in `want`: y, dx and dw.
    fn run<const POINTS: usize, const RESULTS: usize>(
        &self,
        sides: Sides,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> Vec<(usize, Vec<f32>)> {
        let (cpu, g) = (Cpu::poisoned(), &self.g);
        let [x, w, dy] = &self.operands;
        let filter = |way| Filter::new(w, g.channels, way);
        let weights = |way| Weights::new(&cpu, transforms, filter(way)).unwrap();
        let (tiles, back) = (Tiles::new(g, sides).unwrap(), Tiles::backward(g, sides).unwrap());
        let (e, sizes) = (Epilogue::NONE, [g.channels, g.outputs]);
        let forward = |y: &mut [f32]| convolve(&cpu, transforms, &tiles, x, &weights(Direction::Forward), e, y);
        let forward_one_pass =
            |y: &mut [f32]| one_pass::convolve(&cpu, transforms, &tiles, x, filter(Direction::Forward), e, y);
        let backward = |dx: &mut [f32]| convolve(&cpu, transforms, &back, dy, &weights(Direction::Backward), e, dx);
        let backward_one_pass =
            |dx: &mut [f32]| one_pass::convolve(&cpu, transforms, &back, dy, filter(Direction::Backward), e, dx);
        let transposed = |dx: &mut [f32]| transposed(&cpu, transforms, &tiles, dy, &weights(Direction::Transposed), dx);
        let weight = |dw: &mut [f32]| weight_grad::weight_grad(&cpu, transforms, &tiles, dy, x, sizes, dw);
        let weight_one_pass = |dw: &mut [f32]| one_pass::weight_grad(&cpu, transforms, &tiles, dy, x, sizes, dw);
        let mut ways: Vec<(usize, Product<'_>)> = vec![
            (0, &forward),
            (0, &forward_one_pass),
            (1, &backward),
            (1, &backward_one_pass),
            (2, &weight),
            (2, &weight_one_pass),
        ];
        if tiles.image_fits() {
            ways.push((1, &transposed));
        }
        let product = |(i, way): (usize, Product<'_>)| {
            let mut out = vec![f32::NAN; self.want[i].len()];
            assert!(way(&mut out).unwrap(), "finite");
            (i, out)
        };
        ways.into_iter().map(product).collect()
    }

    /// The largest errors of y, dx and dw over all algorithms, relative to the root mean square of the exact results. For few
    /// results or short sums they are relative to the root mean square that random operands of this size would give.
    fn errors<const POINTS: usize, const RESULTS: usize>(
        &self,
        sides: Sides,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> [f64; 3] {
        let rms = |values: &[f64]| (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
        let sizes = self
            .operands
            .each_ref()
            .map(|v| rms(&v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>()));
        let terms = [self.g.depth(), 9 * self.g.outputs, self.g.rows()];
        let units = [0, 1, 2].map(|i| {
            let random = (terms[i] as f64).sqrt() * sizes.iter().product::<f64>() / sizes[[2, 0, 1][i]];
            rms(&self.want[i]).max(random)
        });
        let mut errors = [0.0_f64; 3];
        for (i, got) in self.run(sides, transforms) {
            for (&got, &want) in got.iter().zip(&self.want[i]) {
                let error = (f64::from(got) - want).abs() / units[i];
                errors[i] = if error.is_nan() || errors[i].is_nan() {
                    f64::NAN
                } else {
                    error.max(errors[i])
                };
            }
        }
        errors
    }

    /// Checks both tile sizes against the bound, with the transforms of some instruction sets and the best products.
    fn check(&self, sets: &[&TransformSet<f32>]) {
        for (transforms, kernels) in sets.iter().zip(f32::all_kernels()) {
            let small = self.errors(SMALL, &transforms.small);
            let large = self.errors(LARGE, &transforms.large);
            assert!(
                small.iter().all(|e| *e <= PROMISED),
                "F(2x2) with {}: {small:?}",
                kernels.name
            );
            assert!(
                large.iter().all(|e| *e <= PROMISED),
                "F(4x2) with {}: {large:?}",
                kernels.name
            );
        }
    }
}

/// A function that computes a product into its argument and returns true if it is finite.
type Product<'f> = &'f dyn Fn(&mut [f32]) -> Result<bool>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_size_agrees_with_the_definition(
        batch in 1usize..3,
        size in prop::array::uniform2(1usize..15),
        channels in prop::array::uniform2(prop::sample::select(vec![1usize, 3, 16, 17, 40])),
        padding in prop::array::uniform2(0usize..3),
    ) {
        let size = [0, 1].map(|i| size[i].max(3usize.saturating_sub(2 * padding[i])));
        let sizes = [batch, size[0], size[1], channels[0], channels[1], padding[0], padding[1]];
        Case::new(sizes, Kind::Even).check(f32::all_transforms());
    }
}

#[test]
fn large_sums_keep_their_digits() {
    for sizes in [
        [4, 28, 28, 16, 16, 1, 1],
        [2, 19, 22, 64, 96, 1, 1],
        [9, 13, 13, 130, 33, 0, 2],
        [5, 4, 4, 300, 200, 1, 1],
        [1, 7, 7, 512, 48, 1, 1],
        [1, 6, 7, 48, 512, 1, 0],
    ] {
        for kind in [Kind::Even, Kind::Net, Kind::Flat] {
            Case::new(sizes, kind).check(&f32::all_transforms()[..1]);
        }
    }
}

/// A NaN or infinity affects only the windows that contain it, as in direct sums, although it spreads over a tile.
#[test]
fn what_is_not_finite_stays_in_its_windows() {
    let g = geometry([2, 9, 8, 16, 16, 1, 1]);
    let lens = [g.batch * g.in_positions() * 16, 16 * g.depth(), g.rows() * 16];
    let cpu = Cpu::poisoned();
    for bad in [f32::NAN, f32::INFINITY] {
        let [mut x, w, mut dy] = [0, 1, 2].map(|i| values(lens[i], i as u32));
        let center = (9 * 8 + 4 * 8 + 4) * 16 + 3;
        (x[center], dy[center]) = (bad, bad);
        let mut got = [lens[2], lens[0], lens[1]].map(|len| vec![0f32; len]);
        let mut want = got.clone();
        let runs = [
            (&Cpu::poisoned(), &mut got),
            (&Cpu::builder().exact_convolutions(true).build(), &mut want),
        ];
        for (cpu, [y, dx, dw]) in runs {
            let epilogue = Epilogue {
                bias: None,
                activation: Activation::Relu,
            };
            let o = Operands { x: &x, w: &w, epilogue };
            conv::forward(cpu, &g, o, y).unwrap();
            conv::data_grad(cpu, &g, &dy, &w, dx).unwrap();
            conv::weight_grad(cpu, &g, &dy, &x, dw).unwrap();
        }
        for (got, want) in got.iter().zip(&want) {
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(got) == bits(want), "{bad}");
        }
        // A pixel is in nine windows, each with sixteen outputs.
        if bad.is_nan() {
            let count = |v: &[f32]| v.iter().filter(|v| v.is_nan()).count();
            assert_eq!(got.each_ref().map(|v| count(v)), [9 * 16, 9 * 16, 9 * 16 + 9 * 15]);
        }
        let tiles = Tiles::new(&g, SMALL).unwrap();
        let weights = Weights::new(&cpu, &f32::transforms().small, Filter::new(&w, 16, Direction::Forward)).unwrap();
        let mut y = vec![0f32; lens[2]];
        let transforms = &f32::transforms().small;
        assert!(!convolve(&cpu, transforms, &tiles, &x, &weights, Epilogue::NONE, &mut y).unwrap());
    }
}
