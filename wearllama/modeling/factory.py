"""Models by scale: a plain ``ModelConfig`` (conf/model/*.yaml) in, a processor and a model out."""

from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import wearllama.modeling.auto  # noqa: F401  (Auto classes must know WearLlama before a checkpoint is opened)
from wearllama.audio.array import load_array
from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.encoder_io import encoder_config, load_encoder_weights, stored_config
from wearllama.modeling.fusion import FusionConfig
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.modeling.tokenizer import ACTION_TOKENS, AUDIO_TOKENS, add_project_tokens

FINAL = "final"
"""Folder of the trained model inside a run folder."""
RUNTIME = ("dropout", "checkpointing", "fast")
"""Fields of ``ConformerConfig`` that say how an encoder runs, not what it is."""
STREAMING = ("causal", "contexts")
"""Fields that leave the weights' shapes alone: training may start from a stored encoder of whole clips."""
PACKAGED_TOKENIZER = Path(__file__).resolve().parents[1] / "assets" / "tokenizer_demo"


@dataclass(kw_only=True)
class ModelConfig:
    """One scale."""

    name: str = "demo"
    encoder: str = "scratch"
    """``scratch``, ``packaged``, or a folder with encoder weights (a WearLlama checkpoint is one)."""
    encoder_config: dict[str, Any] = field(default_factory=dict)
    """Fields of ``ConformerConfig``; with stored weights only those of ``RUNTIME`` and, for an encoder that is trained
    here, of ``STREAMING``: sizes come with the weights."""
    decoder: str = "scratch"
    """``scratch``, or a local folder or hub id of a Llama-family causal LM."""
    decoder_config: dict[str, Any] = field(default_factory=dict)
    """Fields of the decoder's config (with ``model_type``, default llama) when it starts from scratch; a pretrained one
    has its own. ``vocab_size`` is for plans alone: a decoder that is built has the tokenizer's."""
    tokenizer: str = "packaged"
    """``packaged``, ``decoder`` (the decoder's own) or a folder."""
    channels: str = "mc"
    """``mc``, ``sc_beam`` or ``sc_c0``."""
    fusion: FusionConfig = field(default_factory=FusionConfig)
    """How c_0 and c_x become decoder positions."""
    projector: dict[str, Any] = field(default_factory=dict)
    """Fields of ``ProjectorConfig``."""
    lora: dict[str, Any] | None = None
    """``r``, ``alpha``, ``dropout``, ``target_modules``; None trains the decoder itself."""
    freeze: dict[str, bool] = field(default_factory=lambda: {"encoder": True})
    """Regular expression at the start of parameter names -> frozen; later entries win."""
    array: str = "glasses5"
    """Microphone array, by name or file."""
    max_audio_seconds: float = 30.0
    dtype: str = "float32"
    """Of the weights; training autocasts over float32."""
    attn_implementation: str = "sdpa"
    """Of the decoder."""

    def __post_init__(self) -> None:
        if self.tokenizer == "decoder" and self.decoder == "scratch":
            raise ValueError("model.tokenizer=decoder needs a pretrained model.decoder; scratch has no tokenizer")
        _check_names(self.decoder_config)
        if not hasattr(torch, self.dtype):
            raise ValueError(f"model.dtype is {self.dtype!r}, wanted float32, bfloat16 or float16")

    @property
    def frozen_parts(self) -> dict[str, bool]:
        """``freeze``, except that a random encoder is trained: frozen it would learn nothing."""
        return (
            {**self.freeze, "encoder": False} if self.encoder == "scratch" and "encoder" in self.freeze else self.freeze
        )


def build_processor(config: ModelConfig) -> WearLlamaProcessor:
    """Tokenizer with this project's tokens, front end of the stored encoder, array and its beam."""
    text_config = _text_config(config)
    tokenizer = _tokenizer(config)
    _refuse_foreign_tokenizer(config, text_config.vocab_size, len(tokenizer))
    tokenizer.model_max_length = text_config.max_position_embeddings
    frontend = None if config.encoder == "scratch" else stored_config(config.encoder).get("frontend")
    return WearLlamaProcessor(
        tokenizer,
        channels=config.channels,
        array=load_array(config.array),
        frontend=frontend,
        max_audio_seconds=config.max_audio_seconds,
        fusion=config.fusion,
    )


def build_model(config: ModelConfig, processor: WearLlamaProcessor) -> WearLlamaForConditionalGeneration:
    """The model in full: decoder (pretrained or from its config), encoder, projector, LoRA, frozen parts.

    Random parts follow torch's global generator: seed it first.
    """
    text_config = _text_config(config)
    decoder = None
    if config.decoder != "scratch":
        decoder = AutoModelForCausalLM.from_pretrained(
            config.decoder, dtype=getattr(torch, config.dtype), attn_implementation=config.attn_implementation
        )
    else:
        text_config.vocab_size = len(processor.tokenizer)
    text_config.dtype = None
    model_config = WearLlamaConfig(
        text_config=text_config,
        encoder=_encoder_fields(config),
        projector=_projector_fields(config, decoder),
        channels=config.channels,
        fusion=None if config.fusion == FusionConfig() else asdict(config.fusion),
        num_added_tokens=max(0, len(processor.tokenizer) - text_config.vocab_size),
        audio_token_id=processor.ids.audio,
        mute_token_id=processor.ids.mute,
        max_audio_seconds=config.max_audio_seconds,
    )
    model_config._attn_implementation = config.attn_implementation
    model = _assemble(model_config, decoder)
    if config.encoder != "scratch":
        load_encoder_weights(model.encoder, config.encoder)
    cast_weights(model, getattr(torch, config.dtype))
    model.add_lora(config.lora)
    model.config.freeze = dict(config.frozen_parts)
    model.apply_freeze()
    model.generation_config.eos_token_id = processor.ids.eos
    model.generation_config.pad_token_id = processor.ids.pad
    model.generation_config.bos_token_id = None
    return model


def abstract_model(config: ModelConfig) -> WearLlamaForConditionalGeneration:
    """The model of ``build_model`` on torch's meta device: every size and name, no memory and no weights read.

    The decoder keeps its own vocabulary; the project's tokens stand beside it, as with a pretrained one.
    """
    model_config = WearLlamaConfig(
        text_config=_text_config(config),
        encoder=_encoder_fields(config),
        projector=dict(config.projector),
        channels=config.channels,
        fusion=asdict(config.fusion),
        num_added_tokens=len((*AUDIO_TOKENS, *ACTION_TOKENS)),
    )
    model_config._attn_implementation = config.attn_implementation
    with torch.device("meta"):
        model = WearLlamaForConditionalGeneration(model_config)
        model.add_lora(config.lora)
    model.to(getattr(torch, config.dtype))
    model.config.freeze = dict(config.frozen_parts)
    model.apply_freeze()
    return model


def cast_weights(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Change the parameters' dtype in place; ``model.to(dtype)`` would round the decoder's rotary frequencies too."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def model_folder(path: str | Path, holding: str) -> Path | None:
    """``path`` itself or, of a run folder, its finished model: the first that has a file named ``holding``."""
    return next((folder for folder in (Path(path), Path(path) / FINAL) if (folder / holding).is_file()), None)


def load_checkpoint(
    path: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> tuple[WearLlamaForConditionalGeneration, WearLlamaProcessor]:
    """A saved model and its processor, ready to evaluate; ValueError where the folder is not a whole checkpoint."""
    folder = Path(path)
    for name in ("config.json", "processor_config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} is no WearLlama checkpoint: it has no {name}")
    model = WearLlamaForConditionalGeneration.from_pretrained(folder, dtype=dtype)
    return model.to(device).eval(), WearLlamaProcessor.from_pretrained(folder)


def _assemble(model_config: WearLlamaConfig, decoder: Any | None) -> WearLlamaForConditionalGeneration:
    model = WearLlamaForConditionalGeneration(model_config, decoder=decoder)
    if decoder is not None and model.added is not None:
        model.added.start_from(
            decoder.get_input_embeddings().weight.detach(), decoder.get_output_embeddings().weight.detach()
        )
    return model


def _tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    path = {"packaged": str(PACKAGED_TOKENIZER), "decoder": config.decoder}.get(config.tokenizer, config.tokenizer)
    tokenizer = AutoTokenizer.from_pretrained(path)
    add_project_tokens(tokenizer)
    return tokenizer


def _check_names(decoder_config: dict[str, Any]) -> None:
    """The library takes names that no model reads, and so mistyped ones, without a word."""
    fields = dict(decoder_config)
    kind = fields.pop("model_type", "llama")
    if kind not in CONFIG_MAPPING:
        return
    plain, given = CONFIG_MAPPING[kind](), CONFIG_MAPPING[kind](**fields)
    for name in fields:
        # What plain lacks and given has was only put down; rope_theta and its like went into other fields.
        if hasattr(given, name) and not hasattr(plain, name):
            near = get_close_matches(name, plain.to_dict(), n=1)
            raise ValueError(f"model.decoder_config.{name} is no setting of {kind}" + (f": {near[0]}?" if near else ""))


def _refuse_foreign_tokenizer(config: ModelConfig, vocab_size: int, tokens: int) -> None:
    if config.tokenizer == "packaged" and config.decoder != "scratch" and vocab_size != tokens:
        raise ValueError(
            f"model.decoder={config.decoder} has a vocabulary of {vocab_size}, the packaged tokenizer one of {tokens}: "
            "wanted model.tokenizer=decoder"
        )


def _text_config(config: ModelConfig) -> Any:
    if config.decoder != "scratch":
        _refuse_missing_folder(config.decoder)
        try:
            return AutoConfig.from_pretrained(config.decoder).get_text_config()
        except (OSError, ValueError) as error:
            raise ValueError(f"model.decoder={config.decoder} cannot be read: {str(error).splitlines()[0]}") from None
    return WearLlamaConfig(text_config=dict(config.decoder_config)).text_config


def _refuse_missing_folder(decoder: str) -> None:
    """A mistyped folder would otherwise be looked up as a hub id: a minute of retries without a network."""
    path = Path(decoder).expanduser()
    meant_as_folder = decoder.startswith((".", "/", "~")) or Path(path.parts[0]).is_dir() or len(path.parts) > 2
    if meant_as_folder and not (path / "config.json").is_file():
        raise ValueError(
            f"model.decoder={decoder} is neither a folder with a causal LM nor a hub id: no {path / 'config.json'}; "
            "the smollm2 scale reads what tools/convert_smollm2.py writes"
        )


def _encoder_fields(config: ModelConfig) -> dict[str, Any]:
    if config.encoder == "scratch":
        return dict(config.encoder_config)
    fields = asdict(encoder_config(config.encoder))
    for name, value in config.encoder_config.items():
        if name in RUNTIME or (name in STREAMING and not config.freeze.get("encoder")):
            fields[name] = value
        elif name in STREAMING and fields[name] != value:
            raise ValueError(
                f"model.encoder_config.{name} is {value}, but {config.encoder} was trained with {fields[name]}: a "
                "streaming encoder that starts from it must be trained, so give model.freeze.encoder=false (or first "
                "recipes/pretrain_encoder.py with init=)"
            )
        elif fields.get(name) != value:
            raise ValueError(f"model.encoder_config.{name} is {value}, but {config.encoder} has {fields.get(name)}")
    return fields


def _projector_fields(config: ModelConfig, decoder: Any | None) -> dict[str, Any]:
    fields = dict(config.projector)
    if decoder is not None and "init_rms" not in fields:
        fields["init_rms"] = float(decoder.get_input_embeddings().weight.detach().float().square().mean().sqrt())
    return fields
