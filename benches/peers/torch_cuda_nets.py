#!/usr/bin/env python3
"""PyTorch on a GPU, training whole nets as `run.sh nets` has Kiln train them: one JSON line per measurement, same id.

    {"id": "train/bf16/resnet50-b256", "variant": "compiled", "seconds": 0.12}

A step is the copy of a batch that lies on the device, forward pass, loss, backward pass and the optimizer, all fused where
PyTorch has it fused; images are in channels-last memory, halves are torch.autocast with weights in f32. `compiled` is
torch.compile of model and loss. A batch that does not fit the memory is made of smaller ones, whose gradients add up;
`variant` says so. ResNet-50 is torchvision's; GPT-2 and BERT are those of transformers, their attention PyTorch's own
function; BERT computes logits at the masked positions alone, as Kiln does.

    python benches/peers/torch_cuda_nets.py --compile bf16/resnet50
"""

import argparse
import gc
import json
import sys

try:
    import torch
    import torch.nn.functional as F
    from torch_cuda import DTYPES, matches, median_seconds
    from torch_images import SmallVgg, resnet18_small
    from torch_nets import Lenet, MnistCnn
except ImportError as e:
    sys.exit(f"torch_cuda_nets.py needs PyTorch, torchvision and NumPy: {e}")

# The rows of `nets` in run.sh: net, precision, batch.
ROWS = [
    ("lenet", "f32", 4),
    ("mnist-cnn", "f32", 128),
    ("vgg11", "f32", 128),
    ("vgg11", "bf16", 128),
    ("resnet18", "f32", 128),
    ("resnet18", "tf32", 128),
    ("resnet18", "bf16", 128),
    ("resnet50", "bf16", 256),
    ("bert-base", "bf16", 32),
    ("gpt2", "bf16", 64),
]
# The share of the positions of a text that BERT is asked for.
MASKED = 0.15


class Images:
    """A classifier of images."""

    def __init__(self, net, shape, classes, optimizer):
        self.net, self.shape, self.classes, self.optimizer = net, shape, classes, optimizer

    def model(self):
        return self.net().cuda().to(memory_format=torch.channels_last)

    def batch(self, n):
        x = torch.rand(n, *self.shape, device="cuda").to(memory_format=torch.channels_last)
        return x, torch.randint(self.classes, (n,), device="cuda")

    @staticmethod
    def loss(model, x, y):
        return F.cross_entropy(model(x), y)


class Gpt2:
    def model(self):
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="sdpa")).cuda()

    def batch(self, n):
        return tuple(torch.randint(50257, (n, 1024), device="cuda") for _ in range(2))

    @staticmethod
    def loss(model, x, y):
        return F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


class Bert:
    def model(self):
        from transformers import BertConfig, BertForMaskedLM

        return BertForMaskedLM(BertConfig(attn_implementation="sdpa")).cuda()

    def batch(self, n):
        x = torch.randint(30522, (n, 512), device="cuda")
        count = round(MASKED * 512)
        at = torch.cat([i * 512 + torch.randperm(512, device="cuda")[:count] for i in range(n)])
        return x, (at, torch.randint(30522, (n * count,), device="cuda"))

    @staticmethod
    def loss(model, x, y):
        at, tokens = y
        hidden = model.bert(x).last_hidden_state.flatten(0, 1)[at]
        return F.cross_entropy(model.cls(hidden), tokens)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=1e-4, eps=1e-6, weight_decay=0.01, fused=True)


def resnet50():
    import torchvision

    return torchvision.models.resnet50()


def sgd(lr, decay=0.0):
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=decay, fused=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3, fused=True)


NETS = {
    "lenet": Images(Lenet, (3, 32, 32), 10, sgd(1e-3)),
    "mnist-cnn": Images(MnistCnn, (1, 28, 28), 10, adam),
    "vgg11": Images(SmallVgg, (3, 32, 32), 10, sgd(0.05, 5e-4)),
    "resnet18": Images(resnet18_small, (3, 32, 32), 10, sgd(0.1, 5e-4)),
    "resnet50": Images(resnet50, (3, 224, 224), 1000, sgd(0.1, 1e-4)),
    "bert-base": Bert(),
    "gpt2": Gpt2(),
}


def step_of(net, precision, batch, parts, compiled):
    """A training step of `batch` samples in so many parts."""
    model = net.model().train()
    optimizer = net.optimizer([p for p in model.parameters() if p.requires_grad])
    halves = precision in ("bf16", "f16")
    loss = torch.compile(net.loss) if compiled else net.loss
    batches = [(net.batch(batch // parts)) for _ in range(parts)]

    def step():
        optimizer.zero_grad(set_to_none=True)
        for x, y in batches:
            with torch.autocast("cuda", DTYPES[precision], enabled=halves):
                value = loss(model, x, y)
            (value / parts).backward()
        optimizer.step()

    return step


def measure(net, precision, batch, compiled, quick):
    """The seconds of a step, and the parts that its batch was made of."""
    parts = 1
    while True:
        try:
            torch._dynamo.reset()
            torch.cuda.reset_peak_memory_stats()
            seconds = median_seconds(step_of(NETS[net], precision, batch, parts, compiled), quick)
            return seconds, parts, torch.cuda.max_memory_allocated()
        except torch.cuda.OutOfMemoryError:
            if parts == batch:
                raise
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        parts *= 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("filters", nargs="*", help="run rows whose id has one of these at the beginning of a word")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    parser.add_argument("--compile", action="store_true", help="torch.compile too, which takes up to a minute a net")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no CUDA device")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True

    about = {"peer": f"torch {torch.__version__}", "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    print(json.dumps(about | {"device": torch.cuda.get_device_name()}), flush=True)
    failed = False
    for net, precision, batch in ROWS:
        name = f"train/{precision}/{net}-b{batch}"
        if not matches(name, args.filters):
            continue
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        for compiled in (False, True) if args.compile else (False,):
            try:
                seconds, parts, peak = measure(net, precision, batch, compiled, args.quick)
            except Exception as e:  # The next row can be measured all the same.
                print(f"torch_cuda_nets.py: {name}: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
                failed = True
                continue
            variant = ("compiled" if compiled else "eager") + (f", {parts} parts" if parts > 1 else "")
            line = {"id": name, "variant": variant, "seconds": seconds, "images": batch, "peak_bytes": peak}
            print(json.dumps(line), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
