#!/usr/bin/env python3
"""Writes recurrent.json: PyTorch's recurrent layers and cells in f64, with last states and all gradients.

    python crates/nn/tests/golden/recurrent.py

Each case has the module's options, its parameters, inputs `x`, first states, results `y`, last states, weights of the sum of all
results that is differentiated, and the gradients of inputs, first states and parameters.
"""

import json
import os

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
T, N, IN, H = 4, 3, 3, 4
LENGTHS = torch.tensor([3, 4, 1])


def told(t):
    return {"shape": list(t.shape), "data": t.detach().flatten().tolist()}


def case(kind, layers=1, bidirectional=False, packed=False, first=True, batch_first=False, **options):
    module = getattr(nn, kind)(
        IN, H, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first, **options
    )
    lstm, width = kind == "LSTM", options.get("proj_size", 0) or H
    count = layers * (2 if bidirectional else 1)
    x = torch.randn(*((N, T) if batch_first else (T, N)), IN, requires_grad=True)
    states = [torch.randn(count, N, width, requires_grad=True)]
    if lstm:
        states.append(torch.randn(count, N, H, requires_grad=True))
    given = pack_padded_sequence(x, LENGTHS, batch_first, enforce_sorted=False) if packed else x
    start = (tuple(states) if lstm else states[0],) if first else ()
    y, last = module(given, *start)
    if packed:
        y, _ = pad_packed_sequence(y, batch_first)
    results = [y, *last] if lstm else [y, last]
    weights = [torch.randn_like(r) for r in results]
    leaves = [x, *(states if first else []), *module.parameters()]
    total = sum((r * w).sum() for r, w in zip(results, weights))
    names = ["x", *["h0", "c0"][: len(states) if first else 0], *[name for name, _ in module.named_parameters()]]
    return {
        "kind": kind,
        "layers": layers,
        "bidirectional": bidirectional,
        "batch_first": batch_first,
        "relu": options.get("nonlinearity") == "relu",
        "bias": options.get("bias", True),
        "proj_size": options.get("proj_size", 0),
        "lengths": LENGTHS.tolist() if packed else None,
        "inputs": {name: told(t) for name, t in zip(names, leaves)},
        "results": [told(r) for r in results],
        "weights": [told(w) for w in weights],
        "grads": {name: told(g) for name, g in zip(names, torch.autograd.grad(total, leaves))},
    }


def cell(kind, **options):
    module = getattr(nn, kind)(IN, H, **options)
    x = torch.randn(N, IN, requires_grad=True)
    states = [torch.randn(N, H, requires_grad=True) for _ in range(2 if kind == "LSTMCell" else 1)]
    out = module(x, tuple(states) if len(states) > 1 else states[0])
    results = list(out) if len(states) > 1 else [out]
    weights = [torch.randn_like(r) for r in results]
    leaves = [x, *states, *module.parameters()]
    names = ["x", *["h0", "c0"][: len(states)], *[name for name, _ in module.named_parameters()]]
    total = sum((r * w).sum() for r, w in zip(results, weights))
    return {
        "kind": kind,
        "relu": options.get("nonlinearity") == "relu",
        "bias": options.get("bias", True),
        "inputs": {name: told(t) for name, t in zip(names, leaves)},
        "results": [told(r) for r in results],
        "weights": [told(w) for w in weights],
        "grads": {name: told(g) for name, g in zip(names, torch.autograd.grad(total, leaves))},
    }


layers = [
    case("RNN"),
    case("RNN", nonlinearity="relu", layers=2, bias=False, first=False),
    case("RNN", bidirectional=True, packed=True),
    case("LSTM"),
    case("LSTM", layers=2, batch_first=True, first=False),
    case("LSTM", layers=2, bidirectional=True, packed=True),
    case("LSTM", proj_size=2, layers=2, bidirectional=True),
    case("LSTM", proj_size=3, packed=True, bias=False),
    case("GRU"),
    case("GRU", layers=2, bidirectional=True, packed=True, batch_first=True),
    case("GRU", layers=3, bias=False, first=False),
]
cells = [
    cell("RNNCell"),
    cell("RNNCell", nonlinearity="relu", bias=False),
    cell("LSTMCell"),
    cell("LSTMCell", bias=False),
    cell("GRUCell"),
    cell("GRUCell", bias=False),
]
with open(os.path.join(os.path.dirname(__file__), "recurrent.json"), "w") as file:
    json.dump({"layers": layers, "cells": cells}, file)
    file.write("\n")
