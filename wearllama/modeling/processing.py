"""WearLlamaProcessor: chat messages and five-channel clips in, what the model takes out.

Training and inference build the prompt here and nowhere else, and padding happens here and nowhere else.  Nothing is
ever cut: a clip or prompt that is too long, a clip with other channels or a missing clip raises.

Shape suffixes: B rows, S text positions, A clips of the batch in row order, C encoded channels, M microphones,
N samples, T mel frames, F mel bins.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.feature_extraction_utils import BatchFeature
from transformers.processing_utils import ProcessorMixin

from wearllama.audio.array import ArrayGeometry, load_array
from wearllama.audio.beamforming import Beam, design_beam, select_channels
from wearllama.audio.frontend import LogMel, LogMelConfig
from wearllama.audio.timebase import SAMPLE_RATE, num_embeddings, num_mel_frames
from wearllama.modeling.configuration import CHANNELS
from wearllama.modeling.fusion import FusionConfig
from wearllama.modeling.tokenizer import AUDIO, AUDIO_END, AUDIO_START, AUDIO_TOKENS, token_ids

Message = dict[str, Any]
Waveform = Tensor | NDArray[np.floating]
Clip = Waveform | tuple[Waveform, Waveform]
"""(M, N) of the array's microphones, a pair (c_0, c_x), or (N,) for an SC model."""

IGNORE = -100


class Row(NamedTuple):
    """One row before padding."""

    ids: list[int]
    prompt_length: int


class WearLlamaProcessor(ProcessorMixin):
    """Tokenizer, front end, array geometry and beam of one model.

    Args:
        tokenizer: with this project's tokens (``add_project_tokens``) and a chat template.
        channels: ``mc``, ``sc_beam`` or ``sc_c0``, as in the model's config.
        array: geometry, or its fields as a dict (a checkpoint brings them), or a name; default ``glasses5``.
        beam: filters, or their dict; designed for the array if not given.
        frontend: front-end settings, or their dict.
        max_audio_seconds: longest clip.
        fusion: how channels become decoder positions, or its dict, as in the model's config.
    """

    def __init__(
        self,
        tokenizer: Any = None,
        channels: str = "mc",
        array: ArrayGeometry | dict | str = "glasses5",
        beam: Beam | dict | None = None,
        frontend: LogMelConfig | dict | None = None,
        max_audio_seconds: float = 30.0,
        chat_template: str | None = None,
        fusion: FusionConfig | dict | None = None,
    ) -> None:
        if channels not in CHANNELS:
            raise ValueError(f"channels is {channels!r}, wanted one of {', '.join(CHANNELS)}")
        super().__init__(tokenizer, chat_template=chat_template or getattr(tokenizer, "chat_template", None))
        self.ids = token_ids(tokenizer)
        self.channels = channels
        self.fusion = FusionConfig(**fusion) if isinstance(fusion, dict) else fusion or FusionConfig()
        self.fusion.check(self.num_channels)
        self.max_audio_seconds = max_audio_seconds
        self.array = _geometry(array)
        if isinstance(beam, dict):
            beam = Beam.from_dict(beam)
        self.beam = beam or design_beam(self.array)
        self.frontend = LogMelConfig(**frontend) if isinstance(frontend, dict) else frontend or LogMelConfig()
        self._log_mel = LogMel(self.frontend)

    @property
    def num_channels(self) -> int:
        """Encoded channels: 2 (MC) or 1 (SC)."""
        return CHANNELS[self.channels]

    @property
    def positions_per_frame(self) -> int:
        """Decoder positions that 80 ms take."""
        return self.fusion.streams(self.num_channels)

    @property
    def model_input_names(self) -> list[str]:
        return ["input_ids", "attention_mask", "input_features", "feature_lengths"]

    def to_dict(self) -> dict[str, Any]:
        """What ``save_pretrained`` writes to processor_config.json; the tokenizer is saved beside it."""
        return {
            "processor_class": type(self).__name__,
            "channels": self.channels,
            "array": asdict(self.array),
            "beam": self.beam.to_dict(),
            "frontend": asdict(self.frontend),
            "max_audio_seconds": self.max_audio_seconds,
            **({} if self.fusion == FusionConfig() else {"fusion": asdict(self.fusion)}),
            # transformers sets it on a processor whose code came with a checkpoint, for the next checkpoint.
            **({"auto_map": found} if (found := getattr(self, "auto_map", None)) else {}),
        }

    def hear_with(self, array: ArrayGeometry) -> None:
        """Take recordings of another array from now on, with the beam designed for it."""
        self.array, self.beam = array, design_beam(array)

    # ---- sound ----------------------------------------------------------------------------------------------------

    def select(self, clip: Clip) -> Tensor:
        """The channels that the model encodes, float32 (C, N), of a clip in any of its forms."""
        if isinstance(clip, tuple):
            if len(clip) != 2:
                raise ValueError(f"a clip given as a tuple is (c_0, c_x), found {len(clip)} waveforms")
            c0_N, cx_N = (_tensor(part) for part in clip)
            if c0_N.ndim != 1 or c0_N.shape != cx_N.shape:
                raise ValueError(f"c_0 and c_x must be (N,) alike, found {tuple(c0_N.shape)} and {tuple(cx_N.shape)}")
        else:
            audio = _tensor(clip)
            if audio.ndim == 1:
                if self.num_channels != 1:
                    raise ValueError(f"channels={self.channels!r} needs c_0 and c_x, found one waveform")
                c0_N = cx_N = audio
            else:
                c0_N, cx_N = select_channels(audio, self.array, self.beam)
        chosen = {"mc": (c0_N, cx_N), "sc_beam": (cx_N,), "sc_c0": (c0_N,)}[self.channels]
        self._check_samples(c0_N.shape[-1])
        return torch.stack(chosen)

    def features(self, clips: Sequence[Clip]) -> tuple[Tensor, Tensor]:
        """Normalised log-mel (A, C, T, F) of clips padded with silence behind, and their mel frames (A,)."""
        selected = [self.select(clip) for clip in clips]
        lengths = [audio_CN.shape[-1] for audio_CN in selected]
        padded_ACN = torch.zeros(len(selected), self.num_channels, max(lengths))
        for row, audio_CN in enumerate(selected):
            padded_ACN[row, :, : audio_CN.shape[-1]] = audio_CN
        return self._log_mel(padded_ACN), torch.tensor([num_mel_frames(length) for length in lengths])

    def _check_samples(self, num_samples: int) -> None:
        if num_samples < 1:
            raise ValueError("a clip has no samples")
        if num_samples > self.max_audio_seconds * SAMPLE_RATE:
            raise ValueError(
                f"audio of {num_samples / SAMPLE_RATE:.2f} s is longer than the model's limit of "
                f"{self.max_audio_seconds:g} s (max_audio_seconds); nothing is cut silently"
            )

    # ---- text -----------------------------------------------------------------------------------------------------

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt as text, one ``<|audio|>`` between brackets for every clip, ready for the reply."""
        flat = [{**message, "content": _flatten(message.get("content"))} for message in messages]
        template = self.chat_template or self.tokenizer.chat_template
        if template is None:
            raise ValueError("the tokenizer has no chat template, and none was given")
        return self.tokenizer.apply_chat_template(
            flat, chat_template=template, tokenize=False, add_generation_prompt=True
        )

    def encode_prompt(self, messages: Sequence[Message], num_samples: Sequence[int] = ()) -> list[int]:
        """Prompt ids with exactly as many placeholders a clip as the model will give embeddings."""
        ids = self.tokenizer.encode(self.render(messages), add_special_tokens=False)
        if ids.count(self.ids.audio) != len(num_samples):
            raise ValueError(
                f"messages have {ids.count(self.ids.audio)} audio parts, but {len(num_samples)} clips came with them"
            )
        for samples in num_samples:
            self._check_samples(samples)
        counts = iter([num_embeddings(samples, self.positions_per_frame) for samples in num_samples])
        return [out for token in ids for out in ([token] * next(counts) if token == self.ids.audio else [token])]

    def encode_target(self, target: str) -> list[int]:
        """Ids of a reply, its end included."""
        ids = self.tokenizer.encode(target, add_special_tokens=False)
        if self.ids.audio in ids:
            raise ValueError(f"a target cannot hold {AUDIO}: {target!r}")
        return [*ids, self.ids.eos]

    def batch_decode(self, ids: Tensor | Sequence[Sequence[int]], **kwargs: Any) -> list[str]:
        """Replies as text: padding, end and audio tokens dropped, ``[Mute]`` and the tool brackets kept."""
        kwargs.setdefault("skip_special_tokens", True)
        kwargs.setdefault("clean_up_tokenization_spaces", False)
        return [self.tokenizer.decode(row, **kwargs) for row in ids]

    # ---- both -----------------------------------------------------------------------------------------------------

    def __call__(
        self,
        messages: Sequence[Sequence[Message]] | Sequence[Message],
        audio: Sequence[Clip | list[Clip] | None] | None = None,
        targets: Sequence[str] | None = None,
        padding_side: str | None = None,
    ) -> BatchFeature:
        """A batch for ``model(**batch)`` or ``model.generate(**batch)``.

        Args:
            messages: B conversations (or one); content is text or a list of ``{"type": "text" | "audio"}`` parts.
            audio: for each row None, a clip, or a list of clips in the order of its audio parts.
            targets: replies to learn; then ``labels`` supervise exactly the reply and its end.
            padding_side: default right with targets, left without (generation).

        Returns:
            input_ids, attention_mask (B, S); labels (B, S) with targets; input_features (A, C, T, F) and
            feature_lengths (A,) where any row has audio.
        """
        conversations = _conversations(messages)
        clips_B = [_clips(row) for row in (audio if audio is not None else [None] * len(conversations))]
        for name, given in (("audio", clips_B), ("targets", targets)):
            if given is not None and len(given) != len(conversations):
                raise ValueError(f"{len(conversations)} conversations came with {len(given)} rows of {name}")
        rows = []
        for number, (conversation, clips) in enumerate(zip(conversations, clips_B, strict=True)):
            prompt = self.encode_prompt(conversation, [_num_samples(clip) for clip in clips])
            reply = self.encode_target(targets[number]) if targets is not None else []
            rows.append(self._row(prompt, reply))
        side = padding_side or ("left" if targets is None else "right")
        data = self._pad(rows, side, labels=targets is not None)
        heard = [clip for row in clips_B for clip in row]
        if heard:
            data["input_features"], data["feature_lengths"] = self.features(heard)
        return BatchFeature(data)

    def _row(self, prompt: list[int], reply: list[int]) -> Row:
        limit = self.tokenizer.model_max_length
        if len(prompt) + len(reply) > limit:
            raise ValueError(
                f"a row takes {len(prompt) + len(reply)} positions, the decoder's limit is {limit}; nothing is cut"
            )
        return Row(prompt + reply, len(prompt))

    def _pad(self, rows: list[Row], side: str, *, labels: bool) -> dict[str, Tensor]:
        if side not in ("left", "right"):
            raise ValueError(f"padding_side is {side!r}, wanted left or right")
        size = max(len(row.ids) for row in rows)
        data = {
            "input_ids": torch.full((len(rows), size), self.ids.pad),
            "attention_mask": torch.zeros(len(rows), size, dtype=torch.long),
        }
        if labels:
            data["labels"] = torch.full((len(rows), size), IGNORE)
        for number, row in enumerate(rows):
            start = size - len(row.ids) if side == "left" else 0
            place = slice(start, start + len(row.ids))
            data["input_ids"][number, place] = torch.tensor(row.ids)
            data["attention_mask"][number, place] = 1
            if labels:
                data["labels"][number, start + row.prompt_length : place.stop] = torch.tensor(
                    row.ids[row.prompt_length :]
                )
        return data


def _geometry(array: ArrayGeometry | dict | str) -> ArrayGeometry:
    if isinstance(array, ArrayGeometry):
        return array
    if isinstance(array, str):
        return load_array(array)
    fields = {**array, "positions": tuple(tuple(position) for position in array["positions"])}
    return ArrayGeometry(**{**fields, "mouth": tuple(fields["mouth"])})


def _tensor(audio: Waveform) -> Tensor:
    tensor = torch.as_tensor(audio)
    if not tensor.is_floating_point():
        raise ValueError(f"audio is {tensor.dtype}, wanted float samples with full scale 1.0")
    return tensor.float()


def _conversations(messages: Sequence[Sequence[Message]] | Sequence[Message]) -> Sequence[Sequence[Message]]:
    if messages and isinstance(messages[0], dict):
        return [cast(Sequence[Message], messages)]
    return cast(Sequence[Sequence[Message]], messages)


def _clips(row: Clip | list[Clip] | None) -> list[Clip]:
    if row is None:
        return []
    return list(row) if isinstance(row, list) else [row]


def _num_samples(clip: Clip) -> int:
    return int((clip[0] if isinstance(clip, tuple) else clip).shape[-1])


def _flatten(content: Any) -> str:
    """Message content as one string; a placeholder that is written in text would pass for a clip, so it is refused."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise ValueError(f"message content must be text or a list of parts, found {type(content).__name__}")
    pieces = []
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "audio":
            pieces.append(AUDIO_START + AUDIO + AUDIO_END)
        elif kind == "text":
            text = part["text"]
            if any(token in text for token in AUDIO_TOKENS):
                raise ValueError(f"message text holds an audio token of the model: {text[:80]!r}")
            pieces.append(text)
        else:
            raise ValueError(f"message part must be {{'type': 'text' | 'audio'}}, found {part!r}")
    return "".join(pieces)
