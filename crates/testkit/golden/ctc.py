"""PyTorch's CTC losses and gradients, as golden values for ops/loss/ctc.rs.

Run with PyTorch on a CPU: python ctc.py > ctc.json
"""

import json
import math

import torch
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
cases = []


def array(t):
    # JSON has no names for what is not finite.
    number = lambda v: float(f"{v:.12g}") if math.isfinite(v) else str(v)
    return [number(v) for v in t.detach().flatten().tolist()]


def case(T, N, C, targets, times, lengths, blank=0, reduction="mean", zero_infinity=False):
    """Records the loss and the gradient of Σ w·loss, w = 1, 2, 3, …, for the log-probabilities."""
    # Multiples of 1/16, which half precision holds exactly, and no distribution: the formulas do not ask for one.
    x = -((torch.rand(T, N, C) * 64).round() / 16 + 0.25)
    x.requires_grad_()
    t = torch.tensor(targets, dtype=torch.long)
    y = F.ctc_loss(x, t, torch.tensor(times), torch.tensor(lengths), blank, reduction, zero_infinity)
    weights = torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape)
    (g,) = torch.autograd.grad((y * weights).sum(), [x])
    cases.append({
        "shape": [T, N, C], "targets": t.flatten().tolist(), "targets_shape": list(t.shape), "times": times, "lengths": lengths,
        "blank": blank, "reduction": reduction, "zero_infinity": zero_infinity, "x": array(x), "output": array(y), "grad": array(g),
    })


rows = [[1, 2, 2], [3, 0, 0], [1, 1, 1]]
for reduction in ["mean", "sum", "none"]:
    for zero in [False, True]:
        case(6, 3, 4, rows, [6, 4, 5], [3, 1, 3], reduction=reduction, zero_infinity=zero)
# Labels behind one another.
case(6, 3, 4, [1, 2, 2, 3, 1, 1], [6, 4, 5], [3, 1, 2], reduction="none")
# Another blank, which is beyond the lengths as padding too.
case(5, 2, 3, [[0, 1], [1, 2]], [5, 4], [2, 1], blank=2)
# No labels, and as many steps as labels.
case(4, 3, 3, [[1, 2], [2, 1], [1, 1]], [4, 3, 2], [0, 2, 1], reduction="none")
# Too few steps: equal labels need a blank between them.
for reduction in ["mean", "none"]:
    for zero in [False, True]:
        case(3, 3, 3, [[1, 1, 1], [1, 2, 0], [1, 1, 0]], [3, 3, 2], [3, 2, 2], reduction=reduction, zero_infinity=zero)
# No steps.
case(3, 3, 3, [[1, 2], [1, 2], [1, 2]], [0, 0, 3], [0, 1, 2], reduction="none", zero_infinity=True)
case(3, 2, 3, [[1, 2], [1, 2]], [0, 3], [0, 2], reduction="none")
# More labels than the lanes of a warp.
labels = [(7 * i * i + 3 * i) % 5 + 1 for i in range(80)]
case(70, 2, 6, [labels[:40], labels[40:]], [70, 61], [40, 33], reduction="sum")
print(json.dumps(cases, separators=(",", ":")).replace("},{", "},\n{"))
