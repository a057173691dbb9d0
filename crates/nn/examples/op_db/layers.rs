//! The calls of the functions of layers and of losses.

use crate::{Case, Out};
use kiln_core::ops::{Activation, Padding, Window};
use kiln_cpu::Cpu;
use kiln_nn::ops::index::{BagMode, BagOptions};
use kiln_nn::ops::{AttentionOptions, FftNorm, GridMode, GridOptions, GridPadding, Interpolation};
use kiln_nn::{CrossEntropyOptions, Reduction, Result, Tensor, TripletOptions};

/// Numbers of one to three axes, the last of three.
fn spatial(values: &[usize], fill: usize) -> [usize; 3] {
    let mut all = [fill; 3];
    all[3 - values.len()..].copy_from_slice(values);
    all
}

fn window(case: &Case, kernel: &[usize]) -> Window {
    Window {
        rank: kernel.len(),
        kernel: spatial(kernel, 1),
        stride: spatial(&case.sizes("stride"), 1),
        padding: match case.args["padding"].as_str() {
            Some(_) => Padding::Same,
            None => Padding::Explicit(spatial(&case.sizes("padding"), 0)),
        },
        dilation: spatial(&case.sizes("dilation"), 1),
    }
}

fn reduction(case: &Case) -> Reduction {
    match case.text("reduction") {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        // PyTorch's mean over the batch, of the divergence alone.
        "batchmean" => Reduction::Sum,
        _ => Reduction::Mean,
    }
}

fn options<'a>(case: &Case, weight: Option<&'a Tensor<Cpu>>) -> CrossEntropyOptions<'a, Cpu> {
    CrossEntropyOptions {
        label_smoothing: case.f64("value"),
        weight,
        ignore_index: case.int("k") as i64,
        reduction: reduction(case),
    }
}

/// The Fourier transform of a name.
fn spectral(name: &str, case: &Case) -> Result<Tensor<Cpu>> {
    let (x, axes) = (&case.x[0], case.list("axes"));
    let sizes = case.args["sizes"].as_array().map(|_| case.sizes("sizes"));
    let norm = match case.text("mode") {
        "ortho" => FftNorm::Ortho,
        "forward" => FftNorm::Forward,
        _ => FftNorm::Backward,
    };
    let n = sizes.as_ref().map(|s| s[0]);
    match name {
        "fft" => x.fft(n, axes[0], norm),
        "ifft" => x.ifft(n, axes[0], norm),
        "rfft" => x.rfft(n, axes[0], norm),
        "irfft" => x.irfft(n, axes[0], norm),
        "fftn" => x.fftn(sizes.as_deref(), &axes, norm),
        "ifftn" => x.ifftn(sizes.as_deref(), &axes, norm),
        "rfftn" => x.rfftn(sizes.as_deref(), &axes, norm),
        _ => x.irfftn(sizes.as_deref(), &axes, norm),
    }
}

/// The results of the op of a name.
pub(crate) fn call(name: &str, case: &Case) -> Result<Vec<Out>> {
    let x = &case.x[0];
    let (axis, keep) = (|| case.int("axis"), case.flag("keep"));
    let value = || case.f64("value");
    let (a, b) = (case.x.get(1), case.x.get(2));
    let sized = |x: &Tensor<Cpu>| x.shape()[1..x.rank() - 1].to_vec();
    let y = match name {
        "conv" => x.conv(
            &case.x[1],
            b,
            &window(case, &sized(&case.x[1])),
            case.int("k") as usize,
            Activation::None,
        ),
        "conv_transpose" => {
            let more = spatial(&case.sizes("more"), 0);
            let window = window(case, &sized(&case.x[1]));
            x.conv_transpose(&case.x[1], b, &window, more, case.int("k") as usize, Activation::None)
        }
        "max_pool" => x.max_pool(&window(case, &case.sizes("kernel")), case.flag("ceil")),
        "avg_pool" if !case.args["k"].is_null() => {
            let window = window(case, &case.sizes("kernel"));
            x.avg_pool_by(&window, case.flag("ceil"), case.int("k"))
        }
        "avg_pool" => x.avg_pool(&window(case, &case.sizes("kernel")), case.flag("ceil"), keep),
        "adaptive_max_pool" => x.adaptive_max_pool(&case.sizes("shape")),
        "adaptive_avg_pool" => x.adaptive_avg_pool(&case.sizes("shape")),
        "batch_norm" => x.batch_norm(a, b, value()).map(|(y, ..)| y),
        "layer_norm" => x.layer_norm(&case.sizes("shape"), a, b, value()),
        "rms_norm" => x.rms_norm(&case.sizes("shape"), a, value()),
        "group_norm" => x.group_norm(case.int("k") as usize, a, b, value()),
        "instance_norm" => x.instance_norm(a, b, value()),
        "linear" => x.linear(&case.x[1], b, Activation::None),
        "softmax" => x.softmax(axis()),
        "log_softmax" => x.log_softmax(axis()),
        "softmin" => x.neg()?.softmax(axis()),
        "interpolate" => {
            let mode = match case.text("mode") {
                "nearest" => Interpolation::Nearest,
                "nearest-exact" => Interpolation::NearestExact,
                "area" => Interpolation::Area,
                "bicubic" => Interpolation::Cubic { align_corners: keep },
                _ => Interpolation::Linear { align_corners: keep },
            };
            match case.args["factors"].as_array() {
                Some(factors) => x.interpolate_by(&factors.iter().map(crate::number).collect::<Vec<_>>(), mode),
                None => x.interpolate(&case.sizes("shape"), mode),
            }
        }
        "grid_sample" => {
            let options = GridOptions {
                mode: match case.text("mode") {
                    "nearest" => GridMode::Nearest,
                    "bicubic" => GridMode::Cubic,
                    _ => GridMode::Linear,
                },
                padding: match case.text("padding_mode") {
                    "border" => GridPadding::Border,
                    "reflection" => GridPadding::Reflection,
                    _ => GridPadding::Zeros,
                },
                align_corners: keep,
            };
            x.grid_sample(&case.x[1], options)
        }
        "fft" | "ifft" | "rfft" | "irfft" | "fftn" | "ifftn" | "rfftn" | "irfftn" => spectral(name, case),
        "pixel_shuffle" => x.pixel_shuffle(case.int("k") as usize),
        "pixel_unshuffle" => x.pixel_unshuffle(case.int("k") as usize),
        "embedding" => x.embedding(&case.ints[0], case.args["k"].as_u64().map(|k| k as usize)),
        "embedding_bag" => {
            let options = BagOptions {
                mode: match case.text("mode") {
                    "sum" => BagMode::Sum,
                    "max" => BagMode::Max,
                    _ => BagMode::Mean,
                },
                padding_idx: case.args["k"].as_u64().map(|k| k as usize),
                weights: a,
            };
            let lengths = case.args["sizes"].as_array().map(|_| case.sizes("sizes"));
            x.embedding_bag(&case.ints[0], lengths.as_deref(), &options)
        }
        "attention" => {
            let options = AttentionOptions {
                mask: case.ints.first(),
                bias: case.x.get(3),
                causal: keep,
                dropout: None,
                scale: Some(&case.args["value"]).filter(|v| !v.is_null()).map(crate::number),
            };
            x.scaled_dot_product_attention(&case.x[1], &case.x[2], &options)
        }
        "l1_loss" => x.l1_loss(&case.x[1], reduction(case)),
        "mse_loss" => x.mse_loss(&case.x[1], reduction(case)),
        "huber_loss" => x.huber_loss(&case.x[1], value(), reduction(case)),
        "smooth_l1_loss" => x.smooth_l1_loss(&case.x[1], value(), reduction(case)),
        "soft_margin_loss" => x.soft_margin_loss(&case.x[1], reduction(case)),
        "hinge_embedding_loss" => x.hinge_embedding_loss(&case.x[1], value(), reduction(case)),
        "bce_loss" => x.bce_loss(&case.x[1], reduction(case)),
        "bce_with_logits" => x.bce_with_logits(&case.x[1], b, reduction(case)),
        "kl_div" if case.text("reduction") == "batchmean" => {
            let sum = x.kl_div(&case.x[1], keep, Reduction::Sum)?;
            sum.div_scalar(x.shape().first().copied().unwrap_or(1) as f64)
        }
        "kl_div" => x.kl_div(&case.x[1], keep, reduction(case)),
        "cross_entropy" => x.cross_entropy_with(&case.ints[0], &options(case, a)),
        "cross_entropy_soft" => x.cross_entropy_soft(&case.x[1], &options(case, b)),
        "nll_loss" => x.nll_loss_with(&case.ints[0], &options(case, a)),
        "cosine_similarity" => x.cosine_similarity(&case.x[1], axis(), value()),
        "pairwise_distance" => x.pairwise_distance(&case.x[1], value(), case.f64("eps")),
        "cosine_embedding_loss" => x.cosine_embedding_loss(&case.x[1], &case.x[2].detach(), value(), reduction(case)),
        "margin_ranking_loss" => x.margin_ranking_loss(&case.x[1], &case.x[2].detach(), value(), reduction(case)),
        "triplet_margin_loss" => {
            let options = TripletOptions {
                margin: value(),
                p: case.f64("p"),
                eps: case.f64("eps"),
                swap: keep,
                reduction: reduction(case),
            };
            x.triplet_margin_loss(&case.x[1], &case.x[2], &options)
        }
        "gaussian_nll_loss" => x.gaussian_nll_loss(&case.x[1], &case.x[2], keep, value(), reduction(case)),
        "poisson_nll_loss" => x.poisson_nll_loss(&case.x[1], case.flag("log"), keep, value(), reduction(case)),
        _ => panic!("{name} has no call"),
    };
    Ok(vec![y?.into()])
}
