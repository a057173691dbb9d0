#!/usr/bin/env python3
"""PyTorch's training of the network of `kiln train bert-reader` on questions about texts: `BertForQuestionAnswering` of transformers.

The network and the schedule are those of torch_bert.py; windows are `[CLS] question [SEP] part of the text [SEP]` of at most 256 tokens, the
question cut to a third, parts that overlap by a third. Every tenth text of a file is held back. A question's answer is the best span of all
its windows, and none where the smallest score of `[CLS]` is larger, if the file has questions without an answer.

Prints one JSON object: exact match and F1 of the questions that are held back, after the last epoch.

    python benches/peers/torch_squad.py --cloze moby-dick.txt --out cloze.json
    python benches/peers/torch_squad.py cloze.json --tokenizer runs/bert-reader-0/tokenizer.json
"""

import argparse
import collections
import json
import math
import random
import re
import string
import sys
import time

import torch
from torch import nn

LENGTH, LONGEST = 256, 30


def cloze(path, seed):
    """Questions for words that are left out of the sentences of a text, in SQuAD's JSON."""
    draw = random.Random(seed)
    text = " ".join(open(path, encoding="utf-8").read().split())
    sentences = re.findall(r".+?[.?!][\"')”’]*(?:\s|$)", text)
    paragraphs, passage, other = [], [], None
    for sentence in sentences + [""]:
        if sentence and sum(len(s.split()) for s in passage) < 100:
            passage.append(sentence)
            continue
        context, asked, at = "".join(passage).strip(), [], 0
        for part in passage:
            words = part.split()
            long = [m for m in re.finditer(r"\w{4,}", part)]
            if 4 <= len(words) <= 30 and long and len(asked) < 5:
                word = draw.choice(long)
                question = (part[: word.start()] + "what" + part[word.end() :]).strip()
                answers = [{"text": word.group(), "answer_start": at + word.start()}]
                none = other is not None and len(asked) == 4
                question, other = (other, None) if none else (question, other)
                name = f"{len(paragraphs)}-{len(asked)}"
                asked.append({"id": name, "question": question, "answers": [] if none else answers, "is_impossible": none})
            at += len(part)
        if asked:
            paragraphs.append({"context": context, "qas": asked})
            other = asked[0]["question"]
        passage = [sentence]
    return {"version": "2.0", "data": [{"title": path, "paragraphs": paragraphs}]}


def normal(answer):
    """The words of an answer that are compared, as in SQuAD's own script."""
    answer = "".join(c for c in answer.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", answer).split()


def scores(answer, right):
    """Exact match and F1."""
    if not right or not answer:
        return (float(not right and not answer),) * 2
    best = [0.0, 0.0]
    for other in right:
        a, b = normal(answer), normal(other)
        common = sum((collections.Counter(a) & collections.Counter(b)).values())
        f1 = 2 * common / (len(a) + len(b)) if common else 0.0
        best = [max(best[0], float(a == b)), max(best[1], f1)]
    return tuple(best)


def windows(paragraphs, tokenizer):
    """The windows of all questions, and the right answers of each question."""
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    found, right = [], []
    for paragraph in paragraphs:
        text = tokenizer.encode(paragraph["context"], add_special_tokens=False)
        for asked in paragraph["qas"]:
            ids = tokenizer.encode(asked["question"].strip(), add_special_tokens=False).ids[: LENGTH // 3]
            room = LENGTH - len(ids) - 3
            step = max(room - min(LENGTH // 3, room // 2), 1)
            span = None
            for answer in asked["answers"][:1]:
                begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
                first = next(i for i, (_, e) in enumerate(text.offsets) if e > begin)
                span = first, max(i for i, (b, _) in enumerate(text.offsets) if b < end)
            for start in range(0, max(len(text.ids) - room, 0) + step, step):
                part = text.ids[start : start + room]
                before = len(ids) + 2
                inside = span and span[0] >= start and span[1] < start + len(part)
                found.append(
                    {
                        "ids": [cls, *ids, sep, *part, sep],
                        "before": before,
                        "span": [s - start + before for s in span] if inside else [0, 0],
                        "places": text.offsets[start : start + len(part)],
                        "context": paragraph["context"],
                        "question": len(right),
                    }
                )
                if start + room >= len(text.ids):
                    break
            right.append([answer["text"] for answer in asked["answers"]])
    return found, right


def batch_of(rows):
    length = min(-(-max(len(row["ids"]) for row in rows) // 16) * 16, LENGTH)
    pad = lambda values: values + [0] * (length - len(values))
    kinds = lambda row: [int(at >= row["before"]) for at in range(len(row["ids"]))]
    first, last = zip(*[row["span"] for row in rows])
    return {
        "input_ids": torch.tensor([pad(row["ids"]) for row in rows]),
        "token_type_ids": torch.tensor([pad(kinds(row)) for row in rows]),
        "attention_mask": torch.tensor([pad([1] * len(row["ids"])) for row in rows]),
        "start_positions": torch.tensor(first),
        "end_positions": torch.tensor(last),
    }


def measure(model, rows, right):
    """The loss of all windows, exact match and F1 of all questions."""
    best, nats = {}, 0.0
    for at in range(0, len(rows), 32):
        part = rows[at : at + 32]
        out = model(**batch_of(part))
        nats += out.loss.item() * len(part)
        for row, first, last in zip(part, out.start_logits, out.end_logits):
            places, before = row["places"], row["before"]
            text = slice(before, before + len(places))
            spans = first[text, None] + last[None, text]
            near = torch.ones_like(spans).triu().tril(LONGEST - 1) > 0
            score, place = spans.masked_fill(~near, -math.inf).flatten().max(0)
            begin, end = divmod(place.item(), len(places))
            answer = row["context"][places[begin][0] : places[end][1]]
            none = (first[0] + last[0]).item()
            known = best.get(row["question"], (-math.inf, "", math.inf))
            known = max(known, (score.item(), answer, 0.0), key=lambda k: k[0])[:2] + (min(known[2], none),)
            best[row["question"]] = known
    some_none = any(not answers for answers in right)
    told = [scores("" if some_none and n > s else a, right[q]) for q, (s, a, n) in best.items()]
    exact, f1 = zip(*told)
    return {"loss": nats / len(rows), "exact_match": sum(exact) / len(told), "f1": sum(f1) / len(told)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="questions in SQuAD's JSON")
    parser.add_argument("--cloze", help="a text to make questions of, written to --out")
    parser.add_argument("--out", default="cloze.json")
    parser.add_argument("--tokenizer", help="a tokenizer.json")
    parser.add_argument("--weights", help="the weights of a bert-mini, .safetensors; random ones without")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.cloze:
        json.dump(cloze(args.cloze, args.seed), open(args.out, "w", encoding="utf-8"))
        return
    import transformers
    from tokenizers import Tokenizer
    from torch_bert import load, mini_config, rates

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = Tokenizer.from_file(args.tokenizer)
    data = json.load(open(args.file, encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    train, _ = windows([p for i, p in enumerate(paragraphs) if i % 10 != 9], tokenizer)
    test, right = windows(paragraphs[9::10], tokenizer)
    model = transformers.BertForQuestionAnswering(mini_config(tokenizer.get_vocab_size()))
    if args.weights:
        load(model, args.weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    steps = args.epochs * math.ceil(len(train) / args.batch)
    schedule = rates(optimizer, steps)
    started = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for rows in torch.randperm(len(train)).split(args.batch):
            optimizer.zero_grad()
            model(**batch_of([train[i] for i in rows])).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            told = measure(model, test, right)
        print(f"epoch {epoch + 1}: {told}", file=sys.stderr)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps(told | {"windows": len(train), "steps": steps, "seconds": time.perf_counter() - started} | versions))


if __name__ == "__main__":
    main()
