"""How the samples of ops of integers and of masks are written for Kiln: see op_db.py. Most rows are those of floats."""

import torch
from op_db_tensors import OPS, need, options, tensor

INTS = {}
# Ops of masks, too: those of numbers give integers in Kiln, and masks in PyTorch.
MASKS = set()

for name in ("add sub rsub mul floor_divide remainder abs neg sign sum cumsum argmax argmin topk scatter_add").split():
    INTS[name] = OPS[name]
for name in ("eq ne lt le gt ge maximum minimum max.binary min.binary amax amin max.reduction_no_dim min.reduction_no_dim all any "
             "count_nonzero sort argsort where masked_fill nonzero argwhere reshape view permute transpose squeeze unsqueeze flatten ravel "
             "unflatten expand broadcast_to narrow flip fliplr flipud diagonal roll tile cat stack gather index_select masked_select scatter "
             "split T t mT").split():
    INTS[name] = OPS[name]
    MASKS.add(name)


def row(*names, masks=False):
    def add(f):
        for name in names:
            INTS[name] = f
            if masks:
                MASKS.add(name)
        return f

    return add


def pair(s, name, f=None):
    a, b = s.input, s.args[0]
    return name, [tensor(a, b), tensor(b, tensor(a, b))], f or getattr(torch, name), {}


@row("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor", masks=True)
def _(s, name):
    return pair(s, name)


@row("bitwise_left_shift", "bitwise_right_shift")
def _(s, name):
    _name, inputs, f, told = pair(s, name)
    need(bool((inputs[1] >= 0).all() and (inputs[1] < 32).all()), "a shift by other than 0 to 31 bits, which PyTorch leaves open")
    return name, inputs, f, told


@row("bitwise_not", "logical_not", masks=True)
def _(s, name):
    return name, [s.input], getattr(torch, name), {}


@row("index_put", masks=True)
def _(s, name):
    need(not options(s, ["indices", "values", "accumulate"], [None, None, False])[2], "values added to integers")
    return OPS[name](s)


@row("pow")
def _(s, name):
    need(not isinstance(s.input, (int, float)) and isinstance(s.args[0], int), "a tensor of exponents")
    return name, [s.input], lambda x: torch.pow(x, s.args[0]), {"k": s.args[0]}


@row("clamp")
def _(s, name):
    low, high = options(s, ["min", "max"], [None, None])
    need(isinstance(low, int) or isinstance(high, int), "bounds that are tensors")
    told = {"low": -(2**31) if low is None else low, "high": 2**31 - 1 if high is None else high}
    return name, [s.input], lambda x: torch.clamp(x, low, high), told


@row("bincount")
def _(s, name):
    weights, least = options(s, ["weights", "minlength"], [None, 0])
    need(weights is None, "weights")
    need(s.input.numel() > 0 and s.input.max() < 100, "a great number")
    count = max(least, int(s.input.max()) + 1)
    return name, [s.input], lambda x: torch.bincount(x, minlength=count), {"k": count}
