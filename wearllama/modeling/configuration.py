"""WearLlamaConfig: everything that ``from_pretrained`` needs to rebuild a model, in one config.json."""

import math
from dataclasses import field, fields
from typing import Any, ClassVar, TypeVar

from transformers import AutoConfig
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING
from wearllama.modeling.conformer import ConformerConfig
from wearllama.modeling.fusion import FusionConfig
from wearllama.modeling.projector import ProjectorConfig

PartT = TypeVar("PartT", ConformerConfig, ProjectorConfig, FusionConfig)
CHANNELS = {"mc": 2, "sc_beam": 1, "sc_c0": 1}
"""Which channels are encoded, and how many: c_0 and c_x; the beam alone; the nose microphone alone."""


class WearLlamaConfig(PreTrainedConfig):
    """Configuration of ``WearLlamaForConditionalGeneration``.

    Args:
        text_config: config (or dict of it, with ``model_type``) of any Llama-family causal LM.
        encoder: fields of ``ConformerConfig``.
        projector: fields of ``ProjectorConfig``.
        channels: ``mc`` (c_0 and c_x), ``sc_beam`` or ``sc_c0``.
        fusion: fields of ``FusionConfig``: how c_0 and c_x become decoder positions; interleaved if not given.
        lora: None, or ``{"r", "alpha", "dropout", "target_modules"}``: LoRA inside the decoder, whose base is frozen.
        freeze: regular expression at the start of a parameter's name -> frozen or not; later entries win.
        num_added_tokens: tokens beyond ``text_config.vocab_size``; their rows live in the model's ``added`` module, so
            that a pretrained vocabulary stays as it is.
        audio_token_id: the placeholder that audio embeddings replace.
        mute_token_id: the one token of ``[Mute]``.
        max_audio_seconds: longest clip the processor lets through.
    """

    model_type = "wearllama"
    sub_configs: ClassVar[dict[str, type]] = {"text_config": AutoConfig}

    text_config: dict | PreTrainedConfig | None = None
    encoder: dict | None = None
    projector: dict | None = None
    channels: str = "mc"
    fusion: dict | None = None
    lora: dict | None = None
    freeze: dict = field(default_factory=dict)
    num_added_tokens: int = 0
    audio_token_id: int = 0
    mute_token_id: int | None = None
    max_audio_seconds: float = 30.0

    def __post_init__(self, **kwargs: Any) -> None:
        if self.channels not in CHANNELS:
            raise ValueError(f"channels is {self.channels!r}, wanted one of {', '.join(CHANNELS)}")
        self.text_config = _text_config(self.text_config)
        self.encoder = vars(_fields(ConformerConfig, self.encoder, "encoder")).copy()
        self.projector = vars(_fields(ProjectorConfig, self.projector, "projector")).copy()
        self.channel_fusion().check(self.num_channels)
        stride = self.encoder_config().stride * self.projector_config().stride
        if stride != MEL_FRAMES_PER_EMBEDDING:
            raise ValueError(
                f"encoder.subsampling={self.encoder['subsampling']} and projector.adapter_width="
                f"{self.projector['adapter_width']} give {100 / stride:g} embeddings a second, wanted 12.5: "
                "convolution goes without an adapter, stacking with one"
            )
        if self.encoder["contexts"] and self.projector["adapter_width"]:
            raise ValueError(
                f"encoder.contexts is {self.encoder['contexts']} with projector.adapter_width="
                f"{self.projector['adapter_width']}: the adapter attends to whole clips, so no look-ahead would hold"
            )
        if self.max_audio_seconds <= 0:
            raise ValueError(f"max_audio_seconds must be above zero, found {self.max_audio_seconds}")
        super().__post_init__(**kwargs)

    @property
    def num_channels(self) -> int:
        """Encoded channels: 2 (MC) or 1 (SC)."""
        return CHANNELS[self.channels]

    @property
    def positions_per_frame(self) -> int:
        """Decoder positions that 80 ms take."""
        return self.channel_fusion().streams(self.num_channels)

    def channel_fusion(self) -> FusionConfig:
        """The fields of ``fusion`` as their dataclass."""
        return _fields(FusionConfig, self.fusion, "fusion")

    def decoder_config(self) -> PreTrainedConfig:
        """The decoder's config as an object."""
        assert isinstance(self.text_config, PreTrainedConfig), "__post_init__ makes it one"
        return self.text_config

    def encoder_config(self) -> ConformerConfig:
        """The encoder's fields as their dataclass."""
        assert self.encoder is not None, "__post_init__ fills it"
        return ConformerConfig(**self.encoder)

    def projector_config(self) -> ProjectorConfig:
        """The projector's fields as their dataclass."""
        assert self.projector is not None, "__post_init__ fills it"
        return ProjectorConfig(**self.projector)


def _text_config(value: dict | PreTrainedConfig | None) -> PreTrainedConfig:
    if isinstance(value, PreTrainedConfig):
        return value
    settings = dict(value or {})
    model_type = settings.pop("model_type", "llama")
    if model_type not in CONFIG_MAPPING:
        raise ValueError(f"text_config.model_type is {model_type!r}, which transformers does not know")
    if (settings.get("pad_token_id") or 0) >= settings.get("vocab_size", math.inf):
        # transformers' Trainer writes the tokenizer's pad here; among the added tokens, the decoder has no row for it.
        settings["pad_token_id"] = None
    return CONFIG_MAPPING[model_type](**settings)


def _fields(cls: type[PartT], value: dict | None, name: str) -> PartT:
    known = {item.name for item in fields(cls)}
    unknown = sorted(set(value or {}) - known)
    if unknown:
        raise ValueError(f"{name} has unknown field {unknown}, wanted some of {sorted(known)}")
    return cls(**(value or {}))
