#!/usr/bin/env python3
"""The nets of `cargo xtask bench` in PyTorch, as a worker (see worker.py): eager and torch.compile, each with NCHW and
with channels-last memory; compiled inference with frozen weights too. Rows of bf16 run forward passes and losses under torch.autocast.

    python benches/peers/torch_nets.py --threads 2
"""

import argparse
import functools
import math

import numpy as np
import torch
import torch._inductor.config as inductor
import torch.nn.functional as F
import torch_detectors
import torch_images
import torch_video
import worker
from torch import nn
from torch_dcgan import Dcgan
from torch_gan import stepper
from torch_stylegan2 import StyleGan2
from torch_wgan import WganGpConv


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3)
        self.dense1, self.dense2 = nn.Linear(576, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.conv3(x)).flatten(1)
        return self.dense2(F.relu(self.dense1(x)))


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Attention(nn.Module):
    """Causal attention of products, a mask and softmax."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        later = torch.ones(context, context, dtype=torch.bool).triu(1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(2, 3)
        y = scores.masked_fill(self.later[:t, :t], -math.inf).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(n, t, c))

    def next(self, x, cache, past, mask):
        """Attention of positions from `past` on; keys and values of all are kept in `cache`. With a mask it is to the whole cache,
        whose shape is always the same, as compiled code wants it."""
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
        if mask is None:
            keys, values = cache
            keys[:, :, past : past + t], values[:, :, past : past + t] = k, v
            k, v = keys[:, :, : past + t], values[:, :, : past + t]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        else:
            keys, values = (kept.index_copy(2, past, new) for kept, new in zip(cache, (k, v)))
            for kept, new in zip(cache, (keys, values)):
                kept.copy_(new)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class GptBlock(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads, context)
        self.ln_2, self.mlp = nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))

    def next(self, x, cache, past, mask):
        x = x + self.attn.next(self.ln_1(x), cache, past, mask)
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary=65, context=256, layers=6, heads=6, width=384):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(context, width))
        self.h = nn.ModuleList(GptBlock(width, heads, context) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def next(self, ids, caches, past):
        """The logits of the token behind ids, which begin at position `past`."""
        x = self.wte(ids) + self.wpe[past : past + ids.shape[1]]
        for block, cache in zip(self.h, caches):
            x = block.next(x, cache, past, None)
        return self.lm_head(self.ln_f(x[:, -1]))

    def next_at(self, ids, caches, at):
        """The same of one token at the position in the tensor `at`."""
        x = self.wte(ids) + self.wpe[at]
        mask = (torch.arange(len(self.wpe)) <= at)[None]
        for block, cache in zip(self.h, caches):
            x = block.next(x, cache, at, mask)
        return self.lm_head(self.ln_f(x[:, -1]))

    def write(self, prompt, count, next_at=None):
        """The logits of `count` tokens that go on with a prompt, each the likeliest one."""
        caches = [torch.zeros(2, len(prompt), 6, 256, 64, dtype=self.wpe.dtype).unbind() for _ in self.h]
        logits = [self.next(prompt, caches, 0)]
        for past in range(prompt.shape[1], prompt.shape[1] + count - 1):
            ids = logits[-1].argmax(1, keepdim=True)
            if next_at is None:
                logits.append(self.next(ids, caches, past))
            else:
                logits.append(next_at(ids, caches, torch.tensor([past])))
        return logits


class Vae(nn.Module):
    """The variational autoencoder of PyTorch's examples; a step is one update."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, images, noise):
        pixels = images.flatten(1)
        hidden = F.relu(self.fc1(pixels))
        mean, log_variance = self.fc21(hidden), self.fc22(hidden)
        latent = mean + torch.exp(0.5 * log_variance) * noise
        logits = self.fc4(F.relu(self.fc3(latent)))
        reconstruction = F.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
        kl = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (reconstruction + kl) / len(images)

    def updates(self, compiled):
        """Makes the work of a step, which returns its losses' sum."""
        optimizer = torch.optim.Adam(self.parameters(), lr=worker.OPTIMIZERS["vae"][1])
        forward = torch.compile(self, dynamic=False) if compiled else self

        def step(images, noise):
            optimizer.zero_grad()
            loss = forward(images, noise)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step


class WganGp(nn.Module):
    """A Wasserstein GAN with gradient penalty; a step is an update of the critic and one of the generator."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 784)
        )
        self.critic = nn.Sequential(
            nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2),
            nn.Linear(256, 1, bias=False),
        )  # fmt: skip

    def critic_loss(self, images, noise):
        real = images.flatten(1)
        with torch.no_grad():
            fake = self.generator(noise).sigmoid()
        share = torch.exp(-0.5 * noise[:, :2].square().sum(1, keepdim=True))
        between = (fake + (real - fake) * share).requires_grad_()
        (slopes,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        penalty = (slopes.norm(2, 1) - 1).square().mean()
        return 10 * penalty - (self.critic(real).mean() - self.critic(fake).mean())

    def generator_loss(self, _, noise):
        return -self.critic(self.generator(noise).sigmoid()).mean()

    def updates(self, compiled):
        """Makes the work of a step, which returns its losses' sum."""
        if compiled:
            raise ValueError("torch.compile has no gradients of gradients")
        parts = [(self.critic, self.generator, self.critic_loss), (self.generator, self.critic, self.generator_loss)]
        lr = worker.OPTIMIZERS["wgan-gp"][1]
        optimizers = [torch.optim.Adam(part.parameters(), lr=lr, betas=(0.5, 0.9)) for part, _, _ in parts]

        def step(images, noise):
            total = 0
            for (part, other, loss_of), optimizer in zip(parts, optimizers):
                part.requires_grad_(True)
                other.requires_grad_(False)
                optimizer.zero_grad()
                loss = loss_of(images, noise)
                loss.backward()
                optimizer.step()
                total = total + loss.detach()
            return total

        return step


NETS = {
    "mnist-cnn": MnistCnn, "lenet": Lenet, "gpt-mini": Gpt, "vae": Vae, "wgan-gp": WganGp, "wgan-gp-conv": WganGpConv,
    "dcgan": Dcgan, "stylegan2": StyleGan2,
}  # fmt: skip
NETS |= torch_detectors.NETS
for name, classes in (("resnet18", 10), ("vgg11", 10), ("resnet50", 1000), ("mobilenet-v2-32", 10)):
    NETS[name] = functools.partial(torch_images.net, name, classes)
NETS["r3d-18"] = torch_video.NETS["r3d-18"]
StyleGan2.second_order = WganGpConv.second_order = True
# A layer behind a flattened image: the columns of its weights are (H, W, C) in Kiln's file and (C, H, W) here.
FLATTENED = {
    "mnist-cnn": ("dense1.weight", 9, 64), "lenet": ("fc1.weight", 25, 16), "deepspeech2": ("rnns.0.gru.weight_ih_l0", 10, 32),
}  # fmt: skip
IMAGES = {"mnist-cnn": (1, 28, 28), "lenet": (3, 32, 32), "resnet18": (3, 32, 32), "vgg11": (3, 32, 32)}


def load_weights(name, model, tensors):
    """Copies Kiln's weights into the model; every parameter has to be there."""
    state = model.state_dict()
    for key, value in state.items():
        if key.endswith("num_batches_tracked"):
            continue
        source = torch.from_numpy(tensors[key].copy())
        if name in FLATTENED and key.startswith(FLATTENED[name][0]):
            _, positions, channels = FLATTENED[name]
            source = source.view(-1, positions, channels).transpose(1, 2).reshape(len(source), -1)
        elif source.dim() >= 4:
            source = source.movedim(-1, 1)
        value.copy_(source.contiguous())


def optimizer_of(name, model):
    kind, lr = worker.OPTIMIZERS[name]
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Sequences:
    """Networks of sequences: a module and its optimizer, and the loss of a batch by the names of its fields."""

    @staticmethod
    def bert_classifier():
        import transformers
        from torch_bert import mini_config

        config = mini_config(30522, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = transformers.BertForSequenceClassification(config)
        loss = lambda ids, mask, labels: model(input_ids=ids, attention_mask=mask, labels=labels).loss
        return model, loss, torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)

    @staticmethod
    def deepspeech2():
        from torch_speech import DeepSpeech2

        model = DeepSpeech2(29)

        def loss(features, frames, labels, counts):
            logits, lengths = model(features, frames)
            return F.ctc_loss(logits.log_softmax(-1), labels, lengths, counts, zero_infinity=True)

        return model, loss, torch.optim.AdamW(model.parameters(), lr=2e-3)

    @staticmethod
    def transformer(vocabulary):
        from torch_seq2seq import SMOOTHING, Seq2Seq

        model = Seq2Seq(vocabulary)
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            elif isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0

        def loss(source, mask, target, labels, counts):
            logits = model(source, mask == 0, target)
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING)

        return model, loss, torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)


class Torch:
    name = f"torch {torch.__version__}"
    settings = ["eager-nchw", "eager-nhwc", "compile-nchw", "compile-nhwc"]
    infer_settings = settings + ["frozen-nchw", "frozen-nhwc"]
    bf16 = True
    generates = True

    def prepare(self, name, setting, tensors):
        """The net in the setting's memory format and the batches that it takes."""
        model = NETS[name]()
        load_weights(name, model, tensors)
        x, y = torch.from_numpy(tensors["x"].copy()), torch.from_numpy(tensors["y"].copy()).long()
        if x.dim() >= 5:
            last = torch.channels_last if x.dim() == 5 else torch.channels_last_3d
            layout = last if setting.endswith("nhwc") else torch.contiguous_format
            model = model.to(memory_format=layout)
            xs = [b.movedim(-1, 1).contiguous(memory_format=layout) for b in x]
        elif setting.endswith("nhwc"):
            raise ValueError("tokens have no channels to lay out")
        else:
            xs = list(x.long())
        return model, xs, list(y)

    def load(self, setting, row, tensors):
        name, _, train = worker.parse_row(row)
        if "noise" in tensors:
            return self.load_maker(setting, name, tensors)
        if "exists" in tensors:
            return self.load_detector(setting, name, tensors)
        if any(key.startswith("batch.") for key in tensors):
            return self.load_sequences(setting, name, tensors)
        model, xs, ys = self.prepare(name, setting, tensors)
        at = 0
        if train:
            step = self.step(name, model, setting, worker.is_bf16(row))

            def work():
                nonlocal at
                loss = step(xs[at], ys[at])
                at = (at + 1) % len(xs)
                return loss

            return [work().item() for _ in xs], work
        model.eval()
        inductor.freezing = setting.startswith("frozen")
        if worker.is_generation(row):
            model = model.bfloat16() if worker.is_bf16(row) else model
            return self.write(setting, model, xs[0][:, : worker.PROMPT])
        forward = model if setting.startswith("eager") else torch.compile(model, dynamic=False)
        precision = torch.autocast("cpu", torch.bfloat16, enabled=worker.is_bf16(row))
        with torch.no_grad(), precision:
            losses = [loss_of(forward(x), y).item() for x, y in zip(xs, ys)]

        def infer():
            nonlocal at
            with torch.no_grad(), precision:
                forward(xs[at])
            at = (at + 1) % len(xs)

        return losses, infer

    def write(self, setting, model, prompt):
        """Generation of text, compiled for one token at any position."""
        next_at = None if setting.startswith("eager") else torch.compile(model.next_at, dynamic=False)

        def work(count=worker.GENERATED):
            with torch.no_grad():
                return model.write(prompt, count, next_at)

        return [logits[0].max().item() for logits in work(worker.STEPS)], work

    def load_sequences(self, setting, name, tensors):
        """A network of sequences, with a training step on each batch of the file."""
        if setting.endswith("nhwc"):
            raise ValueError("sequences have no channels to lay out")
        of = getattr(Sequences, name.replace("-", "_"))
        sizes = [len(tensors["embedding.weight"])] if name == "transformer" else []
        model, loss_of, optimizer = of(*sizes)
        load_weights(name, model, tensors)
        fields = {key.removeprefix("batch."): value for key, value in tensors.items() if key.startswith("batch.")}
        whole = lambda x: x.long() if x.dtype == torch.int32 else x
        batches = [{key: whole(torch.from_numpy(value[i].copy())) for key, value in fields.items()} for i in range(worker.STEPS)]
        loss_of = torch.compile(loss_of, dynamic=False) if setting.startswith("compile") else loss_of
        model.train()
        at = 0

        def work():
            nonlocal at
            optimizer.zero_grad()
            loss = loss_of(**batches[at])
            loss.backward()
            optimizer.step()
            at = (at + 1) % len(batches)
            return loss.detach()

        return [work().item() for _ in batches], work

    def load_maker(self, setting, name, tensors):
        """A network that makes images, whose batches have noise in the place of labels."""
        inductor.freezing = False
        model, compiles = NETS[name](), setting.startswith("compile")
        load_weights(name, model, tensors)
        batches = [tuple(torch.from_numpy(part.copy()) for part in parts) for parts in zip(tensors["x"], tensors["noise"])]
        if hasattr(model, "phases"):
            layout = torch.channels_last if setting.endswith("nhwc") else torch.contiguous_format
            model = model.train().to(memory_format=layout)
            laid = lambda x: (2 * x - 1).permute(0, 3, 1, 2).contiguous(memory_format=layout)
            batches = [(laid(x), noise) for x, noise in batches]
            if compiles and getattr(model, "second_order", False):
                raise ValueError("torch.compile has no gradients of gradients")
            compiled = lambda loss: torch.compile(loss, dynamic=False) if compiles else loss
            optimizers = model.optimizers()
            for group in (group for optimizer in optimizers.values() for group in optimizer.param_groups):
                group["lr"] *= worker.SHARES.get(name, 1)
            step = stepper(model, [(part, compiled(loss), every) for part, loss, every in model.phases], optimizers)
        elif setting.endswith("nhwc"):
            raise ValueError("dense layers have no channels to lay out")
        else:
            step = model.updates(compiles)
        at = 0

        def work():
            nonlocal at
            loss = step(*batches[at])
            at = (at + 1) % len(batches)
            return loss

        return [work().item() for _ in batches], work

    def load_detector(self, setting, name, tensors):
        """A network that finds objects, whose batches have boxes in the place of labels."""
        inductor.freezing = False
        model = NETS[name]().train()
        load_weights(name, model, tensors)
        model.normalised()
        layout = torch.channels_last if setting.endswith("nhwc") else torch.contiguous_format
        model = model.to(memory_format=layout)
        if setting.startswith("compile"):
            model.compiled()
        kinds = [torch.from_numpy(tensors[k].copy()) for k in ("x", "boxes", "classes", "exists")]
        batches = []
        for x, boxes, classes, exists in zip(*kinds):
            images = x.permute(0, 3, 1, 2).contiguous(memory_format=layout)
            targets = [{"boxes": b[e > 0], "labels": c[e > 0].long()} for b, c, e in zip(boxes, classes, exists)]
            batches.append((images, targets))
        optimizer, at = optimizer_of(name, model), 0

        def work():
            nonlocal at
            optimizer.zero_grad()
            loss = model.loss(*batches[at])
            loss.backward()
            optimizer.step()
            at = (at + 1) % len(batches)
            return loss.detach()

        return [work().item() for _ in batches], work

    def step(self, name, model, setting, bf16=False):
        inductor.freezing = False
        model.train()
        optimizer = optimizer_of(name, model)
        forward = torch.compile(model, dynamic=False) if setting.startswith("compile") else model
        precision = torch.autocast("cpu", torch.bfloat16, enabled=bf16)

        def step(x, y):
            optimizer.zero_grad()
            with precision:
                loss = loss_of(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def gemm(self, m, k, n):
        a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
        return lambda: torch.mm(a, b, out=c)

    def once(self, name, batch):
        torch.manual_seed(0)
        step = self.step(name, NETS[name](), "eager-nchw")
        x, y = torch.rand(batch, *IMAGES[name]), torch.arange(batch) % 10
        return lambda: step(x, y)

    def forget(self):
        torch._dynamo.reset()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    # Past this many compilations of one function torch falls back to eager without a word.
    torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_recompile_limit = 1000
    np.random.seed(0)
    worker.serve(Torch())
