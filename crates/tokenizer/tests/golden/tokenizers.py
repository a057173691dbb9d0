"""Writes tokenizers.json: tokenizers of Hugging Face's library with what they make of texts.

    pip install tokenizers==0.23.3
    python crates/tokenizer/tests/golden/tokenizers.py
"""

import json
import pathlib
import sys

# The file's own name hides the library from the folder of the script.
sys.path = [p for p in sys.path if pathlib.Path(p or ".").resolve() != pathlib.Path(__file__).parent.resolve()]

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "Call me Ishmael. Some years ago - never mind how long precisely - having little or no money in my purse, and nothing",
    "particular to interest me on shore, I thought I would sail about a little and see the watery part of the world.",
    "It is a way I have of driving off the spleen, and regulating the circulation. It's mine; they're yours, aren't they?",
    "Whenever I find myself growing grim about the mouth; whenever it is a damp, drizzly November in my soul ...",
    "El corazón y la niña: ¿qué año? Größe, Straße. Привет, мир! 中文字符 東京 한국어 123 4567 x = y + 1;\n\n\tdef f():  pass",
]
TEXTS = [
    "Call me Ishmael.",
    "  the watery   part\n\nof the world  ",
    "It's they're aren't WE'LL 'tis",
    "Größe niña Привет 中文 東京! é e\u0301 ﬁ ½ \U0001f600\U0001f468\u200d\U0001f469",
    "x=1234567;y+=89",
    "a\tb\r\nc\u00a0d\u2003e\u200bf\ufffdg\u0000h",
    "whenever-whenever ... un-re-gu-la-ting?!",
    "",
    " ",
    "Sail about<|endoftext|> the mouth<|endoftext|>",
    "[CLS] a [MASK] b [SEP] [mask]",
    "x <mask> y<mask>z",
    "\u1100\u1161\ud55c\u00c5\u212b\u0130I",
]
PAIRS = [("Call me", "Ishmael, niña."), ("", "x"), ("é <mask>", "  y ")]


def places(text, offsets):
    """Offsets in bytes for those in characters."""
    return [[len(text[:at].encode()) for at in pair] for pair in offsets]


def encoded(tokenizer, text, second=None):
    # Surrogates cannot be written.
    plain = tokenizer.encode(text, add_special_tokens=False)
    whole = tokenizer.encode(text, second, add_special_tokens=True) if second is not None else tokenizer.encode(text)
    sequence = [whole.token_to_sequence(i) for i in range(len(whole))]
    parts = {0: text, 1: second, None: ""}
    offsets = [places(parts[s], [o])[0] if not special else [0, 0] for s, o, special in zip(sequence, whole.offsets, whole.special_tokens_mask)]
    return {
        "text": text,
        "second": second,
        "plain": plain.ids,
        "ids": whole.ids,
        "type_ids": whole.type_ids,
        "special": whole.special_tokens_mask,
        "offsets": offsets,
        "decoded": tokenizer.decode(whole.ids, skip_special_tokens=True),
        "decoded_with_special": tokenizer.decode(whole.ids, skip_special_tokens=False),
    }


def case(name, tokenizer, learned=None):
    rows = [encoded(tokenizer, text) for text in TEXTS] + [encoded(tokenizer, a, b) for a, b in PAIRS]
    return {"name": name, "tokenizer": tokenizer.to_str(), "learned": learned, "rows": rows}


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return case("gpt2", tokenizer, learned=420)


def roberta():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return case("roberta", tokenizer)


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return case("bert", tokenizer)


def words():
    """Ends of words, unknown characters, a template, and Unicode's composition."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], end_of_word_suffix="</w>", limit_alphabet=40, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s>:7 $A:1 </s>", pair="<s> $B:2 </s> $A:3 </s>:4", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return case("words", tokenizer)


if __name__ == "__main__":
    cases = [gpt2(), roberta(), bert(), words()]
    file = pathlib.Path(__file__).with_name("tokenizers.json")
    file.write_text(json.dumps({"corpus": CORPUS, "cases": cases}, ensure_ascii=True) + "\n")
