"""torchvision's Faster R-CNN with random weights: weights, images, boxes found, losses and a gradient, to be compared with Kiln's.

    pip install torch torchvision safetensors
    python faster_rcnn.py faster_rcnn.safetensors
    python faster_rcnn.py --full full.safetensors

The first is narrow, of a size for a repository, and computed in f64 from weights that f16 holds. With `--full` it is
`fasterrcnn_resnet50_fpn` on an image of 320 by 416 pixels in f32, and without losses: `cargo run -p kiln-models --example faster_rcnn
full.safetensors` compares the two.

Entries without a dot are what goes in and comes out; images are channels-first, as PyTorch has them. All candidates are learned from,
so that nothing is drawn.
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models.detection import FasterRCNN, fasterrcnn_resnet50_fpn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.ops import FrozenBatchNorm2d


def randomised(net):
    """Weights that keep the size of features, classes that differ, and boxes that move by some pixels."""
    with torch.no_grad():
        for name, p in list(net.named_parameters()) + list(net.named_buffers()):
            if name.endswith("num_batches_tracked"):
                continue
            if ".bn" in name or "downsample.1" in name:
                value = {"weight": 1.0, "running_var": 1.0}.get(name.split(".")[-1], 0.0) + 0.1 * torch.rand_like(p)
            elif p.ndim > 1:
                fan = p[0].numel()
                gain = {"cls_logits": 2.0, "rpn.head.bbox_pred": 0.5, "cls_score": 2.0, "box_predictor.bbox_pred": 1.5}
                scale = next((v for k, v in gain.items() if k in name), 1.0)
                value = torch.randn_like(p) * scale / fan**0.5
            else:
                value = torch.randn_like(p) * 0.1
            p.copy_(value.half().to(p.dtype))
    return net


def narrow(bottleneck):
    """A narrow network of torchvision's own parts."""
    width, block = 4, Bottleneck if bottleneck else BasicBlock
    body = ResNet(block, [1, 1, 1, 1], norm_layer=FrozenBatchNorm2d)
    body.inplanes = width
    body.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    body.bn1 = FrozenBatchNorm2d(width)
    for stage in range(4):
        setattr(body, f"layer{stage + 1}", body._make_layer(block, width << stage, 1, stride=1 if stage == 0 else 2))
    layers = {f"layer{i + 1}": str(i) for i in range(4)}
    backbone = BackboneWithFPN(body, layers, [(width << i) * block.expansion for i in range(4)], 8)
    return FasterRCNN(
        backbone,
        num_classes=None,
        min_size=64,
        max_size=96,
        image_mean=[0.0] * 3,
        image_std=[1.0] * 3,
        rpn_anchor_generator=AnchorGenerator(tuple((s,) for s in (8, 16, 24, 32, 64)), ((0.5, 1.0, 2.0),) * 5),
        rpn_pre_nms_top_n_train=100,
        rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_train=60,
        rpn_post_nms_top_n_test=40,
        rpn_batch_size_per_image=1_000_000,
        box_batch_size_per_image=1_000_000,
        box_head=TwoMLPHead(8 * 49, 16),
        box_predictor=FastRCNNPredictor(16, 4),
    )


def targets():
    boxes = [[[4.0, 6.0, 30.0, 40.0], [50.0, 20.0, 90.0, 60.0], [60.0, 5.0, 72.0, 15.0]], [[10.0, 10.0, 50.0, 34.0]]]
    labels = [[1, 3, 2], [2]]
    return [{"boxes": torch.tensor(b).double(), "labels": torch.tensor(l)} for b, l in zip(boxes, labels)]


def main():
    torch.manual_seed(3)
    out = {}
    if sys.argv[1] == "--full":
        net = randomised(fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, min_size=320, max_size=416)).eval()
        net.transform.image_mean, net.transform.image_std = [0.0] * 3, [1.0] * 3
        images = torch.randn(1, 3, 320, 416).half().float()
    else:
        net = randomised(narrow(True).double()).train()
        images = torch.randn(2, 3, 64, 96).half().double()
        for prefix, net in [("bottleneck", net), ("basic", randomised(narrow(False).double()).train())]:
            losses = net(list(images), targets())
            out.update({f"{prefix}-{name}": value for name, value in losses.items()})
            for name in ["backbone.body.conv1.weight", "rpn.head.bbox_pred.weight"]:
                (dw,) = torch.autograd.grad(sum(losses.values()), dict(net.named_parameters())[name], retain_graph=True)
                out[f"{prefix}-d-{name.replace('.', '-')}"] = dw
            out.update(answers(prefix, net, images))
            out.update({f"{prefix}.{k}": v for k, v in net.state_dict().items()})
        for i, target in enumerate(targets()):
            out.update({f"boxes-{i}": target["boxes"], f"labels-{i}": target["labels"].int()})
    if sys.argv[1] == "--full":
        out.update(answers("full", net, images))
        out.update({f"full.{k}": v for k, v in net.state_dict().items()})
    out["x"] = images
    small = lambda k, v: v.half() if v.is_floating_point() and ("." in k or k == "x") else v
    file = {k: small(k, v.detach()).contiguous().clone() for k, v in out.items()}
    save_file(file, sys.argv[-1], metadata={"torch": torch.__version__})


def answers(prefix, net, images):
    net.eval()
    with torch.no_grad():
        found = net(list(images))
    out = {}
    for i, each in enumerate(found):
        print(prefix, i, len(each["scores"]), each["scores"][:3], each["boxes"][:2])
        out.update({f"{prefix}-{i}-{k}": v.int() if k == "labels" else v for k, v in each.items()})
    return out


if __name__ == "__main__":
    main()
