#!/usr/bin/env python3
"""PyTorch's DataLoader on a folder of images, as `benches/loader/main.rs` measures Kiln's loader: the same files,
transforms, net, batches and workers, and the same line of JSON.

    python benches/peers/png_folder.py /tmp/png 2000 64 64
    python benches/peers/torch_loader.py /tmp/png 64 --batch 64 --workers 2 --net small
    cargo run --release -p kiln-benches --bin kiln-loader-bench -- /tmp/png 64 --batch 64 --workers 2 --net small
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn
from torchvision import datasets
from torchvision import transforms as T
from torch_images import resnet18_small


class Small(nn.Module):
    """Computes little, so that the loader has to keep up."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).mean((2, 3)))


def main():
    args = argparse.ArgumentParser()
    args.add_argument("folder")
    args.add_argument("size", type=int)
    args.add_argument("--batch", type=int, default=64)
    args.add_argument("--workers", type=int, default=2)
    args.add_argument("--net", choices=["none", "small", "resnet18"], default="small")
    args.add_argument("--crop", type=int, default=0, help="side of the crops [default: the size]")
    args.add_argument("--epochs", type=int, default=3)
    args.add_argument("--threads", type=int, default=2)
    args = args.parse_args()
    torch.set_num_threads(args.threads)
    crop = args.crop or args.size
    stages = [T.Resize((args.size, args.size)), T.RandomCrop(crop, 4), T.RandomHorizontalFlip()]
    stages += [T.ToTensor(), T.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))]
    data = datasets.ImageFolder(args.folder, T.Compose(stages))
    kept = args.workers > 0
    loader = torch.utils.data.DataLoader(
        data, args.batch, shuffle=True, num_workers=args.workers, drop_last=True, persistent_workers=kept
    )
    net = {"none": None, "small": Small, "resnet18": resnet18_small}[args.net]
    net = net and net()
    optimizer = net and torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)
    # The first epoch warms up; how long the start of workers takes counts in every one.
    for epoch in range(args.epochs + 1):
        if epoch == 1:
            start, waited, images = time.perf_counter(), 0.0, 0
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            if epoch:
                waited += time.perf_counter() - asked
            if batch is None:
                break
            x, y = batch
            if net:
                optimizer.zero_grad()
                F.cross_entropy(net(x), y).backward()
                optimizer.step()
            if epoch:
                images += len(y)
    took = time.perf_counter() - start
    line = {"library": f"torch {torch.__version__}", "net": args.net, "images_per_second": round(images / took, 1)}
    print(json.dumps({**line, "waiting": round(waited / took, 4)}))


if __name__ == "__main__":
    main()
