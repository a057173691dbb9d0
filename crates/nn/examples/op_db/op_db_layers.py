"""How the samples of the functions of layers and of losses are written for Kiln: see op_db.py."""

import torch
import torch.nn.functional as F
from op_db_tensors import OPS, Skip, need, no, op, options


# Layers' functions. Images: from [N, C, …] to [N, …, C].
def last(x):
    return x.movedim(1, -1)


def first(x):
    return x.movedim(-1, 1)


def spread(v, rank):
    return [v] * rank if isinstance(v, int) else list(v) if len(v) == rank else list(v) * rank


@op(*(f"nn.functional.conv{d}d" for d in (1, 2, 3)))
def _(s, name):
    rank = int(name[-2])
    w, bias, stride, padding, dilation, groups = options(s, ["weight", "bias", "stride", "padding", "dilation", "groups"], [None, None, 1, 0, 1, 1])
    need(s.input.dim() == rank + 2, "an image without a batch")
    f = getattr(F, name.split(".")[-1])
    stride, dilation = spread(stride, rank), spread(dilation, rank)
    told = {"stride": stride, "dilation": dilation, "k": groups}
    told["padding"] = spread(0, rank) if padding == "valid" else padding if padding == "same" else spread(padding, rank)
    call = lambda x, w, *b: last(f(first(x), first(w), *b or [None], stride, padding, dilation, groups))
    return "conv", [last(s.input), last(w)] + ([] if bias is None else [bias]), call, told


@op(*(f"nn.functional.conv_transpose{d}d" for d in (1, 2, 3)))
def _(s, name):
    rank = int(name[-2])
    names = ["weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"]
    w, bias, stride, padding, more, groups, dilation = options(s, names, [None, None, 1, 0, 0, 1, 1])
    need(s.input.dim() == rank + 2, "an image without a batch")
    f = getattr(F, name.split(".")[-1])
    stride, padding, more, dilation = (spread(v, rank) for v in (stride, padding, more, dilation))
    call = lambda x, w, *b: last(f(first(x), first(w), *b or [None], stride, padding, more, groups, dilation))
    told = {"stride": stride, "padding": padding, "more": more, "dilation": dilation, "k": groups}
    return "conv_transpose", [last(s.input), last(w)] + ([] if bias is None else [bias]), call, told


@op(*(f"nn.functional.{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg")))
def _(s, name):
    rank, kind = int(name[-2]), name.split(".")[-1][:3]
    names = ["kernel_size", "stride", "padding"] + (["dilation", "ceil_mode", "return_indices"] if kind == "max" else ["ceil_mode", "count_include_pad", "divisor_override"])
    given = options(s, names, [None, None, 0, 1, False, False] if kind == "max" else [None, None, 0, False, True, None])
    need(s.input.dim() == rank + 2, "an image without a batch")
    kernel, padding = spread(given[0], rank), spread(given[2], rank)
    stride = kernel if given[1] in (None, ()) else spread(given[1], rank)
    f = getattr(F, name.split(".")[-1])
    if kind == "max":
        dilation, ceil = spread(given[3], rank), given[4]
        told = {"ceil": ceil, "dilation": dilation}
        call = lambda x: last(f(first(x), kernel, stride, padding, dilation, ceil))
    else:
        told = {"ceil": given[3], "keep": given[4], "dilation": [1] * rank, "k": given[5]}
        more = () if given[5] is None else (given[5],)
        call = lambda x: last(f(first(x), kernel, stride, padding, given[3], given[4], *more))
    return f"{kind}_pool", [last(s.input)], call, told | {"kernel": kernel, "stride": stride, "padding": padding}


@op(*(f"nn.functional.adaptive_{kind}_pool{d}d" for d in (1, 2, 3) for kind in ("max", "avg")))
def _(s, name):
    rank, kind = int(name[-2]), name.split(".")[-1].split("_")[1]
    need(s.input.dim() == rank + 2, "an image without a batch")
    size = spread(s.args[0], rank)
    size = [n if n is not None else s.input.shape[2 + i] for i, n in enumerate(size)]
    f = getattr(F, name.split(".")[-1])
    return f"adaptive_{kind}_pool", [last(s.input)], lambda x: last(f(first(x), size)), {"shape": size}


@op("nn.functional.batch_norm")
def _(s):
    mean, var, w, b, training, _momentum, eps = options(s, ["running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"], [None, None, None, None, False, 0.1, 1e-5])
    need((w is None) == (b is None), "scale without shift, or the other way")
    need(training, "running statistics: the layer keeps them")
    need(s.input.dim() > 1, "channels alone")
    given = [] if w is None else [w, b]
    return "batch_norm", [last(s.input), *given], lambda x, *a: last(F.batch_norm(first(x), None, None, *a, training=True, eps=eps)), {"value": eps}


@op("nn.functional.layer_norm", "nn.functional.rms_norm")
def _(s, name):
    kind = name.split(".")[-1]
    names = ["shape", "weight", "bias", "eps"] if kind == "layer_norm" else ["shape", "weight", "eps"]
    given = dict(zip(names, options(s, names, [None] * (len(names) - 1) + [1e-5 if kind == "layer_norm" else None])))
    need(kind == "rms_norm" or (given["weight"] is None) == (given["bias"] is None), "scale without shift, or the other way")
    shape, eps = list(given["shape"]), given["eps"]
    eps = torch.finfo(s.input.dtype).eps if eps is None else eps
    need(eps >= 0, "an eps below 0, which Kiln refuses")
    affine = [t for t in (given["weight"], given.get("bias")) if t is not None]
    f = getattr(F, kind)
    call = lambda x, *a: f(x, shape, *a, **({"eps": eps}))
    return kind, [s.input, *affine], call, {"shape": shape, "value": eps}


@op("nn.functional.group_norm", "nn.functional.instance_norm")
def _(s, name):
    kind = name.split(".")[-1]
    if kind == "group_norm":
        groups, w, b, eps = options(s, ["num_groups", "weight", "bias", "eps"], [None, None, None, 1e-5])
        f = lambda x, *a: F.group_norm(x, groups, *a, eps=eps)
    else:
        _m, _v, w, b, use, _momentum, eps = options(s, ["running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps"], [None, None, None, None, True, 0.1, 1e-5])
        need(use, "running statistics: the layer keeps them")
        groups, f = 0, lambda x, *a: F.instance_norm(x, None, None, *a, eps=eps)
    need((w is None) == (b is None), "scale without shift, or the other way")
    need(s.input.dim() > 2 or kind == "group_norm", "a single value per channel")
    need(eps >= 0, "an eps below 0, which Kiln refuses")
    given = [] if w is None else [w, b]
    return kind, [last(s.input), *given], lambda x, *a: last(f(first(x), *a)), {"k": groups, "value": eps}


@op("nn.functional.linear")
def _(s):
    given = list(s.args)
    need(s.args[0].dim() == 2 and s.input.dim() > 0, "a weight of one dimension")
    return "linear", [s.input, *given], F.linear, {}


@op("softmax", "log_softmax", "nn.functional.softmin")
def _(s, name):
    dim, dtype = options(s, ["dim", "dtype"], [None, None])
    no(dtype=dtype)
    need(s.input.dim() > 0, "an axis of a scalar")
    if name.endswith("softmin"):
        return "softmin", [s.input], lambda x: F.softmin(x, dim), {"axis": dim}
    return name, [s.input], lambda x: getattr(torch, name)(x, dim), {"axis": dim}


@op(*(f"nn.functional.pad.{mode}" for mode in ("constant", "reflect", "replicate", "circular", "replicate_negative")))
def _(s, name):
    mode = name.split(".")[-1].split("_")[0]
    pads, _mode, value = options(s, ["pad", "mode", "value"], [None, mode, None])
    pairs = [[0, 0] for _ in range(s.input.dim())]
    for i in range(len(pads) // 2):
        pairs[-1 - i] = [pads[2 * i], pads[2 * i + 1]]
    call = lambda x: F.pad(x, list(pads), mode, value)
    return "pad", [s.input], call, {"pairs": pairs, "mode": mode, "value": value or 0.0}


@op(*(f"nn.functional.interpolate.{mode}" for mode in ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")))
def _(s, name):
    mode = name.split(".")[-1]
    size, scale, _mode, corners, again, antialias = options(s, ["size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"], [None, None, mode, None, None, False])
    no(recompute_scale_factor=again, antialias=antialias)
    rank = s.input.dim() - 2
    call = lambda x: last(F.interpolate(first(x), size=size, scale_factor=scale, mode=mode, align_corners=corners))
    sizes = None if size is None else spread(size, rank)
    scales = None if scale is None else [scale] * rank if isinstance(scale, (int, float)) else list(scale)
    need(mode != "area" or scales is None, "area by factors")
    return "interpolate", [last(s.input)], call, {"mode": mode, "keep": bool(corners), "shape": sizes, "factors": scales}


@op("nn.functional.grid_sample")
def _(s):
    (grid,) = s.args[:1] or (s.kwargs["grid"],)
    mode, padding, corners = s.kwargs.get("mode", "bilinear"), s.kwargs.get("padding_mode", "zeros"), bool(s.kwargs.get("align_corners"))
    call = lambda x, g: last(F.grid_sample(first(x), g, mode, padding, corners))
    return "grid_sample", [last(s.input), grid], call, {"mode": mode, "padding_mode": padding, "keep": corners}


@op("nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle")
def _(s, name):
    kind = name.split(".")[-1]
    need(s.input.dim() == 4, "other than one batch axis")
    f, (factor,) = getattr(F, kind), options(s, ["upscale_factor" if kind == "pixel_shuffle" else "downscale_factor"], [None])
    return kind, [last(s.input)], lambda x: last(f(first(x), factor)), {"k": factor}


@op("nn.functional.embedding")
def _(s):
    weight = s.args[0]
    no(**{k: v for k, v in s.kwargs.items() if k != "padding_idx"})
    padding = s.kwargs.get("padding_idx")
    padding = padding % weight.shape[0] if padding is not None else None
    return "embedding", [weight], lambda w: F.embedding(s.input, w, padding_idx=padding), {"k": padding}, [s.input]


@op("nn.functional.embedding_bag")
def _(s):
    (ids,) = s.args[:1]
    given = dict(offsets=None, mode="mean", per_sample_weights=None, padding_idx=None, include_last_offset=False) | s.kwargs
    offsets, weights, padding, ends = given["offsets"], given["per_sample_weights"], given["padding_idx"], given.pop("include_last_offset")
    given.pop("sparse", None)
    no(**{k: v for k, v in given.items() if k not in ("offsets", "mode", "per_sample_weights", "padding_idx")})
    lengths = None
    if offsets is not None:
        starts = offsets.tolist() + ([] if ends else [ids.numel()])
        lengths = [b - a for a, b in zip(starts, starts[1:])]
        need(starts[0] == 0 and all(n >= 0 for n in lengths), "offsets that do not ascend")
    padding = padding % s.input.shape[0] if padding is not None else None
    f = lambda w, *p: F.embedding_bag(ids, w, offsets, mode=given["mode"], per_sample_weights=p[0] if p else None, padding_idx=padding, include_last_offset=ends)
    told = {"mode": given["mode"], "k": padding, "sizes": lengths}
    return "embedding_bag", [s.input] + ([] if weights is None else [weights]), f, told, [ids]


@op("nn.functional.unfold")
def _(s):
    raise Skip("columns of every channel in turn: another order")


@op("nn.functional.scaled_dot_product_attention")
def _(s):
    k, v, mask, dropout, causal, scale, gqa = options(s, ["key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"], [None, None, None, 0.0, False, None, False])
    no(enable_gqa=gqa)
    need(dropout == 0.0, "random")
    floats, ints = ([], []) if mask is None else ([], [mask]) if mask.dtype == torch.bool else ([mask], [])
    call = lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, m[0] if m else mask, 0.0, causal, scale=scale)
    return "attention", [s.input, k, v, *floats], call, {"keep": causal, "value": scale}, ints


# Losses.
REDUCTION = ["size_average", "reduce"]


def loss(s, names, defaults):
    given = options(s, names + ["reduction"] + REDUCTION, defaults + ["mean", None, None])
    no(size_average=given[-2], reduce=given[-1])
    return given[:-2]


for name, kiln in [("l1_loss", "l1_loss"), ("mse_loss", "mse_loss"), ("huber_loss", "huber_loss"), ("smooth_l1_loss", "smooth_l1_loss"),
                   ("soft_margin_loss", "soft_margin_loss"), ("hinge_embedding_loss", "hinge_embedding_loss")]:
    def pointwise(s, name=name, kiln=kiln):
        parameter, default = {"huber_loss": ("delta", 1.0), "smooth_l1_loss": ("beta", 1.0), "hinge_embedding_loss": ("margin", 1.0)}.get(name, ("weight", None))
        target, value, reduction = loss(s, ["target", parameter], [None, default])
        need(parameter != "weight" or value is None, "argument weight")
        need(name != "smooth_l1_loss" or value > 0, "beta of 0: the L1 loss")
        more = {} if parameter == "weight" else {parameter: value}
        call = lambda x, t: getattr(F, name)(x, t, reduction=reduction, **more)
        return kiln, [s.input, target], call, {"value": value, "reduction": reduction}, [], 1 if kiln == "soft_margin_loss" else 2

    OPS[f"nn.functional.{name}"] = pointwise


@op("nn.functional.binary_cross_entropy", "nn.functional.binary_cross_entropy_with_logits")
def _(s, name):
    logits = name.endswith("logits")
    target, weight, reduction, *rest = loss(s, ["target", "weight"], [None, None]) if not logits else options(s, ["target", "weight", "reduction", "pos_weight"], [None, None, "mean", None])
    no(weight=weight)
    positive = [] if not rest or rest[0] is None else [rest[0]]
    f = (lambda x, t, *p: F.binary_cross_entropy_with_logits(x, t, reduction=reduction, pos_weight=p[0] if p else None)) if logits else lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction)
    return "bce_with_logits" if logits else "bce_loss", [s.input, target, *positive], f, {"reduction": reduction}, [], 2


@op("nn.functional.kl_div")
def _(s):
    target, log, reduction = loss(s, ["target", "log_target"], [None, False])
    return "kl_div", [s.input, target], lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=log), {"keep": log, "reduction": reduction}


@op("nn.functional.cross_entropy", "nn.functional.nll_loss")
def _(s, name):
    target, weight, ignored, smoothing, reduction = loss(s, ["target", "weight", "ignore_index", "label_smoothing"], [None, None, -100, 0.0])
    need(s.input.dim() > 1, "logits without a batch")
    soft = target.is_floating_point()
    kind, given = name.split(".")[-1], [] if weight is None else [weight]
    more = {"reduction": reduction} | ({"label_smoothing": smoothing} if kind == "cross_entropy" else {})
    told = {"reduction": reduction, "value": smoothing, "k": ignored, "keep": weight is not None}
    if soft:
        call = lambda x, t, *w: F.cross_entropy(first(x), first(t), *w, **more)
        return "cross_entropy_soft", [last(s.input), last(target), *given], call, told, [], 2
    call = lambda x, *w: getattr(F, kind)(first(x), target, *w, ignore_index=ignored, **more)
    return kind, [last(s.input), *given], call, told, [target], 1


@op("nn.functional.cosine_similarity", "nn.functional.pairwise_distance")
def _(s, name):
    other = s.args[0] if s.args else s.kwargs["x2"]
    if name.endswith("similarity"):
        dim, eps = s.kwargs.get("dim", 1), s.kwargs.get("eps", 1e-8)
        need(s.input.dim() > 0, "an axis of a scalar")
        return "cosine_similarity", [s.input, other], lambda a, b: F.cosine_similarity(a, b, dim, eps), {"axis": dim, "value": eps}
    p, eps, keep = s.kwargs.get("p", 2.0), s.kwargs.get("eps", 1e-6), s.kwargs.get("keepdim", False)
    no(keepdim=keep)
    need(p > 0, "an order of 0 or less")
    return "pairwise_distance", [s.input, other], lambda a, b: F.pairwise_distance(a, b, p, eps), {"value": p, "eps": eps}


@op("nn.functional.cosine_embedding_loss", "nn.functional.margin_ranking_loss")
def _(s, name):
    other, target, margin, reduction = loss(s, ["other", "target", "margin"], [None, None, 0.0])
    kind = name.split(".")[-1]
    target = target.to(s.input.dtype)
    f = getattr(F, kind)
    return kind, [s.input, other, target], lambda a, b, t: f(a, b, t, margin=margin, reduction=reduction), {"value": margin, "reduction": reduction}, [], 2


@op("nn.functional.triplet_margin_loss")
def _(s):
    positive, negative, margin, p, eps, swap, reduction = loss(s, ["positive", "negative", "margin", "p", "eps", "swap"], [None, None, 1.0, 2.0, 1e-6, False])
    call = lambda a, b, c: F.triplet_margin_loss(a, b, c, margin, p, eps, swap, reduction=reduction)
    return "triplet_margin_loss", [s.input, positive, negative], call, {"value": margin, "p": p, "eps": eps, "keep": swap, "reduction": reduction}


@op("nn.functional.gaussian_nll_loss")
def _(s):
    target, var, full, eps, reduction = options(s, ["target", "var", "full", "eps", "reduction"], [None, None, False, 1e-6, "mean"])
    need(isinstance(var, torch.Tensor), "a variance that is a number")
    call = lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=full, eps=eps, reduction=reduction)
    return "gaussian_nll_loss", [s.input, target, var], call, {"keep": full, "value": eps, "reduction": reduction}


@op("nn.functional.poisson_nll_loss")
def _(s):
    target, log, full, eps, reduction = loss(s, ["target", "log_input", "full", "eps"], [None, True, False, 1e-8])
    call = lambda x, t: F.poisson_nll_loss(x, t, log, full, eps=eps, reduction=reduction)
    return "poisson_nll_loss", [s.input, target], call, {"log": log, "keep": full, "value": eps, "reduction": reduction}
