"""Whisper's encoder as a teacher of features: CTranslate2 weights -> transformers, and a forward without 30 s padding.

Shapes: B batch, N samples at 16 kHz, F mel bins, T mel frames (100 Hz), L encoder frames (50 Hz), D width.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from wearllama.data.assets import cache_root, fetch

FRAME_RATE_HZ = 50
_DTYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_LAYER_NAMES = (
    ("self_attention/layer_norm", "self_attn_layer_norm"),
    ("self_attention/linear_1", "self_attn.out_proj"),
    ("ffn/layer_norm", "final_layer_norm"),
    ("ffn/linear_0", "fc1"),
    ("ffn/linear_1", "fc2"),
)
_FIELDS = (("weight", "weight"), ("bias", "bias"), ("gamma", "weight"), ("beta", "bias"))


def read_ctranslate2(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Variables of a CTranslate2 ``model.bin`` (binary version 6), as float32 or int arrays by name.

    Raises ValueError naming the file where it is not such a file, or is quantised.
    """
    data = memoryview(Path(path).read_bytes())
    version = struct.unpack_from("<I", data)[0]
    if version != 6:
        raise ValueError(f"{path}: CTranslate2 binary version is {version}, wanted 6")
    try:
        return dict(_variables(data))
    except (struct.error, KeyError, ValueError) as error:
        raise ValueError(f"{path}: not a complete CTranslate2 model ({error})") from error


def _variables(data: memoryview) -> Iterator[tuple[str, np.ndarray]]:
    _spec, offset = _string(data, 4)
    _revision, count = struct.unpack_from("<II", data, offset)
    offset += 8
    for _ in range(count):
        name, offset = _string(data, offset)
        rank = data[offset]
        shape = struct.unpack_from(f"<{rank}I", data, offset + 1)
        offset += 1 + 4 * rank
        dtype, size = struct.unpack_from("<BI", data, offset)
        offset += 5
        values = np.frombuffer(data[offset : offset + size], dtype=_DTYPES[dtype]).reshape(shape)
        offset += size
        yield name, values.astype(np.float32) if values.dtype.kind == "f" else values


def _string(data: memoryview, offset: int) -> tuple[str, int]:
    """A length-prefixed, zero-terminated string and the offset behind it."""
    length = struct.unpack_from("<H", data, offset)[0]
    end = offset + 2 + length
    return bytes(data[offset + 2 : end]).rstrip(b"\0").decode(), end


def encoder_state(variables: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """CTranslate2 variables -> the state dict of transformers' WhisperEncoder."""
    state: dict[str, Tensor] = {}

    def copy(source: str, target: str) -> None:
        for ours, theirs in _FIELDS:
            if f"encoder/{source}/{ours}" in variables:
                state[f"{target}.{theirs}"] = torch.from_numpy(variables[f"encoder/{source}/{ours}"].copy())

    for source, target in (("conv1", "conv1"), ("conv2", "conv2"), ("layer_norm", "layer_norm")):
        copy(source, target)
    state["embed_positions.weight"] = torch.from_numpy(variables["encoder/position_encodings/encodings"].copy())
    layers = {int(found[1]) for name in variables if (found := re.match(r"encoder/layer_(\d+)/", name))}
    for layer in sorted(layers):
        for source, target in _LAYER_NAMES:
            copy(f"layer_{layer}/{source}", f"layers.{layer}.{target}")
        fused = f"encoder/layer_{layer}/self_attention/linear_0"
        weights = np.split(variables[f"{fused}/weight"], 3)
        biases = np.split(variables[f"{fused}/bias"], 3)
        for part, weight, bias in zip(("q", "k", "v"), weights, biases, strict=True):
            state[f"layers.{layer}.self_attn.{part}_proj.weight"] = torch.from_numpy(weight.copy())
            if part != "k":  # Whisper's keys have no bias; the fused matrix holds zeros there
                state[f"layers.{layer}.self_attn.{part}_proj.bias"] = torch.from_numpy(bias.copy())
    return state


def convert_encoder(source_dir: str | os.PathLike[str], out_dir: str | os.PathLike[str]) -> Path:
    """Convert a CTranslate2 Whisper directory's encoder to `out_dir` (config.json, model.safetensors); returns it."""
    source, out = Path(source_dir), Path(out_dir)
    state = encoder_state(read_ctranslate2(source / "model.bin"))
    width, mels, _ = state["conv1.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    config = WhisperConfig(
        d_model=width,
        num_mel_bins=mels,
        encoder_layers=layers,
        encoder_attention_heads=width // 64,
        encoder_ffn_dim=state["layers.0.fc1.weight"].shape[0],
        decoder_layers=0,
    )
    encoder = WhisperEncoder(config)
    encoder.load_state_dict(state)
    encoder.save_pretrained(out)
    return out


def load_teacher(
    directory: str | os.PathLike[str] | None = None, cache_dir: str | os.PathLike[str] | None = None
) -> WhisperTeacher:
    """The teacher from a converted directory; without one, fetch and convert ``whisper_base`` once into the cache."""
    path = Path(directory) if directory is not None else cache_root(cache_dir) / "whisper_base_encoder"
    if directory is None and not (path / "model.safetensors").is_file():
        convert_encoder(fetch("whisper_base", cache_dir), path)
    if not (path / "config.json").is_file():
        raise ValueError(f"{path}: no converted Whisper encoder here (config.json is missing)")
    config = json.loads((path / "config.json").read_text())
    if config.get("num_mel_bins") is None:
        raise ValueError(f"{path}/config.json: field num_mel_bins is missing, wanted a Whisper encoder's")
    return WhisperTeacher(WhisperEncoder.from_pretrained(path, attn_implementation="sdpa", dtype=torch.float32))


class WhisperTeacher(nn.Module):
    """Frozen Whisper encoder on clips of any length up to 30 s."""

    filters_FK: Tensor
    window_W: Tensor

    def __init__(self, encoder: WhisperEncoder) -> None:
        super().__init__()
        self.encoder = encoder.eval().requires_grad_(False)
        filters_FK, window_W = _mel_filters(encoder.config.num_mel_bins), torch.hann_window(400)
        self.register_buffer("filters_FK", filters_FK, persistent=False)
        self.register_buffer("window_W", window_W, persistent=False)

    @property
    def width(self) -> int:
        """D, the features' width (512 for Whisper-base)."""
        return int(self.encoder.config.d_model)

    def log_mel(self, audio_BN: Tensor) -> Tensor:
        """Whisper's features: (B, N) float32 -> (B, F, N // 160)."""
        spectrum_BKT = torch.stft(audio_BN, 400, 160, window=self.window_W, return_complex=True)
        power_BKT = spectrum_BKT[..., :-1].abs().square()
        log_BFT = (self.filters_FK @ power_BKT).clamp(min=1e-10).log10()
        floor_B11 = log_BFT.amax(dim=(1, 2), keepdim=True) - 8.0
        return (torch.maximum(log_BFT, floor_B11) + 4.0) / 4.0

    @torch.no_grad()
    def forward(self, audio_BN: Tensor) -> Tensor:
        """Features of one or more clips of equal length: (B, N) float32 at 16 kHz -> (B, N // 320, D) at 50 Hz.

        Without the usual padding to 30 s, which costs 10-20 times a short clip's own length. Batch only clips of
        one length, or pad with zeros: padding is attended to, as Whisper always attends to its own.
        Raises ValueError beyond 30 s.
        """
        samples = audio_BN.shape[-1]
        if not 640 <= samples <= 480_000:
            raise ValueError(f"the Whisper teacher takes .04 to 30 s of audio, found {samples / 16000:.2f} s")
        return self.encode(self.log_mel(audio_BN))[:, : samples // 320]

    def encode(self, mel_BFT: Tensor) -> Tensor:
        """(B, F, T) log-mel, T even and at most 3000 -> (B, T / 2, D)."""
        encoder = self.encoder
        x_BDT = nn.functional.gelu(encoder.conv1(mel_BFT))
        x_BLD = nn.functional.gelu(encoder.conv2(x_BDT)).transpose(1, 2)
        x_BLD = x_BLD + encoder.embed_positions.weight[: x_BLD.shape[1]]
        for layer in encoder.layers:
            out = layer(x_BLD, attention_mask=None)
            x_BLD = out[0] if isinstance(out, tuple) else out
        return encoder.layer_norm(x_BLD)


def _mel_filters(mels: int) -> Tensor:
    """(F, 201) Slaney-normalised mel filters, as Whisper's feature extractor has them."""
    from transformers.audio_utils import mel_filter_bank

    filters_KF = mel_filter_bank(201, mels, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(filters_KF.T.copy()).float()
