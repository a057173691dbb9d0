"""Golden values of detection, from pycocotools.

    pip install pycocotools numpy
    python coco.py > coco.json

Random images with crowds, tied scores, images without truths or without detections, classes without truths, annotated areas
that differ from those of the boxes, more detections than count, and boxes of all three sizes. Coordinates are multiples of 1/4,
which f32 holds exactly.
"""

import contextlib
import io
import json

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SIZES = [12, 24, 48, 90, 130, 260]


def box(rng):
    w, h = rng.choice(SIZES) * rng.uniform(0.5, 1.2, 2)
    return [round(4 * v) / 4 for v in (rng.uniform(0, 400), rng.uniform(0, 300), w, h)]


def near(rng, b, spread):
    x, y, w, h = b
    moved = (x + rng.normal() * w * spread, y + rng.normal() * h * spread)
    scaled = (max(w * (1 + rng.normal() * spread), 0.5), max(h * (1 + rng.normal() * spread), 0.5))
    return [round(4 * v) / 4 for v in moved + scaled]


def images(seed, count, classes, truths, most, crowd, ties):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        gts, dts = [], []
        for _ in range(rng.integers(0, truths + 1)):
            b = box(rng)
            annotated = rng.random() < 0.5
            area = round(b[2] * b[3] * rng.uniform(0.3, 1)) if annotated else None
            gts.append(dict(box=b, cls=int(rng.integers(0, classes - 1)), crowd=int(rng.random() < crowd), area=area))
        if rng.random() > 0.15:
            for gt in gts:
                for _ in range(rng.integers(0, 3)):
                    other = rng.random() < 0.15
                    cls = int(rng.integers(0, classes)) if other else gt["cls"]
                    dts.append(dict(box=near(rng, gt["box"], rng.choice([0, 0.02, 0.08, 0.2])), cls=cls))
            for _ in range(rng.integers(0, most)):
                dts.append(dict(box=box(rng), cls=int(rng.integers(0, classes))))
        for dt in dts:
            dt["score"] = int(rng.integers(0, 8)) / 8 if ties else float(np.float32(rng.random()))
        order = rng.permutation(len(dts))
        made.append(dict(truths=gts, detections=[dts[i] for i in order]))
    return made


def crowded(seed):
    """One image with more than a hundred detections of one class, and a crowd that many of them lie in."""
    rng = np.random.default_rng(seed)
    gts = [dict(box=[10.0, 10.0, 300.0, 200.0], cls=0, crowd=1, area=None)]
    gts += [dict(box=box(rng), cls=0, crowd=0, area=None) for _ in range(10)]
    dts = [dict(box=near(rng, gts[i % 11]["box"], 0.1), cls=0, score=int(rng.integers(0, 16)) / 16) for i in range(130)]
    return [dict(truths=gts, detections=dts)]


def evaluate(made):
    annotations, results = [], []
    for image, content in enumerate(made, 1):
        for gt in content["truths"]:
            b = gt["box"]
            area = b[2] * b[3] if gt["area"] is None else gt["area"]
            annotations.append(
                dict(
                    id=len(annotations) + 1, image_id=image, category_id=gt["cls"], bbox=b, area=area, iscrowd=gt["crowd"]
                )
            )
        results += [
            dict(image_id=image, category_id=dt["cls"], bbox=dt["box"], score=dt["score"]) for dt in content["detections"]
        ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = dict(
            info={},
            images=[dict(id=i + 1) for i in range(len(made))],
            annotations=annotations,
            categories=[dict(id=i) for i in range(8)],
        )
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    by_class = [p[p > -1].mean() if (p > -1).any() else -1 for p in np.moveaxis(precision, 2, 0)]
    return evaluation.stats.tolist(), [float(p) for p in by_class]


def case(made):
    stats, by_class = evaluate(made)
    packed = [
        dict(
            truths=[[*gt["box"], gt["cls"], gt["crowd"], gt["area"]] for gt in content["truths"]],
            detections=[[*dt["box"], dt["cls"], dt["score"]] for dt in content["detections"]],
        )
        for content in made
    ]
    return dict(images=packed, stats=stats, classes=by_class)


golden = dict(
    detection=[
        case(images(1, 40, 5, 6, 6, 0.15, True)),
        case(images(2, 30, 3, 10, 3, 0.05, False)),
        case(images(3, 12, 7, 3, 10, 0.3, True)),
        case(images(4, 25, 4, 8, 2, 0.0, True)),
        case(crowded(5)),
        case(images(6, 3, 2, 1, 2, 0.9, True)),
    ]
)
print(json.dumps(golden, separators=(",", ":")))
