#!/usr/bin/env python3
"""PyTorch's training of the network of `kiln train gpt-mini` on a text, by characters or by the tokens of a tokenizer.json.

Six pre-norm blocks of six heads, 384 wide, sequences of 256 tokens, a head of its own, no dropout; linear weights and embeddings begin
with N(0, 0.02), projections back to the residual stream with that divided by the root of twice the blocks, biases with 0. AdamW, weight
decay 0.01, gradients clipped to a norm of 1, a linear warm-up in the first twentieth of the run and half a cosine down to a tenth of the
rate. The last tenth of the characters is held back and measured in windows, as kiln does it.

Prints one JSON object: the loss on what is held back in nats per token, and bits per character.

    python benches/peers/torch_gpt.py moby-dick.txt.gz --bf16
    python benches/peers/torch_gpt.py moby-dick.txt.gz --tokenizer runs/gpt-mini-0/tokenizer.json --steps 120
"""

import argparse
import contextlib
import gzip
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

CONTEXT, LAYERS, HEADS, WIDTH = 256, 6, 6, 384


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (y.view(n, t, HEADS, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.c_down(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                back = name.endswith(("c_proj.weight", "c_down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if back else 0.02)

    def loss(self, windows):
        ids, target = windows[:, :-1], windows[:, 1:]
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        return F.cross_entropy(self.lm_head(self.ln_f(self.h(x))).flatten(0, 1), target.flatten())


def windows(ids):
    count = (len(ids) - 1) // CONTEXT
    return torch.stack([torch.tensor(ids[i * CONTEXT : (i + 1) * CONTEXT + 1]) for i in range(count)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--tokenizer", help="a tokenizer.json; characters without")
    parser.add_argument("--steps", type=int, help="two epochs without")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="mixed precision with bfloat16")
    parser.add_argument("--device", default="cpu", help="the device of PyTorch, such as cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    if args.device != "cpu":
        torch.set_default_device(args.device)
    opened = gzip.open if args.text.endswith(".gz") else open
    text = opened(args.text, "rt", encoding="utf-8", newline="").read().replace("\r\n", "\n").removeprefix("\ufeff")
    cut = len(text) - len(text) // 10
    if args.tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(args.tokenizer)
        train, test = (tokenizer.encode(part).ids for part in (text[:cut], text[cut:]))
        vocabulary = tokenizer.get_vocab_size()
    else:
        number = {c: i for i, c in enumerate(sorted(set(text)))}
        train, test = ([number[c] for c in part] for part in (text[:cut], text[cut:]))
        vocabulary = len(number)
    characters_per_token = (len(text) - cut) / len(test)
    train, test = windows(train), windows(test)
    args.steps = args.steps or 2 * math.ceil(len(train) / args.batch)
    model = Gpt(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    up = max(args.steps // 20, 1)

    def rate(step):
        if step < up:
            return (step + 1) / up
        done = (step - up) / max(args.steps - up, 1)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    cast = (lambda: torch.autocast(args.device, torch.bfloat16)) if args.bf16 else contextlib.nullcontext
    started, step = time.perf_counter(), 0
    while step < args.steps:
        for batch in torch.randperm(len(train)).split(args.batch)[: args.steps - step]:
            optimizer.zero_grad()
            with cast():
                loss = model.loss(train[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
    seconds = time.perf_counter() - started
    model.eval()
    with torch.no_grad(), cast():
        nats = sum(model.loss(part).item() * len(part) for part in test.split(16)) / len(test)
    told = {"loss": nats, "bits_per_character": nats / characters_per_token / math.log(2)}
    print(json.dumps(told | {"steps": step, "seconds": seconds, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
