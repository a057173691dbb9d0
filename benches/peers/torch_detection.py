#!/usr/bin/env python3
"""PyTorch's training of a detector of `kiln train`, by its recipe for `scenes`, on the same scenes.

The networks are those of `torch_detectors.py`. AdamW, gradients clipped to a norm of 10, a linear warm-up in the first twentieth of the run and
half a cosine down to a tenth of the rate; half of a YOLO's images are mosaics, and all are seen under another light.

Prints one JSON object: for each seed the largest mean average precision of an epoch on the scenes that are held back, over overlaps from 0.5 to
0.95 as COCO has it, that over 0.5 in the same epoch, and the precision after the last.

    python benches/peers/torch_detection.py yolo-n --epochs 2 --threads 1
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import torchvision
from scenes import light, mosaic, scenes
from torch.utils.data import DataLoader
from torch_detectors import NETS
from torch_mnist import DATA
from torchvision.ops import box_iou

RECIPES = {
    "yolo-n": {"epochs": 20, "batch": 16, "lr": 1e-3, "decay": 5e-4, "mosaics": 0.5},
    "faster-rcnn-small": {"epochs": 12, "batch": 8, "lr": 5e-4, "decay": 1e-4, "mosaics": 0.0},
}
RECIPES["yolo-s"] = RECIPES["yolo-n"]
THRESHOLDS = np.arange(10) * 0.05 + 0.5


class Training(torch.utils.data.Dataset):
    """The scenes with random changes."""

    def __init__(self, of, mosaics):
        self.of, self.mosaics = of, mosaics

    def __len__(self):
        return len(self.of)

    def __getitem__(self, index):
        rng = np.random.default_rng(int(torch.randint(1 << 62, ())))
        sample = self.of[index]
        if rng.random() < self.mosaics:
            sample = mosaic(sample, [self.of[i] for i in rng.integers(len(self.of), size=3)], rng)
        return sample_of(light(sample[0], rng), *sample[1:])


def sample_of(image, boxes, labels):
    image = torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1).contiguous()
    return image, {"boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(labels)}


def matched(found, boxes):
    """For each threshold the detections, best first, that find a box of which no better one has been found: `[10, D]`."""
    right = np.zeros((len(THRESHOLDS), len(found)), bool)
    overlaps = box_iou(torch.as_tensor(found), torch.as_tensor(boxes)).numpy() if len(boxes) and len(found) else None
    for row, threshold in zip(right, THRESHOLDS):
        free = np.ones(len(boxes), bool)
        for i in range(len(found)) if overlaps is not None else ():
            at = np.where(free, overlaps[i], -1).argmax()
            if free[at] and overlaps[i, at] >= min(threshold, 1 - 1e-10):
                row[i], free[at] = True, False
    return right


def precisions(found, truth, classes):
    """The mean average precision at each threshold over the classes, of the best 100 detections of a class in an image, as COCO has it."""
    means = []
    for c in range(classes):
        scores, right, objects = [], [], 0
        for (boxes, own_scores, labels), (_, true_boxes, true_labels) in zip(found, truth):
            own = np.flatnonzero(labels == c)
            own = own[np.argsort(-own_scores[own], kind="stable")][:100]
            true = true_boxes[true_labels == c]
            scores.append(own_scores[own])
            right.append(matched(boxes[own], true))
            objects += len(true)
        if objects == 0:
            continue
        order = np.argsort(-np.concatenate(scores), kind="stable")
        right = np.concatenate(right, 1)[:, order]
        hits = right.cumsum(1)
        precision = hits / np.arange(1, right.shape[1] + 1)
        precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
        recalls = np.arange(101) * 0.01
        at = [np.searchsorted(row / objects, recalls) for row in hits]
        means.append([np.append(p, 0.0)[i].mean() for p, i in zip(precision, at)])
    return np.mean(means, 0)


def measured(net, truth, args):
    net.eval()
    found = []
    for at in range(0, len(truth), 20):
        images = [sample_of(*sample)[0].to(args.device) for sample in truth[at : at + 20]]
        found += [tuple(each[k].cpu().numpy() for k in ("boxes", "scores", "labels")) for each in net.detect(images)]
    at = precisions(found, truth, 10)
    return {"map": round(float(at.mean()), 4), "map_50": round(float(at[0]), 4)}


def train(seed, data, recipe, args):
    torch.manual_seed(seed)
    net = NETS[args.net](classes=10).to(args.device)
    if seed == args.seeds[0]:
        print(f"{sum(p.numel() for p in net.parameters())} parameters", file=sys.stderr)
    fused = args.device != "cpu"
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe["lr"], weight_decay=recipe["decay"], fused=fused)
    training, held_back = data
    loader = DataLoader(
        Training(training, recipe["mosaics"]),
        batch_size=recipe["batch"],
        shuffle=True,
        collate_fn=lambda samples: tuple(zip(*samples)),
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    steps = recipe["epochs"] * len(loader)
    up = max(steps // 20, 1)
    rate = lambda step: (step + 1) / up if step < up else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - up) / max(steps - up, 1)))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    best, took, number = {"map": -1.0}, 0.0, 0
    for epoch in range(recipe["epochs"]):
        started = time.perf_counter()
        net.train()
        for images, targets in loader:
            loss = net.loss([image.to(args.device, non_blocking=True) for image in images], targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            schedule.step()
            number += 1
            if number == args.steps:
                break
        took += time.perf_counter() - started
        told = measured(net, held_back, args)
        print(f"seed {seed} epoch {epoch + 1}: loss of a batch {loss.item():.3f}, {told}, {took:.1f} s", file=sys.stderr, flush=True)
        best = {"epoch": epoch + 1} | told if told["map"] > best["map"] else best
        if number == args.steps:
            break
    return best | {"last": told["map"], "seconds": round(took, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=list(RECIPES))
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="folder with the four IDX files")
    parser.add_argument("--epochs", type=int, help="those of the recipe without")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare batches")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    recipe = RECIPES[args.net] | ({"epochs": args.epochs} if args.epochs else {})
    data = scenes(args.data, 0), scenes(args.data, 1)
    results = {seed: train(seed, data, recipe, args) for seed in args.seeds}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    print(json.dumps({"net": args.net, "epochs": recipe["epochs"], "results": results} | versions))


if __name__ == "__main__":
    main()
