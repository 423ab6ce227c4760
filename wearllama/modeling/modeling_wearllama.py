"""WearLlama: Conformer on c_0 and c_x -> projector -> interleaved embeddings -> Llama decoder.

The decoder is any Llama-family causal LM, kept whole as ``decoder``.  Audio embeddings take the place of the
``<|audio|>`` positions of the prompt; a clip whose placeholders differ from its embeddings raises.

Shape suffixes: B rows, S text positions, A audio clips of the batch in row order, C encoded channels, T mel frames,
F mel bins, L encoder frames, D encoder width, E decoder width, V vocabulary, S streams of the projector (C where
channels are interleaved, else 1), P = S * frames of 80 ms: positions of a clip.
"""

import os
import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM
from transformers.generation import GenerationMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from wearllama.audio.timebase import MEL_FRAMES_PER_EMBEDDING
from wearllama.modeling.configuration import WearLlamaConfig
from wearllama.modeling.conformer import ConformerEncoder, valid_mask
from wearllama.modeling.interleave import interleave_channels
from wearllama.modeling.lora import inject_lora, is_lora, merge_lora
from wearllama.modeling.projector import Projector
from wearllama.modeling.vocabulary import AddedTokens

IGNORE = -100


@dataclass
class WearLlamaOutput(CausalLMOutputWithPast):
    """What transformers' causal models return, and with ``labels`` the loss of every supervised position."""

    token_losses: Tensor | None = None
    """(N,) detached, supervised positions row by row."""


class WearLlamaForConditionalGeneration(PreTrainedModel, GenerationMixin):
    """Multichannel speech and text in, text out."""

    config: WearLlamaConfig
    config_class = WearLlamaConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _no_split_modules = ["ConformerBlock", "LlamaDecoderLayer", "Llama4TextDecoderLayer"]  # noqa: RUF012  # as transformers declares it

    def __init__(self, config: WearLlamaConfig, decoder: PreTrainedModel | None = None) -> None:
        """Build from ``config``; a pretrained ``decoder`` of the same ``text_config`` is taken as it is."""
        super().__init__(config)
        encoder_config = config.encoder_config()
        self.encoder = ConformerEncoder(encoder_config)
        text_config = config.decoder_config()
        self.decoder = AutoModelForCausalLM.from_config(text_config) if decoder is None else decoder
        width = text_config.hidden_size
        self.projector = Projector(
            config.projector_config(), encoder_config.width, width, config.num_channels, config.channel_fusion()
        )
        self.added: AddedTokens | None = None
        if config.num_added_tokens:
            self.added = AddedTokens(text_config.vocab_size, config.num_added_tokens, width)
        self.post_init()
        self.add_lora(config.lora)
        self.apply_freeze()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: encoder, projector and added rows initialise themselves, the decoder has its own rule."""

    # ---- what is trained ------------------------------------------------------------------------------------------

    def apply_freeze(self) -> None:
        """Set ``requires_grad``: all, but the decoder's own weights where it has LoRA; then ``config.freeze``."""
        matched = {pattern: False for pattern in self.config.freeze}
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(self.config.lora is None or not name.startswith("decoder.") or is_lora(name))
            for pattern, frozen in self.config.freeze.items():
                if re.match(pattern, name):
                    matched[pattern] = True
                    parameter.requires_grad_(not frozen)
        unused = [pattern for pattern, hit in matched.items() if not hit]
        if unused:
            raise ValueError(f"freeze: no parameter starts with {unused}; parts are encoder, projector, decoder, added")
        self.train(self.training)

    @property
    def encoder_frozen(self) -> bool:
        return not any(parameter.requires_grad for parameter in self.encoder.parameters())

    def train(self, mode: bool = True) -> "WearLlamaForConditionalGeneration":
        """As ever, but a frozen encoder stays in evaluation mode: its dropout would only add noise."""
        super().train(mode)
        if self.encoder_frozen:
            self.encoder.eval()
        return self

    def add_lora(self, fields: dict[str, Any] | None) -> None:
        """Put LoRA into the decoder (see ``inject_lora``) and note it in the config; None does nothing."""
        if fields is not None:
            inject_lora(self.decoder, fields)
            self.config.lora = dict(fields)

    def merge_lora(self) -> None:
        """Fold LoRA into the decoder's weights; the model then saves and loads as a plain one."""
        merge_lora(self.decoder)
        self.config.lora = None
        self.apply_freeze()

    # ---- embeddings -----------------------------------------------------------------------------------------------

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.decoder.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return self.decoder.get_output_embeddings()

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.decoder.set_output_embeddings(new_embeddings)

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """The input embeddings where nothing changes; ValueError otherwise (new tokens live in ``added``)."""
        size = self.config.decoder_config().vocab_size + self.config.num_added_tokens
        if new_num_tokens not in (None, size):
            raise ValueError(
                f"resize_token_embeddings({new_num_tokens}): this model has {size} tokens and its decoder's rows stay "
                "as they are; build_model makes room for a tokenizer's new tokens (num_added_tokens)"
            )
        table = self.get_input_embeddings()
        assert isinstance(table, nn.Embedding)
        return table

    def embed_tokens(self, input_ids: Tensor) -> Tensor:
        """Token embeddings (B, S, E), added tokens included."""
        table = self.decoder.get_input_embeddings()
        return table(input_ids) if self.added is None else self.added.embed(input_ids, table)

    def embed_audio(self, input_features: Tensor, feature_lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Decoder embeddings of clips: features (A, C, T, F), mel frames (A,) -> (A, P, E), positions (A,).

        Both channels pass the encoder in one call; the valid positions of a clip come first.
        """
        clips, channels = input_features.shape[:2]
        if channels != self.config.num_channels:
            raise ValueError(
                f"channels={self.config.channels!r} encodes {self.config.num_channels} channel(s), found {channels}"
            )
        # A frozen encoder stays in evaluation mode; projector and decoder still meet all of its look-aheads.
        look_ahead = self.encoder.draw_look_ahead() if self.training else None
        with torch.no_grad() if self.encoder_frozen else nullcontext():
            encoded_NLD, lengths_N = self.encoder(
                input_features.flatten(0, 1).to(self.dtype), feature_lengths.repeat_interleave(channels), look_ahead
            )
        lengths_A = lengths_N.view(clips, channels)[:, 0]
        mask_AL = valid_mask(lengths_A, encoded_NLD.shape[1])
        projected_ASLE = self.projector(encoded_NLD.unflatten(0, (clips, channels)), mask_AL)
        return interleave_channels(projected_ASLE), self.projector.num_frames(lengths_A) * projected_ASLE.shape[1]

    def embed_inputs(self, input_ids: Tensor, input_features: Tensor | None, feature_lengths: Tensor | None) -> Tensor:
        """What the decoder gets (B, S, E): token embeddings, the placeholders' places filled with sound."""
        embeds_BSE = self.embed_tokens(input_ids)
        placeholder_BS = input_ids == self.config.audio_token_id
        if input_features is None:
            if placeholder_BS.any():
                raise ValueError(f"prompt has {int(placeholder_BS.sum())} audio placeholders but there is no audio")
            return self._touch_audio_path(embeds_BSE)
        if feature_lengths is None:
            raise ValueError("input_features came without feature_lengths (mel frames of each clip)")
        audio_APE, positions_A = self.embed_audio(input_features, feature_lengths)
        _check_placeholders(placeholder_BS, positions_A)
        flat_E = audio_APE[valid_mask(positions_A, audio_APE.shape[1])].to(embeds_BSE.dtype)
        return embeds_BSE.masked_scatter(placeholder_BS[..., None], flat_E)

    def _touch_audio_path(self, embeds_BSE: Tensor) -> Tensor:
        """Run one silent embedding through encoder and projector for nothing.

        A text-only batch on one rank would otherwise leave the projector without gradient (DDP waits for it) or skip
        a parameter gather (ZeRO-3 and FSDP wait for it): every step of every rank visits the same modules.
        """
        if not (self.training or is_deepspeed_zero3_enabled() or isinstance(self, FSDPModule)):
            return embeds_BSE
        shape = (1, self.config.num_channels, MEL_FRAMES_PER_EMBEDDING, self.config.encoder_config().n_mels)
        lengths_A = torch.full((1,), MEL_FRAMES_PER_EMBEDDING, device=embeds_BSE.device)
        audio_APE, _ = self.embed_audio(torch.zeros(shape, device=embeds_BSE.device), lengths_A)
        return embeds_BSE + 0.0 * audio_APE.sum().to(embeds_BSE.dtype)

    # ---- forward --------------------------------------------------------------------------------------------------

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        input_features: Tensor | None = None,
        feature_lengths: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        target_logits: bool = False,
        **kwargs: Any,
    ) -> WearLlamaOutput:
        """One pass.

        Args:
            input_ids: (B, S) with one ``<|audio|>`` per audio embedding.
            attention_mask: (B, S), 1 on real positions; either side may be padded.
            input_features: (A, C, T, F) normalised log-mel of the batch's clips in row order; None without audio.
            feature_lengths: (A,) valid mel frames.
            labels: (B, S), -100 where nothing is learnt.
            logits_to_keep: only the last n positions get logits (0: all).
            num_items_in_batch: target tokens over all ranks and accumulated steps; the loss is the sum over the
                targets here divided by it (by the targets here when None).
            target_logits: with ``labels``, give the supervised positions' logits too.

        Returns:
            With ``labels`` the loss, each target's own loss (N,), and logits None or (N, V): only the N supervised
            positions pass the head, which at 128 K words saves most of the memory.  Without, logits (B, S, V).

        Raises:
            ValueError: placeholders do not match the audio, or the audio does not match ``config.channels``.
        """
        if inputs_embeds is None:
            if input_ids is None:
                raise ValueError("forward needs input_ids or inputs_embeds")
            inputs_embeds = self.embed_inputs(input_ids, input_features, feature_lengths)
        if labels is not None:
            use_cache = False
            attention_mask = _drop_right_padding_mask(attention_mask)
        outputs = decoder_body(self.decoder)(
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=use_cache,
            **{**kwargs, "return_dict": True},
        )
        hidden_BSE = outputs[0]
        loss = logits = losses_N = None
        if labels is not None:
            logits, losses_N = self._target_losses(hidden_BSE, labels)
            loss = losses_N.sum() / num_targets(num_items_in_batch, losses_N)
            losses_N, logits = losses_N.detach(), logits if target_logits else None
        else:
            keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.logits(hidden_BSE[:, keep])
        # The name of the cache field depends on the version of transformers; whatever it is, it is passed on.
        rest = {key: value for key, value in outputs.items() if key not in ("last_hidden_state", "loss", "logits")}
        return WearLlamaOutput(loss=loss, logits=logits, token_losses=losses_N, **rest)

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary scores of hidden states (..., E), added tokens last."""
        base = self.decoder.get_output_embeddings()(hidden)
        return base if self.added is None else torch.cat((base, self.added.logits(hidden).to(base.dtype)), dim=-1)

    def _target_losses(self, hidden_BSE: Tensor, labels_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, V) and cross-entropies (N,) of the supervised positions, row by row, in fp32."""
        targets_BS = F.pad(labels_BS[:, 1:], (0, 1), value=IGNORE)
        supervised_BS = targets_BS != IGNORE
        logits_NV = self.logits(hidden_BSE[supervised_BS]).float()
        return logits_NV, F.cross_entropy(logits_NV, targets_BS[supervised_BS], reduction="none")

    # ---- generation -----------------------------------------------------------------------------------------------

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        inputs_embeds: Tensor | None = None,  # named, for transformers looks whether it is
        is_first_iteration: bool = False,
        **kwargs: Any,
    ) -> dict:
        """Audio belongs to the prompt: it is encoded in the first step only."""
        if not is_first_iteration and kwargs.get("use_cache", True):
            kwargs.pop("input_features", None)
            kwargs.pop("feature_lengths", None)
        return super().prepare_inputs_for_generation(
            input_ids, inputs_embeds=inputs_embeds, is_first_iteration=is_first_iteration, **kwargs
        )

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: torch.LongTensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.LongTensor, dict[str, Any]]:
        """Repeat rows for several samples a prompt; clips are repeated with the row that holds them."""
        audio = {key: kwargs.pop(key, None) for key in ("input_features", "feature_lengths")}
        if expand_size > 1 and audio["input_features"] is not None and input_ids is not None:
            placeholder_BS = input_ids == self.config.audio_token_id
            clips_B = _run_starts(placeholder_BS).sum(1).tolist()
            blocks = torch.arange(sum(clips_B), device=input_ids.device).split(clips_B)
            index = torch.cat([block for block in blocks for _ in range(expand_size)])
            audio = {key: value[index.to(value.device)] for key, value in audio.items() if value is not None}
        # The mixin annotates its self as a class of transformers' own, which no model outside can be.
        expanded, kwargs = super()._expand_inputs_for_generation(  # type: ignore[misc]
            expand_size=expand_size, is_encoder_decoder=is_encoder_decoder, input_ids=input_ids, **kwargs
        )
        return expanded, {**kwargs, **{key: value for key, value in audio.items() if value is not None}}

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[Any] | None, *model_args: Any, **kwargs: Any
    ) -> Any:
        """As ever, but a weight that is missing, unknown or of another size is an error, never a fresh start."""
        want_info = kwargs.pop("output_loading_info", False)
        path = pretrained_model_name_or_path
        # With this option it returns a pair, which its annotation does not tell.
        loaded: Any = super().from_pretrained(path, *model_args, output_loading_info=True, **kwargs)
        model, info = loaded
        for kind, words in (("missing_keys", "lacks"), ("unexpected_keys", "has unknown"), ("mismatched_keys", "has")):
            names = sorted(str(key) for key in info.get(kind) or ())
            if names:
                ending = " of another size" if kind == "mismatched_keys" else ""
                shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
                raise ValueError(f"{path}: the checkpoint {words} {_parts(names)} weights{ending}: {shown}")
        model.apply_freeze()  # loading put fresh parameters in place of those that were marked
        return (model, info) if want_info else model


def decoder_body(decoder: PreTrainedModel) -> nn.Module:
    """The causal LM without its head; Llama 4 names itself as its own decoder in transformers 5.24."""
    body = decoder.get_decoder()
    return decoder.model if body is decoder else body


def _parts(names: list[str]) -> str:
    return "/".join(sorted({name.split(".")[0].lstrip("('") for name in names}))


def num_targets(num_items: Tensor | int | None, losses_N: Tensor) -> Tensor | int:
    """What a sum over targets is divided by; the targets here where nobody counted them, 1 in a step without any."""
    if num_items is None:
        return max(1, losses_N.numel())
    return num_items.to(losses_N.device).clamp_min(1) if isinstance(num_items, Tensor) else max(1, num_items)


def _run_starts(placeholder_BS: Tensor) -> Tensor:
    """True at the first placeholder of every clip."""
    return placeholder_BS & ~F.pad(placeholder_BS[:, :-1], (1, 0), value=False)


def _check_placeholders(placeholder_BS: Tensor, positions_A: Tensor) -> None:
    """Every run of placeholders must be as long as its clip: equal totals alone could hide two wrong clips."""
    starts_BS = _run_starts(placeholder_BS)
    clips = int(starts_BS.sum())
    if clips != len(positions_A):
        raise ValueError(f"prompts hold {clips} audio spans, but there are {len(positions_A)} clips")
    clip_of_N = starts_BS.flatten().cumsum(0)[placeholder_BS.flatten()] - 1
    found_A = torch.bincount(clip_of_N, minlength=clips)
    wrong = (found_A != positions_A).nonzero().flatten().tolist()
    if wrong:
        clip = wrong[0]
        raise ValueError(
            f"clip {clip} gives {int(positions_A[clip])} embeddings, "
            f"but its prompt has {int(found_A[clip])} placeholders"
        )


def _drop_right_padding_mask(mask_BS: Tensor | None) -> Tensor | None:
    """None for right-padded rows: causal attention never looks there, and without a mask it takes the fused path."""
    if mask_BS is None or mask_BS.ndim != 2:
        return mask_BS
    right_padded = mask_BS[:, 0].all() & (mask_BS[:, 1:] <= mask_BS[:, :-1]).all()
    return None if right_padded else mask_BS
