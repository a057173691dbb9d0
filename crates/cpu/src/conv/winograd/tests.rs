//! Both tile sizes against the definition in f64, and how many digits they cost.

use super::*;
use crate::CpuBuffer;
use crate::conv::naive;
use crate::gemm::Transforms;
use kiln_core::ops::{ConvParams, Padding, Window};
use kiln_core::philox::{Key, uniform};
use kiln_core::{DType, Runtime, Shape};
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

    /// The products with tiles of `side`: y, dx, dw; and dx the other way, `None` where an image has too many tiles for it.
    fn run<const POINTS: usize, const RESULTS: usize>(
        &self,
        side: usize,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> ([Vec<f32>; 3], Option<Vec<f32>>) {
        let (cpu, g) = (Cpu::poisoned(), &self.g);
        let [x, w, dy] = &self.operands;
        let mut out: [CpuBuffer; 3] = [0, 1, 2].map(|i| cpu.alloc(DType::F32, self.want[i].len()).unwrap());
        let [y, dx, dw] = out.each_mut().map(|b| b.as_mut_slice::<f32>());
        let weights = |way| Weights::new(&cpu, transforms, w, g.channels, way).unwrap();
        let tiles = Tiles::new(g, side).unwrap();
        convolve(
            &cpu,
            transforms,
            &tiles,
            x,
            &weights(Direction::Forward),
            Epilogue::NONE,
            y,
        )
        .unwrap();
        let back = Tiles::backward(g, side).unwrap();
        convolve(
            &cpu,
            transforms,
            &back,
            dy,
            &weights(Direction::Backward),
            Epilogue::NONE,
            dx,
        )
        .unwrap();
        let other = tiles.image_fits().then(|| {
            let mut dx = vec![f32::NAN; self.want[1].len()];
            transposed(&cpu, transforms, &tiles, dy, &weights(Direction::Transposed), &mut dx).unwrap();
            dx
        });
        let sizes = [g.channels, g.outputs];
        weight::weight_grad(&cpu, transforms, &tiles, dy, x, sizes, dw).unwrap();
        (out.map(|b| b.as_slice::<f32>().to_vec()), other)
    }

    /// The largest error of each product: y, dx the worse way, dw.
    fn errors<const POINTS: usize, const RESULTS: usize>(
        &self,
        side: usize,
        transforms: &Transforms<f32, POINTS, RESULTS>,
    ) -> [f64; 3] {
        let (got, other) = self.run(side, transforms);
        // Transforms mix the results of a tile, however few are wanted.
        let terms = [self.g.depth(), 9 * self.g.outputs, self.g.rows().max(64)];
        let largest = |got: &[f32], i: usize| {
            // Two operands of a mean size of a half.
            let unit = terms[i] as f64 / 4.0 * f64::from(f32::EPSILON);
            let each = got.iter().zip(&self.want[i]);
            let error = |(&got, &want): (&f32, &f64)| (f64::from(got) - want).abs() / unit;
            each.map(error)
                .fold(0.0, |a, b| if b.is_nan() { b } else { f64::max(a, b) })
        };
        let mut errors = [0, 1, 2].map(|i| largest(&got[i], i));
        if let Some(dx) = other {
            let error = largest(&dx, 1);
            errors[1] = if error.is_nan() { error } else { errors[1].max(error) };
        }
        errors
    }
}

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
    for sizes in [[2, 19, 22, 64, 96, 1, 1], [9, 13, 13, 130, 33, 0, 2]] {
        let case = Case::new(sizes);
        let kernels = f32::kernels();
        let small = case.errors(2, &kernels.winograd2);
        let large = case.errors(4, &kernels.winograd4);
        assert!(small.iter().all(|e| *e < SMALL), "{small:?}");
        assert!(large.iter().all(|e| *e < LARGE), "{large:?}");
    }
}
