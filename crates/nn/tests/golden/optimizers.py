"""Golden values of optimizers, clipping and schedules, from PyTorch.

    python optimizers.py > optimizers.json

Twenty steps on fixed gradients per optimizer and set of options, in f64 on the CPU.
"""

import json
import re

import torch
from torch.optim import lr_scheduler as sched

STEPS = 20
SHAPES = {"weight": [3, 4], "bias": [5]}


def numbers(values, digits=9):
    return [float(f"{v:.{digits}g}") for v in values]


def optimizer_cases():
    return [
        ("sgd", dict(lr=0.1)),
        ("sgd", dict(lr=0.1, momentum=0.9)),
        ("sgd", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)),
        ("sgd", dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1)),
        ("sgd", dict(lr=0.05, momentum=0.5, maximize=True)),
        ("adam", dict(lr=0.01)),
        ("adam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
        ("adam", dict(lr=0.02, betas=(0.5, 0.9), amsgrad=True)),
        ("adamw", dict(lr=0.01)),
        ("adamw", dict(lr=0.03, betas=(0.7, 0.9), weight_decay=0.3, amsgrad=True)),
        ("rmsprop", dict(lr=0.01)),
        ("rmsprop", dict(lr=0.02, alpha=0.9, momentum=0.5, weight_decay=0.05)),
        ("rmsprop", dict(lr=0.02, alpha=0.8, eps=1e-4, momentum=0.9, centered=True)),
        ("rmsprop", dict(lr=0.01, centered=True)),
        ("adagrad", dict(lr=0.1)),
        ("adagrad", dict(lr=0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.2, eps=1e-6)),
        ("sgd", dict(lr=0.1, momentum=0.9, maximize=True, weight_decay=0.05)),
        ("sgd", dict(lr=0.1, momentum=0.9, nesterov=True)),
        ("sgd", dict(lr=0.1, weight_decay=0.2)),
        ("sgd", dict(lr=0.02, momentum=0.99, dampening=0.9)),
        ("adam", dict(lr=0.02, maximize=True, weight_decay=0.1)),
        ("adam", dict(lr=0.02, betas=(0.0, 0.9), weight_decay=0.02, amsgrad=True)),
        ("adam", dict(lr=0.02, eps=0.1)),
        ("adam", dict(lr=0.05, betas=(0.9, 0.5), amsgrad=True, maximize=True)),
        ("adamw", dict(lr=0.03, maximize=True)),
        ("adamw", dict(lr=0.03, weight_decay=0.0)),
        ("adamw", dict(lr=0.03, betas=(0.0, 0.5), weight_decay=1.0)),
        ("adamw", dict(lr=0.03, weight_decay=0.1, amsgrad=True)),
        ("rmsprop", dict(lr=0.02, momentum=0.9, maximize=True)),
        ("rmsprop", dict(lr=0.02, alpha=0.5, centered=True, weight_decay=0.1)),
        ("rmsprop", dict(lr=0.02, alpha=0.0, eps=0.1)),
        ("rmsprop", dict(lr=0.02, momentum=0.3, centered=True, maximize=True, weight_decay=0.1)),
        ("adagrad", dict(lr=0.1, maximize=True)),
        ("adagrad", dict(lr=0.1, lr_decay=1.0)),
        ("adagrad", dict(lr=0.1, weight_decay=0.3)),
        ("adagrad", dict(lr=0.1, initial_accumulator_value=1.0)),
        ("nadam", dict(lr=0.002)),
        ("nadam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
        ("nadam", dict(lr=0.02, momentum_decay=0.1, weight_decay=0.1, decoupled_weight_decay=True)),
        ("nadam", dict(lr=0.02, maximize=True)),
        ("nadam", dict(lr=0.02, betas=(0.5, 0.9), momentum_decay=1.0)),
        ("nadam", dict(lr=0.05, betas=(0.1, 0.9))),
        ("radam", dict(lr=0.01)),
        ("radam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
        ("radam", dict(lr=0.02, betas=(0.9, 0.9), weight_decay=0.1, decoupled_weight_decay=True)),
        ("radam", dict(lr=0.02, betas=(0.5, 0.8), maximize=True)),
        ("radam", dict(lr=0.02, betas=(0.9, 0.5))),
        ("radam", dict(lr=0.02, betas=(0.9, 0.99), eps=0.01)),
        ("adadelta", dict(lr=1.0)),
        ("adadelta", dict(lr=0.5, rho=0.5, eps=1e-3, weight_decay=0.1)),
        ("adadelta", dict(lr=1.0, eps=0.01, maximize=True)),
        ("adadelta", dict(lr=2.0, rho=0.0, eps=0.1)),
        ("adamax", dict(lr=0.01)),
        ("adamax", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)),
        ("adamax", dict(lr=0.02, maximize=True)),
        ("adamax", dict(lr=0.02, betas=(0.0, 0.5))),
        ("rprop", dict(lr=0.01)),
        ("rprop", dict(lr=0.02, etas=(0.2, 2.0), step_sizes=(0.001, 0.1))),
        ("rprop", dict(lr=0.02, maximize=True)),
        ("rprop", dict(lr=0.5, etas=(0.9, 1.1), step_sizes=(0.1, 1.0))),
        ("asgd", dict(lr=0.01)),
        ("asgd", dict(lr=0.1, lambd=0.01, alpha=0.5, t0=5.0, weight_decay=0.1)),
        ("asgd", dict(lr=0.1, maximize=True)),
        ("asgd", dict(lr=0.1, lambd=0.1, alpha=1.0, t0=0.0)),
        ("adafactor", dict(lr=0.01)),
        ("adafactor", dict(lr=0.1, beta2_decay=-0.5, d=2.0, weight_decay=0.1)),
        ("adafactor", dict(lr=0.5, eps=(0.1, 0.5))),
        ("adafactor", dict(lr=0.1, maximize=True)),
        ("adafactor", dict(lr=0.1, eps=(1e-6, 2.0), d=1.0, weight_decay=0.5)),
        ("adafactor", dict(lr=10.0, beta2_decay=-1.0)),
        ("sgd", dict(lr=0.1, momentum=0.5, dampening=0.5, maximize=True)),
        ("adam", dict(lr=0.1, betas=(0.99, 0.9), eps=1e-3, weight_decay=0.5)),
        ("adamw", dict(lr=0.1, betas=(0.9, 0.9), eps=0.01, amsgrad=True)),
    ]


CLASSES = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "adafactor": torch.optim.Adafactor,
}


def run(name, options, start, grads):
    # Some optimizers keep numbers of their own in the default precision.
    torch.set_default_dtype(torch.float64)
    params = {k: torch.nn.Parameter(v.double()) for k, v in start.items()}
    optimizer = CLASSES[name](list(params.values()), **options)
    for step in range(STEPS):
        for k, p in params.items():
            p.grad = grads[k][step].double()
        optimizer.step()
    torch.set_default_dtype(torch.float32)
    return {k: numbers(p.detach().flatten().tolist(), 12) for k, p in params.items()}


def muon(start, grads):
    """Muon of one matrix, with its iteration in f64 in the place of bf16."""
    cases = []
    half, torch.bfloat16 = torch.bfloat16, torch.float64
    for tall in (False, True):
        for options in (
            dict(lr=0.1),
            dict(lr=0.05, momentum=0.5, nesterov=False, weight_decay=0.0),
            dict(lr=0.05, momentum=0.8, ns_steps=2, adjust_lr_fn="match_rms_adamw"),
            dict(lr=0.05, weight_decay=0.5, adjust_lr_fn="spectral_unclamped"),
        ):
            turned = (lambda x: x.T.contiguous()) if tall else (lambda x: x)
            p = torch.nn.Parameter(turned(start["weight"].double()))
            optimizer = torch.optim.Muon([p], **options)
            for step in range(STEPS):
                p.grad = turned(grads["weight"][step].double())
                optimizer.step()
            cases.append(dict(tall=tall, options=options, end=numbers(p.detach().flatten().tolist(), 12)))
    torch.bfloat16 = half
    return cases


def clipping(grads):
    cases = []
    for kind, limit in [("norm", 0.5), ("norm", 1e3), ("value", 0.25)]:
        params = [torch.nn.Parameter(torch.zeros(s)) for s in SHAPES.values()]
        for p, g in zip(params, grads.values()):
            p.grad = g[0].clone()
        norm = 0.0
        if kind == "norm":
            norm = float(torch.nn.utils.clip_grad_norm_(params, limit))
        else:
            torch.nn.utils.clip_grad_value_(params, limit)
        clipped = {k: numbers(p.grad.flatten().tolist()) for k, p in zip(SHAPES, params)}
        cases.append(dict(kind=kind, limit=limit, norm=norm, grads=clipped))
    return cases


def schedule(make, steps=40):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def warm_cosine(o):
    warm = sched.LinearLR(o, start_factor=0.2, total_iters=5)
    return sched.SequentialLR(o, [warm, sched.CosineAnnealingLR(o, T_max=30, eta_min=0.001)], milestones=[5])


def plateau(**options):
    metrics = [1.0, 0.9, 0.9, 0.91, 0.8999, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.65, 0.66, 0.66, 0.66, 0.66, 0.66, 0.66, 0.66]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = sched.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for m in metrics:
        scheduler.step(m)
        rates.append(optimizer.param_groups[0]["lr"])
    return dict(metrics=metrics, rates=rates)


def main():
    torch.manual_seed(0)
    start = {k: torch.randn(s) for k, s in SHAPES.items()}
    grads = {k: torch.randn([STEPS, *s]) for k, s in SHAPES.items()}
    golden = dict(
        torch=torch.__version__,
        shapes=SHAPES,
        start={k: numbers(v.flatten().tolist(), 17) for k, v in start.items()},
        grads={k: [numbers(g.flatten().tolist(), 17) for g in v] for k, v in grads.items()},
        optimizers=[
            dict(name=name, options=options, end=run(name, options, start, grads)) for name, options in optimizer_cases()
        ],
        muon=muon(start, grads),
        clipping=clipping(grads),
        schedules=dict(
            constant=schedule(lambda o: sched.ConstantLR(o, factor=1.0)),
            step=schedule(lambda o: sched.StepLR(o, 7, gamma=0.5)),
            multi_step=schedule(lambda o: sched.MultiStepLR(o, [3, 9, 30], gamma=0.3)),
            exponential=schedule(lambda o: sched.ExponentialLR(o, 0.9)),
            polynomial=schedule(lambda o: sched.PolynomialLR(o, total_iters=12, power=2.0)),
            inverse=schedule(lambda o: sched.LambdaLR(o, lambda step: 1 / (1 + 0.1 * step))),
            cosine=schedule(lambda o: sched.CosineAnnealingLR(o, T_max=25, eta_min=0.01)),
            cosine_restarts=schedule(lambda o: sched.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2, eta_min=0.01)),
            cosine_restarts_even=schedule(lambda o: sched.CosineAnnealingWarmRestarts(o, T_0=6)),
            one_cycle=schedule(lambda o: sched.OneCycleLR(o, max_lr=0.1, total_steps=41)),
            one_cycle_early=schedule(
                lambda o: sched.OneCycleLR(o, max_lr=0.3, total_steps=41, pct_start=0.1, div_factor=10, final_div_factor=100)
            ),
            warm_up=schedule(lambda o: sched.LinearLR(o, start_factor=0.25, total_iters=8)),
            warm_cosine=schedule(warm_cosine),
        ),
        plateau=[
            plateau(patience=2),
            plateau(patience=1, factor=0.5, cooldown=2, threshold=0.01, min_lr=0.03),
            plateau(patience=1, mode="max", threshold_mode="abs", threshold=0.05),
        ],
    )
    text = json.dumps(golden, indent=1)
    # One line per list of numbers.
    print(re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]", text))


if __name__ == "__main__":
    main()
