#!/usr/bin/env python3
"""PyTorch on a GPU, training whole nets as `run.sh nets` has Kiln train them: one JSON line per measurement, same id.

    {"id": "train/bf16/resnet50-b256", "variant": "compiled", "seconds": 0.12}

A step is the copy of a batch that lies on the device, forward pass, loss, backward pass and the optimizer, all fused where
PyTorch has it fused; images are in channels-last memory, halves are torch.autocast with weights in f32. `compiled` is
torch.compile of model and loss. A batch that does not fit the memory is made of smaller ones, whose gradients add up;
`variant` says so. ResNet-50 is torchvision's; GPT-2 and BERT are those of transformers, their attention PyTorch's own
function; BERT computes logits at the masked positions alone, as Kiln does. Networks that make images draw their latent vectors in the step, and
a step of StyleGAN2 is the mean of sixteen, of which one has R1 and four have path lengths.

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
    from torch_dcgan import Dcgan
    from torch_detectors import Yolo, padded
    from torch_gan import stepper
    from torch_images import SmallVgg, resnet18_small
    from torch_nets import Lenet, MnistCnn
    from torch_stylegan2 import StyleGan2
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
    ("yolo-s-640", "bf16", 16),
    ("dcgan", "bf16", 64),
    ("stylegan2", "bf16", 32),
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


class YoloSmall:
    """YOLOv8s with eight boxes in an image."""

    def model(self):
        return Yolo(80, 0.5).cuda().to(memory_format=torch.channels_last)

    def batch(self, n):
        x = torch.rand(n, 3, 640, 640, device="cuda").to(memory_format=torch.channels_last)
        corners = torch.rand(n, 8, 2) * 400
        boxes = torch.cat([corners, corners + 40 + torch.rand(n, 8, 2) * 200], -1)
        return x, padded([{"boxes": b, "labels": torch.randint(80, (8,))} for b in boxes], "cuda")

    @staticmethod
    def loss(model, x, y):
        return model.loss_of(x, *y)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.937, weight_decay=5e-4, fused=True)


class Maker:
    """A network that makes images of 28×28 grey pixels, with a step of several updates, of which `period` in a row are measured."""

    def __init__(self, net, period, second_order):
        self.net, self.period, self.second_order = net, period, second_order

    def step(self, precision, batch, compiled):
        with torch.device("cuda"):
            model = self.net().train()
            images = torch.rand(batch, 1, 28, 28) * 2 - 1

        def cast(loss):
            loss = torch.compile(loss) if compiled else loss

            def computed(*batch):
                with torch.autocast("cuda", DTYPES[precision], enabled=precision in ("bf16", "f16")):
                    return loss(*batch)

            return computed

        train = stepper(model, [(part, cast(loss), every) for part, loss, every in model.phases], model.optimizers())

        def step():
            with torch.device("cuda"):
                for number in range(self.period):
                    train(images, None, number)

        return step


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
    "yolo-s-640": YoloSmall(),
    "dcgan": Maker(Dcgan, 1, False),
    "stylegan2": Maker(StyleGan2, 16, True),
}


def step_of(net, precision, batch, parts, compiled):
    """A training step of `batch` samples in so many parts, or several of a network that makes images."""
    if isinstance(net, Maker):
        return net.step(precision, batch, compiled)
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
            return seconds / getattr(NETS[net], "period", 1), parts, torch.cuda.max_memory_allocated()
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
        # torch.compile has no gradients of gradients.
        compiles = args.compile and not getattr(NETS[net], "second_order", False)
        for compiled in (False, True) if compiles else (False,):
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
