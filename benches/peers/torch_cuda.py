#!/usr/bin/env python3
"""PyTorch on a GPU, on the work of `kiln-cuda-bench`: one JSON line per measurement, under the same id.

    {"id": "gemm/bf16/4096x4096x4096", "variant": "cublas", "seconds": 0.0002}

Products run on cuBLAS, convolutions on cuDNN (contiguous and channels-last, autotuned), training steps eagerly, in
channels-last, and as one CUDA graph of the whole step. f32 is f32: TF32 is on under the dtype `tf32` alone. Each figure
is the median of samples; a sample repeats the work on the device until it takes long enough for its clock.

    python benches/peers/torch_cuda.py --quick step gemm
"""

import argparse
import json
import re
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
    from torch_nets import Lenet, MnistCnn
except ImportError as e:
    sys.exit(f"torch_cuda.py needs PyTorch and NumPy: {e}")

# The same lists as benches/cuda: m, k, n of C[m, n] = A[m, k] B[k, n] …
GEMMS = [(n, n, n) for n in (256, 512, 1024, 2048, 4096, 8192)] + [(512, 576, 64), (64, 512, 576), (8192, 768, 3072)]
# … and (name, batch, in, size, out, kernel, stride, padding).
CONVS = [
    ("mnist2-b128", 128, 32, 13, 64, 3, 1, 0),
    ("lenet1-b128", 128, 3, 32, 6, 5, 1, 0),
    ("resnet-64-b128", 128, 64, 32, 64, 3, 1, 1),
    ("resnet-128-b128", 128, 128, 16, 128, 3, 1, 1),
    ("resnet-down-b128", 128, 64, 32, 128, 3, 2, 1),
    ("resnet50-256-b64", 64, 256, 14, 256, 3, 1, 1),
    ("resnet50-1x1-b64", 64, 1024, 14, 256, 1, 1, 0),
]
# Few results of long sums; dense layers with bias and activation.
LONG_GEMMS = [(64, 8192, 64), (128, 60000, 784)]
LAYERS = [(128, 64, 10), (512, 576, 64), (8192, 768, 3072)]
# A channel a group, 3×3: name, batch, channels, size, stride.
DEPTHWISE = [
    ("depthwise-32-b4", 4, 32, 16, 1),
    ("depthwise-144-b64", 64, 144, 56, 1),
    ("depthwise-down-b64", 64, 144, 56, 2),
]
# Rows and width; batch times positions and channels.
NORM_ROWS = [(512, 256), (8192, 768), (8192, 4096), (2048, 16384)]
NORM_CHANNELS = [(32 * 7 * 7, 64), (128 * 32 * 32, 64), (64 * 14 * 14, 1024), (32 * 56 * 56, 256)]
# Sequences, positions, heads, width of causal self-attention.
ATTENTION = [(2, 64, 4, 32), (64, 1024, 12, 64), (8, 2048, 16, 128), (2, 1024, 8, 256)]
# The tensors of mnist-cnn, and a list of 200.
TENSORS = {
    "mnist-cnn": [288, 32, 18432, 64, 36864, 64, 36864, 64, 640, 10],
    "200-tensors": [36864, 64, 147456, 256, 65536] * 40,
}
# Batch, size, channels.
POOLS = [(4, 11, 64), (128, 26, 32), (128, 32, 64), (32, 112, 64)]
BATCHES = [4, 32, 128, 512]
DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def with_tf32(on, work):
    def run():
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on
        return work()

    return run


def copies():
    for mib in (64, 1024):
        x = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
        y = torch.empty_like(x)
        yield f"copy/{mib}MiB", "torch", lambda x=x, y=y: y.copy_(x)


def gemms():
    for name, dtype in DTYPES.items():
        for m, k, n in GEMMS:
            a = torch.randn(m, k, device="cuda").to(dtype)
            b = torch.randn(k, n, device="cuda").to(dtype)
            c = torch.empty(m, n, device="cuda", dtype=dtype)
            work = with_tf32(name == "tf32", lambda a=a, b=b, c=c: torch.mm(a, b, out=c))
            yield f"gemm/{name}/{m}x{k}x{n}", "cublas", work


def long_gemms():
    for name, dtype in DTYPES.items():
        for m, k, n in LONG_GEMMS:
            a = torch.randn(m, k, device="cuda").to(dtype)
            b = torch.randn(k, n, device="cuda").to(dtype)
            c = torch.empty(m, n, device="cuda", dtype=dtype)
            work = with_tf32(name == "tf32", lambda a=a, b=b, c=c: torch.mm(a, b, out=c))
            yield f"gemm-split/{name}/{m}x{k}x{n}", "cublas", work


def layers():
    """A product with bias, then the activation."""
    for name, dtype in DTYPES.items():
        for m, k, n in LAYERS:
            x = torch.randn(m, k, device="cuda").to(dtype)
            w = torch.randn(n, k, device="cuda").to(dtype)
            bias = torch.randn(n, device="cuda").to(dtype)
            work = with_tf32(name == "tf32", lambda x=x, w=w, bias=bias: torch.addmm(bias, x, w.t()).relu_())
            yield f"linear-relu/{name}/{m}x{k}x{n}", "cublas", work


def convs():
    torch.backends.cudnn.benchmark = True
    for dtype_name, dtype in DTYPES.items():
        for name, batch, cin, size, cout, kernel, stride, padding in CONVS:
            for variant, layout in [("cudnn", torch.contiguous_format), ("cudnn channels-last", torch.channels_last)]:
                x = torch.randn(batch, cin, size, size, device="cuda").to(dtype).to(memory_format=layout)
                w = torch.randn(cout, cin, kernel, kernel, device="cuda").to(dtype).to(memory_format=layout)
                y = F.conv2d(x, w, stride=stride, padding=padding)
                g = torch.randn_like(y)

                def backward(mask, x=x, w=w, g=g, stride=stride, padding=padding):
                    s, p = [stride] * 2, [padding] * 2
                    return torch.ops.aten.convolution_backward(g, x, w, [0], s, p, [1, 1], False, [0, 0], 1, mask)

                def forward(x=x, w=w, stride=stride, padding=padding):
                    return F.conv2d(x, w, stride=stride, padding=padding)

                tf32 = dtype_name == "tf32"
                place = f"{dtype_name}/{name}"
                yield f"conv-forward/{place}", variant, with_tf32(tf32, forward)
                yield f"conv-data-grad/{place}", variant, with_tf32(tf32, lambda f=backward: f([True, False, False]))
                yield f"conv-weight-grad/{place}", variant, with_tf32(tf32, lambda f=backward: f([False, True, False]))


def depthwise():
    torch.backends.cudnn.benchmark = True
    for dtype_name in ("f32", "bf16", "f16"):
        dtype = DTYPES[dtype_name]
        for name, batch, channels, size, stride in DEPTHWISE:
            for variant, layout in [("cudnn", torch.contiguous_format), ("cudnn channels-last", torch.channels_last)]:
                x = torch.randn(batch, channels, size, size, device="cuda").to(dtype).to(memory_format=layout)
                w = torch.randn(channels, 1, 3, 3, device="cuda").to(dtype).to(memory_format=layout)

                def forward(x=x, w=w, stride=stride, groups=channels):
                    return F.conv2d(x, w, stride=stride, padding=1, groups=groups)

                g = torch.randn_like(forward())

                def backward(mask, x=x, w=w, g=g, stride=stride, groups=channels):
                    s = [stride] * 2
                    return torch.ops.aten.convolution_backward(
                        g, x, w, [0], s, [1, 1], [1, 1], False, [0, 0], groups, mask
                    )

                place = f"{dtype_name}/{name}"
                yield f"conv-forward/{place}", variant, with_tf32(False, forward)
                yield f"conv-data-grad/{place}", variant, with_tf32(False, lambda f=backward: f([True, False, False]))
                yield f"conv-weight-grad/{place}", variant, with_tf32(False, lambda f=backward: f([False, True, False]))


def norms():
    """Layer norm of rows, batch norm of channels-last tensors, and their gradients."""
    aten = torch.ops.aten
    for name in ("f32", "bf16"):
        dtype = DTYPES[name]

        def data(*shape, dtype=dtype):
            return torch.randn(*shape, device="cuda").to(dtype)

        for rows, width in NORM_ROWS:
            x, g, scale, shift = data(rows, width), data(rows, width), data(width), data(width)
            place, shape = f"{name}/{rows}x{width}", [width]
            _, mean, rstd = torch.native_layer_norm(x, shape, scale, shift, 1e-5)

            def grad(mask, x=x, g=g, scale=scale, shift=shift, shape=shape, mean=mean, rstd=rstd):
                return aten.native_layer_norm_backward(g, x, shape, mean, rstd, scale, shift, mask)

            forward = lambda x=x, scale=scale, shift=shift, shape=shape: F.layer_norm(x, shape, scale, shift, 1e-5)
            yield f"layer_norm/{place}", "torch", forward
            yield f"layer_norm_grad/{place}", "torch", lambda f=grad: f([True, True, True])
            yield f"layer_norm_dx/{place}", "torch", lambda f=grad: f([True, False, False])
        for rows, channels in NORM_CHANNELS:
            x, g, scale, shift = data(rows, channels), data(rows, channels), data(channels), data(channels)

            def forward(x=x, scale=scale, shift=shift):
                return torch.native_batch_norm(x, scale, shift, None, None, True, 0.1, 1e-5)

            _, mean, rstd = forward()

            def grad(x=x, g=g, scale=scale, mean=mean, rstd=rstd):
                return aten.native_batch_norm_backward(
                    g, x, scale, None, None, mean, rstd, True, 1e-5, [True, True, True]
                )

            yield f"batch_norm/{name}/{rows}x{channels}", "torch", forward
            yield f"batch_norm_grad/{name}/{rows}x{channels}", "torch", grad


def attentions():
    """Causal self-attention and its gradient, over heads as PyTorch's function takes them."""
    for name in ("f32", "bf16", "f16"):
        for n, t, h, d in ATTENTION:
            q, k, v = (torch.randn(n, h, t, d, device="cuda").to(DTYPES[name]).requires_grad_() for _ in range(3))
            g = torch.randn(n, h, t, d, device="cuda").to(DTYPES[name])
            forward = lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = forward()

            def grad(q=q, k=k, v=v, y=y, g=g):
                return torch.autograd.grad(y, (q, k, v), g, retain_graph=True)

            place = f"{name}/{n}x{t}x{h}x{d}"
            yield f"attention/{place}", "sdpa", forward
            yield f"attention_grad/{place}", "sdpa", grad


def updates():
    """Fused Adam over lists of tensors."""
    for name, lens in TENSORS.items():
        params = [torch.randn(n, device="cuda", requires_grad=True) for n in lens]
        for p in params:
            p.grad = torch.randn_like(p)
        yield f"optim-adam/f32/{name}", "fused", torch.optim.Adam(params, lr=1e-3, fused=True).step


def pools():
    """Windows of 2×2 with stride 2 over channels-last images."""
    for name in ("f32", "bf16"):
        for batch, size, channels in POOLS:
            x = torch.randn(batch, channels, size, size, device="cuda").to(DTYPES[name])
            x = x.to(memory_format=torch.channels_last)
            y, index = F.max_pool2d(x, 2, return_indices=True)
            g = torch.randn_like(y)

            def grad(x=x, g=g, index=index):
                sizes = [2, 2], [2, 2], [0, 0], [1, 1]
                return torch.ops.aten.max_pool2d_with_indices_backward(g, x, *sizes, False, index)

            place = f"{name}/{batch}x{size}x{size}x{channels}"
            yield f"max_pool/{place}", "torch", lambda x=x: F.max_pool2d(x, 2)
            yield f"max_pool_grad/{place}", "torch", grad
            yield f"avg_pool/{place}", "torch", lambda x=x: F.avg_pool2d(x, 2)


def randoms():
    """Numbers drawn in place; dropout gives its mask too, which Kiln draws again in place of reading it."""
    n = 1 << 24
    for name in ("f32", "bf16"):
        y = torch.empty(n, device="cuda", dtype=DTYPES[name])
        x = torch.randn(n, device="cuda").to(DTYPES[name])
        yield f"random-uniform/{name}/{n}", "torch", lambda y=y: y.uniform_()
        yield f"random-normal/{name}/{n}", "torch", lambda y=y: y.normal_()
        yield f"random-bernoulli/{name}/{n}", "torch", lambda y=y: y.bernoulli_(0.5)
        yield f"dropout/{name}/{n}", "torch", lambda x=x: torch.native_dropout(x, 0.5, True)


def memory():
    """Ops that memory bounds, as benches/cuda/memory.rs has them; the loss with its gradient."""
    tokens, width, words = 8192, 768, 50257
    for name in ("f32", "bf16"):
        dtype = DTYPES[name]

        def data(*shape, dtype=dtype):
            return torch.randn(*shape, device="cuda").to(dtype)

        x, row, y = data(tokens, 4 * width), data(4 * width), data(tokens, 4 * width)
        place = f"{name}/{tokens}x{4 * width}"
        yield f"relu/{place}", "torch", lambda x=x: torch.relu(x)
        yield f"gelu/{place}", "torch", lambda x=x: F.gelu(x)
        yield f"gelu_grad/{place}", "torch", lambda x=x: torch.ops.aten.gelu_backward(x, x)
        yield f"add_row/{place}", "torch", lambda x=x, row=row: x + row
        yield f"accumulate/{place}", "torch", lambda x=x, y=y: y.add_(x)
        yield f"to_f16/{place}", "torch", lambda x=x: x.to(torch.float16)
        x = data(1 << 24)
        yield f"sum/{name}/{1 << 24}", "torch", lambda x=x: x.sum()
        for rows, columns in [(tokens, width), (tokens, 4 * width), (32 * 56 * 56, 64)]:
            x = data(rows, columns)
            yield f"sum_rows/{name}/{rows}x{columns}", "torch", lambda x=x: x.sum(1)
            yield f"sum_columns/{name}/{rows}x{columns}", "torch", lambda x=x: x.sum(0)
        x = data(256, words)
        yield f"argmax/{name}/256x{words}", "torch", lambda x=x: x.argmax(1)
        yield f"cumsum/{name}/256x{words}", "torch", lambda x=x: x.cumsum(1)
        yield f"top_k/{name}/256x{words}", "torch", lambda x=x: x.topk(50, 1)
        for outer, n in [(96 * 1024, 128), (12 * 1024, 1024), (tokens, 4096)]:
            x = data(outer, n)
            y = x.softmax(1)
            yield f"softmax/{name}/{outer}x{n}", "torch", lambda x=x: x.softmax(1)
            grad = lambda x=x, y=y, dtype=dtype: torch.ops.aten._softmax_backward_data(x, y, 1, dtype)
            yield f"softmax_grad/{name}/{outer}x{n}", "torch", grad
        for rows, classes in [(16384, 10), (8192, 1000), (4096, words)]:
            x = data(rows, classes).requires_grad_()
            t = torch.randint(classes, (rows,), device="cuda")

            def loss(x=x, t=t):
                x.grad = None
                F.cross_entropy(x, t, reduction="sum").backward()

            yield f"cross_entropy/{name}/{rows}x{classes}", "torch", loss
        table, y = data(words, width), data(tokens, width)
        index = torch.tensor([int(words ** (i * 7919 % tokens / tokens) - 1) for i in range(tokens)], device="cuda")
        place = f"{name}/{tokens}x{width}of{words}"
        yield f"embedding/{place}", "torch", lambda w=table, i=index: F.embedding(i, w)
        yield f"embedding_grad/{place}", "torch", lambda w=table, i=index, y=y: w.index_add_(0, i, y)
        x = data(4096, 4096)
        yield f"transpose/{name}/4096x4096", "torch", lambda x=x: x.t().contiguous()


def steps():
    nets = [
        ("mnist-cnn", MnistCnn, (1, 28, 28), lambda p, c: torch.optim.Adam(p, lr=1e-3, capturable=c, fused=True)),
        ("lenet", Lenet, (3, 32, 32), lambda p, c: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True)),
    ]
    for name, net, shape, optimizer_of in nets:
        for batch in BATCHES:
            for variant in ("eager", "channels-last", "graph", "graph channels-last"):
                graph, last = variant.startswith("graph"), variant.endswith("channels-last")
                model = net().cuda()
                x, t = torch.rand(batch, *shape, device="cuda"), torch.randint(10, (batch,), device="cuda")
                if last:
                    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
                optimizer = optimizer_of(model.parameters(), graph)

                def step(model=model, optimizer=optimizer, x=x, t=t):
                    optimizer.zero_grad(set_to_none=True)
                    F.cross_entropy(model(x), t).backward()
                    optimizer.step()

                work = with_tf32(False, captured(step) if graph else step)
                yield f"step/f32/{name}-b{batch}", variant, work


def captured(step):
    """The whole step as one CUDA graph."""
    with_tf32(False, lambda: None)()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def median_seconds(work, quick):
    """The median device time of one call."""
    samples, floor = (7, 2.0) if quick else (15, 10.0)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def timed(repeats):
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    timed(3)
    repeats = 1
    while timed(repeats) < floor and repeats < 1 << 16:
        repeats *= 2
    return statistics.median(timed(repeats) / repeats for _ in range(samples)) * 1e-3


def matches(name, words):
    """Whether one of the words stands in an id at the beginning of a word, as kiln-cuda-bench has it."""
    return not words or any(re.search(r"(?<![A-Za-z0-9])" + re.escape(word), name) for word in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filters", nargs="*", help="run benches whose id has one of these at the beginning of a word")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device")
    torch.manual_seed(0)

    about = {"peer": f"torch {torch.__version__}", "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    print(json.dumps(about | {"device": torch.cuda.get_device_name()}), flush=True)
    families = (copies, gemms, long_gemms, layers, convs, depthwise, attentions, memory, norms, updates, pools, randoms, steps)
    for family in families:
        for name, variant, work in family():
            if matches(name, args.filters):
                seconds = median_seconds(work, args.quick)
                print(json.dumps({"id": name, "variant": variant, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
