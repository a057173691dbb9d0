#!/usr/bin/env python3
"""Writes attention.safetensors: PyTorch's multi-head attention and transformer blocks, with a mask, in f64.

    python crates/nn/tests/golden/attention.py

Each case has the parameters under PyTorch's names, an input `x`, the result `y`, and `dx`, the gradient of x of the sum of
y·w for weights `w`.
"""

import os

import torch
from safetensors.torch import save_file
from torch import nn

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
N, T, WIDTH, HEADS = 2, 5, 8, 2
# True for padding.
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])

out = {"tokens": (~PADDING).to(torch.uint8)}


def case(name, module, run):
    module.eval()
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    x, w = torch.randn(N, T, WIDTH, requires_grad=True), torch.randn(N, T, WIDTH)
    y = run(module, x)
    (dx,) = torch.autograd.grad((y * w).sum(), x)
    out.update({f"{name}.{k}": v.detach().clone() for k, v in module.state_dict().items()})
    out.update({f"{name}-{k}": v.detach().contiguous() for k, v in {"x": x, "w": w, "y": y, "dx": dx}.items()})


def attention():
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)


case("plain", attention(), lambda m, x: m(x, x, x, need_weights=True)[0])
case("padded", attention(), lambda m, x: m(x, x, x, key_padding_mask=PADDING, need_weights=True)[0])
causal = torch.ones(T, T, dtype=torch.bool).triu(1)
case("causal", attention(), lambda m, x: m(x, x, x, attn_mask=causal, need_weights=True)[0])
case("cross", attention(), lambda m, x: m(x, x.flip(1)[:, :3], 2 * x.flip(1)[:, :3], need_weights=True)[0])
for first in (False, True):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 12, activation="gelu", norm_first=first, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    case(f"encoder-{first}".lower(), encoder, lambda m, x: m(x, src_key_padding_mask=PADDING))

save_file(out, os.path.join(os.path.dirname(__file__), "attention.safetensors"))
