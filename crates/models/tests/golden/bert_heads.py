"""transformers' BERT with its heads for classes, tags and spans at a small size: weights, results and gradients, to be compared with Kiln's.

    pip install torch transformers
    python bert_heads.py bert_heads.safetensors

The weights of a network lie under its name, as in its own state dictionary. Everything is computed in f64 from weights that f32 holds. The
sequences are of several lengths and padded, by an attention mask.
"""

import sys

import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from published import randomised


def main():
    torch.manual_seed(11)
    sizes = dict(vocab_size=17, max_position_embeddings=8, num_hidden_layers=2, num_attention_heads=2, hidden_size=6)
    config = BertConfig(intermediate_size=10, num_labels=3, **sizes)
    # Token 0 is that of the padding, whose row of the table transformers does not train.
    ids, types = torch.randint(1, 17, (3, 8)), torch.randint(0, 2, (3, 8))
    mask = torch.tensor([[1] * n + [0] * (8 - n) for n in (8, 3, 5)])
    tags = torch.randint(0, 3, (3, 8))
    tags[mask == 0] = -100
    tags[:, 0] = -100
    starts, ends = torch.tensor([2, 1, 0]), torch.tensor([7, 1, 4])
    out = {"ids": ids.int(), "types": types.int(), "mask": mask.to(torch.uint8), "tags": tags.int()}
    out |= {"starts": starts.int(), "ends": ends.int()}

    def head(name, net, config, **labels):
        net = randomised(net(config).double()).eval()
        y = net(ids, attention_mask=mask, **labels)
        (dw,) = torch.autograd.grad(y.loss, net.bert.embeddings.word_embeddings.weight)
        out.update({f"{name}-loss": y.loss, f"{name}-table": dw})
        out.update({f"{name}.{k}": v.float() if v.is_floating_point() else v for k, v in net.state_dict().items()})
        return y

    out["classifier-y"] = head("classifier", BertForSequenceClassification, config, labels=torch.tensor([2, 0, 1])).logits
    out["tagger-y"] = head("tagger", BertForTokenClassification, config, labels=tags).logits
    config = BertConfig(intermediate_size=10, num_labels=2, **sizes)
    spans = dict(token_type_ids=types, start_positions=starts, end_positions=ends)
    y = head("reader", BertForQuestionAnswering, config, **spans)
    out["reader-y"] = torch.stack([y.start_logits, y.end_logits], -1)
    metadata = {"torch": torch.__version__}
    save_file({k: v.detach().contiguous().clone() for k, v in out.items()}, sys.argv[1], metadata=metadata)


if __name__ == "__main__":
    main()
