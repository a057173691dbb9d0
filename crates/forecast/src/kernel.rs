//! The work of a launch of one of Kiln's kernels, from its arguments and the figures of its machine code.

use crate::figures::{Counts, Figures};
use crate::launches::{Arg, Launch};
use crate::work::{Overlap, Tensor, Turn, Waits, Work};
use kiln_core::ops::{ConvParams, MatmulParams, PoolParams};

/// Lanes of a warp.
const LANES: f64 = 32.0;
/// Operations of a product of a warp: 16×8×16 in 16 bits, 16×8×8 in TF32.
const HALF_PRODUCT: f64 = 4096.0;
const TF32_PRODUCT: f64 = 2048.0;
/// Operations of a product of a warp group for each of its columns, by the warp: 64×16 for four of them.
const GROUP_COLUMN: f64 = 512.0;
/// Columns of a product of a warp group, where the kernel's name does not have a tile.
const GROUP_COLUMNS: f64 = 256.0;
/// Operations of a warp's multiply-add.
const WARP_FMA: f64 = 64.0;
/// Wavefronts of a fragment load of four matrices.
const FRAGMENT: f64 = 4.0;
/// Bytes that shared memory passes on in a clock.
const WAVEFRONT: f64 = 128.0;
/// Wavefronts of a load of 16 bytes a lane in loops of multiply-adds: half of them read what all lanes of a row share, in 2, and half what
/// differs, in 4.
const WIDE_LOAD: f64 = 3.0;
/// Turns that copies to shared memory are issued ahead: stages of the ring but the one in use.
const AHEAD: f64 = 2.0;

/// Blocks that an SM of an architecture holds at a time: the rules of `cuda_occupancy.h` of NVIDIA's toolkit.
pub fn resident_blocks(sm: u32, registers: u32, shared: u32, threads: u32) -> u32 {
    let (most_warps, most_blocks, kib) = match sm {
        80 => (64, 32, 164),
        86 => (48, 16, 100),
        87 => (48, 16, 164),
        89 | 120.. => (48, 24, 100),
        _ => (64, 32, 228),
    };
    let warps = threads.div_ceil(32).max(1);
    let by_warps = most_blocks.min(most_warps / warps);
    // Registers are given to warps in units of 256, each quarter of an SM from its own.
    let by_registers = match (registers * 32).next_multiple_of(256) {
        0 => u32::MAX,
        of_warp => 65536 / 4 / of_warp * 4 / warps,
    };
    let by_shared = (kib * 1024) / (shared + 1024).next_multiple_of(128);
    by_warps.min(by_registers).min(by_shared)
}

/// Operations that a launch computes, those of padding among them; `None` of one that is bound by memory.
fn flops(launch: &Launch) -> Option<f64> {
    let name = launch.kernel.as_str();
    if ["matmul_", "linear_"].iter().any(|start| name.starts_with(start))
        && !["_reduce", "_few"].iter().any(|part| name.contains(part))
    {
        // Layers of a few rows read their weight once, and stream.
        let bytes = launch.value(size_of::<MatmulParams>())?;
        let p: MatmulParams = bytemuck::pod_read_unaligned(bytes);
        let useful = p.batches() as f64 * 2.0 * p.m as f64 * p.n as f64 * p.k as f64;
        let padded = tile(name).map_or(1.0, |(rows, columns)| {
            padding(p.m as f64, rows) * padding(p.n as f64, columns)
        });
        return Some(useful * padded);
    }
    if name.starts_with("conv_winograd_") {
        return name
            .starts_with("conv_winograd_product")
            .then(|| winograd(launch))
            .flatten();
    }
    if name.starts_with("conv_pool_grad") {
        return conv_pool_grad(launch);
    }
    if name.starts_with("conv_") && !name.starts_with("conv_sum") {
        let p: ConvParams = bytemuck::pod_read_unaligned(launch.value(size_of::<ConvParams>())?);
        return Some(p.flops() as f64 * conv_padding(name, &p));
    }
    if name.starts_with("attention_") {
        return attention(launch);
    }
    None
}

/// Operations of attention or of a part of its gradient, from `Call` of crates/cuda/src/ops/attention.rs: two products of queries by keys
/// by width forward, four for the gradients of keys and values, three for that of queries. Half of the pairs if it is causal.
fn attention(launch: &Launch) -> Option<f64> {
    let name = launch.kernel.as_str();
    let call = launch.value(352)?;
    let word = |at: usize| Some(u64::from_le_bytes(call.get(at..at + 8)?.try_into().ok()?) as f64);
    let (keys, width) = (word(160)?, word(168)?);
    let causal = u32::from_le_bytes(call.get(252..256)?.try_into().ok()?) == 1;
    let blocks: Vec<u64> = launch.blocks_given().collect();
    // The fifth operand has a number for each query of each head forward, and a pair for gradients, all f32. The kernels of queries on tensor
    // cores make the pairs, of the numbers in the sixth.
    let operand = |at: usize| blocks.get(at).map(|&bytes| bytes as f64);
    let (products, queries) = match () {
        () if name.contains("statistics") => return None,
        () if name.contains("key_grad") => (4.0, operand(4)? / 8.0),
        () if name.contains("query_grad_plain") => (3.0, operand(4)? / 8.0),
        () if name.contains("query_grad") => (3.0, operand(5)? / 4.0),
        () => (2.0, operand(4)? / 4.0),
    };
    // Vectors are filled up to the width that the kernel is made for.
    let width = tile(name).map_or(width, |(side, _)| side.max(width));
    Some(products * 2.0 * queries * keys * width * if causal { 0.5 } else { 1.0 })
}

/// By how much rows in tiles are more than rows.
fn padding(rows: f64, tile: f64) -> f64 {
    if rows > 0.0 {
        (rows / tile).ceil() * tile / rows
    } else {
        1.0
    }
}

/// Rows and columns of a tile, from a kernel's name: `_128_` or `_128x256_`.
fn tile(name: &str) -> Option<(f64, f64)> {
    if name.starts_with("matmul_tiled") {
        return Some((32.0, 32.0));
    }
    name.split('_').find_map(|word| match word.split_once('x') {
        Some((rows, columns)) => Some((rows.parse().ok()?, columns.parse().ok()?)),
        None => word.parse().ok().map(|side: f64| (side, side)),
    })
}

/// By how much the tiles of a convolution are more than its result, where it is computed in tiles.
fn conv_padding(name: &str, p: &ConvParams) -> f64 {
    if !["conv_tensor", "conv_warpgroup", "conv_tiled"]
        .iter()
        .any(|start| name.starts_with(start))
    {
        return 1.0;
    }
    let side = if name.contains("_large") { 128.0 } else { 64.0 };
    let (rows, columns) = tile(name).unwrap_or((side, side));
    let groups = f64::from(p.groups.max(1));
    let (inputs, outputs) = (f64::from(p.in_channels) / groups, f64::from(p.out_channels) / groups);
    if name.contains("weight_parts") {
        return padding(outputs, rows) * padding(inputs * p.window.taps() as f64, columns);
    }
    padding(if name.contains("data_grad") { inputs } else { outputs }, columns)
}

/// Operations of the gradients of a convolution with its pooling: that of the weight has terms of windows alone, by 32 of its elements at a
/// time, and that of the image, if it is among them, those of a convolution.
fn conv_pool_grad(launch: &Launch) -> Option<f64> {
    let p: ConvParams = bytemuck::pod_read_unaligned(launch.value(size_of::<ConvParams>())?);
    let pool: PoolParams = bytemuck::pod_read_unaligned(launch.value(size_of::<PoolParams>())?);
    let windows: f64 = pool.window.output.iter().map(|&n| f64::from(n)).product();
    let depth = f64::from(p.in_channels) * p.window.taps() as f64;
    let of_weight = 2.0 * f64::from(p.batch) * windows * f64::from(p.out_channels) * depth * padding(depth, LANES);
    let image = launch.value(4)?.iter().any(|&byte| byte != 0);
    Some(of_weight + if image { p.flops() as f64 } else { 0.0 })
}

/// Operations of Winograd's product: 16 products of tiles by inner by outer channels.
fn winograd(launch: &Launch) -> Option<f64> {
    let p: ConvParams = bytemuck::pod_read_unaligned(launch.value(size_of::<ConvParams>())?);
    let tiles = f64::from(u32::from_le_bytes(launch.value(4)?.try_into().ok()?));
    Some(2.0 * 16.0 * tiles * f64::from(p.in_channels) * f64::from(p.out_channels))
}

/// Bytes of global memory that a launch reads and writes at least: what it is given, once, but where it is known to read and write a
/// tensor in place, or to look up rows of a large one.
fn bytes(launch: &Launch) -> f64 {
    let name = launch.kernel.as_str();
    let given: Vec<f64> = launch.given().map(|bytes| bytes as f64).collect();
    let sum: f64 = given.iter().sum();
    let starts = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    if starts(&["index_select", "gather", "crop_images"]) {
        // Of a table no more than as many bytes as the result has.
        let mut sorted = given.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        if let [largest, second, ..] = sorted[..] {
            return sum - largest + second;
        }
    }
    if starts(&["attention_"]) {
        // Queries, keys and values are parts of one tensor, and so are their gradients.
        let mut once = given.clone();
        once.dedup();
        return once.iter().sum();
    }
    let in_place = match () {
        // The sum is read and written.
        () if starts(&["accumulate"]) => 3.0 / 2.0,
        // Parameter and moments are read and written, the gradient is read.
        () if starts(&["adam_amsgrad"]) => 9.0 / 5.0,
        () if starts(&["adam"]) => 7.0 / 4.0,
        () if starts(&["sgd_momentum", "rmsprop", "adagrad"]) => 5.0 / 3.0,
        () if starts(&["sgd"]) => 3.0 / 2.0,
        () if starts(&["unscale"]) => 2.0,
        () => 1.0,
    };
    sum * in_place
}

fn turn(counts: &Counts, product: f64, group: f64) -> Turn {
    let dense = 2.0 * counts.ffma >= counts.issued && counts.issued > 0.0;
    let load = if dense { WIDE_LOAD } else { 1.0 };
    let copies = counts.ldgsts * 16.0 * LANES / WAVEFRONT;
    Turn {
        issued: counts.issued,
        tensor_flops: counts.hmma * product + counts.wgmma * group,
        fma: counts.ffma + counts.float,
        special: counts.mufu,
        shared: FRAGMENT * counts.ldsm + load * counts.lds + if dense { 2.0 } else { 1.0 } * counts.sts + copies,
        l2_bytes: LANES * (counts.loaded + counts.stored),
        stall: counts.stall,
    }
}

/// A kernel that the table does not have: a stream of its bytes.
fn unknown() -> Figures {
    let main = Counts {
        issued: 24.0,
        loaded: 16.0,
        stored: 16.0,
        stall: 60.0,
        ..Counts::default()
    };
    Figures {
        registers: 40,
        shared: 0,
        main,
        outside: Counts {
            issued: 40.0,
            stall: 120.0,
            ..Counts::default()
        },
    }
}

/// The work of a launch on an architecture.
pub fn work(launch: &Launch, figures: Option<&Figures>, sm: u32) -> Work {
    let stand_in = unknown();
    let figures = figures.unwrap_or(&stand_in);
    let (main, blocks) = (&figures.main, launch.blocks());
    let threads = launch.threads();
    let warps = f64::from(threads.div_ceil(32).max(1));
    let tf32 = main.hmma > 0.0 && (launch.kernel.ends_with("_tf32") || launch.kernel.ends_with("_f32"));
    let product = if tf32 { TF32_PRODUCT } else { HALF_PRODUCT };
    // A group multiplies all columns of its tile; with the gradient of a bias, every other product is one of the 8 columns that sum rows.
    let columns = tile(&launch.kernel).map_or(GROUP_COLUMNS, |(_, columns)| columns);
    let group = GROUP_COLUMN
        * match launch.kernel.starts_with("linear_weight_grad") {
            true => (columns + 8.0) / 2.0,
            false => columns,
        };
    let of_turn = turn(main, product, group);
    let all_warps = (blocks * warps).max(1.0);
    let by_turn = of_turn.tensor_flops
        + if of_turn.tensor_flops > 0.0 {
            0.0
        } else {
            WARP_FMA * main.ffma
        };
    let bytes = bytes(launch);
    let turns = match flops(launch).filter(|_| by_turn > 0.0) {
        Some(flops) => flops / by_turn / all_warps,
        // A streaming loop turns as often as its bytes take.
        None if of_turn.l2_bytes > 0.0 => bytes / of_turn.l2_bytes / all_warps,
        None => 0.0,
    };
    let dense = 2.0 * main.ffma >= main.issued && main.issued > 0.0;
    let waits = match () {
        () if main.ldgsts > 0.0 || main.wgmma > 0.0 => Waits::Ahead(AHEAD),
        () if main.loaded == 0.0 => Waits::Never,
        () if dense || main.hmma > 0.0 => Waits::Ahead(1.0),
        () => Waits::Exposed(1.0),
    };
    let resident = resident_blocks(sm, figures.registers, figures.shared + launch.shared, threads);
    Work {
        blocks,
        warps,
        resident: f64::from(resident.max(1)),
        turns,
        turn: of_turn,
        outside: turn(&figures.outside, product, group),
        waits,
        overlap: match () {
            () if main.wgmma > 0.0 => Overlap::Pipelined,
            () if dense => Overlap::Unrolled,
            () => Overlap::Phases,
        },
        tensor: match (main.wgmma > 0.0, tf32) {
            (true, false) => Tensor::HalfGroup,
            (true, true) => Tensor::Tf32Group,
            (false, true) => Tensor::Tf32,
            (false, false) => Tensor::Half,
        },
        bytes,
    }
}

/// The sizes of what a launch computes, for a table: `m×n×k` of a product, a convolution's channels and positions.
pub(crate) fn shape(launch: &Launch) -> Option<String> {
    let name = launch.kernel.as_str();
    if name.starts_with("matmul_") || name.starts_with("linear_weight_grad") {
        let p: MatmulParams = bytemuck::pod_read_unaligned(launch.value(size_of::<MatmulParams>())?);
        let batches = match p.batches() {
            1 => String::new(),
            n => format!("{n}×"),
        };
        return Some(format!("{batches}{}×{}×{}", p.m, p.n, p.k));
    }
    if name.starts_with("conv_") {
        let p: ConvParams = bytemuck::pod_read_unaligned(launch.value(size_of::<ConvParams>())?);
        let ([_, height, width], [_, kh, kw]) = (p.window.output, p.window.kernel);
        return Some(format!(
            "{}×{height}×{width}, {}→{}, {kh}×{kw}",
            p.batch, p.in_channels, p.out_channels
        ));
    }
    let largest = launch.args.iter().filter_map(|arg| match arg {
        Arg::Block(bytes) => Some(*bytes),
        _ => None,
    });
    largest
        .chain(launch.kept.iter().copied())
        .max()
        .map(|bytes| match bytes {
            0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
            _ => format!("{:.1} MB", bytes as f64 / 1e6),
        })
}
