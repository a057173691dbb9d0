"""Exact match and F1 of answers, by the code of SQuAD's evaluate-v1.1.py.

    python squad.py > squad.json
"""

import json
import random
import re
import string
from collections import Counter

random.seed(5)
WORDS = "The the a an A Eiffel tower, Tower Paris (1889) it's its dark-red é naïve U.S. '' - anthem theatre “the” a–b".split(" ")


def normalize_answer(s):
    def remove_articles(text):
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def f1_score(prediction, ground_truth):
    prediction_tokens = normalize_answer(prediction).split()
    ground_truth_tokens = normalize_answer(ground_truth).split()
    common = Counter(prediction_tokens) & Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


def main():
    draw = lambda most: " ".join(random.choice(WORDS) for _ in range(random.randint(0, most)))
    cases = []
    for _ in range(150):
        prediction = draw(5)
        answers = [draw(5) for _ in range(random.randint(1, 3))]
        if random.random() < 0.3:
            answers[0] = prediction.lower() + " the"
        exact = max(normalize_answer(prediction) == normalize_answer(answer) for answer in answers)
        f1 = max(f1_score(prediction, answer) for answer in answers)
        cases.append({"prediction": prediction, "answers": answers, "exact": float(exact), "f1": float(f1)})
    print(json.dumps(cases))


if __name__ == "__main__":
    main()
