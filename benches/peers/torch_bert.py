#!/usr/bin/env python3
"""PyTorch's fine-tuning of the network of `kiln train bert-classifier` on a table of texts: `BertForSequenceClassification` of transformers.

Four layers of four heads, 256 wide, with dropout; the tokens are those of a tokenizer.json, between [CLS] and [SEP], at most 128, padded to
the longest text of a batch rounded up to 16. Weights are N(0, 0.02), or those of a run of `kiln train bert-mini`, whose names are the same.
AdamW, weight decay 0.01, gradients clipped to a norm of 1, a linear warm-up in the first twentieth of the run and half a cosine down to a
tenth of the rate, as kiln does it.

Prints one JSON object: loss and accuracy on the lines that are held back, after the last epoch.

    pip install torch transformers safetensors
    python benches/peers/torch_bert.py movie-reviews.tsv --tokenizer runs/mini/tokenizer.json
    python benches/peers/torch_bert.py movie-reviews.tsv --tokenizer runs/mini/tokenizer.json --weights runs/mini/best.safetensors
"""

import argparse
import contextlib
import json
import math
import sys
import time

import torch
import transformers
from tokenizers import Tokenizer
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

LENGTH = 128


def table(path):
    """The texts to train on and those that are held back, each with its class."""
    lines = open(path, encoding="utf-8").read().splitlines()
    header = lines[0].split("\t")
    train, test = [], []
    for number, line in enumerate(filter(None, lines[1:])):
        row = dict(zip(header, line.split("\t")))
        held_back = row["split"] != "train" if "split" in row else number % 10 == 9
        label = int(float(row["score"]) >= 0) if "score" in row else row["label"]
        (test if held_back else train).append((row["text"], label))
    names = sorted({label for _, label in train + test})
    classes = {name: i for i, name in enumerate(names)}
    return [[(text, classes[label]) for text, label in part] for part in (train, test)], len(names)


def batch_of(rows):
    """Ids, attention mask and labels of rows of ids with a label."""
    length = min(-(-max(len(ids) for ids, _ in rows) // 16) * 16, LENGTH)
    ids = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (length - len(ids)) for ids, _ in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([label for _, label in rows])}


def mini_config(vocabulary, **more):
    """The config of the network of `kiln train bert-mini`."""
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        **more,
    )


def load(model, file):
    """Begins with weights of a file as far as names fit."""
    from safetensors.torch import load_file

    missing, _ = model.load_state_dict(load_file(file), strict=False)
    print(f"from random values: {', '.join(missing)}", file=sys.stderr)


def rates(optimizer, steps):
    """A linear warm-up in the first twentieth of the run and half a cosine down to a tenth of the rate."""
    up = max(steps // 20, 1)

    def rate(step):
        if step < up:
            return (step + 1) / up
        done = (step - up) / max(steps - up, 1)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json")
    parser.add_argument("--weights", help="the weights of a bert-mini, .safetensors; random ones without")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--bf16", action="store_true", help="mixed precision with bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    if args.device != "cpu":
        torch.set_default_device(args.device)
    tokenizer = Tokenizer.from_file(args.tokenizer)
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")

    def encoded(rows):
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text, _ in rows]
        return [([cls] + i[: LENGTH - 2] + [sep], label) for i, (_, label) in zip(ids, rows)]

    (train, test), classes = table(args.table)
    train, test = encoded(train), encoded(test)
    model = BertForSequenceClassification(mini_config(tokenizer.get_vocab_size(), num_labels=classes))
    if args.weights:
        load(model, args.weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    steps = args.epochs * math.ceil(len(train) / args.batch)
    schedule = rates(optimizer, steps)
    cast = (lambda: torch.autocast(args.device, torch.bfloat16)) if args.bf16 else contextlib.nullcontext
    started = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for rows in torch.randperm(len(train), device="cpu").split(args.batch):
            optimizer.zero_grad()
            with cast():
                loss = model(**batch_of([train[i] for i in rows])).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        nats, right = 0.0, 0
        with torch.no_grad(), cast():
            for at in range(0, len(test), 64):
                batch = batch_of(test[at : at + 64])
                out = model(**batch)
                nats += out.loss.item() * len(batch["labels"])
                right += (out.logits.argmax(-1) == batch["labels"]).sum().item()
        told = {"loss": nats / len(test), "accuracy": right / len(test)}
        print(f"epoch {epoch + 1}: {told}", file=sys.stderr)
    seconds = time.perf_counter() - started
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps(told | {"steps": steps, "seconds": seconds} | versions))


if __name__ == "__main__":
    main()
