"""Networks that tell images apart at small sizes: weights, inputs, logits and gradients, to be compared with Kiln's. ResNet, VGG and
MobileNetV2 are torchvision's own parts; Wide ResNet, which torchvision does not have, is written out here after its paper.

    pip install torch torchvision
    python images.py images.safetensors

The weights of a network lie under its name, as in its own state dictionary. What goes in and comes out lies in the same file as
`NETWORK-…`, channels-first as PyTorch has it: the logits of a step in training, the gradient of the first kernel, and the logits of
evaluation behind that step. Everything is computed in f64 from weights that f32 holds.
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torchvision.models.mobilenetv2 import MobileNetV2
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.models.vgg import VGG, make_layers


def randomised(net):
    """Replaces all values that initialisation leaves at 0 or 1, and makes the others large enough to matter."""
    norms = {id(p) for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in (m.weight,)}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim < 3 else 0.2) + (1.0 if id(p) in norms else 0.0))
            p.copy_(p.float().double())
    return net


def resnet():
    """A narrow ResNet of basic blocks; torchvision's `ResNet` is 64 channels wide."""
    net, width = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5), 2
    net.inplanes = width
    net.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    net.bn1 = nn.BatchNorm2d(width)
    for stage, blocks in enumerate([2, 1, 1, 1]):
        setattr(net, f"layer{stage + 1}", net._make_layer(BasicBlock, width << stage, blocks, stride=1 if stage == 0 else 2))
    net.fc = nn.Linear(width << 3, 5)
    return net


def vgg(norm):
    """A narrow VGG-11 with six hidden outputs."""
    plan = [1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M"]
    net = VGG(make_layers(plan, batch_norm=norm), num_classes=5, dropout=0.0)
    net.classifier[0], net.classifier[3], net.classifier[6] = nn.Linear(8 * 49, 6), nn.Linear(6, 6), nn.Linear(6, 5)
    return net


def mobilenet():
    """Two stages that have all kinds of blocks: without an expansion, with a stride, and with the input added."""
    stages = [[1, 8, 1, 1], [3, 16, 2, 2], [2, 16, 1, 1], [2, 16, 1, 1], [2, 16, 1, 1], [2, 16, 1, 1], [2, 24, 1, 2]]
    net = MobileNetV2(num_classes=5, width_mult=0.5, inverted_residual_setting=stages, dropout=0.0)
    net.features[-1][0] = nn.Conv2d(net.features[-1][0].in_channels, 16, 1, bias=False)
    net.features[-1][1] = nn.BatchNorm2d(16)
    net.classifier[1] = nn.Linear(16, 5)
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
    """A Wide ResNet of depth 16, so of two blocks in each stage, with an eighth of the paper's channels at a factor of 2."""

    def __init__(self):
        super().__init__()
        self.conv1, inputs = nn.Conv2d(3, 2, 3, 1, 1, bias=False), 2
        for stage, outputs in enumerate([4, 8, 16]):
            first = WideBlock(inputs, outputs, 1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, WideBlock(outputs, outputs, 1)))
            inputs = outputs
        self.bn, self.fc = nn.BatchNorm2d(inputs), nn.Linear(inputs, 5)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(F.relu(self.bn(x)).mean((2, 3)))


def compare(name, net, first, size, out):
    """A step in training and the evaluation behind it, and the gradient of the first kernel."""
    net = randomised(net.double())
    x = torch.randn(2, 3, *size).float().double()
    w = torch.randn(2, 5, dtype=torch.float64)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.train()
    y = net(x)
    (dw,) = torch.autograd.grad((y * w).sum(), first(net).weight)
    out.update({f"{name}-x": x.float(), f"{name}-w": w, f"{name}-train": y, f"{name}-first": dw})
    net.eval()
    out[f"{name}-eval"] = net(x)
    out.update({f"{name}.{k}": v.float() if v.is_floating_point() else v for k, v in before.items()})


def main():
    torch.manual_seed(13)
    out = {}
    compare("resnet", resnet(), lambda n: n.conv1, (32, 40), out)
    compare("vgg", vgg(False), lambda n: n.features[0], (32, 64), out)
    compare("vgg-bn", vgg(True), lambda n: n.features[0], (32, 32), out)
    compare("mobilenet", mobilenet(), lambda n: n.features[0][0], (20, 16), out)
    compare("wide-resnet", WideResNet(), lambda n: n.conv1, (8, 8), out)
    save_file({k: v.detach().contiguous().clone() for k, v in out.items()}, sys.argv[1], metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
