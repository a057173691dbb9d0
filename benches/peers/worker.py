"""The half of a bench worker that every peer shares: commands in, JSON lines out, files of tensors.

`cargo xtask bench` starts one process per peer and thread count and speaks with it in lines:

    load KEY SETTING ROW FILE   prepares a row and answers {"losses": [...]}: 20 training steps, or 20 forward passes
    run KEY SECONDS             repeats the work and answers {"count": N, "seconds": S}
    drop KEY                    forgets it
    gemm KEY M K N              prepares a product; answers {}
    once MODEL BATCH            builds a net and trains one step; answers {}
    rss                         answers {"rss": BYTES}, the most memory that the process has had

An error is answered as {"error": "..."}. Everything else a library prints goes to standard error.

A ROW is `net/NAME-bN/train`, `net/NAME-bN/infer` or `net/NAME-bN/generate`, in f32, or the same behind `net-bf16/`, in mixed precision with bf16,
or for texts that are written with all weights in bf16;
`NAME@64` has images of 64×64 in place of its own, `NAME@8x56` clips of 8 frames of 56×56. FILE is a safetensors file with Kiln's initial weights, in Kiln's layout and under Kiln's names, and 20 batches `x` and `y`; for networks that make
images `x` and `noise`, standard normal numbers that stand for all that a step draws; for those that find objects `x` and, of each image, corners
`boxes`, `classes`, and whether there is one, `exists`; for networks of sequences `batch.FIELD` of every field of their batches, which are trained
without dropout.
"""

import json
import os
import struct
import sys
import time

import numpy as np

STEPS = 20
PROMPT, GENERATED = 64, 128
"""Generation goes on with the first tokens of the first batch by the likeliest ones; its "losses" are their largest logits."""
OPTIMIZERS = {
    "lenet": ("sgd", 1e-3),
    "mnist-cnn": ("adam", 1e-3),
    "resnet18": ("sgd", 1e-4),
    "vgg11": ("sgd", 1e-4),
    "resnet50": ("sgd", 1e-8),
    "mobilenet-v2-32": ("sgd", 1e-6),
    "r3d-18": ("sgd", 1e-6),
    "gpt-mini": ("adamw", 3e-4),
    "vae": ("adam", 1e-3),
    "wgan-gp": ("adam", 2e-4),
    "yolo-n": ("adamw", 1e-5),
    "faster-rcnn-small": ("adamw", 1e-5),
}
"""Momentum is 0.9; Adam has PyTorch's defaults, that of wgan-gp betas of 0.5 and 0.9, AdamW a decay of 0.01."""
SHARES = {"stylegan2": 1e-3}
"""Factors of the learning rates of networks that bring their own optimizers, so that rounding differences do not grow."""

TYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "U8": np.uint8}


def read_tensors(path):
    """A safetensors file as a dictionary of arrays."""
    raw = open(path, "rb").read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    out = {}
    for name, about in header.items():
        start, end = (8 + length + at for at in about["data_offsets"])
        out[name] = np.frombuffer(raw[start:end], TYPES[about["dtype"]]).reshape(about["shape"])
    return out


def parse_row(row):
    """`net/resnet18-b32/train` as ("resnet18", 32, True); the side of images, as in `resnet50@64`, shows in the batches."""
    _, net, what = row.split("/")
    name, batch = net.rsplit("-b", 1)
    return name.split("@")[0], int(batch), what == "train"


def is_bf16(row):
    """True for a row in mixed precision with bf16."""
    return row.startswith("net-bf16/")


def is_generation(row):
    """True for a row that writes text."""
    return row.endswith("/generate")


def peak_resident():
    """The most bytes this process had resident, as Linux counts them; None elsewhere."""
    try:
        for line in open("/proc/self/status"):
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None


def repeat(work, seconds):
    """Runs `work` once untimed, then until the time is up. `work` ends when its result is there."""
    work()
    count, start = 0, time.perf_counter()
    while True:
        work()
        count += 1
        took = time.perf_counter() - start
        if took >= seconds:
            return {"count": count, "seconds": took}


def serve(peer):
    """Answers commands with `peer.load`, `peer.gemm` and `peer.once`, which give functions to repeat; `peer.forget` is
    told when none of them is kept."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        out.write(json.dumps(value) + "\n")
        out.flush()

    works = {}
    answer({"peer": peer.name, "settings": peer.settings, "infer": peer.infer_settings})
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if command == "load":
                key, setting, row, path = words
                if is_bf16(row) and not getattr(peer, "bf16", False):
                    raise ValueError("measured in f32 alone")
                if is_generation(row) and not getattr(peer, "generates", False):
                    raise ValueError("not measured")
                losses, works[key] = peer.load(setting, row, read_tensors(path))
                answer({"losses": losses})
            elif command == "gemm":
                key, *sizes = words
                works[key] = peer.gemm(*map(int, sizes))
                answer({})
            elif command == "run":
                answer(repeat(works[words[0]], float(words[1])))
            elif command == "drop":
                works.pop(words[0], None)
                if not works:
                    peer.forget()
                answer({})
            elif command == "once":
                peer.once(words[0], int(words[1]))()
                answer({})
            elif command == "rss":
                answer({"rss": peak_resident()})
            else:
                answer({"error": f"no command {command}"})
        except Exception as e:  # a peer that cannot do a row is left out of it
            answer({"error": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"})
