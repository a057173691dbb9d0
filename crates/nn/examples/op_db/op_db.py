"""The sample inputs of PyTorch's operator test database, computed by Kiln: values, gradients and gradients of gradients.

    pip install torch numpy expecttest
    python op_db.py [--only NAME] [--seed N]

Every operator of `torch.testing._internal.common_methods_invocations.op_db` that Kiln names has a row in op_db_tensors.py or
op_db_layers.py, op_db_spectral.py or op_db_integers.py, which says how a sample is written for Kiln; images are moved to channels-last. The samples, rounded
to f64, f32 and bf16, or of i32 and truth values, go line by line to
`cargo run --release -p kiln-nn --example op_db`, which computes and compares them with PyTorch's results in f64. What cannot be
expressed is counted by its reason; the exit code is 1 if a result differs.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import warnings

import torch
import op_db_spectral
from op_db_integers import INTS, MASKS
from op_db_layers import OPS
from op_db_tensors import Skip, need
from torch.testing._internal.common_methods_invocations import op_db

warnings.filterwarnings("ignore")


def number(v):
    # As text: serde_json reads numbers to the last bit but one.
    return repr(v) if isinstance(v, float) else v


def array(t):
    t = t.detach()
    return {"shape": list(t.shape), "data": [number(v) for v in t.reshape(-1).tolist()]}


def seeds(y):
    return ((torch.arange(y.numel(), dtype=y.dtype) % 7 - 3) / 4).reshape(y.shape)


def line(name, f, inputs, ints, told, differentiable):
    """The case with its results: in f64, of inputs that were rounded before."""
    xs = [x.detach().double().clone() for x in inputs]
    leaves = [x.requires_grad_() for x in xs[:differentiable]]
    ys = f(*xs)
    ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
    case = {"op": name, "inputs": [array(x) for x in xs], "outputs": [array(y) for y in ys], "args": {k: number(v) for k, v in told.items()}}
    case["ints"] = [{"mask": t.dtype == torch.bool, **array(t.long())} for t in ints]
    case["grads"] = case["second"] = None
    total = [(y * seeds(y)).sum() for y in ys if y.is_floating_point() and y.requires_grad]
    if not total or not leaves:
        return case
    zero = lambda gs: [torch.zeros_like(x) if g is None else g for g, x in zip(gs, leaves)]
    grads = torch.autograd.grad(sum(total), leaves, create_graph=True, allow_unused=True)
    case["grads"] = [array(g) for g in zero(grads)]
    total = [(g * seeds(g)).sum() for g in grads if g is not None and g.requires_grad]
    try:
        second = torch.autograd.grad(sum(total), leaves, allow_unused=True) if total else [None] * len(leaves)
        case["second"] = [array(g) for g in zero(second)]
    except (RuntimeError, NotImplementedError):
        pass  # PyTorch does not differentiate this one twice.
    return case


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="operators whose names contain this")
    parser.add_argument("--seed", type=int, default=2026)
    args = parser.parse_args()
    root = pathlib.Path(__file__).parents[4]
    command = ["cargo", "run", "--quiet", "--release", "-p", "kiln-nn", "--example", "op_db"]
    kiln = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=root, text=True)
    skipped, rows, broken = collections.Counter(), 0, 0
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if name not in OPS | INTS or (args.only and args.only not in name):
            continue
        rows += 1
        tables = [(OPS, torch.float64), (OPS, torch.float32), (OPS, torch.bfloat16), (INTS, torch.int32)]
        for table, dtype in tables + [(INTS, torch.bool)] * (name in MASKS):
            if name not in table:
                continue
            handler = table[name]
            torch.manual_seed(args.seed)
            if dtype not in info.dtypes:
                continue
            for i, s in enumerate(info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and table is OPS)):
                try:
                    given = handler(s, name) if handler.__code__.co_argcount == 2 and handler.__defaults__ is None else handler(s)
                    kiln_name, inputs, f, told, *more = given
                    ints = more[0] if more else []
                    need(all(t.dtype == dtype for t in inputs), "dtypes that differ")
                    if table is INTS:
                        f, inputs, ints = (lambda f=f, inputs=inputs: f(*inputs)), [], inputs + ints
                    case = line(kiln_name, f, inputs, ints, told, more[1] if len(more) > 1 else len(inputs))
                except Skip as reason:
                    skipped[f"{name}: {reason}"] += 1
                    continue
                except Exception as e:  # A row that does not know its sample: said, and counted as a fault.
                    print(f"NO CASE {name} #{i}: {type(e).__name__}: {str(e).splitlines()[0]}")
                    broken += 1
                    continue
                case |= {"dtype": str(dtype).split(".")[-1], "case": f"{name} #{i}"}
                kiln.stdin.write(json.dumps(case) + "\n")
    kiln.stdin.close()
    code = kiln.wait()
    for reason, count in sorted(skipped.items()):
        print(f"{count:6} not expressed: {reason}")
    missing = sorted({o.name for o in op_db} - {n.split(".")[0] if n not in {o.name for o in op_db} else n for n in OPS | INTS})
    print(f"{rows} operators with a row, {len(missing)} names without")
    sys.exit(code or int(broken > 0))


if __name__ == "__main__":
    main()
