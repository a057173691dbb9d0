#!/usr/bin/env python3
"""StyleGAN2 as `kiln train stylegan2` has it: the layers of stylegan2-ada-pytorch without its CUDA extensions, under its names, and the
losses of a step, each of which is followed by Adam. `torch_nets.py` times it; as a program it trains on the same IDX files by the same recipe.

    python benches/peers/torch_stylegan2.py --epochs 1 --steps 100
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch_gan import fit, parser

LATENT, STYLE, BASE, MOST = 128, 128, 1024, 128
GAMMA, LAZY_R1, LAZY_PATH = 10.0, 16, 4
LR, EMA = 2.5e-3, 0.998


def resample_filter():
    row = torch.tensor([1.0, 3.0, 3.0, 1.0])
    return row.outer(row) / 64


def upfirdn2d(x, f, up=1, down=1, pad=(0, 0), gain=1.0):
    """Zeros between pixels, zeros around the image (the same for rows and columns), a filter, each `down`-th pixel."""
    n, c, h, w = x.shape
    if up > 1:
        x = F.pad(x.reshape(n, c, h, 1, w, 1), [0, up - 1, 0, 0, 0, up - 1]).reshape(n, c, h * up, w * up)
    x = F.pad(x, [pad[0], pad[1], pad[0], pad[1]])
    kernel = (f.flip(0, 1) * gain)[None, None].repeat(c, 1, 1, 1)
    return F.conv2d(x, kernel, groups=c)[:, :, ::down, ::down]


class Linear(nn.Module):
    def __init__(self, inputs, outputs, leaky=False, lr=1.0, bias=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / lr)
        self.bias = nn.Parameter(torch.full((outputs,), bias))
        self.gain, self.lr, self.leaky = lr / math.sqrt(inputs), lr, leaky

    def forward(self, x):
        y = F.linear(x, self.weight * self.gain, self.bias * self.lr)
        return F.leaky_relu(y, 0.2) * math.sqrt(2) if self.leaky else y


class Conv(nn.Module):
    def __init__(self, inputs, outputs, k, halves=False, skip=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, k, k))
        self.bias = None if skip else nn.Parameter(torch.zeros(outputs))
        self.gain, self.k, self.halves = 1 / math.sqrt(inputs * k * k), k, halves
        if halves:
            self.register_buffer("resample_filter", resample_filter())

    def forward(self, x):
        w, gain = self.weight * self.gain, math.sqrt(0.5) if self.halves else 1.0
        if self.halves and self.k == 1:
            y = F.conv2d(upfirdn2d(x, self.resample_filter, down=2, pad=(1, 1)), w)
        elif self.halves:
            y = F.conv2d(upfirdn2d(x, self.resample_filter, pad=(2, 2)), w, stride=2)
        else:
            y = F.conv2d(x, w, padding=self.k // 2)
        if self.bias is None:
            return y * gain
        return F.leaky_relu(y + self.bias[:, None, None], 0.2) * (math.sqrt(2) * gain)


def modulated(x, w, styles, demodulate, f=None):
    x = x * styles[:, :, None, None]
    if f is None:
        x = F.conv2d(x, w, padding=w.shape[2] // 2)
    else:
        x = upfirdn2d(F.conv_transpose2d(x, w.transpose(0, 1), stride=2), f, pad=(1, 1), gain=4)
    if demodulate:
        norms = (w[None] * styles[:, None, :, None, None]).square().sum((2, 3, 4))
        x = x * (norms + 1e-8).rsqrt()[:, :, None, None]
    return x


class Layer(nn.Module):
    def __init__(self, inputs, outputs, side, grows):
        super().__init__()
        self.affine = Linear(STYLE, inputs, bias=1.0)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3))
        self.register_buffer("noise_const", torch.randn(side, side))
        self.noise_strength = nn.Parameter(torch.zeros([]))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.grows = grows
        if grows:
            self.register_buffer("resample_filter", resample_filter())

    def forward(self, x, style, const):
        x = modulated(x, self.weight, self.affine(style), True, self.resample_filter if self.grows else None)
        noise = self.noise_const if const else torch.randn_like(x[:, :1])
        x = x + noise * self.noise_strength + self.bias[:, None, None]
        return F.leaky_relu(x, 0.2) * math.sqrt(2)


class ToRgb(nn.Module):
    def __init__(self, inputs, channels):
        super().__init__()
        self.affine = Linear(STYLE, inputs, bias=1.0)
        self.weight = nn.Parameter(torch.randn(channels, inputs, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.gain = 1 / math.sqrt(inputs)

    def forward(self, x, style):
        return modulated(x, self.weight, self.affine(style) * self.gain, False) + self.bias[:, None, None]


def channels_of(side):
    return min(BASE // side, MOST)


class Block(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        width = channels_of(side)
        if side == 4:
            self.const = nn.Parameter(torch.randn(width, 4, 4))
        else:
            self.conv0 = Layer(channels_of(side // 2), width, side, True)
        self.conv1 = Layer(width, width, side, False)
        self.torgb = ToRgb(width, channels)
        self.register_buffer("resample_filter", resample_filter())

    def forward(self, x, image, styles, const):
        if x is None:
            x = self.const[None].repeat(len(styles), 1, 1, 1)
        else:
            x = self.conv0(x, styles[:, 0], const)
        x = self.conv1(x, styles[:, -2], const)
        made = self.torgb(x, styles[:, -1])
        if image is not None:
            made = made + upfirdn2d(image, self.resample_filter, up=2, pad=(2, 1), gain=4)
        return x, made


class Mapping(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(8):
            setattr(self, f"fc{i}", Linear(LATENT if i == 0 else STYLE, STYLE, leaky=True, lr=0.01))
        self.register_buffer("w_avg", torch.zeros(STYLE))

    def forward(self, z):
        x = z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt()
        for i in range(8):
            x = getattr(self, f"fc{i}")(x)
        if self.training:
            self.w_avg.lerp_(x.detach().mean(0), 0.005)
        return x


class Synthesis(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.sides = [4 << i for i in range(side.bit_length() - 2)]
        for side in self.sides:
            setattr(self, f"b{side}", Block(side, channels))
        self.styles = 2 * len(self.sides)

    def forward(self, styles, const):
        x, image, at = None, None, 0
        for side in self.sides:
            count = 1 if side == 4 else 2
            x, image = getattr(self, f"b{side}")(x, image, styles[:, at : at + count + 1], const)
            at += count
        return image


class Generator(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.mapping, self.synthesis = Mapping(), Synthesis(side, channels)

    def for_all(self, style):
        return style[:, None].repeat(1, self.synthesis.styles, 1)


class Halving(nn.Module):
    def __init__(self, side, channels, first):
        super().__init__()
        width, following = channels_of(side), channels_of(side // 2)
        self.fromrgb = Conv(channels, width, 1) if first else nn.Identity()
        self.conv0, self.conv1 = Conv(width, width, 3), Conv(width, following, 3, halves=True)
        self.skip = Conv(width, following, 1, halves=True, skip=True)

    def forward(self, x):
        x = self.fromrgb(x)
        return self.skip(x) + self.conv1(self.conv0(x))


class Epilogue(nn.Module):
    def __init__(self):
        super().__init__()
        width = channels_of(4)
        self.conv = Conv(width + 1, width, 3)
        self.fc, self.out = Linear(16 * width, width, leaky=True), Linear(width, 1)

    def forward(self, x):
        n, c, h, w = x.shape
        group = next(g for g in (4, 3, 2, 1) if n % g == 0)
        y = x.reshape(group, -1, c, h, w)
        y = ((y - y.mean(0)).square().mean(0) + 1e-8).sqrt().mean((1, 2, 3))
        x = torch.cat([x, y.repeat(group)[:, None, None, None].expand(n, 1, h, w)], 1)
        return self.out(self.fc(self.conv(x).flatten(1)))


class Discriminator(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.sides = [s for s in (4 << i for i in range(side.bit_length() - 2)) if s > 4][::-1]
        for s in self.sides:
            setattr(self, f"b{s}", Halving(s, channels, s == side))
        self.b4 = Epilogue()

    def forward(self, x):
        for side in self.sides:
            x = getattr(self, f"b{side}")(x)
        return self.b4(x)


class StyleGan2(nn.Module):
    """The network for images `[N, C, H, W]` from −1 to 1, with the losses of a step: each takes images, and latent vectors or nothing."""

    latent = LATENT

    def __init__(self, side=28, channels=1):
        super().__init__()
        self.image, self.side = side, 1 << (side - 1).bit_length()
        self.generator, self.discriminator = Generator(self.side, channels), Discriminator(self.side, channels)
        self.register_buffer("pl_mean", torch.zeros([]))
        self.phases = [
            ("generator", self.generator_loss, 1),
            ("generator", self.path_loss, LAZY_PATH),
            ("discriminator", self.discriminator_loss, 1),
            ("discriminator", self.r1_loss, LAZY_R1),
        ]

    def optimizers(self):
        """Adam for the generator and the discriminator, whose rates and decays are those of lazy penalties."""

        def adam(part, every):
            share = every / (every + 1)
            return torch.optim.Adam(part.parameters(), lr=LR * share, betas=(0.0, 0.99**share))

        return {"generator": adam(self.generator, LAZY_PATH), "discriminator": adam(self.discriminator, LAZY_R1)}

    def real(self, images):
        more = self.side - self.image
        return F.pad(images, [more // 2, more - more // 2] * 2, value=-1.0)

    def styles(self, count, noise):
        g = self.generator
        if noise is not None:
            return g.for_all(g.mapping(noise[:count]))
        both = g.mapping(torch.randn(2 * count, LATENT))
        first, second = g.for_all(both[:count]), g.for_all(both[count:])
        layer = torch.rand(count) * (g.synthesis.styles - 1) + (torch.rand(count) >= 0.9) * g.synthesis.styles
        behind = torch.arange(g.synthesis.styles)[None] > layer[:, None]
        return torch.where(behind[:, :, None], second, first)

    def fakes(self, count, noise):
        return self.generator.synthesis(self.styles(count, noise), noise is not None)

    def generator_loss(self, images, noise):
        return F.softplus(-self.discriminator(self.fakes(len(images), noise))).mean()

    def discriminator_loss(self, images, noise):
        with torch.no_grad():
            fakes = self.fakes(len(images), noise)
        return F.softplus(self.discriminator(fakes)).mean() + F.softplus(-self.discriminator(self.real(images))).mean()

    def r1_loss(self, images, _):
        real = self.real(images).detach().requires_grad_()
        logits = self.discriminator(real)
        (slopes,) = torch.autograd.grad(logits.sum(), real, create_graph=True)
        return slopes.square().sum((1, 2, 3)).mean() * (GAMMA / 2 * LAZY_R1) + logits.mean() * 0

    def path_loss(self, images, noise):
        count = (len(images) + 1) // 2
        styles = self.styles(count, noise)
        made = self.generator.synthesis(styles, noise is not None)
        direction = torch.randn_like(made) if noise is None else self.real(images[:count])
        along = (made * direction).sum() / self.side
        (slopes,) = torch.autograd.grad(along, styles, create_graph=True)
        lengths = slopes.square().sum(2).mean(1).sqrt()
        usual = self.pl_mean.lerp(lengths.mean(), 0.01)
        self.pl_mean.copy_(usual.detach())
        return (lengths - usual).square().mean() * (2 * LAZY_PATH) + made.mean() * 0

    def made(self, count):
        """New images from 0 to 1."""
        images = self.fakes(count, torch.randn(count, LATENT))
        before = (self.side - self.image) // 2
        images = images[:, :, before : before + self.image, before : before + self.image]
        return (images / 2 + 0.5).clamp(0, 1)


if __name__ == "__main__":
    fit(StyleGan2, parser(__doc__, epochs=10, batch=16).parse_args(), ema=EMA)
