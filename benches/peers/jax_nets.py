#!/usr/bin/env python3
"""The nets of `cargo xtask bench` in JAX, as a worker (see worker.py): one jit of the whole step, which gives its
weights and moments back in place of the old ones; images in NHWC.

    python benches/peers/jax_nets.py --threads 2

XLA takes as many threads as the process may run on; the bench limits those where it asks for fewer than there are.
"""

import argparse
import math
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import worker
from jax import lax

VGG = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]


def conv(w, x, name, stride=1, padding=0):
    pad = [(padding, padding)] * 2
    y = lax.conv_general_dilated(
        x, w[name + ".weight"], (stride, stride), pad, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    bias = w.get(name + ".bias")
    return y if bias is None else y + bias


def dense(w, x, name):
    y = x @ w[name + ".weight"]
    bias = w.get(name + ".bias")
    return y if bias is None else y + bias


def norm(w, stats, new, x, name, train):
    """Batch norm; the moved running statistics go into `new`."""
    mean, var = stats[name + ".running_mean"], stats[name + ".running_var"]
    if train:
        count = x.size // x.shape[-1]
        running = mean, var
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        new[name + ".running_mean"] = 0.9 * running[0] + 0.1 * mean
        new[name + ".running_var"] = 0.9 * running[1] + 0.1 * var * (count / (count - 1))
    return (x - mean) * lax.rsqrt(var + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def layer_norm(w, x, name):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def flat(x):
    return x.reshape(x.shape[0], -1)


def mnist_cnn(w, stats, new, x, train):
    x = pool(jax.nn.relu(conv(w, x, "conv1")))
    x = pool(jax.nn.relu(conv(w, x, "conv2")))
    x = flat(jax.nn.relu(conv(w, x, "conv3")))
    return dense(w, jax.nn.relu(dense(w, x, "dense1")), "dense2")


def lenet(w, stats, new, x, train):
    x = pool(jax.nn.relu(conv(w, x, "conv1")))
    x = flat(pool(jax.nn.relu(conv(w, x, "conv2"))))
    return dense(w, jax.nn.relu(dense(w, jax.nn.relu(dense(w, x, "fc1")), "fc2")), "fc3")


def resnet18(w, stats, new, x, train):
    bn = lambda x, name: norm(w, stats, new, x, name, train)
    x = jax.nn.relu(bn(conv(w, x, "conv1", 1, 1), "bn1"))
    for stage in range(1, 5):
        for block in range(2):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = jax.nn.relu(bn(conv(w, x, at + ".conv1", stride, 1), at + ".bn1"))
            y = bn(conv(w, y, at + ".conv2", 1, 1), at + ".bn2")
            if stride == 2:
                x = bn(conv(w, x, at + ".downsample.0", 2), at + ".downsample.1")
            x = jax.nn.relu(x + y)
    return dense(w, x.mean((1, 2)), "fc")


def vgg11(w, stats, new, x, train):
    at = 0
    for outputs in VGG:
        if outputs == 0:
            x, at = pool(x), at + 1
        else:
            x = conv(w, x, f"features.{at}", 1, 1)
            x = jax.nn.relu(norm(w, stats, new, x, f"features.{at + 1}", train))
            at += 3
    return dense(w, flat(x), "classifier")


def gpt_mini(w, stats, new, ids, train, layers=6, heads=6):
    x = w["wte.weight"][ids] + w["wpe"]
    batch, length, width = x.shape
    later = jnp.triu(jnp.ones((length, length), bool), 1)
    for i in range(layers):
        joined = dense(w, layer_norm(w, x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = joined.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        scores = (q * (1 / math.sqrt(width // heads))) @ k.swapaxes(2, 3)
        y = jax.nn.softmax(jnp.where(later, -jnp.inf, scores)) @ v
        x = x + dense(w, y.transpose(0, 2, 1, 3).reshape(x.shape), f"h.{i}.attn.c_proj")
        y = jax.nn.gelu(dense(w, layer_norm(w, x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate=False)
        x = x + dense(w, y, f"h.{i}.mlp.c_proj")
    return dense(w, layer_norm(w, x, "ln_f"), "lm_head")


NETS = {"mnist-cnn": mnist_cnn, "lenet": lenet, "resnet18": resnet18, "vgg11": vgg11, "gpt-mini": gpt_mini}


def loss_of(logits, labels):
    rows = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(rows, labels[..., None], -1).mean()


def update(kind, lr, w, g, moments, t):
    """SGD with momentum 0.9, Adam, or AdamW with a decay of 0.01, of one weight."""
    if kind == "sgd":
        m = 0.9 * moments[0] + g
        return w - lr * m, (m, moments[1])
    m, v = 0.9 * moments[0] + 0.1 * g, 0.999 * moments[1] + 0.001 * g * g
    if kind == "adamw":
        w = w * (1 - 0.01 * lr)
    # 1 - beta^t without cancellation: an error there would be one of every weight.
    first, second = (-jnp.expm1(t * math.log(beta)) for beta in (0.9, 0.999))
    return w - lr * (m / first) / (jnp.sqrt(v / second) + 1e-8), (m, v)


def split(tensors):
    """Weights and running statistics, kernels as HWIO and matrices as [in, out]."""
    weights, stats = {}, {}
    for name, value in tensors.items():
        if name in ("x", "y") or name.endswith("num_batches_tracked"):
            continue
        if value.ndim == 4:
            value = value.transpose(1, 2, 3, 0)
        elif name.endswith("weight") and value.ndim == 2 and not name.startswith("wte"):
            value = value.T
        (stats if "running" in name else weights)[name] = jnp.asarray(np.ascontiguousarray(value))
    return weights, stats


class Jax:
    name = f"jax {jax.__version__}"
    settings = ["jit"]
    infer_settings = settings

    def load(self, setting, row, tensors):
        name, _, train = worker.parse_row(row)
        weights, stats = split(tensors)
        xs, ys = [jnp.asarray(x) for x in tensors["x"]], [jnp.asarray(y) for y in tensors["y"]]
        at = 0
        if train:
            step = self.step(name, weights, stats)

            def work():
                nonlocal at
                loss = step(xs[at], ys[at])
                at = (at + 1) % len(xs)
                return loss

            return [float(work()) for _ in xs], work
        forward = jax.jit(lambda w, s, x: NETS[name](w, s, {}, x, False))
        losses = [float(loss_of(forward(weights, stats, x), y)) for x, y in zip(xs, ys)]

        def infer():
            nonlocal at
            forward(weights, stats, xs[at]).block_until_ready()
            at = (at + 1) % len(xs)

        return losses, infer

    def step(self, name, weights, stats):
        kind, lr = worker.OPTIMIZERS[name]

        def whole(weights, stats, moments, t, x, y):
            def loss(weights):
                new = {}
                return loss_of(NETS[name](weights, stats, new, x, True), y), new

            (value, new), grads = jax.value_and_grad(loss, has_aux=True)(weights)
            pairs = {n: update(kind, lr, w, grads[n], moments[n], t) for n, w in weights.items()}
            weights = {n: pair[0] for n, pair in pairs.items()}
            return value, weights, new, {n: pair[1] for n, pair in pairs.items()}, t + 1

        jitted = jax.jit(whole, donate_argnums=(0, 1, 2, 3))
        second = jnp.zeros_like if kind != "sgd" else lambda _: jnp.zeros(())
        moments = {n: (jnp.zeros_like(w), second(w)) for n, w in weights.items()}
        state = [weights, stats, moments, jnp.float32(1)]

        def step(x, y):
            value, *state[:] = jitted(*state, x, y)
            return jax.block_until_ready((value, state))[0]

        return step

    def gemm(self, m, k, n):
        a, b = jnp.ones((m, k)), jnp.ones((k, n))
        product = jax.jit(lambda a, b: a @ b)
        return lambda: product(a, b).block_until_ready()

    def once(self, name, batch):
        if name != "mnist-cnn":
            raise ValueError(f"no initial weights for {name}")
        shapes = {"conv1": (32, 3, 3, 1), "conv2": (64, 3, 3, 32), "conv3": (64, 3, 3, 64)}
        shapes |= {"dense1": (64, 576), "dense2": (10, 64)}
        random, tensors = np.random.default_rng(0), {}
        for layer, shape in shapes.items():
            bound = np.prod(shape[1:]) ** -0.5
            tensors[layer + ".weight"] = random.uniform(-bound, bound, shape).astype(np.float32)
            tensors[layer + ".bias"] = np.zeros(shape[0], np.float32)
        step = self.step(name, *split(tensors))
        x = jnp.asarray(random.random((batch, 28, 28, 1), np.float32))
        y = jnp.asarray(np.arange(batch, dtype=np.int32) % 10)
        return lambda: step(x, y)

    def forget(self):
        jax.clear_caches()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    worker.serve(Jax())
