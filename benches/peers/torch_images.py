"""Kiln's networks of images in PyTorch, by their names in `kiln models`: torchvision's, its parts put together for small images, and Wide ResNet
as the paper has it, which torchvision does not. Parameters have the names that they have in Kiln."""

import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.mobilenetv2 import MobileNetV2
from torchvision.models.vgg import make_layers

MOBILE = [[1, 16, 1, 1], [6, 24, 2, 1], [6, 32, 3, 2], [6, 64, 4, 2], [6, 96, 3, 1], [6, 160, 3, 2], [6, 320, 1, 1]]
"""The stages of MobileNetV2 for small images: expansion, channels, blocks and stride."""


def default_init(net):
    """PyTorch's own initial weights, as layers have them when they are made, in place of torchvision's."""
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.reset_parameters()
    return net


def resnet18_small(classes=10):
    net = torchvision.models.resnet18(num_classes=classes)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return default_init(net)


class SmallVgg(nn.Module):
    """VGG-11 with batch norm and one dense layer."""

    def __init__(self, classes=10):
        super().__init__()
        plan = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
        self.features, self.classifier = make_layers(plan, batch_norm=True), nn.Linear(512, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def mobilenet_v2_small(classes=10):
    net = MobileNetV2(num_classes=classes, inverted_residual_setting=MOBILE, dropout=0.0)
    net.features[0][0].stride = (1, 1)
    return net


class WideBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        active = F.relu(self.bn1(x))
        y = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return y + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    def __init__(self, classes=10, depth=28, widen=10):
        super().__init__()
        self.conv1, inputs = nn.Conv2d(3, 16, 3, 1, 1, bias=False), 16
        for stage in range(3):
            outputs, blocks = (16 << stage) * widen, []
            for block in range((depth - 4) // 6):
                blocks.append(WideBlock(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
                inputs = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.bn, self.fc = nn.BatchNorm2d(inputs), nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(F.relu(self.bn(x)).mean((2, 3)))


SMALL = {
    "resnet18": resnet18_small,
    "vgg11": SmallVgg,
    "mobilenet-v2-32": mobilenet_v2_small,
    "wide-resnet-28-10": WideResNet,
}
LARGE = {
    "resnet18-224": "resnet18",
    "vgg11-224": "vgg11",
    "mobilenet-v2": "mobilenet_v2",
} | {f"resnet{depth}": f"resnet{depth}" for depth in (34, 50, 101, 152)}
LARGE |= {f"vgg{depth}": f"vgg{depth}" for depth in (13, 16, 19)}
LARGE |= {f"vgg{depth}-bn": f"vgg{depth}_bn" for depth in (11, 13, 16, 19)}
"""torchvision's functions."""


def net(name, classes=None):
    """The network of this name in Kiln, with so many classes in place of its own."""
    if name in SMALL:
        return SMALL[name](classes or 10)
    return getattr(torchvision.models, LARGE[name])(num_classes=classes or 1000)
