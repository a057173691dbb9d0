"""The step and the training loop that the GANs of this folder share, by the recipes of `kiln train` on the same files: digits in IDX files, or a
sheet of pictures with its labels.csv, which are drawn alike often whatever their classes.

A network has `phases`, a list of (part, loss, every): the loss of real images from −1 to 1 and latent vectors (None to draw them) that is
followed by the optimizer of the part in each `every`-th step; `optimizers()` by part; and `made(count)`, new images from 0 to 1.
"""

import argparse
import copy
import json
import pathlib
import sys
import time

import numpy as np
import torch
from torch_mnist import DATA, read_split


def stepper(model, phases, optimizers):
    """A function that makes an update of each of these phases and returns the sum of their losses."""

    def step(images, noise, number=None):
        total = 0
        for part, loss_of, every in phases:
            if number is not None and number % every:
                continue
            for other in optimizers:
                getattr(model, other).requires_grad_(other == part)
            optimizers[part].zero_grad()
            loss = loss_of(images, noise)
            loss.backward()
            optimizers[part].step()
            total = total + loss.detach()
        return total

    return step


def features(images):
    """The means of 7×7 or 8×8 squares of pixels of images `[N, C, H, W]`."""
    side = images.shape[2]
    squares = 8 if side % 8 == 0 else 7
    return torch.nn.functional.avg_pool2d(images, max(side // squares, 1)).flatten(1).double().cpu().numpy()


def frechet(a, b):
    """The squared Fréchet distance between normal distributions with the means and covariances of these rows."""
    root_of = lambda m: (lambda w, v: (v * np.sqrt(np.maximum(w, 0))) @ v.T)(*np.linalg.eigh(m))
    first, second = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = root_of(first)
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ second @ root), 0)).sum()
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(first) + np.trace(second) - 2 * shared)


def parser(doc, epochs, batch):
    """The arguments of a script."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--data", type=pathlib.Path, default=DATA, help="folder with the four IDX files, or with labels.csv and a sheet")
    made.add_argument("--seeds", type=int, nargs="+", default=[0])
    made.add_argument("--epochs", type=int, default=epochs)
    made.add_argument("--steps", type=int, help="stop after so many steps")
    made.add_argument("--batch", type=int, default=batch)
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument("--save", type=pathlib.Path, help="folder for the weights of each seed's best epoch, which `kiln eval -w` reads")
    made.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    return made


def read(folder):
    """The images `[N, C, H, W]` from 0 to 1 to train on, and those that are held back."""
    if (folder / "labels.csv").exists():
        from torch_classify import sheet

        (images, _), (held_back, _), _ = sheet(folder)
        return images.float() / 255, held_back.float() / 255
    return [read_split(folder, name)[0] for name in ("train", "t10k")]


def train(net, seed, data, args, ema):
    """The smallest Fréchet distance of an epoch, and the images of a second."""
    torch.manual_seed(seed)
    images, held_back = data
    model = net(side=images.shape[2], channels=images.shape[1])
    average = copy.deepcopy(model) if ema else model
    step, best, number, took = stepper(model, model.phases, model.optimizers()), None, 0, 0.0
    for epoch in range(args.epochs):
        started = time.perf_counter()
        model.train()
        for batch in torch.randperm(len(images)).split(args.batch):
            number += 1
            step(images[batch] * 2 - 1, None, number)
            if ema:
                with torch.no_grad():
                    for mean, now in zip(average.state_dict().values(), model.state_dict().values()):
                        mean.copy_(torch.lerp(mean, now, 1 - ema) if mean.is_floating_point() else now)
            if number == args.steps:
                break
        took += time.perf_counter() - started
        average.eval()
        with torch.no_grad():
            found = frechet(features(held_back), features(average.made(len(held_back))))
        print(f"seed {seed} epoch {epoch + 1}: frechet {found:.4f}", file=sys.stderr)
        if best is None or found < best:
            best = found
            if args.save:
                from safetensors.torch import save_file

                args.save.mkdir(parents=True, exist_ok=True)
                save_file(average.state_dict(), args.save / f"seed-{seed}.safetensors")
        if number == args.steps:
            break
    return best, round(number * args.batch / took)


def fit(net, args, ema=None):
    """Trains a network with each of the seeds and prints one JSON object."""
    torch.set_num_threads(args.threads)
    if args.device != "cpu":
        torch.set_default_device(args.device)
    data = [part.to(args.device) for part in read(args.data)]
    results = [train(net, seed, data, args, ema) for seed in args.seeds]
    report = {
        "peer": f"torch {torch.__version__}",
        "threads": args.threads,
        "seeds": args.seeds,
        "frechet": [round(best, 4) for best, _ in results],
        "images_per_second": [speed for _, speed in results],
    }
    print(json.dumps(report))
