"""torchvision's ResNet-50 and transformers' GPT-2 and BERT at small sizes: weights, inputs, results and gradients, to be compared
with Kiln's.

    pip install torch torchvision transformers
    python published.py published.safetensors

The weights of a network lie under its name, as in its own state dictionary. What goes in and comes out lies in the same file as
`NETWORK-…`, channels-first as PyTorch has it. Everything is computed in f64 from weights that f32 holds.
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models.resnet import Bottleneck, ResNet
from transformers import BertConfig, BertForPreTraining, GPT2Config, GPT2LMHeadModel


def randomised(net):
    """Replaces all values that initialisation leaves at 0 or 1, and makes the others large enough to matter."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.ndim < 3 else 0.2) + (1.0 if "norm" in name.lower() or "bn" in name else 0.0))
            p.copy_(p.float().double())
    return net


def resnet50(out):
    """A narrow ResNet of torchvision's own parts, whose `ResNet` is 64 channels wide; the gradient is that of the first kernel."""
    width = 4
    net = ResNet(Bottleneck, [1, 1, 1, 1], num_classes=5)
    net.inplanes = width
    net.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    net.bn1 = nn.BatchNorm2d(width)
    for stage, blocks in enumerate([2, 1, 1, 1]):
        layer = net._make_layer(Bottleneck, width << stage, blocks, stride=1 if stage == 0 else 2)
        setattr(net, f"layer{stage + 1}", layer)
    net.fc = nn.Linear(4 * (width << 3), 5)
    net = randomised(net.double())
    x = torch.randn(2, 3, 32, 40).double()
    w = torch.randn(2, 5, dtype=torch.float64)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    net.train()
    y = net(x)
    (dw,) = torch.autograd.grad((y * w).sum(), net.conv1.weight)
    out.update({"resnet50-x": x.float(), "resnet50-w": w, "resnet50-train": y, "resnet50-conv1": dw})
    net.eval()
    out["resnet50-eval"] = net(x)
    out.update({f"resnet50.{k}": v for k, v in before.items()})


def language(name, net, logits, table, out):
    """The logits of a network of tokens, and the gradient of its table, which depends on every layer."""
    net = randomised(net.double()).eval()
    y = logits(net)
    w = torch.randn_like(y)
    (dw,) = torch.autograd.grad((y * w).sum(), table(net))
    out.update({f"{name}-w": w, f"{name}-y": y, f"{name}-table": dw})
    out.update({f"{name}.{k}": v.clone() for k, v in net.state_dict().items()})
    return net


def main():
    torch.manual_seed(7)
    out = {}
    resnet50(out)

    config = GPT2Config(vocab_size=13, n_positions=8, n_layer=2, n_head=2, n_embd=6, bos_token_id=0, eos_token_id=0)
    ids = torch.randint(0, 13, (2, 7))
    out["gpt2-ids"] = ids.int()
    language("gpt2", GPT2LMHeadModel(config), lambda n: n(ids).logits, lambda n: n.transformer.wte.weight, out)

    config = BertConfig(
        vocab_size=17, max_position_embeddings=8, num_hidden_layers=2, num_attention_heads=2, hidden_size=6, intermediate_size=10
    )
    ids = torch.randint(0, 17, (2, 6))
    types = torch.randint(0, 2, (2, 6))
    out["bert-ids"], out["bert-types"] = ids.int(), types.int()
    table = lambda n: n.bert.embeddings.word_embeddings.weight
    net = language("bert", BertForPreTraining(config), lambda n: n(ids).prediction_logits, table, out)
    encoded = net.bert(ids, token_type_ids=types)
    out.update({"bert-encoded": encoded.last_hidden_state, "bert-pooled": encoded.pooler_output})

    small = lambda k, v: v.float() if "." in k and v.is_floating_point() else v
    save_file({k: small(k, v.detach()).contiguous().clone() for k, v in out.items()}, sys.argv[1], metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
