//! Both tile sizes against the definition in f64, and how many digits they cost.

use super::*;
use crate::conv::naive;
use crate::gemm::Transforms;
use kiln_core::Shape;
use kiln_core::ops::{ConvParams, Padding, Window};
use kiln_core::philox::{Key, uniform};
use proptest::prelude::*;

/// Errors that are allowed of 16 channels and outputs or more, in units of the last place of the sum of the sizes of a whole
/// window's terms, of operands between -1 and 1. Of fewer, which the ops never use these for, [`FEWER`] times as much.
const SMALL: f64 = 2.0;
const LARGE: f64 = 48.0;
const FEWER: f64 = 4.0;

/// Batch, height, width, channels, outputs, padding.
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

/// The operands of a convolution, and its three products in f64.
struct Case {
    g: Geometry,
    operands: [Vec<f32>; 3],
    want: [Vec<f64>; 3],
}

impl Case {
    fn new(sizes: Sizes) -> Self {
        let g = geometry(sizes);
        let lens = [
            g.batch * g.in_positions() * g.channels,
            g.outputs * g.depth(),
            g.rows() * g.outputs,
        ];
        let operands = [0, 1, 2].map(|i| values(lens[i], i as u32));
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

    /// The products with tiles of `side`, each with its number in `want`: y, dx and dw, by every way that there is.
    fn run<const POINTS: usize, const RESULTS: usize>(
        &self,
        side: usize,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> Vec<(usize, Vec<f32>)> {
        let (cpu, g) = (Cpu::poisoned(), &self.g);
        let [x, w, dy] = &self.operands;
        let filter = |way| Filter::new(w, g.channels, way);
        let weights = |way| Weights::new(&cpu, transforms, filter(way)).unwrap();
        let (tiles, back) = (Tiles::new(g, side).unwrap(), Tiles::backward(g, side).unwrap());
        let (e, sizes) = (Epilogue::NONE, [g.channels, g.outputs]);
        let forward = |y: &mut [f32]| convolve(&cpu, transforms, &tiles, x, &weights(Direction::Forward), e, y);
        let forward_whole =
            |y: &mut [f32]| whole::convolve(&cpu, transforms, &tiles, x, filter(Direction::Forward), e, y);
        let backward = |dx: &mut [f32]| convolve(&cpu, transforms, &back, dy, &weights(Direction::Backward), e, dx);
        let backward_whole =
            |dx: &mut [f32]| whole::convolve(&cpu, transforms, &back, dy, filter(Direction::Backward), e, dx);
        let turned = |dx: &mut [f32]| transposed(&cpu, transforms, &tiles, dy, &weights(Direction::Transposed), dx);
        let weight = |dw: &mut [f32]| weight::weight_grad(&cpu, transforms, &tiles, dy, x, sizes, dw);
        let weight_whole = |dw: &mut [f32]| whole::weight_grad(&cpu, transforms, &tiles, dy, x, sizes, dw);
        let mut ways: Vec<(usize, Product<'_>)> = vec![
            (0, &forward),
            (0, &forward_whole),
            (1, &backward),
            (1, &backward_whole),
            (2, &weight),
            (2, &weight_whole),
        ];
        if tiles.image_fits() {
            ways.push((1, &turned));
        }
        let product = |(i, way): (usize, Product<'_>)| {
            let mut out = vec![f32::NAN; self.want[i].len()];
            way(&mut out).unwrap();
            (i, out)
        };
        ways.into_iter().map(product).collect()
    }

    /// The largest error of y, dx and dw, of the worst way.
    fn errors<const POINTS: usize, const RESULTS: usize>(
        &self,
        side: usize,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> [f64; 3] {
        // Transforms mix the results of a tile, however few are wanted.
        let terms = [self.g.depth(), 9 * self.g.outputs, self.g.rows().max(64)];
        let mut errors = [0.0_f64; 3];
        for (i, got) in self.run(side, transforms) {
            // Two operands of a mean size of a half.
            let unit = terms[i] as f64 / 4.0 * f64::from(f32::EPSILON);
            for (&got, &want) in got.iter().zip(&self.want[i]) {
                let error = (f64::from(got) - want).abs() / unit;
                errors[i] = if error.is_nan() || errors[i].is_nan() {
                    f64::NAN
                } else {
                    error.max(errors[i])
                };
            }
        }
        errors
    }
}

/// What fills in a product.
type Product<'f> = &'f dyn Fn(&mut [f32]) -> Result<()>;

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
        let case = Case::new([batch, size[0], size[1], channels[0], channels[1], padding[0], padding[1]]);
        let few = channels.iter().any(|&c| c < 16);
        let factor = if few { FEWER } else { 1.0 };
        for kernels in f32::all_kernels() {
            // The transforms of each instruction set, with the best products.
            let small = case.errors(2, &kernels.winograd2);
            let large = case.errors(4, &kernels.winograd4);
            prop_assert!(small.iter().all(|e| *e < factor * SMALL), "F(2x2) with {}: {small:?}", kernels.name);
            prop_assert!(large.iter().all(|e| *e < factor * LARGE), "F(4x4) with {}: {large:?}", kernels.name);
        }
    }
}

#[test]
fn large_sums_keep_their_digits() {
    for sizes in [
        [2, 19, 22, 64, 96, 1, 1],
        [9, 13, 13, 130, 33, 0, 2],
        [5, 4, 4, 300, 200, 1, 1],
    ] {
        let case = Case::new(sizes);
        let kernels = f32::kernels();
        let small = case.errors(2, &kernels.winograd2);
        let large = case.errors(4, &kernels.winograd4);
        assert!(small.iter().all(|e| *e < SMALL), "{small:?}");
        assert!(large.iter().all(|e| *e < LARGE), "{large:?}");
    }
}
