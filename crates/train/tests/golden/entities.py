"""Entities of tagged sentences and their scores, from seqeval.

    pip install seqeval
    python entities.py > entities.json
"""

import json
import random

from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

random.seed(7)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER", "I-geo-x"]


def main():
    cases = []
    for tags in (TAGS[:5], TAGS, TAGS[:1] + TAGS[2:3]):
        expected = [[random.choice(tags) for _ in range(random.randint(1, 12))] for _ in range(30)]
        predicted = [[tag if random.random() < 0.7 else random.choice(tags) for tag in row] for row in expected]
        cases.append(
            {
                "tags": tags,
                "expected": expected,
                "predicted": predicted,
                "entities": [[[kind, first, last + 1] for kind, first, last in get_entities(row)] for row in expected],
                "f1": f1_score(expected, predicted),
                "precision": precision_score(expected, predicted),
                "recall": recall_score(expected, predicted),
                "accuracy": accuracy_score(expected, predicted),
            }
        )
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
