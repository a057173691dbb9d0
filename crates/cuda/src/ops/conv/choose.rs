//! The choice of a kernel for a convolution, by its shape, its dtype and the device.

use super::algorithm::{Algorithm, Pass, Tile};
use crate::Options;
use kiln_core::DType;
use kiln_core::ops::ConvParams;

/// Bound of the gathers' coordinates: 32-bit numbers that may pass the border by a window.
const COORDINATE: u64 = 1 << 30;
/// Grids have at most this many blocks in y and z.
pub(super) const GRID_YZ: u64 = 65535;
/// Input channels per group of the direct kernels for first layers (`conv_shallow.cu`).
const SHALLOW_CHANNELS: u32 = 4;
/// Longest windows (taps·channels) of those kernels, forward and weight gradient, and most taps of the data gradient.
const SHALLOW_FORWARD: u64 = 512;
const SHALLOW_WEIGHT: u64 = 256;
const SHALLOW_TAPS: u64 = 2048;
/// The most taps, times the multiplier for the data gradient, of `conv_depthwise.cu`.
const DEPTHWISE_TAPS: u64 = 128;
/// Groups narrower than this leave most of a tile's columns empty.
const NARROW_GROUP: usize = 8;

/// Channels, in and out, from which Winograd's fewer products should pay for its transforms: the products saved grow with
/// the square of the channels, the memory traffic added only with the channels. Estimated from the arithmetic and the
/// bandwidth of an H100, not measured.
const WINOGRAD_CHANNELS: u32 = 128;
/// Positions below which Winograd's weight transform, done anew for every call, costs too much.
const WINOGRAD_POSITIONS: u64 = 1024;

/// A data gradient is one product for each remainder of positions by the stride. Products with fewer rows than this leave
/// most of a tile empty …
const REMAINDER_ROWS: u64 = 16;
/// … and tiles are not used where there are more such products than this.
const REMAINDERS: u64 = 64;

/// The fewest positions of a split of a weight gradient for which a large tile pays.
const LONG_SPLIT: u64 = 512;

/// Sizes of one pass seen as a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Independent products of the same size: groups, and classes of the data gradient.
    pub(super) parts: u64,
}

pub(super) fn product(pass: Pass, p: &ConvParams) -> Product {
    let count = |size: [u32; 3]| {
        size.iter()
            .fold(u64::from(p.batch), |n, &v| n.saturating_mul(u64::from(v)))
    };
    let groups = u64::from(p.groups);
    match pass {
        Pass::Forward => Product {
            rows: count(p.window.output),
            columns: p.group_out() as u64,
            parts: groups,
        },
        Pass::DataGrad => Product {
            rows: count([0, 1, 2].map(|i| p.window.input[i].div_ceil(p.window.stride[i]))),
            columns: p.group_in() as u64,
            parts: p
                .window
                .stride
                .iter()
                .fold(groups, |n, &s| n.saturating_mul(u64::from(s))),
        },
        Pass::WeightGrad => Product {
            rows: p.group_out() as u64,
            columns: (p.window.taps() * p.group_in()) as u64,
            parts: groups,
        },
    }
}

/// True if all coordinates fit the 32-bit arithmetic of the gathers (`conv_gather.cuh`).
fn small(p: &ConvParams) -> bool {
    let reach = (0..3).all(|i| {
        let spans = [
            u64::from(p.window.input[i]) + 2 * u64::from(p.window.padding[i]),
            u64::from(p.window.output[i]) * u64::from(p.window.stride[i]),
            u64::from(p.window.kernel[i]) * u64::from(p.window.dilation[i]),
        ];
        spans.iter().sum::<u64>() < COORDINATE
    });
    let volume = |size: [u32; 3]| size.iter().fold(1, |n: u64, &v| n.saturating_mul(u64::from(v)));
    let channels = u64::from(p.in_channels.max(p.out_channels));
    reach
        && volume(p.window.input) < COORDINATE
        && volume(p.window.output) < COORDINATE
        && (p.window.taps() as u64).saturating_mul(channels) < COORDINATE
        && p.window.stride.iter().all(|&s| s <= 4096)
}

impl Algorithm {
    /// True if this variant can compute `pass` of the convolution `p` in `dtype`. Whether TF32 is allowed does not matter here:
    /// `Tensor` in f32 rounds its operands.
    pub fn fits(self, pass: Pass, p: &ConvParams, dtype: DType) -> bool {
        let (taps, depth) = (p.window.taps() as u64, (p.window.taps() * p.group_in()) as u64);
        let Product { rows, columns, parts } = product(pass, p);
        // Grids have rows in x (at most 2³¹ − 1 blocks), columns in y and parts in z; the weight gradient has rows in y.
        let tiles = |edge: u64| match pass {
            Pass::WeightGrad => rows.div_ceil(edge) <= GRID_YZ && parts <= GRID_YZ,
            _ => rows.div_ceil(edge) < 1 << 31 && columns.div_ceil(edge) <= GRID_YZ && parts <= GRID_YZ,
        };
        match self {
            Algorithm::Naive => true,
            Algorithm::Tiled(tile) => {
                let large = dtype == DType::F32 && fours(p);
                small(p) && tiles(64) && (tile == Tile::Small || large)
            }
            Algorithm::Tensor(_) => {
                let chunk = 16 / dtype.size();
                let (inner, outer) = (p.group_in().is_multiple_of(chunk), p.group_out().is_multiple_of(chunk));
                let whole = match pass {
                    Pass::Forward => inner && p.group_out().is_multiple_of(2),
                    _ => inner && outer,
                };
                small(p) && tiles(64) && whole
            }
            Algorithm::Shallow => {
                let short = match pass {
                    Pass::Forward => depth <= SHALLOW_FORWARD,
                    Pass::DataGrad => taps <= SHALLOW_TAPS,
                    Pass::WeightGrad => depth <= SHALLOW_WEIGHT,
                };
                small(p)
                    && p.groups == 1
                    && p.in_channels <= SHALLOW_CHANNELS
                    && short
                    && rows.div_ceil(64) < 1 << 31
                    && u64::from(p.out_channels).div_ceil(16) <= GRID_YZ
            }
            Algorithm::Winograd(_) => {
                let plane = p.window.kernel == [1, 3, 3]
                    && p.window.stride == [1; 3]
                    && p.window.dilation == [1; 3]
                    && p.window.padding[0] == 0;
                small(p)
                    && pass != Pass::WeightGrad
                    && dtype == DType::F32
                    && p.groups == 1
                    && plane
                    && fours(p)
                    && u64::from(p.batch) * u64::from(p.window.input[0]) < COORDINATE
                    && u64::from(p.in_channels.max(p.out_channels)).div_ceil(64) <= GRID_YZ
            }
            Algorithm::Depthwise => {
                let short = match pass {
                    Pass::Forward => taps <= DEPTHWISE_TAPS,
                    Pass::DataGrad => taps.saturating_mul(p.group_out() as u64) <= DEPTHWISE_TAPS,
                    Pass::WeightGrad => taps <= GRID_YZ,
                };
                small(p)
                    && p.group_in() == 1
                    && short
                    && rows.div_ceil(32) < 1 << 31
                    && u64::from(p.out_channels.max(p.in_channels)).div_ceil(32) <= GRID_YZ
            }
        }
    }
}

/// True if channels can be fetched four at a time.
pub(super) fn fours(p: &ConvParams) -> bool {
    p.group_in().is_multiple_of(4) && p.group_out().is_multiple_of(4)
}

/// The variant for `pass` of `p`, the first that fits of:
///
/// | variant | where |
/// |---|---|
/// | depthwise | one input channel a group, several groups |
/// | tensor | bf16 and f16, or f32 when TF32 is allowed; channels by eights (fours in f32) |
/// | shallow | at most 4 input channels, one group |
/// | Winograd | f32, 3 × 3, stride 1, at least 128 channels in and out and 1024 positions, unless convolutions must be exact |
/// | tiled | groups of at least 8 channels, in and out, or one group |
/// | naive | the rest |
///
/// The data gradient multiplies the positions of each remainder by the stride separately. Where there are many remainders and
/// each has few positions, the variants that multiply tiles are left out.
///
/// Products take large tiles when there are enough of them for every multiprocessor.
pub fn choose(pass: Pass, p: &ConvParams, dtype: DType, options: &Options, multiprocessors: u32) -> Algorithm {
    let size = product(pass, p);
    let tiles = size.rows.div_ceil(128).saturating_mul(size.columns.div_ceil(128));
    // A weight gradient has few tiles and long sums, which are split between blocks.
    let splits = match pass {
        Pass::WeightGrad => (product(Pass::Forward, p).rows / LONG_SPLIT).max(1),
        _ => 1,
    };
    let blocks = tiles.saturating_mul(size.parts).saturating_mul(splits);
    let wide = size.rows > 64 && size.columns > 64;
    let tile = match wide && blocks >= u64::from(multiprocessors) {
        true => Tile::Large,
        false => Tile::Small,
    };
    let narrow = p.groups > 1 && p.group_in().min(p.group_out()) < NARROW_GROUP;
    let remainders = size.parts / u64::from(p.groups);
    let thin = pass == Pass::DataGrad && remainders > REMAINDERS && size.rows < REMAINDER_ROWS;
    let many = p.in_channels.min(p.out_channels) >= WINOGRAD_CHANNELS && size.rows >= WINOGRAD_POSITIONS;
    let candidates = [
        (Algorithm::Depthwise, p.groups > 1),
        (Algorithm::Tensor(tile), !thin && (options.tf32 || dtype != DType::F32)),
        (Algorithm::Shallow, true),
        (Algorithm::Winograd(tile), many && !options.exact_convolutions),
        (Algorithm::Tiled(tile), !narrow && !thin),
        (Algorithm::Tiled(Tile::Small), !narrow && !thin),
    ];
    let found = candidates.iter().find(|(a, wanted)| *wanted && a.fits(pass, p, dtype));
    found.map_or(Algorithm::Naive, |&(a, _)| a)
}
