//! The choice of a kernel for a convolution, by its shape, its dtype and the device.

use super::algorithm::{Algorithm, Pass, TensorTile, Tile};
use crate::Options;
use crate::tensor_tile::{Multiprocessors, part_counts, parts_clocks};
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
/// Numbers of the weight and of an image's gradient that `conv_few.cu` has in shared memory.
const FEW_WEIGHTS: u64 = 4096;
const FEW_GRADS: u64 = 6144;
/// Threads of its blocks.
pub(super) const FEW_THREADS: u64 = 256;
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

/// Positions below which the launches that pad channels cost more than tensor cores save. Estimated from the arithmetic and
/// the launch latency of an H100, not measured.
const PADDED_POSITIONS: u64 = 4096;
/// Most taps in a dimension of the tensor-core variants, which keep those inside of the image as bits (`MOST_TAPS` of
/// `conv_tensor.cuh`).
const TENSOR_TAPS: u32 = 9;

/// A weight gradient's parts have at least this many positions on tensor cores, …
const TENSOR_POSITIONS: u64 = 128;
/// … this many elsewhere, where steps are shorter, …
pub(super) const SPLIT_POSITIONS: u64 = 32;
/// … and take no more than this many elements of scratch.
pub(super) const SPLIT_SCRATCH: u64 = 1 << 24;

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
    /// True if this variant can compute `pass` of the convolution `p` in `dtype` on a device with such multiprocessors. Whether TF32 is
    /// allowed does not matter here: `Tensor` in f32 rounds its operands.
    pub fn fits(self, pass: Pass, p: &ConvParams, dtype: DType, on: Multiprocessors) -> bool {
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
            Algorithm::Tensor(tile) => {
                let shape = tile.shape();
                let chunk = 16 / dtype.size();
                let (inner, outer) = (p.group_in(), p.group_out());
                let whole = match (pass, tile) {
                    (Pass::Forward, _) => inner.is_multiple_of(chunk) && outer.is_multiple_of(2),
                    // A stage of the larger tiles is 64 bytes of the channels of one tap.
                    (Pass::DataGrad, TensorTile::T128x64 | TensorTile::T128x128 | TensorTile::T128x256) => {
                        inner.is_multiple_of(chunk) && outer.is_multiple_of(4 * chunk)
                    }
                    // One of warp groups is 128 bytes.
                    (Pass::DataGrad, _) if shape.warpgroups() => {
                        inner.is_multiple_of(chunk) && outer.is_multiple_of(8 * chunk)
                    }
                    _ => inner.is_multiple_of(chunk) && outer.is_multiple_of(chunk),
                };
                let short = pass == Pass::WeightGrad || p.window.kernel.iter().all(|&k| k <= TENSOR_TAPS);
                let known = !shape.warpgroups() || (on.warpgroups && dtype != DType::F32);
                small(p) && tiles(shape.rows.min(shape.columns)) && whole && short && known
            }
            Algorithm::Padded => {
                let few = p.groups == 1 && (p.in_channels as usize) < 16 / dtype.size() && p.in_channels > 0;
                let tensor = Algorithm::Tensor(TensorTile::T64x64);
                few && pass != Pass::DataGrad && tensor.fits(pass, &padded(p, dtype), dtype, on)
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
            Algorithm::Few => {
                let filled = u64::from(p.out_channels).next_multiple_of(4);
                let volume = |size: [u32; 3]| size.iter().map(|&n| u64::from(n)).product::<u64>();
                let blocks = |p: &ConvParams| (volume(p.window.input) * u64::from(p.in_channels)).div_ceil(FEW_THREADS);
                pass == Pass::DataGrad
                    && small(p)
                    && p.groups == 1
                    && taps.saturating_mul(u64::from(p.in_channels)).saturating_mul(filled + 4) <= FEW_WEIGHTS
                    && volume(p.window.output).saturating_mul(filled) <= FEW_GRADS
                    && blocks(p).saturating_mul(u64::from(p.batch)) < 1 << 31
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
/// | tensor | bf16 and f16, or f32 when TF32 is allowed; channels by eights (fours in f32), at most 9 taps in a dimension |
/// | padded | as tensor, with 2 or more input channels of less than 16 bytes, one group, 4096 positions; no data gradient |
/// | shallow | at most 4 input channels, one group |
/// | few | data gradient; weight and an image's gradient fit shared memory, one group |
/// | Winograd | f32, 3 × 3, stride 1, at least 128 channels in and out and 1024 positions, unless convolutions must be exact |
/// | tiled | groups of at least 8 channels, in and out, or one group |
/// | naive | the rest |
///
/// The data gradient multiplies the positions of each remainder by the stride separately. Where there are many remainders and
/// each has few positions, the variants that multiply tiles are left out.
///
/// Products take large tiles when there are enough of them for every multiprocessor; those on tensor cores take the tile of
/// the least modelled time, among them those of warp groups where the device has such products.
pub fn choose(pass: Pass, p: &ConvParams, dtype: DType, options: &Options, on: Multiprocessors) -> Algorithm {
    let size = product(pass, p);
    let tiles = size.rows.div_ceil(128).saturating_mul(size.columns.div_ceil(128));
    // A weight gradient has few tiles and long sums, which are split between blocks.
    let splits = match pass {
        Pass::WeightGrad => (product(Pass::Forward, p).rows / LONG_SPLIT).max(1),
        _ => 1,
    };
    let blocks = tiles.saturating_mul(size.parts).saturating_mul(splits);
    let wide = size.rows > 64 && size.columns > 64;
    let tile = match wide && blocks >= on.count {
        true => Tile::Large,
        false => Tile::Small,
    };
    let narrow = p.groups > 1 && p.group_in().min(p.group_out()) < NARROW_GROUP;
    let remainders = size.parts / u64::from(p.groups);
    let thin = pass == Pass::DataGrad && remainders > REMAINDERS && size.rows < REMAINDER_ROWS;
    let many = p.in_channels.min(p.out_channels) >= WINOGRAD_CHANNELS && size.rows >= WINOGRAD_POSITIONS;
    let candidates = [
        (Algorithm::Depthwise, p.groups > 1),
        (
            Algorithm::Tensor(tensor_tile(pass, p, dtype, on)),
            !thin && (options.tf32 || dtype != DType::F32),
        ),
        (
            Algorithm::Padded,
            p.in_channels > 1
                && product(Pass::Forward, p).rows >= PADDED_POSITIONS
                && (options.tf32 || dtype != DType::F32),
        ),
        (Algorithm::Shallow, true),
        (Algorithm::Few, true),
        (Algorithm::Winograd(tile), many && !options.exact_convolutions),
        (Algorithm::Tiled(tile), !narrow && !thin),
        (Algorithm::Tiled(Tile::Small), !narrow && !thin),
    ];
    let found = candidates
        .iter()
        .find(|(a, wanted)| *wanted && a.fits(pass, p, dtype, on));
    found.map_or(Algorithm::Naive, |&(a, _)| a)
}

/// True if the padded input has the channels of two neighbouring positions in 16 bytes: both fit, and windows move by two along a row.
pub(super) fn in_pairs(p: &ConvParams, dtype: DType) -> bool {
    let w = &p.window;
    p.in_channels as usize <= 8 / dtype.size() && w.stride[2] == 2 && w.dilation[2] == 1 && w.kernel[2] > 1
}

/// The convolution with input channels of 16 bytes, to which fewer are padded: those of a position or, [in pairs](in_pairs), of two, of which
/// the last of an odd number of taps has one. In pairs the padding of rows is copied.
pub(super) fn padded(p: &ConvParams, dtype: DType) -> ConvParams {
    let mut q = ConvParams {
        in_channels: (16 / dtype.size()) as u32,
        ..*p
    };
    if in_pairs(p, dtype) {
        let w = &mut q.window;
        w.kernel[2] = w.kernel[2].div_ceil(2);
        w.input[2] = (w.output[2] + w.kernel[2]).saturating_sub(1);
        (w.stride[2], w.padding[2]) = (1, 0);
        // `half` of `conv.cuh`.
        q.pad = p.window.kernel[2] % 2;
    }
    q
}

/// The tile of the least modelled time for a convolution on tensor cores.
pub(super) fn tensor_tile(pass: Pass, p: &ConvParams, dtype: DType, on: Multiprocessors) -> TensorTile {
    let fitting = |t: &TensorTile| Algorithm::Tensor(*t).fits(pass, p, dtype, on);
    let clocks = |t: TensorTile| tensor_parts(t, pass, p, dtype, on).1;
    let tiles = TensorTile::ALL.into_iter().filter(fitting);
    let best = tiles.min_by(|a, b| clocks(*a).total_cmp(&clocks(*b)));
    best.unwrap_or(TensorTile::T64x64)
}

/// The parts of a sum on tensor cores, more than one in weight gradients alone, and the modelled clocks of a convolution
/// made so.
pub(super) fn tensor_parts(
    tile: TensorTile,
    pass: Pass,
    p: &ConvParams,
    dtype: DType,
    on: Multiprocessors,
) -> (u64, f64) {
    let (size, shape, sms) = (product(pass, p), tile.shape(), on.count);
    let blocks = shape.tiles(size.rows, size.columns).saturating_mul(size.parts);
    let positions = product(Pass::Forward, p).rows;
    let depth = match pass {
        Pass::Forward => (p.window.taps() * p.group_in()) as u64,
        // The taps of a position are divided among the remainders by the stride.
        Pass::DataGrad => {
            let classes = (size.parts / u64::from(p.groups)).max(1);
            ((p.window.taps() * p.group_out()) as u64).div_ceil(classes)
        }
        Pass::WeightGrad => positions,
    };
    let most = match pass {
        Pass::WeightGrad => {
            let len = size.rows.saturating_mul(size.columns).saturating_mul(size.parts).max(1);
            (positions / TENSOR_POSITIONS)
                .min(SPLIT_SCRATCH / len)
                .min(GRID_YZ / size.parts.max(1))
        }
        _ => 1,
    };
    let clocks = |parts: u64| {
        let steps = shape.steps(depth.div_ceil(parts) * dtype.size() as u64);
        let sums = size.rows.saturating_mul(size.columns).saturating_mul(size.parts);
        shape.clocks(blocks.saturating_mul(parts), steps, sms) + parts_clocks(sums, parts, sms)
    };
    let timed = part_counts(most).map(|parts| (parts, clocks(parts)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, f64::INFINITY))
}
