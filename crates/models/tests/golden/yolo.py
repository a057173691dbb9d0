"""ultralytics' YOLOv8 with random weights: weights, images, what is found at all positions, losses and a gradient, to be compared with
Kiln's.

    pip install torch ultralytics safetensors
    python yolo.py yolo.safetensors

It is narrow, of a size for a repository, and computed in f64 from weights that f16 holds. Entries without a dot are what goes in and comes
out; images are channels-first, as PyTorch has them.
"""

import sys
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from ultralytics import __version__
from ultralytics.nn.tasks import DetectionModel, yaml_model_load
from ultralytics.utils.loss import v8DetectionLoss


def randomised(net):
    """Weights that keep the size of features."""
    with torch.no_grad():
        for name, p in list(net.named_parameters()) + list(net.named_buffers()):
            if name.endswith(("num_batches_tracked", "dfl.conv.weight")):
                continue
            if ".bn." in name:
                value = {"weight": 1.0, "running_var": 1.0}.get(name.split(".")[-1], 0.0) + 0.2 * torch.rand_like(p)
            elif p.ndim > 1:
                value = torch.randn_like(p) * 1.5 / p[0].numel() ** 0.5
            else:
                value = torch.randn_like(p) * 0.5
            p.copy_(value.half().to(p.dtype))
    return net


def main():
    torch.manual_seed(5)
    config = yaml_model_load("yolov8n.yaml")
    config.update(scales={"n": [0.33, 0.0625, 1024]}, reg_max=6)
    net = randomised(DetectionModel(config, nc=3, verbose=False).double())
    net.args = SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)
    x = torch.rand(2, 3, 64, 96).half().double()
    # Class, middle and size in parts of the image; the image of each.
    boxes = torch.tensor([[0.3, 0.4, 0.3, 0.5], [0.7, 0.6, 0.5, 0.6], [0.5, 0.5, 0.05, 0.1], [0.5, 0.5, 0.8, 0.8]])
    classes, images = torch.tensor([0, 2, 1, 1]), torch.tensor([0, 0, 0, 1])
    batch = {"batch_idx": images.double(), "cls": classes.double(), "bboxes": boxes.double()}
    before = {k: v.clone() for k, v in net.state_dict().items()}
    torch.set_default_dtype(torch.float64)
    net.train()
    losses, _ = v8DetectionLoss(net)(net(x), batch)
    name = "model.0.conv.weight"
    (dw,) = torch.autograd.grad(losses.sum(), dict(net.named_parameters())[name])
    print(losses, dw.abs().max())
    size = torch.tensor([96.0, 64.0, 96.0, 64.0])
    corners = torch.cat([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1) * size
    out = {"x": x, "losses": losses, "gradient": dw, "boxes": corners, "classes": classes.int(), "images": images.int()}
    net.load_state_dict(before)
    net.eval()
    # Middles and sizes in pixels, and scores: [N, 4 + classes, A].
    out["found"] = net(x)[0]
    print(out["found"].shape, out["found"][0, :, :3])
    out.update({f"yolo.{k}": v for k, v in before.items()})
    small = lambda k, v: v.half() if v.is_floating_point() and ("." in k or k == "x") else v
    file = {k: small(k, v.detach()).contiguous().clone() for k, v in out.items()}
    save_file(file, sys.argv[1], metadata={"torch": torch.__version__, "ultralytics": __version__})


if __name__ == "__main__":
    main()
