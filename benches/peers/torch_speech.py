#!/usr/bin/env python3
"""DeepSpeech 2 in PyTorch, with exactly the network and recipe of `kiln train deepspeech2`, on the same manifest.

Log-mel spectrograms of 40 bins every 10 ms, mean 0 and deviation 1 over an utterance; two convolutions with batch norm and ReLU6-like
clipping at 20, two bidirectional GRUs of 160 whose directions are added, CTC loss. AdamW with a warm-up and half a cosine, gradients
clipped to a norm of 1, batches of 16 utterances of similar length, speed 0.9 to 1.1 and SpecAugment in training. Texts are lower case
and without punctuation. torchaudio is not needed; sound is read by `soundfile`.

Prints one JSON object for each seed: the epoch with the smallest share of wrong letters, its CER and WER, and the seconds.

    python benches/peers/torch_speech.py --data manifest.tsv --threads 1 --epochs 60
"""

import argparse
import json
import math
import pathlib
import random
import time
import unicodedata

import soundfile
import torch
from torch import nn
from torch.nn import functional as F

RATE, WINDOW, HOP, MELS = 16000, 400, 160, 40


def normalise(text):
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    kept = []
    for c in text:
        if c in "'\u2019":
            kept.append("'")
        elif c.isalnum() or unicodedata.combining(c):
            kept.append(c)
        elif c.isspace() or c in "-/\u2010\u2011\u2012\u2013\u2014\u2015":
            kept.append(" ")
    return " ".join("".join(kept).split())


def filters():
    """The filters of `torchaudio.functional.melscale_fbanks` with its defaults."""
    hertz = torch.linspace(0, RATE // 2, WINDOW // 2 + 1)
    top = 2595 * math.log10(1 + RATE / 2 / 700)
    points = 700 * (10 ** (torch.linspace(0, top, MELS + 2) / 2595) - 1)
    gaps = points[1:] - points[:-1]
    slopes = points[None, :] - hertz[:, None]
    return torch.minimum(-slopes[:, :-2] / gaps[:-1], slopes[:, 2:] / gaps[1:]).clamp(min=0)


FILTERS = filters()
HANN = torch.hann_window(WINDOW)


def spectrogram(sound):
    power = torch.stft(sound, WINDOW, HOP, WINDOW, HANN, center=True, return_complex=True).abs() ** 2
    mel = (power.T @ FILTERS).clamp(min=1e-6).log()
    return (mel - mel.mean()) / mel.std(correction=0)


def resample(sound, old, new):
    """`torchaudio.functional.resample` with its defaults."""
    divisor = math.gcd(old, new)
    old, new = old // divisor, new // divisor
    base = min(old, new) * 0.99
    width = math.ceil(6 * old / base)
    at = torch.arange(-width, width + old) / old
    t = ((torch.arange(0, -new, -1) / new)[:, None] + at[None, :]) * base
    t = t.clamp(-6, 6)
    window = torch.cos(t * math.pi / 12) ** 2
    kernel = torch.where(t == 0, 1.0, torch.sin(t * math.pi) / (t * math.pi)) * window * base / old
    padded = F.pad(sound, (width, width + old))
    made = F.conv1d(padded[None, None], kernel[:, None], stride=old)[0].T.reshape(-1)
    return made[: math.ceil(len(sound) * new / old)]


def spec_augment(x):
    for axis, param in [(0, 30), (0, 30), (1, 8), (1, 8)]:
        size = x.shape[axis]
        param = min(param, int(size * 0.2))
        length = random.random() * param
        start = int(random.random() * (size - length))
        x.narrow(axis, start, min(int(length), max(param - 1, 0))).zero_()
    return x


class Gru(nn.Module):
    def __init__(self, inputs, hidden, norm):
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs) if norm else None
        self.gru = nn.GRU(inputs, hidden, bidirectional=True)

    def forward(self, x, lengths):
        if self.norm is not None:
            t, n, c = x.shape
            x = self.norm(x.reshape(t * n, c)).reshape(t, n, c)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], total_length=x.shape[0])
        return y.reshape(*y.shape[:2], 2, -1).sum(2)


class DeepSpeech2(nn.Module):
    def __init__(self, classes, channels=32, hidden=160):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, (11, 21), 2, (5, 10), bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, (7, 7), 2, (3, 3), bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        features = math.ceil(math.ceil(MELS / 2) / 2) * channels
        self.rnns = nn.ModuleList([Gru(features, hidden, False), Gru(hidden, hidden, True)])
        self.norm = nn.BatchNorm1d(hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x, lengths):
        x = x[:, None]
        for conv, norm in [(self.conv1, self.bn1), (self.conv2, self.bn2)]:
            x = norm(conv(x)).clamp(0, 20)
            lengths = (lengths + 1) // 2
            inside = torch.arange(x.shape[2])[None] < lengths[:, None]
            x = x * inside[:, None, :, None].to(x.device)
        n, c, t, f = x.shape
        x = x.permute(2, 0, 1, 3).reshape(t, n, c * f)
        for rnn in self.rnns:
            x = rnn(x, lengths)
        x = self.norm(x.reshape(t * n, -1))
        return self.fc(x).reshape(t, n, -1), lengths


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        diagonal, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            diagonal, row[j + 1] = row[j + 1], min(diagonal + (x != y), row[j] + 1, row[j + 1] + 1)
    return row[-1]


def batch_of(samples):
    samples = [(x, y) for x, y in samples]
    longest = -(-max(len(x) for x, _ in samples) // 16) * 16
    x = torch.stack([F.pad(x, (0, 0, 0, longest - len(x))) for x, _ in samples])
    y = torch.cat([y for _, y in samples])
    lengths = [torch.tensor([len(s[i]) for s in samples]) for i in (0, 1)]
    return x, y, *lengths


def train(seed, data, letters, args):
    torch.manual_seed(seed)
    random.seed(seed)
    model = DeepSpeech2(len(letters) + 1).to(args.device)
    parameters = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * math.ceil(len(data["train"]) / args.batch)
    up = max(steps // 20, 1)

    def rate(step):
        if step < up:
            return (step + 1) / up
        return 0.1 + 0.9 * (1 + math.cos(math.pi * (step - up) / (steps - up))) / 2

    best, step, started = None, 0, time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(data["train"])).tolist()
        batches = []
        for pool in range(0, len(order), 8 * args.batch):
            of = sorted(order[pool : pool + 8 * args.batch], key=lambda i: len(data["train"][i][0]))
            batches += [of[i : i + args.batch] for i in range(0, len(of), args.batch)]
        random.shuffle(batches)
        for chosen in batches:
            samples = []
            for i in chosen:
                sound, labels = data["train"][i]
                factor = random.choice([9, 10, 11])
                if factor != 10:
                    sound = resample(sound, factor, 10)
                samples.append((spec_augment(spectrogram(sound)), labels))
            x, y, lengths, counts = batch_of(samples)
            logits, lengths = model(x.to(args.device), lengths)
            loss = F.ctc_loss(logits.log_softmax(-1), y.to(args.device), lengths, counts, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = args.lr * rate(step)
            optimizer.step()
            step += 1
        seconds = time.perf_counter() - started
        model.eval()
        wrong, total = [0, 0], [0, 0]
        with torch.no_grad():
            for at in range(0, len(data["test"]), args.batch):
                samples = [(spectrogram(s), y) for s, y in data["test"][at : at + args.batch]]
                x, _, lengths, _ = batch_of(samples)
                logits, lengths = model(x.to(args.device), lengths)
                logits = logits.cpu()
                for n, (_, labels) in enumerate(samples):
                    found = torch.unique_consecutive(logits[: lengths[n], n].argmax(-1)).tolist()
                    text = "".join(letters[c - 1] for c in found if c > 0).strip()
                    truth = "".join(letters[c - 1] for c in labels.tolist())
                    for i, (a, b) in enumerate([(truth, text), (truth.split(), text.split())]):
                        wrong[i] += edits(a, b)
                        total[i] += len(a)
        cer, wer = (w / t for w, t in zip(wrong, total))
        print(f"epoch {epoch + 1}  cer {cer:.4f}  wer {wer:.4f}  {seconds:.1f} s", flush=True)
        if best is None or cer < best["cer"]:
            best = {"seed": seed, "epoch": epoch + 1, "cer": cer, "wer": wer}
        if args.seconds and seconds > args.seconds:
            break
    return {**best, "parameters": parameters, "epochs": epoch + 1, "seconds": round(seconds, 1)}


def read(manifest):
    rows = [line.rstrip("\n").split("\t") for line in open(manifest, encoding="utf-8")]
    rows = [dict(zip(rows[0], row)) for row in rows[1:]]
    texts = {split: [normalise(r["text"]) for r in rows if r["split"] == split] for split in ("train", "test")}
    letters = [" "] + sorted(set("".join(texts["train"])) - {" "})
    data = {}
    for split in texts:
        data[split] = []
        for row, text in zip([r for r in rows if r["split"] == split], texts[split]):
            sound, rate = soundfile.read(pathlib.Path(manifest).parent / row["path"], dtype="float32", always_2d=True)
            sound = torch.from_numpy(sound).mean(1)
            sound = sound if rate == RATE else resample(sound, rate, RATE)
            labels = [letters.index(c) + 1 for c in text if c in letters]
            data[split].append((sound, torch.tensor(labels)))
    return data, letters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    parser.add_argument("--seconds", type=float, help="end after the epoch in which so many seconds of training are over")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data, letters = read(args.data)
    for seed in args.seeds:
        print(json.dumps({"torch": torch.__version__, **train(seed, data, letters, args)}))


if __name__ == "__main__":
    main()
