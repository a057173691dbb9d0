"""Golden values of the metrics, from scikit-learn, jiwer, SciPy and NumPy.

    pip install scikit-learn jiwer scipy numpy
    python metrics.py > metrics.json

The inputs have exact values in f32, many of them on coarse grids, so that scores are tied.
"""

import json
import warnings

import jiwer
import numpy as np
from scipy import linalg, special
from sklearn import metrics
from sklearn.preprocessing import label_binarize

warnings.filterwarnings("ignore")
rng = np.random.default_rng(7)


def f32(values):
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def flat(values):
    return np.asarray(values).ravel().tolist()


def confusion(classes, n, present, average="macro"):
    labels, predicted = rng.integers(0, present, n), rng.integers(0, classes, n)
    predicted = np.where(rng.random(n) < 0.5, labels, predicted)
    values = []
    for average in ["binary", "micro", "macro", "weighted"] if classes == 2 else ["micro", "macro", "weighted"]:
        for beta in [0.5, 1.0, 2.0]:
            p, r, f, _ = metrics.precision_recall_fscore_support(
                labels, predicted, beta=beta, average=average, zero_division=0
            )
            values.append(dict(average=average, beta=beta, precision=p, recall=r, f=f))
    return dict(classes=classes, labels=flat(labels), predicted=flat(predicted), values=values)


def binary_scores(n, grid):
    scores, labels = f32(rng.integers(-grid, grid + 1, n) / 8), rng.integers(0, 2, n)
    labels[:2] = [0, 1]
    return dict(
        scores=flat(scores),
        labels=flat(labels),
        auc=metrics.roc_auc_score(labels, scores),
        ap=metrics.average_precision_score(labels, scores),
    )


def class_scores(classes, n, logits):
    labels = rng.integers(0, classes, n)
    labels[:classes] = np.arange(classes)
    if logits:
        scores = f32(rng.normal(size=(n, classes)) * 2)
        p = special.softmax(scores, axis=1)
    else:
        # 16 balls in the classes: probabilities that sum to 1 exactly, with ties.
        scores = p = rng.multinomial(16, np.full(classes, 1 / classes), n) / 16
    if classes == 2:
        auc = metrics.roc_auc_score(labels, p[:, 1])
        ap = metrics.average_precision_score(labels, p[:, 1])
    else:
        auc = metrics.roc_auc_score(labels, p, multi_class="ovr")
        ap = metrics.average_precision_score(label_binarize(labels, classes=range(classes)), p)
    return dict(classes=classes, logits=logits, scores=flat(scores), labels=flat(labels), auc=auc, ap=ap)


def regression(shape, offset, constant=False):
    targets = f32(offset + rng.integers(-64, 65, shape) / 64)
    if constant:
        targets[:] = targets.ravel()[0]
    predictions = f32(targets + rng.integers(-16, 17, shape) / 64)
    columns = (shape[0], -1) if len(shape) > 1 else shape
    targets, predictions = targets.reshape(columns), predictions.reshape(columns)
    return dict(
        shape=list(shape),
        targets=flat(targets),
        predictions=flat(predictions),
        mse=metrics.mean_squared_error(targets, predictions),
        mae=metrics.mean_absolute_error(targets, predictions),
        rmse=np.sqrt(metrics.mean_squared_error(targets, predictions)),
        r2=metrics.r2_score(targets, predictions),
    )


def tokens(n, t, v):
    scores, labels = f32(rng.normal(size=(n, t, v)) * 3), rng.integers(0, v, (n, t))
    labels[rng.random((n, t)) < 0.3] = -100
    labels[0, 0] = 1
    p = special.log_softmax(scores, axis=-1)
    kept = labels != -100
    losses = -np.take_along_axis(p, np.where(kept, labels, 0)[..., None], -1)[..., 0][kept]
    return dict(shape=[n, t, v], scores=flat(scores), labels=flat(labels), value=np.exp(losses.mean()))


WORDS = ["a", "an", "the", "cat", "sat", "mat", "on", "über", "naïve", "日本"]


def sentence(low, high):
    words = [WORDS[i] for i in rng.integers(0, len(WORDS), rng.integers(low, high))]
    text = "".join(w + " " * rng.integers(1, 3) for w in words)
    return " " * rng.integers(0, 2) + text


def texts(n, low, high):
    references, hypotheses = [], []
    for _ in range(n):
        reference = sentence(low, high)
        hypothesis = sentence(low, high) if rng.random() < 0.4 else "".join(
            c for c in reference if rng.random() < 0.9
        )
        references.append(reference)
        hypotheses.append(hypothesis)

    def counts(o, rate):
        return dict(
            substitutions=o.substitutions, insertions=o.insertions, deletions=o.deletions, hits=o.hits, rate=rate
        )

    words = jiwer.process_words(references, hypotheses)
    characters = jiwer.process_characters(references, hypotheses)
    return dict(
        references=references,
        hypotheses=hypotheses,
        words=counts(words, words.wer),
        characters=counts(characters, characters.cer),
    )


def frechet(f, n_real, n_fake):
    real = f32(rng.integers(-64, 65, (n_real, f)) / 32)
    fake = f32(rng.integers(-64, 65, (n_fake, f)) / 64 + 0.25)
    (m1, m2) = (real.mean(0), fake.mean(0))
    (c1, c2) = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (real, fake))
    # The trace of the root of the product is the sum of the singular values of the product of the centred features, which is
    # exact for singular covariances too.
    (a1, a2) = ((real - m1) / np.sqrt(n_real - 1), (fake - m2) / np.sqrt(n_fake - 1))
    root = np.linalg.svd(a1 @ a2.T, compute_uv=False).sum()
    value = ((m1 - m2) ** 2).sum() + np.trace(c1) + np.trace(c2) - 2 * root
    if min(n_real, n_fake) > 2 * f:
        # The formula of pytorch-fid.
        other = ((m1 - m2) ** 2).sum() + np.trace(c1) + np.trace(c2) - 2 * np.trace(linalg.sqrtm(c1 @ c2).real)
        assert abs(other - value) < 1e-9 * value, (other, value)
    return dict(features=f, real=flat(real), fake=flat(fake), value=value)


golden = dict(
    confusions=[
        confusion(2, 60, 2),
        confusion(2, 40, 1),
        confusion(4, 90, 4),
        confusion(5, 50, 3),
        confusion(9, 12, 9),
        confusion(3, 1, 3),
    ],
    binary=[binary_scores(*a) for a in [(80, 8), (200, 3), (50, 64), (2, 1), (9, 0)]],
    classes=[class_scores(*a) for a in [(2, 40, False), (3, 70, False), (5, 60, False), (2, 40, True), (4, 50, True)]],
    regression=[
        regression((60,), 0),
        regression((40, 3), 0.5),
        regression((70,), 100000),
        regression((12, 2, 3), -1),
        regression((20,), 3, constant=True),
    ],
    perplexity=[tokens(3, 5, 11), tokens(6, 2, 4)],
    edits=[texts(*a) for a in [(12, 1, 12), (8, 1, 4), (3, 20, 40), (5, 0, 2)]],
    frechet=[frechet(*a) for a in [(8, 40, 60), (1, 10, 12), (12, 30, 28), (10, 5, 7), (6, 30, 4)]],
)
print(json.dumps(golden, ensure_ascii=False))
