#!/usr/bin/env python3
"""Writes transformer.safetensors: PyTorch's decoder blocks and whole transformers, and the rotary positions of Hugging Face's
transformers, in f64.

    python crates/nn/tests/golden/transformer.py

Each case has the parameters under PyTorch's names, an input `x` (the target), the result `y`, and `dx`, the gradient of x of the sum of
y·w for weights `w`. The memory, or the source, is `memory` of all cases, of which the last two positions of the second sample are padding.
The cases of rotary positions have `x`, `y`, `w` and `dx` alone.
"""

import os

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import GPTJConfig, GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
N, T, S, WIDTH, HEADS = 2, 4, 5, 8, 2
# True for padding.
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)
MEMORY = torch.randn(N, S, WIDTH)

out = {"tokens": (~PADDING).to(torch.uint8), "memory": MEMORY}


def record(name, x, run):
    y = run(x)
    w = torch.randn_like(y)
    (dx,) = torch.autograd.grad((y * w).sum(), x)
    out.update({f"{name}-{k}": v.detach().contiguous() for k, v in {"x": x, "w": w, "y": y, "dx": dx}.items()})


def case(name, module, run):
    module.eval()
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    out.update({f"{name}.{k}": v.detach().clone() for k, v in module.state_dict().items()})
    record(name, torch.randn(N, T, WIDTH, requires_grad=True), lambda x: run(module, x))


for first in (False, True):
    for activation in ("relu", "gelu"):
        layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 12, activation=activation, norm_first=first, batch_first=True)
        case(
            f"decoder-{first}-{activation}".lower(),
            nn.TransformerDecoder(layer, 2),
            lambda m, x: m(x, MEMORY, tgt_mask=CAUSAL, memory_key_padding_mask=PADDING),
        )
    case(
        f"whole-{first}".lower(),
        nn.Transformer(WIDTH, HEADS, 2, 2, 12, norm_first=first, batch_first=True),
        lambda m, x: m(
            MEMORY, x, tgt_mask=CAUSAL, src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING
        ),
    )

# [N, heads, T, D] at positions 3, 4, 5, 6.
POSITIONS = torch.arange(3, 3 + T).unsqueeze(0)


def heads():
    return torch.randn(N, HEADS, T, WIDTH, requires_grad=True)


config = LlamaConfig(hidden_size=WIDTH * HEADS, num_attention_heads=HEADS, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
cos, sin = (t.double() for t in llama.LlamaRotaryEmbedding(config).double()(MEMORY, POSITIONS))
# The tables of transformers are made in f32: the same formula in f64.
rates = 500.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
angles = (POSITIONS.unsqueeze(-1) * rates).repeat(1, 1, 2)
assert (cos - angles.cos()).abs().max() < 1e-6 and (sin - angles.sin()).abs().max() < 1e-6
record("rotary-llama", heads(), lambda x: llama.apply_rotary_pos_emb(x, x, angles.cos(), angles.sin())[0])

config = GPTNeoXConfig(
    hidden_size=WIDTH * HEADS,
    num_attention_heads=HEADS,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
)
cos, sin = (t.double() for t in neox.GPTNeoXRotaryEmbedding(config).double()(MEMORY, POSITIONS))
rates = 10000.0 ** (-torch.arange(0, 4, 2) / 4)
angles = (POSITIONS.unsqueeze(-1) * rates).repeat(1, 1, 2)
assert cos.shape == angles.shape and (cos - angles.cos()).abs().max() < 1e-6
record("rotary-neox", heads(), lambda x: neox.apply_rotary_pos_emb(x, x, angles.cos(), angles.sin())[0])

# GPT-J has heads behind positions, [N, T, heads, D].
rates = 10000.0 ** (-torch.arange(0, 6, 2) / 6)
angles = POSITIONS.unsqueeze(-1) * rates


def interleaved(x):
    of = x.transpose(1, 2)
    turned = gptj.apply_rotary_pos_emb(of[..., :6], angles.sin(), angles.cos())
    return torch.cat((turned, of[..., 6:]), -1).transpose(1, 2)


record("rotary-gptj", heads(), interleaved)

save_file(out, os.path.join(os.path.dirname(__file__), "transformer.safetensors"))
