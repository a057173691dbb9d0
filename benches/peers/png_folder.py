#!/usr/bin/env python3
"""Writes a folder of PNG files in ten classes: smooth shapes with a little noise, which compress about as photographs do.

    python benches/peers/png_folder.py FOLDER COUNT HEIGHT WIDTH
"""

import os
import sys

import numpy as np
from PIL import Image


def picture(rng, h, w):
    y, x = np.mgrid[0:h, 0:w] / max(h, w)
    image = np.zeros((h, w, 3))
    for _ in range(6):
        fx, fy, phase = rng.uniform(-9, 9), rng.uniform(-9, 9), rng.uniform(0, 6.3)
        image += rng.uniform(10, 40, 3) * np.sin(fx * x + fy * y + phase)[..., None]
    for _ in range(4):
        cx, cy, r = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0.05, 0.3)
        image[(x - cx) ** 2 + (y - cy) ** 2 < r * r] += rng.uniform(-80, 80, 3)
    image += 128 + rng.normal(0, 3, (h, w, 1))
    return np.clip(image, 0, 255).astype(np.uint8)


def main():
    folder, count, h, w = sys.argv[1], *map(int, sys.argv[2:5])
    rng = np.random.default_rng(0)
    for i in range(count):
        path = os.path.join(folder, f"class{i % 10}")
        os.makedirs(path, exist_ok=True)
        Image.fromarray(picture(rng, h, w)).save(os.path.join(path, f"{i:05}.png"))


if __name__ == "__main__":
    main()
