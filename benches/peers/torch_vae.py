#!/usr/bin/env python3
"""PyTorch's example of a variational autoencoder, with exactly the recipe of `kiln train vae`, on the same IDX files.

dense 400 relu, dense 20 for means and 20 for logarithms of variances; dense 400 relu, dense 784. The loss is the binary
cross-entropy of the pixels divided by 255, which counts grey as a probability, plus the divergence of the latent vectors from the
standard normal distribution, summed over an image and averaged over the batch. Adam 1e-3; batch 128, shuffled every epoch; 30 epochs.
Weights begin with PyTorch's own initial values. In validation the noise is drawn as in training.

Prints one JSON object: for each seed the smallest validation loss with its parts, in nats per image, and the means.

    python benches/peers/torch_vae.py --threads 2
"""

import argparse
import json
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from torch_mnist import DATA, read_split


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 400)
        self.fc21 = nn.Linear(400, 20)
        self.fc22 = nn.Linear(400, 20)
        self.fc3 = nn.Linear(20, 400)
        self.fc4 = nn.Linear(400, 784)

    def losses(self, images):
        """The two parts of the loss of a batch, in nats per image."""
        pixels = images.flatten(1)
        hidden = F.relu(self.fc1(pixels))
        mean, log_variance = self.fc21(hidden), self.fc22(hidden)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        logits = self.fc4(F.relu(self.fc3(latent)))
        reconstruction = F.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
        kl = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return reconstruction / len(images), kl / len(images)


def train(seed, data, args):
    torch.manual_seed(seed)
    (images, _), (test_images, _) = data
    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = None
    started = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in torch.randperm(len(images)).split(args.batch):
            optimizer.zero_grad()
            reconstruction, kl = model.losses(images[batch])
            (reconstruction + kl).backward()
            optimizer.step()
        with torch.no_grad():
            reconstruction, kl = (part.item() for part in model.losses(test_images))
        found = {"loss": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}
        if best is None or found["loss"] < best["loss"]:
            best = found
        print(f"seed {seed} epoch {epoch + 1}: val {found}", file=sys.stderr)
    seconds = time.perf_counter() - started
    return best, round(args.epochs * len(images) / seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="folder with the four IDX files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    data = read_split(args.data, "train"), read_split(args.data, "t10k")
    results = [train(seed, data, args) for seed in args.seeds]
    names = ["loss", "reconstruction", "kl"]
    report = {
        "peer": f"torch {torch.__version__}",
        "threads": args.threads,
        "seeds": args.seeds,
        "best": [{name: round(best[name], 3) for name in names} for best, _ in results],
        "mean": {name: round(sum(best[name] for best, _ in results) / len(results), 3) for name in names},
        "images_per_second": [speed for _, speed in results],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
