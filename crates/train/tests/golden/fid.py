"""Golden values of the Fréchet distance, by the formula of pytorch-fid.

    pip install numpy scipy
    python fid.py > fid.json

Means far from zero, fewer vectors than features (singular covariances), and equal sets.
"""

import json

import numpy as np
from scipy import linalg

rng = np.random.default_rng(2026)


def distance(a, b):
    mu1, mu2 = a.mean(axis=0), b.mean(axis=0)
    s1, s2 = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = linalg.sqrtm(s1 @ s2)
    return float(((mu1 - mu2) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * np.trace(root.real))


cases = []
for n, m, width, offset in [(40, 30, 5, 0.0), (200, 100, 16, 1000.0), (64, 64, 3, -7.0), (9, 40, 6, 0.5)]:
    mix = rng.normal(size=(width, width))
    a = np.round((rng.normal(size=(n, width)) @ mix + offset) * 64) / 64
    b = np.round((rng.normal(size=(m, width)) * 1.5 + offset + 0.25) * 64) / 64
    cases.append({"a": a.tolist(), "b": b.tolist(), "distance": distance(a, b)})
print(json.dumps(cases))
