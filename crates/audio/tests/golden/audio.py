"""torchaudio's and librosa's results on made-up sound, and sound files, as golden values for tests/torchaudio.rs.

    pip install torch torchaudio librosa soundfile
    python audio.py

Writes audio.json, sweep.flac and sweep.ogg beside it.
"""

import json
import math
import pathlib

import torch

# The check of the CUDA version, which does not matter here, refuses a torchaudio of another release.
torch.version.cuda = None
import librosa
import numpy as np
import soundfile
import torchaudio
import torchaudio.functional as F
import torchaudio.transforms as T

folder = pathlib.Path(__file__).parent
golden = {}


def values(t):
    return [float(f"{v:.8g}") for v in np.asarray(t, dtype=np.float64).reshape(-1)]


def noise(n):
    """Broadband sound that integer arithmetic gives."""
    return torch.tensor([((i * i * 7919 + i * 104729) % 2001 - 1000) / 1024 for i in range(n)], dtype=torch.float64)


golden["resample"] = []
for n, a, b in [(300, 16000, 8000), (150, 8000, 16000), (400, 44100, 16000), (200, 22050, 16000), (97, 11, 7), (61, 7, 11), (5, 48000, 8000), (1, 3, 5)]:
    golden["resample"].append({"len": n, "from": a, "to": b, "y": values(F.resample(noise(n), a, b))})
golden["speed"] = []
for n, rate, factor in [(200, 16000, 0.9), (200, 16000, 1.1), (150, 8000, 1.25)]:
    golden["speed"].append({"len": n, "rate": rate, "factor": factor, "y": values(F.speed(noise(n), rate, factor)[0])})

golden["stft"] = []
for n, n_fft, hop, win, center in [(200, 64, 20, 64, True), (150, 64, 16, 40, True), (90, 25, 10, 20, True), (100, 32, 7, 31, False), (33, 64, 1, 8, True)]:
    y = torch.stft(noise(n), n_fft, hop, win, torch.hann_window(win, dtype=torch.float64), center=center, return_complex=True)
    y = torch.view_as_real(y.T.contiguous())
    golden["stft"].append({"len": n, "n_fft": n_fft, "hop": hop, "win": win, "center": center, "shape": list(y.shape), "y": values(y)})

golden["filters"] = []
for rate, freqs, mels, low, high in [(16000, 129, 20, 0.0, 8000.0), (8000, 65, 16, 60.0, 3800.0)]:
    for scale in ["htk", "slaney"]:
        for norm in [None, "slaney"]:
            with torch.no_grad():
                y = F.melscale_fbanks(freqs, low, high, mels, rate, norm, scale)
            golden["filters"].append({"rate": rate, "freqs": freqs, "mels": mels, "low": low, "high": high, "scale": scale, "norm": norm, "y": values(y)})
librosa_filters = librosa.filters.mel(sr=16000, n_fft=256, n_mels=20).T
golden["filters"].append({"rate": 16000, "freqs": 129, "mels": 20, "low": 0.0, "high": 8000.0, "scale": "slaney", "norm": "slaney", "y": values(librosa_filters)})

x = noise(1600)
mel = T.MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=40).double()(x)
golden["mel"] = {"len": 1600, "mels": 40, "y": values(mel.T), "ln": values(mel.clamp(min=1e-6).log().T)}
golden["mel"]["db"] = values(F.amplitude_to_DB(mel, 10.0, 1e-10, math.log10(1.0), top_db=20.0).T)
golden["librosa"] = {"len": 1600, "mels": 40, "y": values(librosa.feature.melspectrogram(y=x.numpy(), sr=16000, n_fft=400, hop_length=160, n_mels=40, pad_mode="reflect").T)}

# A sweep in two channels, a tenth of a second of 8 kHz.
t = torch.arange(800, dtype=torch.float64) / 8000
left, right = 0.5 * torch.sin(2 * math.pi * (300 + 4000 * t) * t), 0.25 * torch.cos(2 * math.pi * 700 * t)
sound = torch.stack([left, right], 1).numpy()
soundfile.write(folder / "sweep.flac", sound, 8000, subtype="PCM_16")
soundfile.write(folder / "sweep.ogg", sound, 8000, format="OGG", subtype="VORBIS")
golden["files"] = {name: values(soundfile.read(folder / name, dtype="float32")[0]) for name in ["sweep.flac", "sweep.ogg"]}

text = json.dumps(golden, separators=(",", ":"))
(folder / "audio.json").write_text(text.replace('},{', '},\n{').replace('],"', '],\n"') + "\n")
