"""How the samples of Fourier transforms are written for Kiln: see op_db.py. Complex numbers have a last dimension of 2."""

import torch
from op_db_tensors import need, op, options


@op(*(f"fft.{inverse}{kind}fft{n}" for inverse in ("", "i") for kind in ("", "r") for n in ("", "2", "n") if (inverse, kind) != ("i", "r")), *(f"fft.irfft{n}" for n in ("", "2", "n")))
def _(s, name):
    kind = name.split(".")[-1]
    f, x = getattr(torch.fft, kind), s.input
    real = kind.startswith("rfft")
    if kind.endswith("fft"):
        n, dim, norm = options(s, ["n", "dim", "norm"], [None, -1, None])
        told = {"sizes": None if n is None else [n], "axes": [dim]}
        given = {"n": n, "dim": dim, "norm": norm}
    else:
        sizes, dim, norm = options(s, ["s", "dim", "norm"], [None, (-2, -1) if kind.endswith("2") else None, None])
        dim = [dim] if isinstance(dim, int) else dim
        told = {"sizes": None if sizes is None else list(sizes), "axes": [] if dim is None else list(dim)}
        given = {"s": sizes, "dim": dim, "norm": norm}
    need(x.dim() > 0, "an axis of a scalar")
    need(told["sizes"] is None or all(n > 0 for n in told["sizes"]), "a size of -1")
    if not real:
        x = torch.view_as_real(torch.complex(x.detach(), x.detach().flip(0) / 2))

    def call(x):
        y = f(x if real else torch.view_as_complex(x.contiguous()), **given)
        return torch.view_as_real(y) if y.is_complex() else y

    kiln = kind[:-1] + "n" if kind.endswith("2") else kind
    return kiln, [x], call, told | {"mode": norm or "backward"}
