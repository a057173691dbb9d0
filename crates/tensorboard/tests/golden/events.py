"""What TensorBoard's own reader sees in the event files of golden/run, and whether PyTorch writes the same events.

    KILN_WRITE_GOLDEN=1 cargo test -p kiln-tensorboard     writes the event files anew
    pip install tensorboard torch pillow
    python events.py > events.json
"""

import io
import json
import pathlib
import tempfile

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter

RUN = pathlib.Path(__file__).parent / "run"


def seen(folder):
    sizes = {name: 0 for name in ["scalars", "histograms", "images", "tensors"]}
    events = event_accumulator.EventAccumulator(str(folder), size_guidance=sizes).Reload()
    tags = events.Tags()

    def histogram(event):
        value = event.histogram_value
        limits = [value.bucket_limit[0], value.bucket_limit[-1]]
        buckets = [[i, n] for i, n in enumerate(value.bucket) if n > 0]
        moments = {name: getattr(value, name) for name in ["min", "max", "num", "sum", "sum_squares"]}
        return {"step": event.step, **moments, "limits": limits, "buckets": buckets}

    def image(event):
        pixels = np.array(Image.open(io.BytesIO(event.encoded_image_string))).tolist()
        return [event.step, event.height, event.width, pixels]

    texts = {t.removesuffix("/text_summary"): events.Tensors(t) for t in tags["tensors"]}
    return {
        "scalars": {t: [[e.step, e.value] for e in events.Scalars(t)] for t in tags["scalars"]},
        "texts": {t: [[e.step, e.tensor_proto.string_val[0].decode()] for e in es] for t, es in texts.items()},
        "histograms": {t: [histogram(e) for e in events.Histograms(t)] for t in tags["histograms"]},
        "images": {t: [image(e) for e in events.Images(t)] for t in tags["images"]},
    }


def summaries(folder):
    """The bytes of every event, but for the one that begins a file and for images, whose compression differs."""
    found = []
    for path in sorted(folder.iterdir()):
        for raw in list(RawEventFileLoader(str(path)).Load()):
            event = Event.FromString(raw)
            image = any(value.HasField("image") for value in event.summary.value)
            if not image and not event.HasField("source_metadata"):
                event.wall_time = 1.5
                # Ours as they lie there, PyTorch's with the same time.
                found.append(raw if path.parent == RUN else event.SerializeToString())
    return found


def by_pytorch(folder):
    scalars = [
        ("loss/train", 0.5, 0),
        ("loss/train", 0.0, 10),
        ("loss/train", float("inf"), 20),
        ("loss/train", 0.125, 300),
        ("loss/valid", -2.5, 10),
        ('Überschrift, "quoted"', 1e-3, 1 << 40),
    ]
    first = SummaryWriter(folder)
    for tag, value, step in scalars:
        first.add_scalar(tag, value, step)
    first.add_text("config", "| setting | value |\n|---|---|\n| lr | 0.001 |\n", 0)
    first.add_histogram("weight", np.array([0.0, -1.5, 2.0, 2.0, 0.25, -16.0, 3.0]), 3)
    first.add_histogram("zero", np.array([0.0]), 3)
    first.close()
    second = SummaryWriter(folder, purge_step=20, filename_suffix=".zz")
    second.add_scalar("loss/train", 0.25, 20)
    second.close()


with tempfile.TemporaryDirectory() as folder:
    by_pytorch(folder)
    equal = summaries(pathlib.Path(folder)) == summaries(RUN)
print(json.dumps({**seen(RUN), "equal_to_pytorch": equal}, ensure_ascii=False))
