"""The dataset `scenes` of `kiln train yolo-n`: digits in random colours, sizes and places among clutter, drawn by the same Philox from the same
IDX files, and the random changes of its recipes. Images are `[H, W, 3]` of floats from 0 to 255; boxes are corners in pixels."""

import numpy as np
from torch_mnist import read_idx

TRAIN, HELD_BACK, MOST = 2000, 200, 6
STREAM = 0xDA00000A
MASK = 0xFFFFFFFF
F = np.float32


def philox(blocks, step, stream):
    """The words `[N, 4]` of these blocks of seed 0."""
    blocks = np.asarray(blocks, np.uint64)
    c = [blocks & np.uint64(MASK), blocks >> np.uint64(32), np.full_like(blocks, step), np.full_like(blocks, stream)]
    k = [0, 0]
    for turn in range(10):
        if turn:
            k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low = np.uint64(MASK)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & low]
    return np.stack(c, -1).astype(np.uint32)


class Draws:
    """Numbers drawn one after the other for a scene."""

    def __init__(self, part, index):
        self.part, self.first, self.used = part, index << 24, 0
        self.words = philox(np.arange(self.first, self.first + 13), part, STREAM)

    def next(self):
        self.used += 1
        while self.used >= len(self.words):
            more = np.arange(self.first + len(self.words), self.first + len(self.words) + 256)
            self.words = np.concatenate([self.words, philox(more, self.part, STREAM)])
        return self.words[self.used]

    def between(self, low, high):
        return F(low) + (F(high) - F(low)) * (F(self.next()[0] >> 8) * F(1 / 16777216))

    def below(self, bound):
        w = self.next()
        return (((int(w[0]) << 32) | int(w[1])) * bound) >> 64

    def noise(self, count):
        """Bytes of noise, sixteen of a draw."""
        first = self.first + self.used + 1
        blocks = np.arange(first, first + -(-count // 16))
        self.used += len(blocks)
        words = philox(blocks, self.part, STREAM)
        self.words = np.concatenate([self.words[: self.used - len(blocks) + 1], words])[: self.used + 1]
        return words.astype("<u4").view(np.uint8).reshape(-1)[:count]


def hue(tint):
    """A colour by its hue from 0 to 1."""
    distance = np.mod(F(6) * (F(tint) + np.arange(3, dtype=F) / F(3)), F(6)) - F(3)
    return F(255) * np.clip(np.abs(distance) - F(1), F(0), F(1))


def rounded(x):
    return np.floor(x.astype(np.float64) + 0.5).astype(F)


def mapped(box, x, y, side):
    """A box moved and cut at the edges of the image; None if little is left."""
    x1, y1, x2, y2 = x(box[0]), y(box[1]), x(box[2]), y(box[3])
    area = (x2 - x1) * (y2 - y1)
    x1, y1, x2, y2 = (min(max(v, F(0)), F(side)) for v in (x1, y1, x2, y2))
    whole = x2 - x1 >= 1 and y2 - y1 >= 1 and (x2 - x1) * (y2 - y1) >= F(0.1) * area
    return (x1, y1, x2, y2) if whole else None


def covered(of, by):
    """The area that two boxes share, by that of the first."""
    shared = [max(min(of[i + 2], by[i + 2]) - max(of[i], by[i]), F(0)) for i in (0, 1)]
    return shared[0] * shared[1] / ((of[2] - of[0]) * (of[3] - of[1]))


def between_pixels(sprite, y, x):
    """The values of a sprite at rows `y` and columns `x` between its pixels, 0 outside."""
    framed = np.pad(sprite, 1)
    (y0, fy), (x0, fx) = ((np.floor(v).astype(int), v - np.floor(v)) for v in (y, x))

    def at(rows, columns):
        inside = lambda i, size: np.where((i >= 0) & (i < size), i + 1, 0)
        return framed[inside(rows, sprite.shape[0])[:, None], inside(columns, sprite.shape[1])[None]]

    row = lambda rows: at(rows, x0) * (F(1) - fx) + at(rows, x0 + 1) * fx
    return row(y0) * (F(1) - fy)[:, None] + row(y0 + 1) * fy[:, None]


def scene(index, part, sprites, labels, of_class, side):
    """An image, its boxes and their classes."""
    draws = Draws(part, index)
    corners = [[draws.between(0, 160) for _ in range(4)] for _ in range(3)]
    noise = draws.noise(side * side * 3).reshape(side, side, 3)
    y, x = (np.arange(side, dtype=F) / F(side) for _ in range(2))
    y, x = y[:, None], x[None]
    image = np.stack([(a * (F(1) - x) + b * x) * (F(1) - y) + (c * (F(1) - x) + d * x) * y for a, b, c, d in corners], -1)
    image = np.floor(image + noise.astype(F) / F(16))

    def mix(rows, columns, colour, opacity):
        place = image[rows, columns]
        image[rows, columns] = rounded(place + (colour - place) * opacity)

    for _ in range(3 + draws.below(5)):
        kind = draws.below(3)
        if kind == 2:
            h, w = side // 10 + draws.below(side // 5), side // 10 + draws.below(side // 5)
        else:
            h, w = 1 + side // 40, side // 6 + draws.below(side // 3)
        h, w = (w, h) if kind == 1 else (h, w)
        top, left = draws.below(side - h), draws.below(side - w)
        tint, opacity = draws.between(0, 1), draws.between(0.2, 0.7)
        mix(slice(top, top + h), slice(left, left + w), F(0.7) * hue(tint), opacity)
    boxes, classes = [], []
    for _ in range(1 + draws.below(MOST)):
        members = of_class[draws.below(len(of_class))]
        at = members[draws.below(len(members))]
        sprite = sprites[at].astype(F)
        size = F(side) / F(7) * F(2.8) ** draws.between(0, 1)
        tint, scale = draws.between(0, 1), size / F(max(sprite.shape))
        ink = np.argwhere(sprite >= 64)
        if len(ink) == 0:
            continue
        (top, left), (low, right) = ink.min(0), ink.max(0) + 1
        inked = [F(v) * scale for v in (left, top, right, low)]
        for _ in range(8):
            top, left = (draws.between(F(-0.1) * size, F(side) - F(0.9) * size) for _ in range(2))
            box = mapped(inked, lambda v: v + left, lambda v: v + top, side)
            if box is None or any(covered(other, box) >= F(0.35) for other in boxes):
                continue
            steps = F(max(sprite.shape)) / size
            ends = [(first, first + F(length) / steps) for first, length in zip((top, left), sprite.shape)]
            ends = [(int(np.clip(np.floor(a), 0, side)), int(np.clip(np.ceil(b), 0, side))) for a, b in ends]
            rows, columns = (np.arange(a, b) for a, b in ends)
            place = lambda pixels, first: (pixels.astype(F) + F(0.5) - first) * steps - F(0.5)
            opacity = between_pixels(sprite, place(rows, top), place(columns, left))[:, :, None] / F(255)
            mix(slice(*ends[0]), slice(*ends[1]), F(0.6) * hue(tint) + F(0.4) * F(255), opacity)
            boxes.append(box)
            classes.append(int(labels[at]))
            break
    return image.astype(np.uint8), np.array(boxes, F).reshape(-1, 4), np.array(classes, np.int64)


def scenes(folder, part, side=160, count=None):
    """The scenes to train on (part 0) or those that are held back (part 1), of the digits of a folder of IDX files."""
    name = ("train", "t10k")[part]
    sprites, labels = (read_idx(folder / f"{name}-{of}-ubyte.gz") for of in ("images-idx3", "labels-idx1"))
    of_class = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
    count = count or (TRAIN, HELD_BACK)[part]
    return [scene(i, part, sprites, labels, [m for m in of_class if len(m)], side) for i in range(count)]


def light(image, rng, brightness=0.3, tint=0.1):
    """Colours as under another light."""
    change = lambda share: 1 + share * (2 * rng.random() - 1)
    whole = change(brightness)
    factors = np.array([whole * change(tint) for _ in range(3)], F)
    return np.minimum(image * factors, F(255))


def mosaic(sample, others, rng, zooms=(0.5, 1.5)):
    """Four images around a random point, of which a window is seen at a random scale."""
    parts = [sample, *others]
    side = sample[0].shape[0]
    meet = [side * (0.5 + rng.random()) for _ in range(2)]
    zoom = zooms[0] + (zooms[1] - zooms[0]) * rng.random()
    dx, dy = (side / 2 + side * 0.2 * (rng.random() - 0.5) for _ in range(2))
    corners = [(meet[0] - side, meet[1] - side), (meet[0], meet[1] - side), (meet[0] - side, meet[1]), (meet[0], meet[1])]
    middles = np.arange(side) + 0.5
    gx, gy = (middles - dx) / zoom + side, (middles - dy) / zoom + side
    out = np.full_like(sample[0], 114)
    boxes, classes = [], []
    for n, ((image, own, labels), (left, top)) in enumerate(zip(parts, corners)):
        right, low = n % 2 == 1, n // 2 == 1
        columns = np.flatnonzero(((gx >= meet[0]) == right) & (gx >= left) & (gx < left + side))
        rows = np.flatnonzero(((gy >= meet[1]) == low) & (gy >= top) & (gy < top + side))
        sx, sy = (gx[columns] - left).astype(int), (gy[rows] - top).astype(int)
        out[rows[:, None], columns[None]] = image[sy[:, None], sx[None]]
        clip = lambda v, at, above: max(v, at) if above else min(v, at)
        for box, label in zip(own, labels):
            kept = mapped(
                box,
                lambda v: (clip(v + left, meet[0], right) - side) * zoom + dx,
                lambda v: (clip(v + top, meet[1], low) - side) * zoom + dy,
                side,
            )
            whole = (box[2] - box[0]) * (box[3] - box[1]) * zoom * zoom
            if kept and min(kept[2] - kept[0], kept[3] - kept[1]) >= 2:
                if (kept[2] - kept[0]) * (kept[3] - kept[1]) >= 0.1 * whole:
                    boxes.append(kept)
                    classes.append(label)
    return out, np.array(boxes, F).reshape(-1, 4), np.array(classes, np.int64)
