"""The dtypes of torch.autocast by op, and losses and gradients of nets in mixed precision, from PyTorch.

    python autocast.py > autocast.json

Dtypes are those of autocast on CUDA, of tensors without values, so no GPU is needed. Values are those of autocast to bf16 on
the CPU, of nets whose ops have the same precision on both devices; weights and inputs are sines that the test makes too.
"""

import json
import re

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

OPS = {
    "matmul": lambda x: x @ x,
    "matmul_t": lambda x: x.T @ x,
    "linear": lambda x: F.linear(x, x, x[0]),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "conv": lambda x: F.conv1d(x[None], x[:, :, None]),
    "conv_transpose": lambda x: F.conv_transpose1d(x[None], x[:, :, None]),
    "prelu": lambda x: F.prelu(x, x[0, :1]),
    "exp": torch.exp,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "powf": lambda x: x.pow(3.0),
    "pow": lambda x: x.pow(x),
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "softplus": F.softplus,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "sum": lambda x: x.sum(0),
    "prod": lambda x: x.prod(0),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "norm": lambda x: torch.norm(x, p=2),
    "layer_norm": lambda x: F.layer_norm(x, [6]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "kl_div": lambda x: F.kl_div(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(6, device=x.device)),
    "nll_loss": lambda x: F.nll_loss(x, torch.arange(6, device=x.device)),
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "erf": torch.erf,
    "clamp": lambda x: x.clamp(-1.0, 1.0),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.amax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "var": lambda x: x.var(),
    "add": lambda x: x + x,
    "mul": lambda x: x * x,
    "div": lambda x: x / x,
    "mul_scalar": lambda x: x * 2.0,
    "transpose": lambda x: x.T,
    "narrow": lambda x: x[:2],
    "max_pool": lambda x: F.max_pool1d(x[None], 2),
    "avg_pool": lambda x: F.avg_pool1d(x[None], 2),
    "dropout": lambda x: F.dropout(x, 0.5),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}

# Ops of a half and a tensor of f32.
MIXED = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "concat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "matmul": torch.matmul,
    "mse_loss": F.mse_loss,
    "batch_norm": lambda a, b: F.batch_norm(a, None, None, b[0], b[1], training=True),
}

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "half", torch.float16: "half"}


def dtypes(half):
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", half)
    try:
        with FakeTensorMode():
            x = torch.empty(6, 6, device="cuda")
            single = {
                name: [NAMES[op(x.to(dtype)).dtype] for dtype in (torch.float32, half, torch.float64)]
                for name, op in OPS.items()
            }
            return single, {name: NAMES[op(x.to(half), x).dtype] for name, op in MIXED.items()}
    finally:
        torch.set_autocast_enabled("cuda", False)


def wave(shape, k, scale=1.0):
    n = torch.Size(shape).numel()
    return torch.sin(torch.arange(n, dtype=torch.float64) * k).mul(scale).reshape(shape).float()


def parameters(shapes):
    return {
        name: wave(shape, 0.7 + 0.4 * i, 0.5).requires_grad_() for i, (name, shape) in enumerate(shapes.items())
    }


def dense(p, x):
    h = torch.tanh(F.linear(x, p["a"], p["b"]))
    return F.linear(F.relu(F.linear(h, p["c"], p["d"])), p["e"])


def convolutional(p, x):
    h = F.relu(F.conv2d(x, p["a"], p["b"]))
    h = F.batch_norm(h, None, None, p["c"], p["d"], training=True, eps=1e-2)
    return F.linear(F.max_pool2d(h, 2).permute(0, 2, 3, 1).flatten(1), p["e"])


def attention(p, x):
    q, k, v = F.linear(x.reshape(-1, 4, 6), p["a"]).chunk(3, -1)
    h = F.scaled_dot_product_attention(q, k, v)
    return F.linear(F.gelu(h).flatten(1), p["b"], p["c"])


NETS = {
    "dense": (dense, [6, 5], dict(a=[8, 5], b=[8], c=[7, 8], d=[7], e=[4, 7])),
    "convolutional": (convolutional, [6, 2, 6, 6], dict(a=[4, 2, 3, 3], b=[4], c=[4], d=[4], e=[4, 16])),
    "attention": (attention, [6, 24], dict(a=[18, 6], b=[4, 24], c=[4])),
}


def net(name):
    forward, shape, shapes = NETS[name]
    p, x = parameters(shapes), wave(shape, 1.3)
    labels = torch.arange(shape[0]) % 4
    with torch.autocast("cpu", torch.bfloat16):
        logits = forward(p, x)
        loss = F.cross_entropy(logits.float(), labels)
    assert logits.dtype == torch.bfloat16
    loss.backward()
    exact = F.cross_entropy(forward(p, x), labels)
    grads = {k: [float(f"{v:.6g}") for v in w.grad.flatten().tolist()] for k, w in p.items()}
    return dict(loss=float(f"{loss.item():.7g}"), f32=float(f"{exact.item():.7g}"), shapes=shapes, grads=grads)


def main():
    single, mixed = dtypes(torch.bfloat16)
    assert (single, mixed) == dtypes(torch.float16)
    golden = dict(torch=torch.__version__, dtypes=single, mixed=mixed, nets={name: net(name) for name in NETS})
    text = json.dumps(golden, indent=1)
    # One line per list.
    print(re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text))


if __name__ == "__main__":
    main()
