#!/usr/bin/env python3
"""PyTorch's training of the network of `kiln train transformer --data TEXT`, which learns spelling from the lines of a text.

`torch.nn.Transformer` of 3 + 3 post-norm blocks of four heads, 128 wide with 512 hidden elements, dropout 0.1; one embedding of sources,
targets and logits, N(0, 1/sqrt(128)), multiplied by sqrt(128), with sinusoidal positions. Lines in parts of at most 48 characters; each word
of two letters or more has a mistake with probability 0.3, drawn anew in each epoch. Adam (0.9, 0.98, 1e-9), cross-entropy with label
smoothing 0.1, gradients clipped to a norm of 1, a linear warm-up in the first twentieth of the run and half a cosine down to a tenth of the
rate, batches of 64 lines of similar length. The last tenth of the lines is held back, with the same mistakes as kiln's: they are drawn by
the same Philox.

Prints one JSON object: on what is held back the smoothed loss in nats per token, the share of tokens that are the likeliest behind the right
ones, and of what is written greedily the share of lines without a wrong character and the wrong characters (CER), beside the CER of the
sources themselves.

    python benches/peers/torch_seq2seq.py moby-dick.txt.gz --steps 300 --lr 1e-3
"""

import argparse
import gzip
import json
import math
import random
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, HIDDEN, DROPOUT = 128, 4, 3, 512, 0.1
MOST, RATE, MORE = 48, 0.3, 16
SMOOTHING = 0.1
MASK32 = 0xFFFFFFFF


def philox(index, step, stream, seed):
    c = [index & MASK32, index >> 32, step, stream]
    k = [seed & MASK32, seed >> 32]
    for turn in range(10):
        if turn:
            k = [(k[0] + 0x9E3779B9) & MASK32, (k[1] + 0xBB67AE85) & MASK32]
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK32, (a >> 32) ^ c[3] ^ k[1], a & MASK32]
    return c


class Draw:
    """kiln's draws of a sample in an epoch."""

    def __init__(self, seed, epoch, index):
        self.seed, self.epoch, self.index = seed, epoch, index

    def block(self, number):
        return philox((self.index << 20) + number, self.epoch, 0xDB000000, self.seed)

    def uniform(self, number):
        return (self.block(number)[0] >> 8) / 16777216

    def below(self, number, bound):
        w = self.block(number)
        return (((w[0] << 32) | w[1]) * bound) >> 64


def noised(text, draw):
    small = [c for c in text if c.islower()]
    out, at, word = [], 0, 0
    while at < len(text):
        end = at
        while end < len(text) and text[end].isalpha():
            end += 1
        if end - at < 2:
            end = max(end, at + 1)
            out.extend(text[at:end])
            at = end
            continue
        letters = list(text[at:end])
        at = end
        if draw.uniform(4 * word) < RATE:
            of = small or list(text)
            letter = of[draw.below(4 * word + 3, len(of))]
            kind, n = draw.below(4 * word + 1, 4), len(letters)
            if kind == 0:
                letters.pop(draw.below(4 * word + 2, n))
            elif kind == 1:
                letters.insert(draw.below(4 * word + 2, n + 1), letter)
            elif kind == 2:
                letters[draw.below(4 * word + 2, n)] = letter
            else:
                i = draw.below(4 * word + 2, n - 1)
                letters[i], letters[i + 1] = letters[i + 1], letters[i]
        out.extend(letters)
        word += 1
    return "".join(out)


def parts(line):
    rest, found = line.strip(), []
    while rest:
        end = len(rest)
        if end > MOST:
            end = next((i for i in range(MOST, -1, -1) if rest[i].isspace()), MOST)
        found.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return found


class Seq2Seq(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        self.transformer = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, HIDDEN, DROPOUT, batch_first=True)
        self.dropout = nn.Dropout(DROPOUT)
        rates = torch.exp(torch.arange(WIDTH // 2) * (-math.log(10000) / (WIDTH // 2)))
        angles = torch.arange(512)[:, None] * rates
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).reshape(512, WIDTH), persistent=False)

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]])

    def encode(self, source, empty):
        return self.transformer.encoder(self.embed(source), src_key_padding_mask=empty)

    def decode(self, target, memory, empty):
        causal = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        y = self.transformer.decoder(self.embed(target), memory, tgt_mask=causal, memory_key_padding_mask=empty)
        return F.linear(y, self.embedding.weight)

    def following(self, last, seen, memory, empty):
        """The likeliest ids behind `last`; `seen` has the inputs of each block so far, and this one's are added."""
        at = seen[0].shape[1]
        x = self.embedding(last)[:, None] * math.sqrt(WIDTH) + self.positions[at : at + 1]
        for i, block in enumerate(self.transformer.decoder.layers):
            seen[i] = torch.cat([seen[i], x], 1)
            x = block.norm1(x + block.self_attn(x, seen[i], seen[i], need_weights=False)[0])
            y = block.multihead_attn(x, memory, memory, key_padding_mask=empty, need_weights=False)[0]
            x = block.norm2(x + y)
            x = block.norm3(x + block.linear2(F.relu(block.linear1(x))))
        return F.linear(self.transformer.decoder.norm(x[:, 0]), self.embedding.weight).argmax(-1)

    def forward(self, source, empty, target):
        return self.decode(target, self.encode(source, empty), empty)


def padded(rows, value):
    length = -(-max(map(len, rows)) // 16) * 16
    return torch.tensor([row + [value] * (length - len(row)) for row in rows])


def batch(pairs, number):
    begin, end = len(number), len(number) + 1
    sources, targets = ([[number[c] for c in pair[side]] for pair in pairs] for side in (0, 1))
    source = padded(sources, -1)
    labels = padded([ids + [end] for ids in targets], -100)
    return source.clamp(min=0), source < 0, padded([[begin] + ids for ids in targets], 0), labels


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@torch.no_grad()
def measured(model, pairs, number):
    model.eval()
    letters, begin, end = list(number), len(number), len(number) + 1
    loss = accuracy = exact = wrong = of = 0.0
    for start in range(0, len(pairs), 64):
        part = pairs[start : start + 64]
        source, empty, target, labels = batch(part, number)
        memory = model.encode(source, empty)
        logits = model.decode(target, memory, empty)
        loss += F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING).item() * len(part)
        there = labels != -100
        accuracy += (logits.argmax(-1) == labels)[there].float().mean().item() * len(part)
        ids, done = torch.full((len(part), 1), begin), torch.zeros(len(part), dtype=torch.bool)
        seen = [memory[:, :0]] * LAYERS
        while ids.shape[1] <= labels.shape[1] + MORE and not done.all():
            following = model.following(ids[:, -1], seen, memory, empty)
            ids, done = torch.cat([ids, following[:, None]], 1), done | (following == end)
        for row, (_, right) in zip(ids[:, 1:].tolist(), part):
            row = row[: row.index(end)] if end in row else row
            text = "".join(letters[i] if i < begin else "\ufffd" for i in row)
            exact, wrong, of = exact + (text == right), wrong + edits(right, text), of + len(right)
    n = len(pairs)
    told = {"loss": loss / n, "accuracy": accuracy / n, "exact_match": exact / n, "cer": wrong / of}
    return told | {"cer_of_sources": sum(edits(b, a) for a, b in pairs) / of}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    if args.device != "cpu":
        torch.set_default_device(args.device)
    order = random.Random(args.seed)
    opened = gzip.open if args.text.endswith(".gz") else open
    text = opened(args.text, "rt", encoding="utf-8", newline="").read().replace("\r\n", "\n").removeprefix("\ufeff")
    lines = text.removesuffix("\n").split("\n")
    cut = len(lines) - -(-len(lines) // 10)
    train = [part for line in lines[:cut] for part in parts(line)]
    test = [part for line in lines[cut:] for part in parts(line)]
    test = [(noised(part, Draw(0, 0, i)), part) for i, part in enumerate(test)]
    number = {c: i for i, c in enumerate(sorted(set(text.replace("\n", " ").replace("\t", " "))))}
    model = Seq2Seq(len(number) + 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.98), eps=1e-9)
    up = max(args.steps // 20, 1)

    def rate(step):
        if step < up:
            return (step + 1) / up
        done = (step - up) / max(args.steps - up, 1)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    model.train()
    started, step, epoch = time.perf_counter(), 0, 0
    while step < args.steps:
        indices = list(range(len(train)))
        order.shuffle(indices)
        batches = []
        for start in range(0, len(indices), 100 * args.batch):
            pool = sorted(indices[start : start + 100 * args.batch], key=lambda i: len(train[i]))
            batches += [pool[at : at + args.batch] for at in range(0, len(pool), args.batch)]
        order.shuffle(batches)
        for chosen in batches[: args.steps - step]:
            pairs = [(noised(train[i], Draw(args.seed + 1, epoch, i)), train[i]) for i in chosen]
            source, empty, target, labels = batch(pairs, number)
            optimizer.zero_grad()
            logits = model(source, empty, target)
            F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
        epoch += 1
    told = {"steps": step, "seconds": time.perf_counter() - started, "torch": torch.__version__}
    print(json.dumps(measured(model, test, number) | told))


if __name__ == "__main__":
    main()
