"""Networks that tell clips apart at small sizes: weights, inputs, logits and gradients, to be compared with Kiln's. R3D and R(2+1)D are made of
torchvision's own parts by `benches/peers/torch_video.py`, which also has the convolutions with an LSTM.

    pip install torch torchvision
    PYTHONPATH=../../../../benches/peers python videos.py videos.safetensors

The file has the entries that `images.py` describes, with clips channels-first as PyTorch has them. Everything is computed in f64 from weights that
f32 holds.
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch_video import ConvLstm, video_resnet


def randomised(net):
    """Replaces all values that initialisation leaves at 0 or 1, and makes the others large enough to matter."""
    norms = {id(m.weight) for m in net.modules() if isinstance(m, (nn.BatchNorm2d, nn.BatchNorm3d))}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if id(p) in norms else 0.0))
            p.copy_(p.float().double())
    return net


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
    compare("r3d", video_resnet(False, 2, 5, (2, 1, 1, 1)), lambda n: n.stem[0], (5, 14, 10), out)
    compare("r2plus1d", video_resnet(True, 3, 5, (2, 1, 1, 1)), lambda n: n.stem[0], (5, 14, 10), out)
    compare("conv-lstm", ConvLstm(5, (2, 3, 4), 2, 6, 3), lambda n: n.conv1, (4, 12, 10), out)
    save_file({k: v.detach().contiguous().clone() for k, v in out.items()}, sys.argv[1], metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
