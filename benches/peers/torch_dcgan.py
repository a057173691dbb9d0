#!/usr/bin/env python3
"""PyTorch's example of a DCGAN for 28×28 digits, with exactly the recipe of `kiln train dcgan`, on the same IDX files.

Layers, names and initial weights of the example, which end with 28×28 pixels for a first feature map of 7×7; Adam 2e-4 with betas of 0.5
and 0.999 for both networks; batch 64, shuffled every epoch; 25 epochs. The discriminator and the generator see made images of their own.

    python benches/peers/torch_dcgan.py --threads 2
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_gan import fit, parser

WIDTH = 64


def stages(side):
    """The side of the first feature map, and how often it doubles."""
    doublings = 0
    while side % 2 == 0 and side >= 8:
        side, doublings = side // 2, doublings + 1
    return side, doublings


def generator(side, channels, latent):
    first, doublings = stages(side)
    widths = [WIDTH << i for i in reversed(range(doublings))]
    layers = [nn.ConvTranspose2d(latent, widths[0], first, 1, 0, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(True)]
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return [*layers, nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1, bias=False)]


def judge(side, channels, norms):
    first, halvings = stages(side)
    widths = [channels] + [WIDTH << i for i in range(halvings)]
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        layers.append(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=not norms))
        layers += [nn.BatchNorm2d(outputs)] if norms and i else []
        layers.append(nn.LeakyReLU(0.2))
    return [*layers, nn.Conv2d(widths[-1], 1, first, bias=False)]


class Side(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.main = nn.Sequential(*layers)

    def forward(self, x):
        return self.main(x)


class Dcgan(nn.Module):
    """The network for images `[N, C, H, W]` from −1 to 1, with the losses of a step."""

    def __init__(self, side=28, channels=1, latent=100):
        super().__init__()
        self.latent = latent
        self.generator = Side([*generator(side, channels, latent), nn.Tanh()])
        self.discriminator = Side(judge(side, channels, norms=True))
        self.phases = [("discriminator", self.discriminator_loss, 1), ("generator", self.generator_loss, 1)]
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02)
            elif hasattr(module, "weight"):
                nn.init.normal_(module.weight, 0.0, 0.02)

    def optimizers(self):
        parts = {"discriminator": self.discriminator, "generator": self.generator}
        return {name: torch.optim.Adam(p.parameters(), lr=2e-4, betas=(0.5, 0.999)) for name, p in parts.items()}

    def fakes(self, count, noise):
        noise = torch.randn(count, self.latent) if noise is None else noise
        return self.generator(noise[:, :, None, None])

    def discriminator_loss(self, images, noise):
        with torch.no_grad():
            fakes = self.fakes(len(images), noise)
        return F.softplus(-self.discriminator(images)).mean() + F.softplus(self.discriminator(fakes)).mean()

    def generator_loss(self, images, noise):
        return F.softplus(-self.discriminator(self.fakes(len(images), noise))).mean()

    def made(self, count):
        """New images from 0 to 1."""
        return (self.fakes(count, None) + 1) / 2


if __name__ == "__main__":
    fit(Dcgan, parser(__doc__, epochs=25, batch=64).parse_args())
