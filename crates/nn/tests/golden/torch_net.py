"""A small PyTorch network with its weights, an input and its outputs, to be loaded by Kiln.

    python torch_net.py torch_net.safetensors

The input and outputs lie in the same file as `io.*`, channels-first as PyTorch has them.
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn


def main():
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
        nn.GroupNorm(2, 4),
        nn.MaxPool2d(2),
        nn.InstanceNorm2d(4, affine=True),
        nn.Flatten(),
        nn.Linear(4 * 4 * 4, 5),
        nn.LayerNorm(5),
        nn.GELU(),
    )
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.3)
    x = torch.randn(2, 3, 8, 8)
    net.train()
    trained = net(x).detach()
    after_one = {k: v.clone() for k, v in net.state_dict().items()}
    net.eval()
    evaluated = net(x).detach()
    tensors = {**after_one, "io.x": x, "io.train": trained, "io.eval": evaluated}
    save_file({k: v.contiguous() for k, v in tensors.items()}, sys.argv[1], metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
