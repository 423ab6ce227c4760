"""Models by name: ``ckpt=FOLDER``, or ``model=openai:NAME | hf:PATH_OR_ID | cascade``."""

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch

from wearllama.evaluation.adaptations import AdaptedAdapter
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.evaluation.cascade import AsrConfig, CascadeAdapter, open_recogniser
from wearllama.evaluation.chat import ChatConfig, EndpointConfig, open_chat, split_model
from wearllama.evaluation.endpoint_adapter import EndpointAdapter
from wearllama.evaluation.hf_audio import HfAudioAdapter
from wearllama.evaluation.mono import AudioLimit, MonoAdapter
from wearllama.unread import refuse_unread

KINDS = ("openai", "hf", "cascade")
UNREAD = {
    "ckpt": ("base_url", "endpoint", "max_audio_seconds", "asr", "llm"),
    "openai": ("dtype", "device", "look_ahead", "asr", "llm"),
    "hf": ("base_url", "endpoint", "look_ahead", "asr", "llm"),
    "cascade": (
        "base_url", "endpoint", "max_audio_seconds", "too_long", "dtype", "device", "look_ahead", "max_new_tokens",
    ),
}  # fmt: skip
"""Settings that a kind of model does not read: refused where they are given."""
CASCADES_OWN = "; its own are llm.endpoint, llm.dtype, llm.device, llm.max_new_tokens, asr.device"
AudioModel: TypeAlias = CheckpointAdapter | MonoAdapter | AdaptedAdapter


@dataclass(kw_only=True)
class ModelSettings:
    """Which model is evaluated; every launcher of eval/ has these."""

    ckpt: str | None = None
    """Checkpoint folder, or a training run's folder with its ``final`` inside."""
    model: str | None = None
    """Instead of ``ckpt``: ``openai:NAME``, ``hf:PATH_OR_ID``, or ``cascade`` (settings under ``asr`` and ``llm``)."""
    base_url: str | None = None
    """Short for ``endpoint.base_url``."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """For ``openai:``."""
    asr: AsrConfig = field(default_factory=AsrConfig)
    """For ``cascade``: the recogniser."""
    llm: ChatConfig = field(default_factory=ChatConfig)
    """For ``cascade``: the text model; by default the packaged SmolLM2."""
    array: str | None = None
    """Array of the recordings, where it is not the checkpoint's own (``glasses5`` for other models): ``aria7``, ..."""
    look_ahead: int | None = None
    """Of a checkpoint whose encoder streams: how far it looks ahead, in frames of 80 ms; by default its first."""
    max_new_tokens: int = 96
    """Longest reply; part of a prediction's key."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights in memory."""
    device: str | None = None
    """``cpu``, ``cuda:0``, ...; by default the rank's GPU where there is one."""
    max_audio_seconds: float | None = None
    """Longest recording of a single-channel model; by default what is known of it."""
    too_long: Literal["auto", "error", "truncate"] = "auto"
    """A longer recording: refused before the run (a checkpoint's default), or cut and marked (all others')."""

    def __post_init__(self) -> None:
        if (self.ckpt is None) == (self.model is None):
            raise ValueError("wanted either ckpt=FOLDER or model=openai:NAME | hf:PATH_OR_ID | cascade")
        if self.model is not None:
            split_model(self.model, KINDS)
        if self.too_long not in ("auto", "error", "truncate"):
            raise ValueError(f"too_long is {self.too_long!r}, wanted auto, error or truncate")
        # A cascade's words, say, would go elsewhere than to the base_url that was given.
        kind = "ckpt" if self.model is None else split_model(self.model, KINDS)[0]
        refuse_unread(self, UNREAD[kind], f"by {kind} models", hint=CASCADES_OWN if kind == "cascade" else "")


def open_model(settings: ModelSettings) -> AudioModel:
    """The model that the settings name; weights are loaded when first needed, addresses asked when first used."""
    dtype = getattr(torch, settings.dtype)
    if settings.ckpt is not None:
        return CheckpointAdapter(
            settings.ckpt, max_new_tokens=settings.max_new_tokens, device=settings.device, dtype=dtype,
            truncate=settings.too_long == "truncate", array=settings.array, look_ahead=settings.look_ahead,
        )  # fmt: skip
    assert settings.model is not None
    kind, name = split_model(settings.model, KINDS)
    if kind == "cascade":
        llm = replace(settings.llm, model=settings.llm.model or "smollm2")
        return CascadeAdapter(open_recogniser(settings.asr), open_chat(llm))
    truncate = settings.too_long != "error"
    if kind == "openai":
        endpoint = settings.endpoint
        if settings.base_url is not None:
            endpoint = replace(endpoint, base_url=settings.base_url)
        limit = AudioLimit(seconds=settings.max_audio_seconds, truncate=truncate)
        return EndpointAdapter(name, endpoint, max_new_tokens=settings.max_new_tokens, limit=limit)
    adapter = HfAudioAdapter(
        name, max_new_tokens=settings.max_new_tokens, device=settings.device, dtype=dtype,
        limit=AudioLimit(seconds=settings.max_audio_seconds, truncate=truncate) if settings.max_audio_seconds else None,
    )  # fmt: skip
    if not truncate:
        adapter.limit = AudioLimit(seconds=adapter.limit.seconds, truncate=False)
    return adapter
