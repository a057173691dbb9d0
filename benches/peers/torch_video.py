#!/usr/bin/env python3
"""Kiln's networks of clips in PyTorch, by their names in `kiln models`: torchvision's, narrow ones made of its parts, and convolutions with an LSTM.
Parameters have the names that they have in Kiln. As a program it trains a small one with the recipe of `kiln train`, on the same files:

Adam at 2e-3, half a cosine down to 0 over all updates; batches of 16, the last of an epoch smaller; 8 frames of each clip, in training from a random
one on that leaves enough behind it, else the middle ones; pixels from 0 to 1, less 0.4 and divided by 0.25. DATA has `train/` and `test/`, each with
a folder for each class, in which a clip is a folder of PNG frames; the clips that `kiln train` has without --data are written so by

    echo clips FOLDER | cargo run --release -p kiln-benches --bin kiln-nets-bench -- --threads 1

Prints one JSON object: for each seed loss and accuracy on what is held back, after the last epoch.

    pip install torch torchvision pillow
    python benches/peers/torch_video.py r3d-small FOLDER
"""

import argparse
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv2Plus1D, Conv3DSimple, R2Plus1dStem, VideoResNet

FRAMES = 8
MEAN, DEVIATION = 0.4, 0.25


def initialised(net):
    """torchvision's initial weights."""
    for module in net.modules():
        if isinstance(module, nn.Conv3d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.01)
            nn.init.zeros_(module.bias)
    return net


def video_resnet(factored, width=64, classes=400, blocks=(2, 2, 2, 2)):
    """R3D or R(2+1)D; torchvision's own are 64 channels wide."""
    conv, stem = (Conv2Plus1D, R2Plus1dStem) if factored else (Conv3DSimple, BasicStem)
    net = VideoResNet(BasicBlock, [conv] * 4, list(blocks), stem, num_classes=classes)
    if width != 64:
        between = width * 45 // 64
        if factored:
            net.stem[0] = nn.Conv3d(3, between, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False)
            net.stem[1] = nn.BatchNorm3d(between)
            net.stem[3] = nn.Conv3d(between, width, (3, 1, 1), 1, (1, 0, 0), bias=False)
            net.stem[4] = nn.BatchNorm3d(width)
        else:
            net.stem[0] = nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
            net.stem[1] = nn.BatchNorm3d(width)
        net.inplanes = width
        for stage, count in enumerate(blocks):
            layer = net._make_layer(BasicBlock, conv, width << stage, count, stride=1 if stage == 0 else 2)
            setattr(net, f"layer{stage + 1}", layer)
        net.fc = nn.Linear(width << 3, classes)
    return initialised(net)


class ConvLstm(nn.Module):
    """Three convolutions of each frame, a dense layer, and an LSTM whose last state tells the class."""

    def __init__(self, classes=8, channels=(16, 32, 64), grid=4, features=128, hidden=128):
        super().__init__()
        for number, (inputs, outputs) in enumerate(zip((3, *channels), channels), 1):
            setattr(self, f"conv{number}", nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False))
            setattr(self, f"bn{number}", nn.BatchNorm2d(outputs))
        self.pool, self.fc1 = nn.AdaptiveAvgPool2d(grid), nn.Linear(channels[-1] * grid * grid, features)
        self.lstm, self.fc2 = nn.LSTM(features, hidden, batch_first=True), nn.Linear(hidden, classes)

    def forward(self, clips):
        x = clips.transpose(1, 2).flatten(0, 1)
        for conv, bn in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            x = F.relu(bn(conv(x)))
        x = F.relu(self.fc1(self.pool(x).flatten(1)))
        states, _ = self.lstm(x.view(clips.shape[0], clips.shape[2], -1))
        return self.fc2(states[:, -1])


NETS = {
    "r3d-small": lambda classes=8: video_resnet(False, 16, classes),
    "r2plus1d-small": lambda classes=8: video_resnet(True, 16, classes),
    "conv-lstm": ConvLstm,
    "r3d-18": lambda classes=400: torchvision.models.video.r3d_18(num_classes=classes),
    "r2plus1d-18": lambda classes=400: torchvision.models.video.r2plus1d_18(num_classes=classes),
}
SMALL = ("r3d-small", "r2plus1d-small", "conv-lstm")


def read(folder):
    """Clips [N, F, H, W, 3] of bytes and labels."""
    from PIL import Image

    clips, labels = [], []
    for label, of_class in enumerate(sorted(folder.iterdir())):
        for clip in sorted(of_class.iterdir()):
            frames = [np.asarray(Image.open(frame).convert("RGB")) for frame in sorted(clip.iterdir())]
            clips.append(np.stack(frames))
            labels.append(label)
    return torch.from_numpy(np.stack(clips)), torch.tensor(labels)


def inputs(clips, jitter):
    """Frames of each clip as an input [N, 3, T, H, W]."""
    step = clips.shape[1] // FRAMES
    places = clips.shape[1] - step * (FRAMES - 1)
    first = torch.randint(0, places, (len(clips),)) if jitter else torch.full((len(clips),), (places - 1) // 2)
    taken = torch.stack([clip[at : at + step * (FRAMES - 1) + 1 : step] for clip, at in zip(clips, first)])
    return ((taken.float() / 255 - MEAN) / DEVIATION).permute(0, 4, 1, 2, 3)


def measure(net, clips, labels):
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(inputs(part, False)) for part in clips.split(50)])
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    return {"loss": round(F.cross_entropy(logits, labels).item(), 4), "accuracy": round(accuracy, 4)}


def train(seed, data, args):
    torch.manual_seed(seed)
    (clips, labels), held_back = data
    net = NETS[args.net](int(labels.max()) + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    updates = args.epochs * math.ceil(len(clips) / args.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(step / updates, 1))))
    started = time.perf_counter()
    for epoch in range(args.epochs):
        net.train()
        for batch in torch.randperm(len(clips)).split(args.batch):
            optimizer.zero_grad()
            F.cross_entropy(net(inputs(clips[batch], True)), labels[batch]).backward()
            optimizer.step()
            schedule.step()
        told = measure(net, *held_back)
        print(f"seed {seed} epoch {epoch + 1}: {told}", file=sys.stderr)
    return told | {"seconds": round(time.perf_counter() - started, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=SMALL)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = read(args.data / "train"), read(args.data / "test")
    results = {seed: train(seed, data, args) for seed in args.seeds}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    print(json.dumps({"net": args.net, "results": results} | versions))


if __name__ == "__main__":
    main()
