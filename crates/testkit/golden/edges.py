"""PyTorch's values and gradients where formulas end: NaN, infinities, zeros, ties, bounds, nothing to reduce.

Run with PyTorch on a CPU: python edges.py > edges.json
"""

import json
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
inf, nan = math.inf, math.nan
cases = []


def array(t):
    # JSON has no names for what is not finite.
    number = lambda v: float(f"{v:.12g}") if math.isfinite(v) else str(v)
    return {"shape": list(t.shape), "data": [number(v) for v in t.detach().flatten().tolist()]}


def case(name, f, inputs, second=False, **more):
    """Records f(*inputs), the gradients of Σ w·f, w = 1, 2, 3, … in row-major order, and with `second` the gradients of
    Σ v·g, g being the gradients of the first input and v the same numbers."""
    inputs = [torch.as_tensor(i, dtype=torch.float64).clone().requires_grad_() for i in inputs]
    y = f(*inputs)
    count = lambda t: torch.arange(1, t.numel() + 1, dtype=t.dtype).reshape(t.shape)
    grads = torch.autograd.grad(y, inputs, count(y), create_graph=second)
    case = {"name": name, "inputs": [array(i) for i in inputs], "output": array(y), "grads": [array(g) for g in grads]}
    if second:
        found = [None] * len(inputs)
        if grads[0].requires_grad:
            found = torch.autograd.grad(grads[0], inputs, count(grads[0]), allow_unused=True)
        case["second"] = [array(torch.zeros_like(i) if g is None else g) for i, g in zip(inputs, found)]
    cases.append(case | more)


# Functions of one tensor.
ends = [nan, inf, -inf, 0.0, 1.0, -1.0, 30.0, -30.0]
for name, f in [
    ("abs", torch.abs), ("exp", torch.exp), ("log", torch.log), ("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt),
    ("square", torch.square), ("reciprocal", torch.reciprocal), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid),
    ("relu", F.relu), ("leaky_relu", lambda x: F.leaky_relu(x, 0.1)), ("elu", lambda x: F.elu(x, 1.0)),
    ("softplus", lambda x: F.softplus(x, 1.0, 20.0)), ("erf", torch.erf), ("sign", torch.sign),
]:
    case(name, f, [ends])
# At ±∞ PyTorch's products of ∞ and 0 give NaN, and its kernels do not agree where.
for name, f in [("silu", F.silu), ("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))]:
    case(name, f, [[nan, 0.0, 1.0, -1.0, 30.0, -30.0]])
for low, high in [(0.0, None), (None, 0.0), (0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)]:
    bounds = {"low": "-inf" if low is None else low, "high": "inf" if high is None else high}
    case("clamp", lambda x: x.clamp(low, high), [ends + [0.5, -0.5]], second=True, **bounds)
for exponent in [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0]:
    case("powf", lambda x: x.pow(exponent), [ends + [4.0]], value=exponent)
# At −∞ with other exponents, values are IEEE 754's and PyTorch's slopes are NaN where they pass through ½.
for exponent in [1.5, -0.5, -1.5, 1 / 3]:
    case("powf", lambda x: x.pow(exponent), [[nan, inf, 0.0, 1.0, -1.0, 4.0]], value=exponent)

# Functions of two.
pairs = [[a for a in [nan, inf, -inf, 0.0, 2.0] for _ in range(5)], [nan, inf, -inf, 0.0, 2.0] * 5]
for name, f in [("maximum", torch.maximum), ("minimum", torch.minimum), ("div", torch.div), ("pow", torch.pow)]:
    case(name, f, pairs)

# Reductions along the last axis.
rows = [[nan, 1.0, 2.0], [nan, 1.0, nan], [inf, -1.0, 2.0], [inf, -inf, inf], [-inf, -inf, -inf], [0.0, 0.0, 0.0], [2.0, 2.0, 1.0]]
whole = lambda f: lambda x: torch.stack([f(row) for row in x])
case("max", whole(torch.max), [rows])
case("min", whole(torch.min), [rows])
case("max", lambda x: x.amax(1), [[[2.0, 2.0, 1.0], [0.0, 0.0, 0.0]]], second=True)
finite = [[2.0, 2.0, 2.0], [1.0, 2.0, 4.0], [0.0, 0.0, 0.0]]
for correction in [0, 1]:
    case("std", lambda x: x.std(1, correction=correction), [finite], correction=correction)
    case("std", lambda x: x.std(1, correction=correction), [[[3.0], [4.0]]], correction=correction)
    case("std", lambda x: x.std(1, correction=correction), [[[1.0, nan], [inf, 1.0]]], correction=correction)
    case("var", lambda x: x.var(1, correction=correction), [finite], second=True, correction=correction)
    case("var", lambda x: x.var(1, correction=correction), [[[3.0], [4.0]]], correction=correction)
    case("var", lambda x: x.var(1, correction=correction), [[[1.0, nan], [inf, 1.0]]], correction=correction)
case("std", lambda x: x.std(1, correction=1), [[[1.0, 2.0, 4.0], [-1.0, 3.0, 3.5]]], second=True, correction=1)
for correction, row in [(2, [1.0, 2.0]), (3, [1.0, 2.0, 4.0])]:
    case("var", lambda x: x.var(1, correction=correction), [[row]], correction=correction)
    case("std", lambda x: x.std(1, correction=correction), [[row]], correction=correction)
for p in [1.0, 1.5, 2.0, 3.0]:
    case("norm", lambda x: torch.linalg.vector_norm(x, p, 1), [rows[2:]], value=p)
case("norm", lambda x: torch.linalg.vector_norm(x, 2.0, 1), [rows[5:]], second=True, value=2.0)
case("norm", lambda x: torch.linalg.vector_norm(x, inf, 1), [rows[2:]], value="inf")
case("logsumexp", lambda x: x.logsumexp(1), [rows[:4] + rows[5:]])
case("softmax", lambda x: x.softmax(1), [rows])
case("log_softmax", lambda x: x.log_softmax(1), [rows[:3] + rows[5:]])
nothing = torch.zeros(2, 0)
for name, f in [
    ("sum", lambda x: x.sum(1)), ("mean", lambda x: x.mean(1)), ("var", lambda x: x.var(1)), ("std", lambda x: x.std(1)),
    ("logsumexp", lambda x: x.logsumexp(1)), ("softmax", lambda x: x.softmax(1)),
    ("log_softmax", lambda x: x.log_softmax(1)), ("cumsum", lambda x: x.cumsum(1)),
]:
    case(name, f, [nothing], correction=1)
for p in [0.5, 1.0, 2.0]:
    case("norm", lambda x: torch.linalg.vector_norm(x, p, 1), [nothing], value=p)

# Losses: every row ignored, masked logits, weights of 0.
logits = [[1.0, 2.0, -1.0], [0.5, -2.0, 3.0]]
masked = [[1.0, -inf, 3.0], [0.5, -inf, -1.0]]
weight = torch.tensor([0.5, 0.0, 2.0])
for reduction in ["mean", "sum", "none"]:
    options = {"reduction": reduction}
    for w in [None, weight]:
        weighted = options | {"weight": None if w is None else w.tolist()}
        for labels in [[-100, -100], [2, -100]]:
            l = torch.tensor(labels)
            case("nll_loss", lambda x: F.nll_loss(x, l, w, reduction=reduction), [logits], second=True, labels=labels, **weighted)
            for smoothing in [0.0, 0.25]:
                f = lambda x: F.cross_entropy(x, l, w, reduction=reduction, label_smoothing=smoothing)
                case("cross_entropy", f, [logits], second=True, labels=labels, smoothing=smoothing, **weighted)
        f = lambda x: F.cross_entropy(x, torch.tensor([2, 0]), w, reduction=reduction)
        case("cross_entropy", f, [masked], labels=[2, 0], **weighted)
        f = lambda x: F.cross_entropy(x, torch.tensor([1, 1]), w, reduction=reduction)
        case("cross_entropy", f, [logits], labels=[1, 1], **weighted)
    case("cross_entropy", lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.long), reduction=reduction), [torch.zeros(0, 3)], labels=[], **options)
    far, near = [0.0, 1.0, 40.0, -2.0], [0.0, 0.0, 0.0, 0.0]
    for beta in [1.0, inf]:
        value = options | {"value": str(beta)}
        case("huber_loss", lambda x, t: F.huber_loss(x, t, reduction=reduction, delta=beta), [far, near], second=True, **value)
        case("smooth_l1_loss", lambda x, t: F.smooth_l1_loss(x, t, reduction=reduction, beta=beta), [far, near], **value)
    case("l1_loss", lambda x, t: F.l1_loss(x, t, reduction=reduction), [[0.0, inf, nan, 1.0], near], **options)
    case("mse_loss", lambda x, t: F.mse_loss(x, t, reduction=reduction), [[0.0, inf, nan, 1.0], near], **options)
    f = lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction)
    case("bce_with_logits", f, [[100.0, -100.0, 0.0, 1e4], [1.0, 0.0, 0.0, 1.0]], **options)
    none = [torch.zeros(0, 2), torch.zeros(0, 2)]
    for name, f in [("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss), ("bce_loss", F.binary_cross_entropy)]:
        case(name, lambda x, t: f(x, t, reduction=reduction), none, **options)

# Poolings whose window is larger than the image. PyTorch's channels come second, ours last.
last = lambda f: lambda x, *a: f(x.movedim(-1, 1), *a).movedim(1, -1)
image = torch.tensor([1.0, 5.0, -2.0, 4.0, 3.0, 0.0, 2.0, -1.0]).reshape(1, 2, 2, 2)
wide = torch.arange(15.0).reshape(1, 3, 5, 1).cos()
for x in [image, wide]:
    for kernel, stride, padding in [(3, 2, 0), (4, 3, 1), (5, 3, 2), (2, 2, 1), (3, 4, 0)]:
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        f = lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=True)
        case("max_pool", last(f), [x], second=True, **window)
        for pad in [True, False]:
            f = lambda x: F.avg_pool2d(x, kernel, stride, padding, True, pad)
            case("avg_pool", last(f), [x], count_include_pad=pad, **window)
case("max_pool", last(lambda x: F.max_pool2d(x, 2, 2)), [torch.full((1, 2, 2, 1), -inf)], kernel=2, stride=2, padding=0)
case("max_pool", last(lambda x: F.max_pool2d(x, 2, 2)), [torch.zeros(0, 2, 2, 3)], kernel=2, stride=2, padding=0)
case("avg_pool", last(lambda x: F.avg_pool2d(x, 2, 2)), [torch.zeros(0, 2, 2, 3)], count_include_pad=True, kernel=2, stride=2, padding=0)

# Norms of nothing, and of values that do not differ.
scale, shift = torch.tensor([1.0, 2.0, 3.0, -1.0]), torch.tensor([0.5, 0.0, 1.0, 2.0])
mean, var = torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.tensor([1.0, 0.5, 2.0, 0.0])
for shape in [(0, 4), (0, 2, 3, 4), (2, 0, 4), (3, 2, 4)]:
    x = torch.full(shape, 1.5)
    case("batch_norm", last(lambda x, a, b: F.batch_norm(x, None, None, a, b, True, 0.1, 1e-3)), [x, scale, shift])
    f = last(lambda x, a, b: F.batch_norm(x, mean, var, a, b, False, 0.1, 1e-3))
    case("batch_norm_eval", f, [x, scale, shift], mean=mean.tolist(), var=var.tolist())
    case("layer_norm", lambda x, a, b: F.layer_norm(x, (4,), a, b, 1e-3), [x, scale, shift])
    case("rms_norm", lambda x, a: F.rms_norm(x, (4,), a, 1e-3), [x, scale])
for shape in [(0, 3, 4), (2, 3, 4)]:
    case("group_norm", last(lambda x, a, b: F.group_norm(x, 2, a, b, 1e-3)), [torch.full(shape, 1.5), scale, shift])

# Indices smaller than what they index.
x, source = torch.arange(24.0).reshape(2, 3, 4).sin(), torch.arange(24.0).reshape(2, 3, 4).cos()
for axis in range(3):
    for shape in [(1, 2, 3), (2, 1, 4), (1, 3, 1), (2, 3, 4), (0, 2, 2), (1, 0, 2)]:
        index = (torch.arange(math.prod(shape)) * 5 % x.shape[axis]).reshape(shape)
        options = {"axis": axis, "index": array(index)}
        case("gather", lambda x: x.gather(axis, index), [x], second=True, **options)
        part = source[: shape[0], : shape[1], : shape[2]]
        case("scatter_add", lambda x, s: x.scatter_add(axis, index, s), [x, part], second=True, **options)

# Padding that crops.
line = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
for mode in ["reflect", "replicate"]:
    for pad in [(-1, 2), (-1, 3), (2, -1), (-1, -1), (-5, 3), (-2, -1), (3, -3), (0, -2)]:
        case("pad", lambda x: F.pad(x, pad, mode), [line], second=True, mode=mode, pad=pad)

# Convolutions of images without channels.
for bias in [[], [torch.ones(2)]]:
    f = lambda x, w, *b: F.conv2d(x.movedim(-1, 1), w.movedim(-1, 1), *b).movedim(1, -1)
    case("conv", f, [torch.zeros(1, 3, 4, 0), torch.zeros(2, 2, 2, 0), *bias])

# One case a line: a change of one case is a change of one line.
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
