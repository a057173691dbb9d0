"""PyTorch's values and gradients of losses, norms and reductions, as golden values for tests/cpu/golden.rs.

Run with PyTorch on a CPU: python losses.py > losses.json
"""

import json

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
cases = []


def case(name, f, inputs, **more):
    """Records f(*inputs) and the gradients of Σ w·f, w = 1, 2, 3, … in row-major order."""
    inputs = [i.detach().clone().requires_grad_() for i in inputs]
    y = f(*inputs)
    weights = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    grads = torch.autograd.grad((y * weights).sum(), inputs)

    def array(t):
        return {"shape": list(t.shape), "data": [float(f"{v:.12g}") for v in t.detach().flatten().tolist()]}

    case = {"name": name, "inputs": [array(i) for i in inputs], "output": array(y), "grads": [array(g) for g in grads]}
    cases.append(case | more)


def rounded(*shape, scale=2.0):
    return (torch.randn(*shape) * scale * 256).round() / 256


reductions = ["mean", "sum", "none"]
x = rounded(4, 4)
labels = torch.tensor([3, 0, -100, 1])
weight = torch.tensor([0.5, 1.0, 2.0, 0.25])
for reduction in reductions:
    for smoothing in [0.0, 0.25]:
        for w in [None, weight]:
            for ignore in [-100, 1]:
                l = torch.where(labels == -100, 1, labels) if ignore == 1 else labels
                f = lambda x: F.cross_entropy(x, l, w, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing)
                options = {"labels": l.tolist(), "weight": None if w is None else w.tolist()}
                options |= {"ignore": ignore, "smoothing": smoothing, "reduction": reduction}
                case("cross_entropy", f, [x], **options)
                if smoothing == 0.0:
                    f = lambda x: F.nll_loss(x, l, w, ignore_index=ignore, reduction=reduction)
                    case("nll_loss", f, [x], **options)
    target = F.normalize(rounded(4, 4).abs(), 1.0, -1)
    for smoothing in [0.0, 0.25]:
        for w in [None, weight]:
            f = lambda x, t: F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=smoothing)
            options = {"weight": None if w is None else w.tolist(), "smoothing": smoothing, "reduction": reduction}
            case("cross_entropy_soft", f, [x, target], **options)
    y = rounded(4, 4)
    p, q = torch.rand(4, 4), torch.rand(4, 4)
    for name, f, inputs, value in [
        ("mse_loss", lambda x, t: F.mse_loss(x, t, reduction=reduction), [x, y], 0.0),
        ("l1_loss", lambda x, t: F.l1_loss(x, t, reduction=reduction), [x, y], 0.0),
        ("huber_loss", lambda x, t: F.huber_loss(x, t, reduction=reduction, delta=1.5), [x, y], 1.5),
        ("smooth_l1_loss", lambda x, t: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.75), [x, y], 0.75),
        ("bce_loss", lambda x, t: F.binary_cross_entropy(x, t, reduction=reduction), [p, q], 0.0),
        ("kl_div", lambda x, t: F.kl_div(x, t, reduction=reduction), [x, q], 0.0),
        ("kl_div_log", lambda x, t: F.kl_div(x, t, reduction=reduction, log_target=True), [x, -q], 0.0),
    ]:
        case(name, f, inputs, reduction=reduction, value=value)
    for w in [None, weight]:
        f = lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction=reduction, pos_weight=w)
        options = {"weight": None if w is None else w.tolist(), "reduction": reduction}
        case("bce_with_logits", f, [x, q], **options)

# Norms: PyTorch's channels come second, ours last.
image, scale, shift = rounded(2, 3, 6), rounded(6), rounded(6)
last = lambda f: lambda x, *a: f(x.movedim(-1, 1), *a).movedim(1, -1)
case("batch_norm", last(lambda x, a, b: F.batch_norm(x, None, None, a, b, True, 0.1, 1e-3)), [image, scale, shift])
case("group_norm", last(lambda x, a, b: F.group_norm(x, 3, a, b, 1e-3)), [image, scale, shift])
case("instance_norm", last(lambda x, a, b: F.instance_norm(x, weight=a, bias=b, eps=1e-3)), [image, scale, shift])
case("layer_norm", lambda x, a, b: F.layer_norm(x, (6,), a, b, 1e-3), [image, scale, shift])
case("rms_norm", lambda x, a: F.rms_norm(x, (6,), a, 1e-3), [image, scale])

ties = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
case("max", lambda x: x.amax(1), [ties])
case("min", lambda x: x.amin(0), [ties])
case("var", lambda x: x.var(1), [image])
case("std", lambda x: x.std(1, correction=0), [image])
case("norm", lambda x: torch.linalg.vector_norm(x, 2, 1), [torch.cat([x, torch.zeros(1, 4)])])
case("logsumexp", lambda x: x.logsumexp(1), [image])
case("cumsum", lambda x: x.cumsum(1), [image])
case("top_k", lambda x: x.topk(4, 2).values, [image])
case("log_softmax", lambda x: x.log_softmax(1), [image])

# One case a line: a change of one case is a change of one line.
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
