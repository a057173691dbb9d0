#!/usr/bin/env python3
"""The nets of `cargo xtask bench` in TensorFlow, as a worker (see worker.py): tf.function, with and without XLA, images
in NHWC. Updates are TensorFlow's own fused ops, which its Keras 2 optimizers used.

    python benches/peers/tf_nets.py --threads 2
"""

import argparse
import math
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
import worker

VGG = [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]


class Net:
    """Variables by Kiln's names; a forward function of them. Kernels are turned to HWIO once, here."""

    def __init__(self, tensors):
        self.trained, self.stats = {}, {}
        for name, value in tensors.items():
            if name in ("x", "y") or name.endswith("num_batches_tracked"):
                continue
            if value.ndim == 4:
                value = value.transpose(1, 2, 3, 0)
            elif name.endswith("weight") and value.ndim == 2 and not name.startswith("wte"):
                value = value.T
            kept = self.stats if "running" in name else self.trained
            kept[name] = tf.Variable(np.ascontiguousarray(value), trainable=kept is self.trained)

    def conv(self, x, name, stride=1, padding=0):
        pad = [[0, 0], [padding, padding], [padding, padding], [0, 0]] if padding else "VALID"
        y = tf.nn.conv2d(x, self.trained[name + ".weight"], stride, pad)
        bias = self.trained.get(name + ".bias")
        return y if bias is None else tf.nn.bias_add(y, bias)

    def dense(self, x, name):
        y = tf.matmul(x, self.trained[name + ".weight"])
        bias = self.trained.get(name + ".bias")
        return y if bias is None else tf.nn.bias_add(y, bias)

    def norm(self, x, name, train):
        scale, shift = self.trained[name + ".weight"], self.trained[name + ".bias"]
        mean, var = self.stats[name + ".running_mean"], self.stats[name + ".running_var"]
        if not train:
            return tf.compat.v1.nn.fused_batch_norm(x, scale, shift, mean, var, 1e-5, is_training=False)[0]
        y, batch_mean, batch_var = tf.compat.v1.nn.fused_batch_norm(x, scale, shift, epsilon=1e-5)
        # The op gives the unbiased variance, as the running one is.
        mean.assign(0.9 * mean + 0.1 * batch_mean)
        var.assign(0.9 * var + 0.1 * batch_var)
        return y

    def layer_norm(self, x, name):
        mean, var = tf.nn.moments(x, [-1], keepdims=True)
        scale, shift = self.trained[name + ".weight"], self.trained[name + ".bias"]
        return (x - mean) * tf.math.rsqrt(var + 1e-5) * scale + shift


def pool(x):
    return tf.nn.max_pool2d(x, 2, 2, "VALID")


def flat(x):
    return tf.reshape(x, [x.shape[0], -1])


def mnist_cnn(n, x, train):
    x = pool(tf.nn.relu(n.conv(x, "conv1")))
    x = pool(tf.nn.relu(n.conv(x, "conv2")))
    x = flat(tf.nn.relu(n.conv(x, "conv3")))
    return n.dense(tf.nn.relu(n.dense(x, "dense1")), "dense2")


def lenet(n, x, train):
    x = pool(tf.nn.relu(n.conv(x, "conv1")))
    x = flat(pool(tf.nn.relu(n.conv(x, "conv2"))))
    return n.dense(tf.nn.relu(n.dense(tf.nn.relu(n.dense(x, "fc1")), "fc2")), "fc3")


def resnet18(n, x, train):
    x = tf.nn.relu(n.norm(n.conv(x, "conv1", 1, 1), "bn1", train))
    for stage in range(1, 5):
        for block in range(2):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = tf.nn.relu(n.norm(n.conv(x, at + ".conv1", stride, 1), at + ".bn1", train))
            y = n.norm(n.conv(y, at + ".conv2", 1, 1), at + ".bn2", train)
            if stride == 2:
                x = n.norm(n.conv(x, at + ".downsample.0", 2), at + ".downsample.1", train)
            x = tf.nn.relu(x + y)
    return n.dense(tf.reduce_mean(x, [1, 2]), "fc")


def vgg11(n, x, train):
    at = 0
    for outputs in VGG:
        if outputs == 0:
            x, at = pool(x), at + 1
        else:
            x = tf.nn.relu(n.norm(n.conv(x, f"features.{at}", 1, 1), f"features.{at + 1}", train))
            at += 3
    return n.dense(flat(x), "classifier")


def gpt_mini(n, ids, train, layers=6, heads=6):
    x = tf.gather(n.trained["wte.weight"], ids) + n.trained["wpe"]
    batch, length, width = x.shape
    later = tf.constant(np.triu(np.full((length, length), -np.inf, np.float32), 1))
    rows = lambda x, name: tf.reshape(n.dense(tf.reshape(x, [batch * length, -1]), name), [batch, length, -1])
    for i in range(layers):
        joined = rows(n.layer_norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        joined = tf.transpose(tf.reshape(joined, [batch, length, 3, heads, width // heads]), [2, 0, 3, 1, 4])
        q, k, v = tf.unstack(joined)
        scores = tf.matmul(q * (1 / math.sqrt(width // heads)), k, transpose_b=True) + later
        y = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), [0, 2, 1, 3])
        x = x + rows(tf.reshape(y, [batch, length, width]), f"h.{i}.attn.c_proj")
        y = tf.nn.gelu(rows(n.layer_norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate=False)
        x = x + rows(y, f"h.{i}.mlp.c_proj")
    return rows(n.layer_norm(x, "ln_f"), "lm_head")


NETS = {"mnist-cnn": mnist_cnn, "lenet": lenet, "resnet18": resnet18, "vgg11": vgg11, "gpt-mini": gpt_mini}


class Optimizer:
    """SGD with momentum, Adam or AdamW of a net's variables, each variable by one fused op."""

    def __init__(self, name, variables):
        self.kind, self.lr = worker.OPTIMIZERS[name]
        zeros = lambda: [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        self.variables, self.first = variables, zeros()
        if self.kind != "sgd":
            self.second = zeros()
            self.steps = tf.Variable(0.0, trainable=False)

    def apply(self, gradients):
        if self.kind != "sgd":
            # 1 - beta^t without the cancellation that the op's own correction has; an error there would be one of every
            # weight. The op's epsilon stands beside the uncorrected moment.
            steps = self.steps.assign_add(1.0)
            first, second = (-tf.math.expm1(steps * math.log(beta)) for beta in (0.9, 0.999))
            lr, epsilon = self.lr * tf.sqrt(second) / first, 1e-8 * tf.sqrt(second)
        for i, (v, g) in enumerate(zip(self.variables, gradients)):
            g = tf.convert_to_tensor(g)
            if self.kind == "sgd":
                tf.raw_ops.ResourceApplyMomentum(
                    var=v.handle, accum=self.first[i].handle, lr=self.lr, grad=g, momentum=0.9
                )
                continue
            if self.kind == "adamw":
                v.assign(v * (1 - 0.01 * self.lr))
            tf.raw_ops.ResourceApplyAdam(
                var=v.handle,
                m=self.first[i].handle,
                v=self.second[i].handle,
                beta1_power=0.0,
                beta2_power=0.0,
                lr=lr,
                beta1=0.9,
                beta2=0.999,
                epsilon=epsilon,
                grad=g,
            )


def loss_of(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


class TensorFlow:
    name = f"tensorflow {tf.__version__}"
    settings = ["function", "xla"]
    infer_settings = settings

    def load(self, setting, row, tensors):
        name, _, train = worker.parse_row(row)
        net, at = Net(tensors), 0
        xs, ys = tf.unstack(tf.constant(tensors["x"])), tf.unstack(tf.constant(tensors["y"]))
        if train:
            step = self.step(name, net, setting == "xla")

            def work():
                nonlocal at
                loss = step(xs[at], ys[at])
                at = (at + 1) % len(xs)
                return loss.numpy()

            return [float(work()) for _ in xs], work
        forward = tf.function(lambda x: NETS[name](net, x, False), jit_compile=setting == "xla")
        losses = [float(loss_of(forward(x), y)) for x, y in zip(xs, ys)]

        def infer():
            nonlocal at
            forward(xs[at]).numpy()
            at = (at + 1) % len(xs)

        return losses, infer

    def step(self, name, net, xla):
        variables = list(net.trained.values())
        optimizer = Optimizer(name, variables)

        @tf.function(jit_compile=xla)
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_of(NETS[name](net, x, True), y)
            optimizer.apply(tape.gradient(loss, variables))
            return loss

        return step

    def gemm(self, m, k, n):
        a, b = tf.random.normal([m, k]), tf.random.normal([k, n])
        return lambda: tf.matmul(a, b)

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
        step = self.step(name, Net(tensors), False)
        x = tf.constant(random.random((batch, 28, 28, 1), np.float32))
        y = tf.constant(np.arange(batch, dtype=np.int32) % 10)
        return lambda: step(x, y).numpy()

    def forget(self):
        tf.keras.backend.clear_session()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    worker.serve(TensorFlow())
