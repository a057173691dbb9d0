"""Golden values of L-BFGS, from PyTorch.

    python lbfgs.py > lbfgs.json

Several steps on three losses, with and without a line search, in f64 on the CPU. The losses are written again in tests/lbfgs.rs.
"""

import json
import re

import torch

SHAPES = {"weight": [3, 4], "bias": [5]}


def numbers(values, digits=12):
    return [float(f"{v:.{digits}g}") for v in values]


def regression(p, data):
    """Logistic regression of 8 samples with a penalty; the bias enters a quartic."""
    z = (data["x"] * p["weight"].reshape(1, 12)).sum(1)
    fit = torch.nn.functional.softplus(-data["sign"] * z).mean()
    return fit + 0.05 * p["weight"].square().sum() + ((p["bias"] - 0.5) ** 4).sum() + 0.1 * p["bias"].square().sum()


def rosenbrock(p, _):
    v = torch.cat([p["weight"].flatten(), p["bias"]])
    return (10 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2).sum()


def quadratic(p, data):
    v = torch.cat([p["weight"].flatten(), p["bias"]])
    return 0.5 * (data["curve"] * (v - 1) ** 2).sum()


LOSSES = {"regression": regression, "rosenbrock": rosenbrock, "quadratic": quadratic}

CASES = [
    ("regression", dict(lr=1.0)),
    ("regression", dict(lr=0.5, history_size=3)),
    ("regression", dict(lr=1.0, max_iter=4, history_size=2)),
    ("regression", dict(lr=0.3, max_iter=7, max_eval=5, history_size=1)),
    ("regression", dict(lr=1.0, max_iter=1)),
    ("regression", dict(lr=1.0, tolerance_grad=0.01, tolerance_change=1e-5)),
    ("quadratic", dict(lr=1.0)),
    ("quadratic", dict(lr=0.1, history_size=5)),
    ("quadratic", dict(lr=0.8, max_iter=3, maximize=True)),
    ("rosenbrock", dict(lr=0.01)),
    ("rosenbrock", dict(lr=0.1, max_iter=5, history_size=4)),
    ("regression", dict(lr=1.0, line_search_fn="strong_wolfe")),
    ("regression", dict(lr=5.0, max_iter=4, history_size=2, line_search_fn="strong_wolfe")),
    ("regression", dict(lr=0.01, max_iter=3, history_size=1, line_search_fn="strong_wolfe")),
    ("regression", dict(lr=1.0, max_iter=1, line_search_fn="strong_wolfe")),
    ("regression", dict(lr=20.0, max_iter=3, max_eval=4, line_search_fn="strong_wolfe")),
    ("regression", dict(lr=1.0, tolerance_grad=0.01, tolerance_change=1e-5, line_search_fn="strong_wolfe")),
    ("quadratic", dict(lr=1.0, line_search_fn="strong_wolfe")),
    ("quadratic", dict(lr=0.001, max_iter=6, history_size=5, line_search_fn="strong_wolfe")),
    ("quadratic", dict(lr=300.0, max_iter=6, max_eval=40, line_search_fn="strong_wolfe")),
    ("rosenbrock", dict(lr=1.0, line_search_fn="strong_wolfe")),
    ("rosenbrock", dict(lr=1.0, max_iter=5, history_size=3, line_search_fn="strong_wolfe")),
    ("rosenbrock", dict(lr=0.1, max_iter=8, max_eval=60, history_size=10, line_search_fn="strong_wolfe")),
    ("rosenbrock", dict(lr=50.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe", maximize=False)),
]
STEPS = 4


def run(name, options, start, data):
    params = {k: torch.nn.Parameter(v.clone()) for k, v in start.items()}
    optimizer = torch.optim.LBFGS(list(params.values()), **options)
    sign = -1 if options.get("maximize") else 1
    losses, ends, counts = [], [], []
    for _ in range(STEPS):

        def closure():
            optimizer.zero_grad()
            loss = sign * LOSSES[name](params, data)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure).detach()))
        ends.append(numbers([v for p in params.values() for v in p.detach().flatten().tolist()]))
        state = optimizer.state[params["weight"]]
        counts.append([state["n_iter"], state["func_evals"]])
    return dict(loss=name, options=options, losses=numbers(losses), ends=ends, counts=counts)


def main():
    torch.manual_seed(4)
    torch.set_default_dtype(torch.float64)
    start = {k: torch.randn(s) * 0.5 for k, s in SHAPES.items()}
    data = dict(x=torch.randn(8, 12), sign=torch.randint(0, 2, (8,)).double() * 2 - 1, curve=torch.logspace(-1, 1.5, 17))
    golden = dict(
        torch=torch.__version__,
        start={k: numbers(v.flatten().tolist(), 17) for k, v in start.items()},
        data={k: numbers(v.flatten().tolist(), 17) for k, v in data.items()},
        cases=[run(name, options, start, data) for name, options in CASES],
    )
    text = json.dumps(golden, indent=1)
    # One line per list of numbers.
    print(re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text))


if __name__ == "__main__":
    main()
