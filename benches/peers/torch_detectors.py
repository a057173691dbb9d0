"""Kiln's detectors in PyTorch: YOLOv8 as ultralytics has it, under its names, and torchvision's Faster R-CNN in the size of `faster-rcnn-small`.

Both take images `[3, H, W]` from 0 to 1, a list or a batch of one size, and a list of targets, `{"boxes": [G, 4], "labels": [G]}` with corners in
pixels and classes from 0: `loss(images, targets)` is the loss that is trained on, `detect(images)` a list of `{"boxes", "scores", "labels"}`. After
`normalised()` images are taken as they are, and `compiled()` has `torch.compile` compile what it can.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.ops import MultiScaleRoIAlign, batched_nms, clip_boxes_to_image

STRIDES, BINS, GAINS = (8, 16, 32), 16, (7.5, 0.5, 1.5)
CANDIDATES, ALPHA, BETA = 10, 0.5, 6.0
SCORE, OVERLAP, DETECTIONS = 0.001, 0.7, 300


class Conv(nn.Module):
    def __init__(self, inputs, outputs, kernel=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels, shortcut):
        super().__init__()
        self.cv1, self.cv2, self.shortcut = Conv(channels, channels, 3), Conv(channels, channels, 3), shortcut

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    def __init__(self, inputs, outputs, count=1, shortcut=False):
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, 2 * half), Conv((2 + count) * half, outputs)
        self.m = nn.ModuleList([Bottleneck(half, shortcut) for _ in range(count)])

    def forward(self, x):
        parts = list(self.cv1(x).chunk(2, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Sppf(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.cv1, self.cv2 = Conv(channels, channels // 2), Conv(2 * channels, channels)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(torch.cat(parts, 1))


class Detect(nn.Module):
    def __init__(self, classes, inputs):
        super().__init__()
        box, own = max(16, inputs[0] // 4, 4 * BINS), max(inputs[0], min(classes, 100))
        branch = lambda x, width, outputs: nn.Sequential(Conv(x, width, 3), Conv(width, width, 3), nn.Conv2d(width, outputs, 1))
        self.cv2 = nn.ModuleList([branch(x, box, 4 * BINS) for x in inputs])
        self.cv3 = nn.ModuleList([branch(x, own, classes) for x in inputs])
        for sides, logits, stride in zip(self.cv2, self.cv3, STRIDES):
            nn.init.constant_(sides[-1].bias, 1.0)
            nn.init.constant_(logits[-1].bias, math.log(5 / classes / (640 / stride) ** 2))

    def forward(self, levels):
        return [(sides(x), logits(x)) for sides, logits, x in zip(self.cv2, self.cv3, levels)]


def complete_overlap(a, b, eps=1e-7):
    """The complete overlap (CIoU, Zheng et al. 2020) of boxes `[..., 4]`."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = a.unbind(-1), b.unbind(-1)
    aw, ah, bw, bh = ax2 - ax1, ay2 - ay1 + eps, bx2 - bx1, by2 - by1 + eps
    shared = (ax2.minimum(bx2) - ax1.maximum(bx1)).clamp(0) * (ay2.minimum(by2) - ay1.maximum(by1)).clamp(0)
    overlap = shared / (aw * ah + bw * bh - shared + eps)
    diagonal = (ax2.maximum(bx2) - ax1.minimum(bx1)) ** 2 + (ay2.maximum(by2) - ay1.minimum(by1)) ** 2 + eps
    distance = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4
    v = 4 / math.pi**2 * ((bw / bh).atan() - (aw / ah).atan()) ** 2
    with torch.no_grad():
        share = v / (v - overlap + (1 + eps))
    return overlap - (distance / diagonal + v * share)


def batch_of(images):
    return images if isinstance(images, torch.Tensor) else torch.stack(images)


def padded(targets, device):
    """Boxes `[N, M, 4]`, classes `[N, M]` and a mask of those that there are."""
    count = max([len(t["labels"]) for t in targets] + [1])
    boxes, classes = torch.zeros(len(targets), count, 4), torch.zeros(len(targets), count, dtype=torch.long)
    exists = torch.zeros(len(targets), count, dtype=torch.bool)
    for i, t in enumerate(targets):
        n = len(t["labels"])
        boxes[i, :n], classes[i, :n], exists[i, :n] = t["boxes"], t["labels"], True
    return boxes.to(device), classes.to(device), exists.to(device)


@torch.no_grad()
def assigned(scores, boxes, points, corners, classes, exists):
    """The target's corners and the score of each position by the task-aligned assigner (Feng et al. 2021)."""
    middle, half = (corners[..., :2] + corners[..., 2:]) / 2, ((corners[..., 2:] - corners[..., :2]).clamp(STRIDES[1]) / 2)
    inside = (half[:, :, None] - (points - middle[:, :, None]).abs()).amin(-1) > 1e-9
    inside &= exists[..., None]
    overlaps = complete_overlap(corners[:, :, None], boxes[:, None]).clamp(0) * inside
    of_class = scores.transpose(1, 2).gather(1, classes[..., None].expand(-1, -1, scores.shape[1]))
    fit = of_class**ALPHA * overlaps**BETA * inside
    best = fit.topk(CANDIDATES, -1).indices
    chosen = torch.zeros_like(fit).scatter_(-1, best, 1.0) * inside
    largest = F.one_hot(overlaps.argmax(1), corners.shape[1]).transpose(1, 2).to(fit.dtype)
    chosen = torch.where(chosen.sum(1, keepdim=True) > 1, largest, chosen)
    fit = fit * chosen
    most = (overlaps * chosen).amax(-1, keepdim=True)
    weight = (fit * most / (fit.amax(-1, keepdim=True) + 1e-9)).amax(1)
    target = chosen.argmax(1)
    own = F.one_hot(classes.gather(1, target), scores.shape[-1]).to(fit.dtype) * weight[..., None]
    return corners.gather(1, target[..., None].expand(-1, -1, 4)), own


class Yolo(nn.Module):
    """YOLOv8 with this width: a quarter for n, a half for s."""

    def __init__(self, classes=10, width=0.25, depth=0.33):
        super().__init__()
        c1, c2, c3, c4, c5 = (max(math.ceil(c * width / 8), 1) * 8 for c in (64, 128, 256, 512, 1024))
        few, many = max(round(3 * depth), 1), max(round(6 * depth), 1)
        layers = {
            0: Conv(3, c1, 3, 2), 1: Conv(c1, c2, 3, 2), 2: C2f(c2, c2, few, True), 3: Conv(c2, c3, 3, 2), 4: C2f(c3, c3, many, True),
            5: Conv(c3, c4, 3, 2), 6: C2f(c4, c4, many, True), 7: Conv(c4, c5, 3, 2), 8: C2f(c5, c5, few, True), 9: Sppf(c5),
            12: C2f(c5 + c4, c4, few), 15: C2f(c4 + c3, c3, few), 16: Conv(c3, c3, 3, 2), 18: C2f(c3 + c4, c4, few),
            19: Conv(c4, c4, 3, 2), 21: C2f(c4 + c5, c5, few), 22: Detect(classes, (c3, c4, c5)),
        }  # fmt: skip
        self.model = nn.ModuleDict({str(k): layer for k, layer in layers.items()})

    def positions(self, x):
        """Logits of sides `[N, A, 4, BINS]` and of classes `[N, A, C]`, points `[A, 2]` and strides `[A, 1]`."""
        of = lambda n, x: self.model[str(n)](x)
        grown = lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest")
        p3 = of(4, of(3, of(2, of(1, of(0, x)))))
        p4 = of(6, of(5, p3))
        p5 = of(9, of(8, of(7, p4)))
        n4 = of(12, torch.cat([grown(p5), p4], 1))
        n3 = of(15, torch.cat([grown(n4), p3], 1))
        n4 = of(18, torch.cat([of(16, n3), n4], 1))
        n5 = of(21, torch.cat([of(19, n4), p5], 1))
        sides, logits, points, strides = [], [], [], []
        for (side, logit), stride in zip(of(22, [n3, n4, n5]), STRIDES):
            n, _, h, w = side.shape
            sides.append(side.reshape(n, 4, BINS, h * w).permute(0, 3, 1, 2))
            logits.append(logit.flatten(2).transpose(1, 2))
            y, x = torch.meshgrid(torch.arange(h, device=side.device), torch.arange(w, device=side.device), indexing="ij")
            points.append(torch.stack([x, y], -1).reshape(-1, 2) + 0.5)
            strides.append(torch.full((h * w, 1), float(stride), device=side.device))
        return torch.cat(sides, 1).float(), torch.cat(logits, 1).float(), torch.cat(points), torch.cat(strides)

    @staticmethod
    def boxes(sides, points):
        distances = sides.softmax(-1) @ torch.arange(BINS, dtype=sides.dtype, device=sides.device)
        return torch.cat([points - distances[..., :2], points + distances[..., 2:]], -1)

    def loss(self, images, targets):
        return self.loss_of(batch_of(images), *padded(targets, images[0].device))

    def loss_of(self, images, corners, classes, exists):
        """The loss of images `[N, 3, H, W]` with the targets that `padded` makes."""
        sides, logits, points, strides = self.positions(images)
        boxes = self.boxes(sides, points)
        wanted, scores = assigned(logits.detach().sigmoid(), boxes.detach() * strides, points * strides, corners, classes, exists)
        wanted, weights = wanted / strides, scores.sum(-1)
        total = weights.sum().clamp(min=1)
        overlap = ((1 - complete_overlap(boxes, wanted)) * weights).sum()
        distances = torch.cat([points - wanted[..., :2], wanted[..., 2:] - points], -1).clamp(0, BINS - 1.01)
        below = distances.long()
        above, logs = distances - below, sides.log_softmax(-1)
        at = lambda i: -logs.gather(-1, i[..., None])[..., 0]
        shared = ((at(below) * (1 - above) + at(below + 1) * above).mean(-1) * weights).sum()
        entropy = F.binary_cross_entropy_with_logits(logits, scores, reduction="sum")
        return sum(gain * loss for gain, loss in zip(GAINS, (overlap, entropy, shared))) / total * len(images)

    def normalised(self):
        pass

    def compiled(self):
        self.loss_of = torch.compile(self.loss_of, dynamic=False)

    @torch.no_grad()
    def detect(self, images):
        sides, logits, points, strides = self.positions(batch_of(images))
        found = []
        for boxes, scores in zip(self.boxes(sides, points) * strides, logits.sigmoid()):
            scores, labels = scores.max(-1)
            likely = scores > SCORE
            boxes, scores, labels = boxes[likely], scores[likely], labels[likely]
            kept = batched_nms(boxes, scores, labels, OVERLAP)[:DETECTIONS]
            boxes = clip_boxes_to_image(boxes[kept], images[0].shape[1:])
            found.append({"boxes": boxes, "scores": scores[kept], "labels": labels[kept]})
        return found


class SmallFasterRcnn(FasterRCNN):
    """torchvision's Faster R-CNN on a ResNet-18 of a quarter of the width, whose norms are trained."""

    def __init__(self, classes=10, side=160):
        width = 16
        body = ResNet(BasicBlock, [2, 2, 2, 2])
        body.inplanes, body.conv1, body.bn1 = width, nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        for stage in range(4):
            setattr(body, f"layer{stage + 1}", body._make_layer(BasicBlock, width << stage, 2, stride=1 if stage == 0 else 2))
        for module in body.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        levels = {f"layer{i + 1}": str(i) for i in range(4)}
        super().__init__(
            BackboneWithFPN(body, levels, [width << i for i in range(4)], 64),
            min_size=side,
            max_size=side,
            rpn_anchor_generator=AnchorGenerator(((12,), (24,), (48,), (80,), (128,)), ((0.5, 1.0, 2.0),) * 5),
            rpn_pre_nms_top_n_train=500,
            rpn_pre_nms_top_n_test=200,
            rpn_post_nms_top_n_train=200,
            rpn_post_nms_top_n_test=100,
            rpn_batch_size_per_image=128,
            box_batch_size_per_image=64,
            box_roi_pool=MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2, canonical_scale=112),
            box_head=TwoMLPHead(64 * 49, 128),
            box_predictor=FastRCNNPredictor(128, classes + 1),
        )

    def loss(self, images, targets):
        device = images[0].device
        targets = [{"boxes": t["boxes"].to(device), "labels": t["labels"].to(device) + 1} for t in targets]
        return sum(self(images, targets).values())

    def normalised(self):
        self.transform.image_mean, self.transform.image_std = [0.0] * 3, [1.0] * 3

    def compiled(self):
        """The features; proposals are of other numbers in each step."""
        self.backbone = torch.compile(self.backbone, dynamic=False)

    @torch.no_grad()
    def detect(self, images):
        return [found | {"labels": found["labels"] - 1} for found in self(images)]


NETS = {"yolo-n": Yolo, "yolo-s": lambda classes=10: Yolo(classes, 0.5), "faster-rcnn-small": SmallFasterRcnn}
