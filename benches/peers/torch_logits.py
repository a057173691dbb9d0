#!/usr/bin/env python3
"""Networks of torchvision with random weights, an input and their logits in files that Kiln compares with its own; it answers with the largest difference of the logits, over the largest of
them:

    pip install torch torchvision safetensors
    python benches/peers/torch_logits.py FOLDER
    for file in FOLDER/*.safetensors; do echo "logits $file"; done | cargo run --release -p kiln-benches --bin kiln-nets-bench -- --threads 2

A file NET.safetensors, of a network of `kiln models`, has the state dictionary under the original's names in PyTorch's layout, an input `input` of
two images [2, 3, 64, 64] or, of networks for small images, [2, 3, 32, 32], or of clips [2, 3, 8, 32, 32], and `logits` of evaluation. Norms have random statistics, so that
nothing is left at 0 or 1.
"""

import argparse
import pathlib

import torch
import torch_images
import torch_video
from safetensors.torch import save_file
from torch import nn


def randomised(net):
    """Gives norms weights, biases and statistics of their own."""
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d)):
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.7, 1.3)
    return net.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--nets", nargs="+", default=list(torch_images.SMALL | torch_images.LARGE | torch_video.NETS))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.nets:
        torch.manual_seed(0)
        of_clips = name in torch_video.NETS
        net = randomised(torch_video.NETS[name]() if of_clips else torch_images.net(name))
        side = 32 if of_clips or name in torch_images.SMALL else 64
        x = torch.randn(2, 3, *([8] if of_clips else []), side, side)
        with torch.no_grad():
            logits = net(x)
        tensors = net.state_dict() | {"input": x, "logits": logits}
        save_file({k: v.contiguous().clone() for k, v in tensors.items()}, args.folder / f"{name}.safetensors")
        print(f"{name}: {sum(p.numel() for p in net.parameters()):,} parameters")


if __name__ == "__main__":
    main()
