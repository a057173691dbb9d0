//! The algorithms of a convolution: the passes that each supports, its cost, and the choice among them.
//!
//! The choice depends on the shapes, the width of this machine's vectors, and on whether convolutions are to be exact.

use crate::conv::{Geometry, direct, halves, packed_columns, planar, product};
use crate::gemm::Gemm;
use crate::gemm::halves::HalfKernels;
use crate::winograd::Tiling;
use kiln_core::DType;
use kiln_core::ops::ConvPass as Pass;

/// A way to compute one of the products.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Algorithm {
    /// A product over the windows of images: vectors run along the output's channels, or the input's in the data gradient.
    Direct,
    /// Each channel by itself, where there are as many groups as channels: vectors run along the channels.
    Depthwise,
    /// The product of two matrices that it is where windows have one position each, or the only one is the whole image.
    Product,
    /// Channel by channel: vectors run along the positions of a line.
    Planar,
    /// [`Direct`](Algorithm::Direct) with this many neighbouring output positions taken as one, whose window is wider.
    PackedColumns(usize),
    /// Products whose vectors run along a line of the window: the weight gradient of few outputs.
    WindowColumns,
    /// The gradients of whole windows, added to where the windows lie.
    Scatter,
    /// Winograd's minimal filtering of 3×3 windows.
    Winograd(Tiling),
    /// Of halves: windows and weights are packed as words for these kernels. The other algorithms widen halves as a whole.
    Words(HalfKernels),
}

/// The most positions of [`Algorithm::PackedColumns`].
const MOST_PACKED: usize = 8;

impl Algorithm {
    /// Every algorithm that can compute `pass` of `g` for elements of `dtype`.
    pub(crate) fn all(pass: Pass, g: &Geometry, dtype: DType) -> impl Iterator<Item = Algorithm> {
        let plain = [
            Algorithm::Direct,
            Algorithm::Depthwise,
            Algorithm::Product,
            Algorithm::Planar,
            Algorithm::WindowColumns,
            Algorithm::Scatter,
        ];
        let packed = (2..=MOST_PACKED).map(Algorithm::PackedColumns);
        let winograd = Tiling::all(pass, g).map(Algorithm::Winograd);
        let g = *g;
        let words = HalfKernels::ALL.map(Algorithm::Words);
        let every = plain.into_iter().chain(packed).chain(winograd).chain(words);
        every.filter(move |a| a.supports(pass, &g, dtype))
    }

    /// True if this algorithm can compute `pass` of a convolution that is not [`Geometry::empty`].
    pub(crate) fn supports(self, pass: Pass, g: &Geometry, dtype: DType) -> bool {
        match (self, pass) {
            (Algorithm::Direct, Pass::DataGrad) => direct::has_few_remainders(g),
            (Algorithm::Direct, _) => true,
            (Algorithm::Depthwise, _) => g.depthwise(),
            (Algorithm::Product, _) => product::shape(pass, g).is_some(),
            (Algorithm::Planar, Pass::Forward) => planar::is_supported(g),
            (Algorithm::PackedColumns(n), Pass::Forward) => packed_columns::is_supported(g, n),
            (Algorithm::WindowColumns, Pass::WeightGrad) => g.groups == 1,
            (Algorithm::Scatter, Pass::DataGrad) => true,
            // A tiling is made for its pass.
            (Algorithm::Winograd(_), _) => true,
            (Algorithm::Words(kernels), _) => kernels.supports(dtype) && halves::is_supported(pass, g),
            _ => false,
        }
    }

    /// The cost: the number of multiply-adds of full vectors of `lanes` elements that take about as long.
    pub(crate) fn cost(self, pass: Pass, g: &Geometry, lanes: usize) -> usize {
        let full = |n: usize| n.next_multiple_of(lanes);
        // Multiply-adds of one channel with one output.
        let (all, inside) = (g.rows().saturating_mul(g.taps()), g.inside_taps());
        let (channels, outputs) = (g.group_in(), g.group_out());
        let sums_of = |sums: usize, per_step: usize| sums.saturating_mul(per_step).saturating_mul(g.groups);
        match (self, pass) {
            (Algorithm::Direct, Pass::Forward) => sums_of(inside, channels * full(outputs)),
            (Algorithm::Direct, Pass::DataGrad) => sums_of(inside, outputs * full(channels)),
            (Algorithm::Direct, Pass::WeightGrad) => sums_of(all, channels * full(outputs)),
            (Algorithm::Depthwise, _) => inside.saturating_mul(full(g.channels)) / 2,
            // A tenth less than by direct sums: both operands are packed in blocks for the caches.
            (Algorithm::Product, _) => product::shape(pass, g).map_or(usize::MAX, |s| {
                s.m.saturating_mul(s.k).saturating_mul(full(s.n)) / 10 * 9
            }),
            (Algorithm::Planar, _) => planar::cost(g, lanes),
            (Algorithm::PackedColumns(n), _) => {
                let (taps, wide) = (g.kernel[2], g.kernel[2] + (n - 1) * g.stride[2]);
                // A tenth more, for the weights that are spread.
                sums_of(inside / (n * taps).max(1), channels * wide * full(n * outputs)) / 9 * 10
            }
            (Algorithm::WindowColumns, _) => {
                let line = packed_columns::window_line(g);
                sums_of(all / (line / channels).max(1), outputs * full(line)) / 9 * 10
            }
            (Algorithm::Scatter, _) => {
                // Lines of windows are added by unaligned vectors, which take as long as four multiply-adds and more.
                let lines = g.kernel[0] * g.kernel[1] * (full(g.kernel[2] * channels) + lanes) * 4;
                sums_of(g.rows(), outputs * full(g.depth()) * 5 / 4 + lines)
            }
            // With fewer channels the transforms take most of the time, and vectors are not full.
            (Algorithm::Winograd(_), _) if g.channels.min(g.outputs) < 16 => usize::MAX,
            (Algorithm::Winograd(tiling), _) => tiling.cost() / 9 * 10,
            (Algorithm::Words(kernels), _) => halves::cost(kernels, pass, g),
        }
    }
}

/// The [names](Algorithm::name) of all algorithms.
pub(crate) const NAMES: &[&str] = &[
    "direct",
    "depthwise",
    "matrix product",
    "planar",
    "packed columns",
    "window columns",
    "scatter",
    "Winograd F(2×2, 3×3)",
    "Winograd F(4×2, 3×3)",
    "Winograd F(2×2, 3×3) transposed",
    "Winograd F(4×2, 3×3) transposed",
    "windows in bf16 tiles",
    "windows in bf16 pairs",
    "windows widened in packing",
];

/// The multiply-adds that take as long as widening an element of an operand, or rounding one of a result, in memory.
const WIDENED: usize = 16;

/// The cheapest algorithm for elements of `dtype`, whose accumulation type is `A`, or the cheapest of those named `prefer` if
/// there is one; of direct sums alone where they are to be `exact`.
pub(crate) fn choose<A: Gemm>(pass: Pass, g: &Geometry, dtype: DType, exact: bool, prefer: Option<&str>) -> Algorithm {
    let all = Algorithm::all(pass, g, dtype).filter(|a| !exact || !matches!(a, Algorithm::Winograd(_)));
    all.min_by_key(|a| {
        (
            prefer.is_some_and(|name| name != a.name()),
            a.cost_of::<A>(pass, g, dtype),
        )
    })
    .expect("scatter, or direct sums, compute every convolution")
}

/// The cost of the cheapest algorithm, as [`choose`] has it; 0 if there is nothing to compute.
pub(crate) fn least_cost<A: Gemm>(pass: Pass, g: &Geometry, dtype: DType, exact: bool) -> usize {
    match g.empty() {
        true => 0,
        false => choose::<A>(pass, g, dtype, exact, None).cost_of::<A>(pass, g, dtype),
    }
}

impl Algorithm {
    /// The [cost](Algorithm::cost) for elements of `dtype`, whose accumulation type is `A`.
    fn cost_of<A: Gemm>(self, pass: Pass, g: &Geometry, dtype: DType) -> usize {
        let cost = self.cost(pass, g, A::kernels().lanes);
        if dtype == A::DTYPE || matches!(self, Algorithm::Words(_)) {
            return cost;
        }
        let images = g
            .batch
            .saturating_mul(g.in_positions() * g.channels + g.out_positions() * g.outputs);
        cost.saturating_add(images.saturating_mul(WIDENED))
    }

    /// The name in profiles.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Direct => "direct",
            Algorithm::Depthwise => "depthwise",
            Algorithm::Product => "matrix product",
            Algorithm::Planar => "planar",
            Algorithm::PackedColumns(_) => "packed columns",
            Algorithm::WindowColumns => "window columns",
            Algorithm::Scatter => "scatter",
            Algorithm::Winograd(tiling) => tiling.name(),
            Algorithm::Words(HalfKernels::Tiles) => "windows in bf16 tiles",
            Algorithm::Words(HalfKernels::Pairs) => "windows in bf16 pairs",
            Algorithm::Words(HalfKernels::Widened) => "windows widened in packing",
        }
    }
}
