#!/usr/bin/env python3
"""The Wasserstein GAN of `kiln train wgan-gp-conv`, with exactly its recipe, on the same IDX files.

The convolutions of torch_dcgan.py, in the critic without norms; a penalty of 10 on slopes between real and made images that are not 1; Adam 1e-4
with betas of 0 and 0.9; batch 64, shuffled every epoch; 50 epochs; an update of the generator in each fifth step.

    python benches/peers/torch_wgan.py --threads 2
"""

import torch
from torch import nn
from torch_dcgan import generator, judge
from torch_gan import fit, parser

LATENT, PENALTY = 64, 10


class WganGpConv(nn.Module):
    """The network for images `[N, C, H, W]` from −1 to 1, which it takes from 0 to 1, with the losses of a step."""

    def __init__(self, side=28, channels=1):
        super().__init__()
        self.generator = nn.Sequential(*generator(side, channels, LATENT))
        self.critic = nn.Sequential(*judge(side, channels, norms=False))
        self.phases = [("critic", self.critic_loss, 1), ("generator", self.generator_loss, 5)]

    def optimizers(self):
        parts = {"critic": self.critic, "generator": self.generator}
        return {name: torch.optim.Adam(p.parameters(), lr=1e-4, betas=(0.0, 0.9)) for name, p in parts.items()}

    def fakes(self, noise):
        return self.generator(noise[:, :, None, None]).sigmoid()

    def critic_loss(self, images, noise):
        real = (images + 1) / 2
        noise = torch.randn(len(real), LATENT) if noise is None else noise
        with torch.no_grad():
            fake = self.fakes(noise)
        # Uniform, and drawn with the latent vectors.
        share = torch.exp(-0.5 * noise[:, :2].square().sum(1))[:, None, None, None]
        between = (fake + (real - fake) * share).requires_grad_()
        (slopes,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        penalty = (slopes.flatten(1).norm(2, 1) - 1).square().mean()
        return PENALTY * penalty - (self.critic(real).mean() - self.critic(fake).mean())

    def generator_loss(self, images, noise):
        noise = torch.randn(len(images), LATENT) if noise is None else noise
        return -self.critic(self.fakes(noise)).mean()

    def made(self, count):
        """New images from 0 to 1."""
        return self.fakes(torch.randn(count, LATENT))


if __name__ == "__main__":
    fit(WganGpConv, parser(__doc__, epochs=50, batch=64).parse_args())
