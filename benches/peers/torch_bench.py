#!/usr/bin/env python3
"""PyTorch on the work of Kiln's criterion benches: one JSON line per bench, under the same id.

    {"id": "adam/mnist-cnn", "seconds": 0.0005}

Tensors are PyTorch's default (NCHW, contiguous), as its users write them. A gradient bench calls the kernel that
autograd would call. Each figure is the median of the samples; a sample repeats the work until it takes long enough for
the clock. Nothing is compiled with torch.compile.

    python benches/peers/torch_bench.py --threads 2 --quick conv
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch_mnist import mnist_cnn

# The convolutions of the two nets: (name, batch, in, size, out, kernel).
CONVS = [
    ("mnist1-b32", 32, 1, 28, 32, 3),
    ("mnist2-b32", 32, 32, 13, 64, 3),
    ("mnist3-b32", 32, 64, 5, 64, 3),
    ("lenet1-b4", 4, 3, 32, 6, 5),
    ("lenet2-b4", 4, 6, 14, 16, 5),
]


def convs():
    for name, batch, cin, size, cout, kernel in CONVS:
        x, w, bias = torch.randn(batch, cin, size, size), torch.randn(cout, cin, kernel, kernel), torch.randn(cout)
        out = size - kernel + 1
        g = torch.randn(batch, cout, out, out)

        def backward(mask, x=x, w=w, g=g, cout=cout):
            one, zero = [1, 1], [0, 0]
            return torch.ops.aten.convolution_backward(g, x, w, [cout], one, zero, one, False, zero, 1, mask)

        yield f"conv-forward/{name}", lambda x=x, w=w, bias=bias: F.conv2d(x, w, bias)
        yield f"conv-data-grad/{name}", lambda f=backward: f([True, False, False])
        yield f"conv-weight-grad/{name}", lambda f=backward: f([False, True, False])


def pools():
    x = torch.randn(32, 32, 26, 26)
    y, index = F.max_pool2d(x, 2, return_indices=True)
    g = torch.randn_like(y)
    aten = torch.ops.aten.max_pool2d_with_indices_backward
    two, zero, one = [2, 2], [0, 0], [1, 1]
    yield "max-pool/forward-b32", lambda: F.max_pool2d(x, 2, return_indices=True)
    yield "max-pool/grad-b32", lambda: aten(g, x, two, two, zero, one, False, index)


def norms():
    x, g = torch.randn(32, 64, 14, 14), torch.randn(32, 64, 14, 14)
    scale, shift = torch.ones(64), torch.zeros(64)
    _, mean, rstd = torch.ops.aten.native_batch_norm(x, scale, shift, None, None, True, 0.1, 1e-5)

    def backward():
        args = (g, x, scale, None, None, mean, rstd, True, 1e-5, [True] * 3)
        return torch.ops.aten.native_batch_norm_backward(*args)

    forward = torch.ops.aten.native_batch_norm
    yield "batch-norm/forward-b32", lambda: forward(x, scale, shift, None, None, True, 0.1, 1e-5)
    yield "batch-norm/grad-b32", backward


def losses():
    # Kiln's op gives loss and gradient together; so does this, through autograd.
    for rows, classes in [(32, 10), (128, 1000)]:
        logits = torch.randn(rows, classes, requires_grad=True)
        labels = torch.randint(classes, (rows,))
        yield f"cross-entropy/{rows}x{classes}", lambda x=logits, t=labels: torch.autograd.grad(F.cross_entropy(x, t), x)


def ctc():
    steps, batch, classes, labels = 150, 16, 29, 40
    log_probs = torch.randn(steps, batch, classes).log_softmax(-1).requires_grad_()
    targets = (1 + torch.arange(batch * labels) * 7 % (classes - 1)).view(batch, labels)
    lengths = [torch.full((batch,), n) for n in (steps, labels)]

    def train():
        return torch.autograd.grad(F.ctc_loss(log_probs, targets, *lengths), log_probs)

    yield f"ctc/{steps}x{batch}x{classes}-{labels}", train


def attention():
    for batch, positions, heads, width in [(8, 256, 6, 64), (1, 1024, 12, 64), (1, 4096, 12, 64)]:
        qkv = torch.randn(batch, positions, 3 * heads * width)
        tracked = qkv.clone().requires_grad_()
        g = torch.randn(batch, positions, heads * width)

        # From what a linear layer makes to what the next one takes.
        def forward(qkv, shape=(batch, positions, 3, heads, width)):
            q, k, v = qkv.view(shape).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(shape[0], shape[1], -1)

        y = forward(tracked)
        size = f"{batch}x{positions}x{heads}x{width}"
        yield f"attention/forward-{size}", lambda f=forward, x=qkv: f(x)
        yield f"attention/grad-{size}", lambda y=y, x=tracked, g=g: torch.autograd.grad(y, x, g, retain_graph=True)


def recurrent():
    # A training step but for the optimizer: results, and the gradients of all parameters.
    layers, width, batch, steps = 2, 256, 16, 128
    for name, kind in [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)]:
        net = kind(width, width, layers)
        x, g = torch.randn(steps, batch, width), torch.randn(steps, batch, width)
        parameters = list(net.parameters())

        def train(net=net, x=x, g=g, parameters=parameters):
            return torch.autograd.grad(net(x)[0], parameters, g)

        yield f"recurrent/{name}-train-{width}x{layers}-b{batch}-t{steps}", train


def adam():
    parameters = list(mnist_cnn().parameters())
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    yield "adam/mnist-cnn", optimizer.step


def median_seconds(work, quick):
    """The median time of one call."""
    samples, floor = (10, 2e-3) if quick else (30, 1e-2)
    for _ in range(3):
        work()
    repeats = 1
    while True:
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        took = time.perf_counter() - start
        if took >= floor or repeats >= 1 << 20:
            break
        repeats *= 2
    times = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        times.append((time.perf_counter() - start) / repeats)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filters", nargs="*", help="run benches whose id contains one of these")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    print(json.dumps({"peer": f"torch {torch.__version__}", "threads": args.threads}), flush=True)
    for family in (convs, pools, norms, losses, ctc, attention, recurrent, adam):
        for name, work in family():
            if not args.filters or any(f in name for f in args.filters):
                print(json.dumps({"id": name, "seconds": median_seconds(work, args.quick)}), flush=True)


if __name__ == "__main__":
    main()
