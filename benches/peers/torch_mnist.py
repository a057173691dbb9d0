#!/usr/bin/env python3
"""The Keras MNIST net in PyTorch, with exactly the recipe of `kiln train mnist-cnn`, on the same IDX files.

conv 32 3x3 relu, max-pool 2, conv 64 3x3 relu, max-pool 2, conv 64 3x3 relu, flatten, dense 64 relu, dense 10; softmax
cross-entropy from integer labels; Adam 1e-3; batch 32, shuffled every epoch; 5 epochs; pixels divided by 255.

The default initialisation is Keras's: Glorot uniform weights, zero biases. `--init torch` keeps PyTorch's own. Adam's
epsilon is 1e-7 in Keras and 1e-8 in PyTorch; 1e-8 is used here.

Prints one JSON object: the test accuracy of each seed in per cent, and the mean.

    python benches/peers/torch_mnist.py --threads 2
"""

import argparse
import gzip
import json
import pathlib
import sys
import time

import numpy as np
import torch
from torch import nn

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates" / "data" / "assets" / "mnist"


def read_idx(path):
    """An IDX file of bytes as an array, whatever its rank."""
    raw = gzip.open(path).read()
    if raw[:3] != b"\0\0\x08":
        sys.exit(f"{path}: not an IDX file of bytes")
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def read_split(folder, name):
    """Images as [N, 1, 28, 28] floats in 0..1, and labels."""
    images = torch.from_numpy(read_idx(folder / f"{name}-images-idx3-ubyte.gz").copy())
    labels = torch.from_numpy(read_idx(folder / f"{name}-labels-idx1-ubyte.gz").copy())
    return images.float().div(255).unsqueeze(1), labels.long()


def mnist_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def keras_init(model):
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def train(seed, data, args):
    torch.manual_seed(seed)
    (images, labels), (test_images, test_labels) = data
    model = mnist_cnn()
    if args.init == "keras":
        keras_init(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    started = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for batch in torch.randperm(len(images)).split(args.batch):
            optimizer.zero_grad()
            loss_of(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(test_images)
            accuracy = 100 * (logits.argmax(1) == test_labels).float().mean().item()
            loss = loss_of(logits, test_labels).item()
        print(f"seed {seed} epoch {epoch + 1}: val loss {loss:.4f}, accuracy {accuracy:.2f} %", file=sys.stderr)
    seconds = time.perf_counter() - started
    return round(accuracy, 2), round(args.epochs * len(images) / seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default=DATA, help="folder with the four IDX files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--init", choices=["keras", "torch"], default="keras")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    data = read_split(args.data, "train"), read_split(args.data, "t10k")
    results = [train(seed, data, args) for seed in args.seeds]
    accuracies = [accuracy for accuracy, _ in results]
    report = {
        "peer": f"torch {torch.__version__}",
        "init": args.init,
        "threads": args.threads,
        "seeds": args.seeds,
        "accuracy": accuracies,
        "mean": round(sum(accuracies) / len(accuracies), 2),
        "images_per_second": [speed for _, speed in results],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
