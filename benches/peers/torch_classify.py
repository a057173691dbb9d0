#!/usr/bin/env python3
"""PyTorch's training of a network of images of `kiln train`, with its recipe for images of 32×32, on the same files.

SGD with momentum 0.9 and weight decay 5e-4, half a cosine from `--lr` down to 0 over all updates; batches of 128, the last of an epoch smaller;
random crops of the image padded by four black pixels, and mirror images; pixels from 0 to 1, normalised by CIFAR-10's means and deviations.
DATA is a folder of CIFAR-10's or CIFAR-100's binary version, or one with labels.csv and a sheet of pictures, whose classes are drawn equally
often, as many samples an epoch as there are. Wide ResNet's momentum is Nesterov's.

Prints one JSON object: for each seed loss, accuracy and balanced accuracy (the mean of the classes' accuracies) on what is held back, after the
last epoch.

    pip install torch torchvision pillow
    python benches/peers/torch_classify.py resnet18 emoji --epochs 5
"""

import argparse
import csv
import json
import math
import pathlib
import re
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_images
import torchvision
from PIL import Image

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
RATES = {"vgg11": 0.05}
"""The learning rates of the recipes that are not 0.1."""


def cifar(folder):
    """Images [N, 3, 32, 32] of bytes and labels, of the files to train on and of those that are held back."""
    ten = (folder / "test_batch.bin").exists()
    names = ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]) if ten else (["train.bin"], ["test.bin"])
    head = 1 if ten else 2

    def part(names):
        records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, head + 3072) for name in names])
        images = torch.from_numpy(records[:, head:].reshape(-1, 3, 32, 32).copy())
        return images, torch.from_numpy(records[:, head - 1].astype(np.int64))

    return part(names[0]), part(names[1]), 10 if ten else 100


def sheet(folder):
    """The same of a sheet of pictures, on white; classes that only one of the parts has are left out."""
    (path,) = folder.glob("*.png")
    rows = list(csv.DictReader(open(folder / "labels.csv", newline="", encoding="utf-8")))
    label = "label" if "label" in rows[0] else "category"
    held_back = [row["split"] != "train" if "split" in row else i % 10 == 9 for i, row in enumerate(rows)]
    kept = {row[label] for row, back in zip(rows, held_back) if back} & {row[label] for row, back in zip(rows, held_back) if not back}
    names = sorted(kept)
    image = Image.open(path).convert("RGBA")
    ground = Image.new("RGBA", image.size, (255, 255, 255, 255))
    pixels = torch.from_numpy(np.asarray(Image.alpha_composite(ground, image).convert("RGB")).copy())
    cell = image.width // (1 + max(int(row["column"]) for row in rows if row[label] in kept))
    number = re.search(r"(\d+)$", path.stem)
    side = int(number[1]) if number else cell
    border = (cell - side) // 2

    def part(back):
        images, labels = [], []
        for row, of_row in zip(rows, held_back):
            if of_row == back and row[label] in kept:
                top, left = int(row["row"]) * cell + border, int(row["column"]) * cell + border
                images.append(pixels[top : top + side, left : left + side].permute(2, 0, 1))
                labels.append(names.index(row[label]))
        return torch.stack(images), torch.tensor(labels)

    return part(False), part(True), len(names)


def normalised(images):
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return (images.float() / 255 - mean) / deviation


def augmented(images):
    """Random crops of the padded images, and mirror images of half of them."""
    padded = F.pad(images, (4, 4, 4, 4))
    out = torch.empty_like(images)
    for i, (top, left, mirrored) in enumerate(zip(*torch.randint(0, 9, (2, len(images))), torch.rand(len(images)) < 0.5)):
        crop = padded[i, :, top : top + 32, left : left + 32]
        out[i] = crop.flip(-1) if mirrored else crop
    return out


def measure(net, images, labels, classes, device):
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(part.to(device)).cpu() for part in normalised(images).split(100)])
    right = (logits.argmax(1) == labels).float()
    balanced = statistics.mean(right[labels == c].mean().item() for c in range(classes) if (labels == c).any())
    return {
        "loss": round(F.cross_entropy(logits, labels).item(), 4),
        "accuracy": round(right.mean().item(), 4),
        "balanced_accuracy": round(balanced, 4),
    }


def train(seed, data, args):
    torch.manual_seed(seed)
    (images, labels), (test_images, test_labels), classes = data
    net = torch_images.net(args.net, classes).to(args.device)
    nesterov = args.net == "wide-resnet-28-10"
    lr = args.lr or RATES.get(args.net, 0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4, nesterov=nesterov)
    updates = args.epochs * math.ceil(len(images) / args.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / updates, 1))))
    weights = (1 / torch.bincount(labels, minlength=classes).clamp(min=1))[labels]
    started = time.perf_counter()
    for epoch in range(args.epochs):
        net.train()
        balanced = torch.multinomial(weights, len(images), replacement=True)
        order = torch.randperm(len(images)) if args.data_is_cifar else balanced
        for batch in order.split(args.batch):
            optimizer.zero_grad()
            samples = normalised(augmented(images[batch])).to(args.device)
            F.cross_entropy(net(samples), labels[batch].to(args.device)).backward()
            optimizer.step()
            schedule.step()
        told = measure(net, test_images, test_labels, classes, args.device)
        print(f"seed {seed} epoch {epoch + 1}: {told}", file=sys.stderr)
    return told | {"seconds": round(time.perf_counter() - started, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=list(torch_images.SMALL))
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, help="the largest learning rate; that of the recipe without")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.data_is_cifar = not (args.data / "labels.csv").exists()
    data = cifar(args.data) if args.data_is_cifar else sheet(args.data)
    results = {seed: train(seed, data, args) for seed in args.seeds}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    print(json.dumps({"net": args.net, "results": results} | versions))


if __name__ == "__main__":
    main()
