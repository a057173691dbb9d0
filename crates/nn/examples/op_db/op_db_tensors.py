"""How the samples of functions, reductions and moves of tensors are written for Kiln: see op_db.py."""

import math

import torch
import torch.nn.functional as F


OPS = {}


class Skip(Exception):
    """A sample that Kiln does not express, with the reason."""


def op(*names):
    def add(f):
        for name in names:
            OPS[name] = f
        return f

    return add


def need(condition, reason):
    if not condition:
        raise Skip(reason)


def options(s, names, defaults):
    """The arguments after the input by name: positional ones, keywords, defaults."""
    given = dict(zip(names, defaults)) | dict(zip(names, s.args)) | s.kwargs
    need(set(given) <= set(names), f"argument {', '.join(sorted(set(given) - set(names)))}")
    return [given[n] for n in names]


def tensor(v, like):
    need(not isinstance(v, complex), "complex numbers")
    return v if isinstance(v, torch.Tensor) else torch.tensor(v, dtype=like.dtype)


def no(**kwargs):
    for name, v in kwargs.items():
        need(v is None or v is False, f"argument {name}")


def axes(dim, x):
    if dim is None:
        return []
    dim = [dim] if isinstance(dim, int) else list(dim)
    need(x.dim() > 0, "an axis of a scalar")
    return dim


# Functions of one tensor.
for name in ("abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 neg reciprocal round "
             "rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc").split():
    OPS[name] = lambda s, name=name: (name, [s.input], getattr(torch, name), {})
for name, kiln in [("relu", "relu"), ("relu6", "relu6"), ("silu", "silu"), ("mish", "mish"), ("selu", "selu"), ("softsign", "softsign"),
                   ("hardsigmoid", "hardsigmoid"), ("hardswish", "hardswish"), ("logsigmoid", "log_sigmoid")]:
    OPS[f"nn.functional.{name}"] = lambda s, name=name, kiln=kiln: (kiln, [s.input], getattr(F, name), {})


@op("nn.functional.elu", "nn.functional.celu")
def _(s, name):
    (alpha,) = options(s, ["alpha"], [1.0])
    f = getattr(F, name.split(".")[-1])
    return name.split(".")[-1], [s.input], lambda x: f(x, alpha), {"value": alpha}


@op("nn.functional.leaky_relu")
def _(s):
    (slope,) = options(s, ["negative_slope"], [0.01])
    return "leaky_relu", [s.input], lambda x: F.leaky_relu(x, slope), {"value": slope}


@op("nn.functional.hardtanh")
def _(s):
    low, high = options(s, ["min_val", "max_val"], [-1.0, 1.0])
    return "hardtanh", [s.input], lambda x: F.hardtanh(x, low, high), {"low": low, "high": high}


@op("nn.functional.gelu")
def _(s):
    (how,) = options(s, ["approximate"], ["none"])
    return {"none": "gelu", "tanh": "gelu_tanh"}[how], [s.input], lambda x: F.gelu(x, approximate=how), {}


@op("nn.functional.softplus")
def _(s):
    beta, threshold = options(s, ["beta", "threshold"], [1.0, 20.0])
    return "softplus", [s.input], lambda x: F.softplus(x, beta, threshold), {"low": beta, "high": threshold}


@op("nn.functional.hardshrink", "nn.functional.softshrink")
def _(s, name):
    (lambd,) = options(s, ["lambd"], [0.5])
    f = getattr(F, name.split(".")[-1])
    return name.split(".")[-1], [s.input], lambda x: f(x, lambd), {"value": lambd}


@op("nn.functional.prelu")
def _(s):
    weight = s.args[0] if s.args else s.kwargs["weight"]
    need(s.input.dim() < 3 or weight.numel() == 1, "channels are the last axis")
    return "prelu", [s.input, weight.reshape(-1)], F.prelu, {}


@op("nn.functional.glu")
def _(s):
    (dim,) = options(s, ["dim"], [-1])
    return "glu", [s.input], lambda x: F.glu(x, dim), {"axis": dim}


@op("clamp", "clamp_min", "clamp_max")
def _(s, name):
    names = ["min", "max"] if name == "clamp" else [name[6:]]
    bounds = dict(zip(names, options(s, names, [None] * len(names))))
    low, high = bounds.get("min"), bounds.get("max")
    if any(isinstance(b, torch.Tensor) for b in (low, high)):
        need(s.input.dim() > 0 and all(b is None or b.shape == s.input.shape for b in (low, high)), "bounds that widen the tensor")
        given = [b for b in (low, high) if b is not None]
        f = lambda x, *b: torch.clamp(x, b[0] if low is not None else None, b[-1] if high is not None else None)
        return "clamp_tensors", [s.input, *given], f, {"low": low is not None, "high": high is not None}
    f = lambda x: torch.clamp(x, low, high)
    return "clamp", [s.input], f, {"low": -math.inf if low is None else low, "high": math.inf if high is None else high}


# Functions of two.
def pair(kiln, f, s):
    a, b = s.input, s.args[0]
    need(not s.kwargs or set(s.kwargs) <= {"other"}, f"argument {', '.join(s.kwargs)}")
    return kiln, [tensor(a, b), tensor(b, tensor(a, b))], f, {}, [], 0 if kiln == "floor_divide" else 2


for name, kiln in [("mul", "mul"), ("div.no_rounding_mode", "div"), ("true_divide", "div"), ("pow", "pow"), ("maximum", "maximum"),
                   ("minimum", "minimum"), ("max.binary", "maximum"), ("min.binary", "minimum"), ("atan2", "atan2"), ("remainder", "remainder"),
                   ("fmod", "fmod"), ("floor_divide", "floor_divide"), ("logaddexp", "logaddexp"), ("eq", "eq"), ("ne", "ne"), ("lt", "lt"),
                   ("le", "le"), ("gt", "gt"), ("ge", "ge"), ("matmul", "matmul"), ("mm", "matmul"), ("bmm", "matmul"), ("mv", "matmul"),
                   ("dot", "matmul"), ("__rmul__", "mul"), ("__radd__", "add")]:
    torch_name = {"div.no_rounding_mode": "div", "max.binary": "maximum", "min.binary": "minimum", "__rmul__": "mul", "__radd__": "add"}
    f = getattr(torch, torch_name.get(name, name))
    OPS[name] = lambda s, kiln=kiln, f=f: pair(kiln, f, s)


@op("add", "sub")
def _(s, name):
    other, alpha = options(s, ["other", "alpha"], [None, 1])
    need(alpha == 1, "argument alpha")
    return name, [s.input, tensor(other, s.input)], getattr(torch, name), {}


@op("rsub")
def _(s):
    other, alpha = options(s, ["other", "alpha"], [None, 1])
    need(alpha == 1, "argument alpha")
    return "sub", [tensor(other, s.input), s.input], torch.sub, {}


@op("div.floor_rounding")
def _(s):
    return "floor_divide", [s.input, tensor(s.args[0], s.input)], lambda a, b: torch.div(a, b, rounding_mode="floor"), {}, [], 0


@op("lerp")
def _(s):
    weight = tensor(s.args[1], s.input)
    return "lerp", [s.input, s.args[0], weight], torch.lerp, {}


@op("where")
def _(s):
    mask, other = s.args
    return "where", [s.input, other], lambda a, b: torch.where(mask, a, b), {}, [mask]


@op("masked_fill")
def _(s):
    mask, value = s.args
    value = tensor(value, s.input)
    return "where", [value, s.input], lambda a, b: torch.where(mask, a, b), {}, [mask]


# Reductions.
for name, kiln in [("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min"), ("logsumexp", "logsumexp")]:
    def reduced(s, name=name, kiln=kiln):
        dim, keep, dtype = options(s, ["dim", "keepdim", "dtype"], [None, False, None])
        no(dtype=dtype)
        f = getattr(torch, name)
        dims = axes(dim, s.input)
        call = lambda x: f(x, dims, keepdim=keep) if dims else f(x, list(range(x.dim())), keepdim=keep)
        return kiln, [s.input], call, {"axes": dims, "keep": keep}

    OPS[name] = reduced
for name, kiln in [("max.reduction_no_dim", "max"), ("min.reduction_no_dim", "min")]:
    OPS[name] = lambda s, kiln=kiln: (kiln, [s.input], torch.amax if kiln == "max" else torch.amin, {"axes": [], "keep": False})


@op("prod")
def _(s):
    dim, keep, dtype = options(s, ["dim", "keepdim", "dtype"], [None, False, None])
    no(dtype=dtype)
    dims = axes(dim, s.input)
    return "prod", [s.input], (lambda x: torch.prod(x, dims[0], keepdim=keep)) if dims else torch.prod, {"axes": dims, "keep": keep}


@op("var", "std", "var.unbiased", "std.unbiased")
def _(s, name):
    if name.endswith("unbiased"):
        dim, unbiased = None, s.args[0] if s.args and isinstance(s.args[0], bool) else s.kwargs.get("unbiased", True)
        if s.args and not isinstance(s.args[0], bool):
            dim = s.args[0]
            unbiased = s.args[1] if len(s.args) > 1 else unbiased
        correction, keep = int(unbiased), s.kwargs.get("keepdim", False)
    else:
        dim, correction, keep = options(s, ["dim", "correction", "keepdim"], [None, 1, False])
    correction = 1 if correction is None else correction
    need(correction >= 0 and correction == int(correction), "a correction that is no count")
    dims, f = axes(dim, s.input), getattr(torch, name.split(".")[0])
    call = lambda x: f(x, dims or None, correction=correction, keepdim=keep)
    return name.split(".")[0], [s.input], call, {"axes": dims, "correction": int(correction), "keep": keep}


@op("linalg.vector_norm")
def _(s):
    p, dim, keep, dtype = options(s, ["ord", "dim", "keepdim", "dtype"], [2, None, False, None])
    no(dtype=dtype)
    dims = axes(dim, s.input)
    call = lambda x: torch.linalg.vector_norm(x, p, dims or None, keep)
    return "norm", [s.input], call, {"value": float(p), "axes": dims, "keep": keep}, [], 0 if p == 0 else 1


@op("norm.nuc", "linalg.norm", "linalg.matrix_norm")
def _(s, name):
    p, dim, keep, dtype = options(s, ["p" if name == "norm.nuc" else "ord", "dim", "keepdim", "dtype"], ["fro", (-2, -1), False, None])
    need(p == "nuc", "another order: a vector norm of both axes, or one that Kiln lacks")
    no(dtype=dtype)
    dim = [d % s.input.dim() for d in ((-2, -1) if dim is None else dim)]
    call = lambda x: torch.linalg.matrix_norm(x, "nuc", keepdim=keep)
    return "norm_nuclear", [s.input.movedim(dim, (-2, -1))], call, {"keep": keep}


@op("argmax", "argmin")
def _(s, name):
    dim, keep = options(s, ["dim", "keepdim"], [None, False])
    need(dim is not None and s.input.dim() > 0, "over all axes: flatten first")
    return name, [s.input], lambda x: getattr(torch, name)(x, dim, keep), {"axis": dim, "keep": keep}


@op("cumsum", "cumprod")
def _(s, name):
    dim, dtype = options(s, ["dim", "dtype"], [None, None])
    no(dtype=dtype)
    need(s.input.dim() > 0, "an axis of a scalar")
    return name, [s.input], lambda x: getattr(torch, name)(x, dim), {"axis": dim}


@op("topk")
def _(s):
    k, dim, largest, ordered = options(s, ["k", "dim", "largest", "sorted"], [None, -1, True, True])
    need(s.input.dim() > 0, "an axis of a scalar")
    need(all(len(set(row)) == len(row) for row in s.input.movedim(dim, -1).reshape(-1, s.input.shape[dim]).tolist()), "equal elements, whose order PyTorch leaves open")
    return "top_k", [s.input], lambda x: tuple(torch.topk(x, k, dim, largest)), {"k": k, "axis": dim, "keep": largest}


@op("sort", "argsort", "msort")
def _(s, name):
    dim, descending, _stable = options(s, ["dim", "descending", "stable"], [-1, False, False])
    dim = 0 if name == "msort" else dim
    need(s.input.dim() > 0, "an axis of a scalar")
    f = lambda x: tuple(torch.sort(x, dim=dim, descending=descending, stable=True))
    call = {"sort": f, "argsort": lambda x: f(x)[1], "msort": lambda x: f(x)[0]}[name]
    return {"msort": "sorted"}.get(name, name), [s.input], call, {"axis": dim, "keep": descending}


@op("all", "any", "count_nonzero")
def _(s, name):
    dim, keep = options(s, ["dim", "keepdim"], [None, False])
    dims = axes(dim, s.input)
    f = getattr(torch, name)
    if name == "count_nonzero":
        call = lambda x: f(x, dims or None)
    else:
        call = lambda x: f(x != 0, dims, keepdim=keep) if dims else f(x != 0)
    return name, [s.input], call, {"axes": dims, "keep": keep and bool(dims)}


# Moving elements.
def moved(kiln, s, f, **args):
    return kiln, [s.input], f, args


def flat(args, kwargs=None):
    args = args or tuple((kwargs or {}).values())
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list, torch.Size)) else list(args)


OPS["reshape"] = OPS["view"] = lambda s: moved("reshape", s, lambda x: x.reshape(flat(s.args)), shape=flat(s.args))
OPS["flatten"] = lambda s: moved("flatten", s, lambda x: torch.flatten(x, *s.args, **s.kwargs), ends=options(s, ["start_dim", "end_dim"], [0, -1]))
OPS["ravel"] = lambda s: moved("flatten", s, torch.ravel, ends=[0, -1])
OPS["permute"] = lambda s: moved("permute", s, lambda x: x.permute(flat(s.args, s.kwargs)), axes=flat(s.args, s.kwargs))
OPS["expand"] = lambda s: moved("expand", s, lambda x: x.expand(*s.args), shape=flat(s.args))
OPS["broadcast_to"] = lambda s: moved("expand", s, lambda x: x.expand(*s.args), shape=flat(s.args))
OPS["flip"] = lambda s: moved("flip", s, lambda x: x.flip(flat(s.args, s.kwargs)), axes=flat(s.args, s.kwargs))
OPS["fliplr"] = lambda s: moved("flip", s, torch.fliplr, axes=[1])
OPS["flipud"] = lambda s: moved("flip", s, torch.flipud, axes=[0])
OPS["T"] = OPS["t"] = lambda s: moved("permute", s, torch.t, axes=list(range(s.input.dim()))[::-1])
OPS["mT"] = lambda s: moved("transpose", s, lambda x: x.mT, ends=[-2, -1])
OPS["narrow"] = lambda s: moved("narrow", s, lambda x: torch.narrow(x, *s.args), ends=[s.args[0], int(s.args[1]) % max(s.input.shape[s.args[0]], 1) if int(s.args[1]) < 0 else int(s.args[1]), s.args[2]])
OPS["select"] = lambda s: moved("select", s, lambda x: torch.select(x, *s.args), ends=list(s.args))
OPS["diagonal"] = lambda s: moved("diagonal", s, lambda x: torch.diagonal(x, *options(s, ["offset", "dim1", "dim2"], [0, 0, 1])), ends=options(s, ["offset", "dim1", "dim2"], [0, 0, 1]))
OPS["tril"] = lambda s: moved("tril", s, lambda x: torch.tril(x, *s.args), axis=options(s, ["diagonal"], [0])[0])
OPS["triu"] = lambda s: moved("triu", s, lambda x: torch.triu(x, *s.args), axis=options(s, ["diagonal"], [0])[0])
OPS["tile"] = lambda s: moved("tile", s, lambda x: torch.tile(x, flat(s.args, s.kwargs)), shape=flat(s.args, s.kwargs))
OPS["unflatten"] = lambda s: moved("unflatten", s, lambda x: x.unflatten(*options(s, ["dim", "sizes"], [None, None])), axis=options(s, ["dim", "sizes"], [None, None])[0], shape=list(options(s, ["dim", "sizes"], [None, None])[1]))


@op("transpose", "unsqueeze", "squeeze")
def _(s, name):
    need(s.args, "without an axis")
    need(s.input.dim() > 0 or name == "unsqueeze", "an axis of a scalar")
    need(all(isinstance(a, int) for a in s.args), "several axes")
    need(name != "squeeze" or s.input.shape[s.args[0]] == 1, "an axis of another size, which stays")
    return moved(name, s, lambda x: getattr(torch, name)(x, *s.args), ends=list(s.args))


@op("slice")
def _(s):
    dim, start, end, step = options(s, ["dim", "start", "end", "step"], [0, None, None, 1])
    index = lambda x: x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]
    return moved("slice", s, index, axis=dim, start=start, end=end, step=step)


@op("split", "chunk", "unbind", "split_with_sizes", "split.list_args")
def _(s, name):
    n = s.args[0] if s.args else s.kwargs.get("dim", 0)
    dim = 0 if len(s.args) < 2 and "dim" not in s.kwargs else (s.args[1] if len(s.args) > 1 else s.kwargs["dim"])
    if name == "unbind":
        return moved("unbind", s, lambda x: torch.unbind(x, n), axis=n)
    if isinstance(n, (list, tuple)):
        return moved("split_sizes", s, lambda x: torch.split(x, list(n), dim), shape=list(n), axis=dim)
    return moved(name, s, lambda x: getattr(torch, name)(x, n, dim), k=n, axis=dim)


@op("cat", "stack")
def _(s, name):
    (dim,) = options(s, ["dim"], [0])
    parts = list(s.input)
    need(all(t.dtype == parts[0].dtype for t in parts), "dtypes that differ")
    need(all(t.dim() == parts[0].dim() for t in parts), "an empty tensor of another rank")
    return {"cat": "concat"}.get(name, name), parts, lambda *x: getattr(torch, name)(x, dim), {"axis": dim}


@op("roll")
def _(s):
    shifts, dims = options(s, ["shifts", "dims"], [None, None])
    need(isinstance(shifts, int) and isinstance(dims, int), "several axes, or none")
    need(s.input.dim() > 0, "an axis of a scalar")
    return moved("roll", s, lambda x: torch.roll(x, shifts, dims), ends=[shifts, dims])


@op("gather", "index_select", "take_along_dim")
def _(s, name):
    dim, index = (s.args[1], s.args[0]) if name == "take_along_dim" and len(s.args) > 1 else (s.args[0], s.args[-1])
    need(isinstance(dim, int) and s.input.dim() > 0 and index.dim() > 0, "over all axes, or a scalar")
    need(name == "index_select" or index.dim() == s.input.dim(), "an empty index of another rank")
    need(index.numel() == 0 or index.min() >= 0, "an index from the end")
    need(name != "take_along_dim" or all(a == b for i, (a, b) in enumerate(zip(index.shape, s.input.shape)) if i != dim % s.input.dim()), "an index that is broadcast")
    f = torch.index_select if name == "index_select" else torch.gather
    kiln = "index_select" if name == "index_select" else "gather"
    return kiln, [s.input], lambda x: f(x, dim, index), {"axis": dim}, [index]


@op("scatter", "scatter_add", "index_add", "index_copy")
def _(s, name):
    no(**{k: v for k, v in s.kwargs.items() if not (k == "alpha" and v == 1)})
    dim, index, source = s.args[:3]
    need(s.input.dim() > 0 and index.dim() > 0, "a scalar")
    if not isinstance(source, torch.Tensor):
        source = torch.full(index.shape, source, dtype=s.input.dtype)
    need(name != "scatter" or all(len(set(line)) == len(line) for line in index.movedim(dim, -1).reshape(-1, index.shape[dim]).tolist()) or index.numel() == 0, "equal indices, whose order PyTorch leaves open")
    return name, [s.input, source], lambda x, y: getattr(torch, name)(x, dim, index, y), {"axis": dim}, [index]


@op("index_fill")
def _(s):
    dim, index, value = s.args
    need(not isinstance(value, torch.Tensor) or not value.requires_grad, "a value with a gradient")
    need(s.input.dim() > 0 and index.dim() == 1, "a scalar")
    return "index_fill", [s.input], lambda x: torch.index_fill(x, dim, index, float(value)), {"axis": dim, "value": float(value)}, [index]


@op("index_put")
def _(s):
    index, values, accumulate = options(s, ["indices", "values", "accumulate"], [None, None, False])
    need(all(i is not None for i in index), "whole axes among the indices")
    return "index_put", [s.input, values], lambda x, v: torch.index_put(x, index, v, accumulate), {"keep": accumulate}, list(index)


@op("__getitem__")
def _(s):
    (index,) = s.args
    index = index if isinstance(index, tuple) else (index,)
    told, ints = [], []
    for i in index:
        if isinstance(i, list):
            i = torch.tensor(i)
        if isinstance(i, torch.Tensor):
            ints.append(i)
            told.append("tensor")
        elif isinstance(i, slice):
            told.append(["slice", i.start, i.stop, i.step or 1])
        elif i is None or i is Ellipsis:
            told.append("none" if i is None else "...")
        else:
            need(isinstance(i, int) and not isinstance(i, bool), "a truth value as an index")
            told.append(["at", i])
    return "i", [s.input], lambda x: x[tuple(torch.tensor(i) if isinstance(i, list) else i for i in index)], {"index": told}, ints


@op("masked_select", "nonzero", "argwhere")
def _(s, name):
    if name != "masked_select":
        no(**s.kwargs)
        return "nonzero", [s.input], torch.nonzero, {}
    (mask,) = s.args
    need(mask.shape == s.input.shape, "a mask that is broadcast")
    return name, [s.input], lambda x: torch.masked_select(x, mask), {}, [mask]


@op("einsum")
def _(s):
    (equation,) = s.args
    need(isinstance(equation, str), "operands as numbers")
    return "einsum", list(s.input), lambda *x: torch.einsum(equation, *x), {"equation": equation}


@op("nn.functional.one_hot")
def _(s):
    raise Skip("integers alone")
