#!/usr/bin/env python3
"""The Wasserstein GANs of `kiln train wgan-gp` and `wgan-gp-conv`, with exactly their recipes, on the same IDX files.

A penalty of 10 on slopes between real and made images that are not 1; batch 64, shuffled every epoch; an update of the generator in each fifth
step. `wgan-gp-conv`: the convolutions of torch_dcgan.py, in the critic without norms, Adam 1e-4 with betas of 0 and 0.9, 50 epochs. `wgan-gp`:
three dense layers each, Adam 2e-4 with betas of 0.5 and 0.9, 100 epochs.

    python benches/peers/torch_wgan.py wgan-gp-conv --threads 2
"""

import torch
from torch import nn
from torch_dcgan import generator, judge
from torch_gan import fit, parser

LATENT, PENALTY = 64, 10


class WganGp(nn.Module):
    """A network for images `[N, C, H, W]` from −1 to 1, which it takes from 0 to 1, with the losses of a step."""

    def __init__(self):
        super().__init__()
        self.phases = [("critic", self.critic_loss, 1), ("generator", self.generator_loss, 5)]

    def optimizers(self):
        parts = {"critic": self.critic, "generator": self.generator}
        return {name: torch.optim.Adam(p.parameters(), lr=self.LR, betas=self.BETAS) for name, p in parts.items()}

    def scores(self, images):
        return self.critic(images)

    def fakes(self, noise):
        return self.drawn(noise).sigmoid()

    def critic_loss(self, images, noise):
        real = (images + 1) / 2
        noise = torch.randn(len(real), LATENT) if noise is None else noise
        with torch.no_grad():
            fake = self.fakes(noise)
        # Uniform, and drawn with the latent vectors.
        share = torch.exp(-0.5 * noise[:, :2].square().sum(1))[:, None, None, None]
        between = (fake + (real - fake) * share).requires_grad_()
        (slopes,) = torch.autograd.grad(self.scores(between).sum(), between, create_graph=True)
        penalty = (slopes.flatten(1).norm(2, 1) - 1).square().mean()
        return PENALTY * penalty - (self.scores(real).mean() - self.scores(fake).mean())

    def generator_loss(self, images, noise):
        noise = torch.randn(len(images), LATENT) if noise is None else noise
        return -self.scores(self.fakes(noise)).mean()

    def made(self, count):
        """New images from 0 to 1."""
        return self.fakes(torch.randn(count, LATENT))


class WganGpConv(WganGp):
    LR, BETAS, EPOCHS = 1e-4, (0.0, 0.9), 50

    def __init__(self, side=28, channels=1):
        super().__init__()
        self.generator = nn.Sequential(*generator(side, channels, LATENT))
        self.critic = nn.Sequential(*judge(side, channels, norms=False))

    def drawn(self, noise):
        return self.generator(noise[:, :, None, None])


class WganGpDense(WganGp):
    LR, BETAS, EPOCHS = 2e-4, (0.5, 0.9), 100

    def __init__(self, side=28, channels=1):
        super().__init__()
        self.image, pixels = (channels, side, side), channels * side * side
        self.generator = nn.Sequential(
            nn.Linear(LATENT, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, pixels)
        )
        self.critic = nn.Sequential(
            nn.Linear(pixels, 256), nn.LeakyReLU(0.2), nn.Linear(256, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1, bias=False)
        )

    def scores(self, images):
        return self.critic(images.flatten(1))

    def drawn(self, noise):
        return self.generator(noise).unflatten(1, self.image)


NETS = {"wgan-gp": WganGpDense, "wgan-gp-conv": WganGpConv}

if __name__ == "__main__":
    arguments = parser(__doc__, epochs=None, batch=64)
    arguments.add_argument("net", choices=NETS)
    args = arguments.parse_args()
    args.epochs = args.epochs or NETS[args.net].EPOCHS
    fit(NETS[args.net], args)
