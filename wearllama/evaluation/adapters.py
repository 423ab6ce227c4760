"""Models behind one face: a WearLlama checkpoint (hearing, deafened, or reading), and the majority class.

``input`` says what reaches the model: ``audio``; ``silence`` (the same recording as digital zeros: what is left is
prior, not hearing); ``transcript`` (the words instead of the sound: what the decoder alone can do).
"""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from wearllama.audio.array import load_array
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.actions import parse_action
from wearllama.data.manifest import Clip, Example
from wearllama.evaluation.device import default_device
from wearllama.evaluation.output import Output
from wearllama.evaluation.pairs import ChannelPair
from wearllama.modeling.contexts import find_context
from wearllama.modeling.factory import load_checkpoint, model_folder
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor

Input = Literal["audio", "silence", "transcript"]
_STATE_FILES = ("trainer_state.json",)
_HASHED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def checkpoint_folder(path: str | Path) -> Path:
    """The folder that holds the model: ``path`` itself, or its ``final``; ValueError otherwise."""
    folder = model_folder(path, "config.json")
    if folder is not None:
        return folder
    begun = sorted(Path(path).glob("checkpoint-*"), key=lambda folder: (len(folder.name), folder.name))
    hint = f"; the run is not finished, its last checkpoint is {begun[-1]}" if begun else ""
    raise ValueError(f"{path} is no WearLlama checkpoint: neither it nor its 'final' has a config.json{hint}")


def weights_hash(folder: str | Path) -> str:
    """16 hexadecimal digits of all that decides an output: weights, configs, tokenizer, front end, beam."""
    root = Path(folder)
    files = sorted({path for pattern in _HASHED for path in root.glob(pattern)})
    if not any(path.suffix == ".safetensors" for path in files):
        raise ValueError(f"{root} holds no safetensors weights")
    digest = hashlib.sha256()
    for path in files:
        if path.name not in _STATE_FILES:
            digest.update(path.name.encode())
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


class CheckpointAdapter:
    """A saved WearLlama, decoded greedily."""

    pair: ChannelPair | None = None
    """Channels heard in place of the model's own."""

    def __init__(
        self,
        path: str | Path,
        *,
        input: Input = "audio",
        max_new_tokens: int = 96,
        device: str | None = None,
        dtype: torch.dtype = torch.float32,
        truncate: bool = False,
        array: str | None = None,
        look_ahead: int | None = None,
    ) -> None:
        """``truncate`` keeps the beginning of a recording that is too long, and says so in the log.

        ``array``: recordings of this one (a name in conf/array or a file) in place of the checkpoint's; the beam is
        designed for it.  ``look_ahead``: which of a streaming encoder's contexts is used, in frames of 80 ms; an
        untrained one is a ValueError.
        """
        if input not in get_args(Input):
            raise ValueError(f"input is {input!r}, wanted one of {get_args(Input)}")
        folder = checkpoint_folder(path)
        self.folder = folder
        self.device = torch.device(device or default_device())
        self.dtype = dtype
        self.input = input
        self._loaded: list[Any] = []
        self.truncate = truncate
        self.array = None if array is None else load_array(array)
        self._identity = {"model": folder_name(folder), "weights": weights_hash(folder), "input": input}
        if self.array is not None:
            self._identity["array"] = self.array.name
        self.look_ahead = look_ahead
        if look_ahead is not None:
            self._check_look_ahead(look_ahead)
            self._identity["look_ahead"] = str(look_ahead)
        self._generation: dict[str, Any] = {
            "decoding": "greedy", "max_new_tokens": max_new_tokens, "dtype": str(dtype).removeprefix("torch."),
        }  # fmt: skip
        if truncate:  # absent otherwise: keys of predictions stay what they were
            self._generation["truncated_to_s"] = self._audio_limit()

    @property
    def identity(self) -> dict[str, str]:
        return self._identity

    @property
    def generation(self) -> dict[str, Any]:
        return self._generation

    @property
    def max_audio_seconds(self) -> float | None:
        return None if self.truncate or self.input == "transcript" else self._audio_limit()

    def _config(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "config.json").read_text()))

    def _audio_limit(self) -> float:
        return float(self._config().get("max_audio_seconds", 30.0))

    def _check_look_ahead(self, look_ahead: int) -> None:
        """Before the weights are there, and naming the checkpoint."""
        try:
            find_context(self._config()["encoder"].get("contexts", ()), look_ahead)
        except ValueError as error:
            raise ValueError(f"{self.folder}: {error}") from None

    @property
    def model(self) -> WearLlamaForConditionalGeneration:
        """The model; loaded when first needed, so that a run whose log is complete needs no weights."""
        return self._load()[0]

    @property
    def processor(self) -> WearLlamaProcessor:
        """The checkpoint's own processor, with another array where one was asked for."""
        return self._load()[1]

    def _load(self) -> list[Any]:
        if not self._loaded:
            self._loaded.extend(load_checkpoint(self.folder, dtype=self.dtype, device=self.device))
            if self.array is not None:
                self.processor.hear_with(self.array)
            if self.look_ahead is not None:
                self.model.encoder.set_look_ahead(self.look_ahead)
        return self._loaded

    def with_input(self, input: Input) -> "CheckpointAdapter":
        """The same model in memory with another kind of input."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.input, other._identity = input, {**self._identity, "input": input}
        return other

    def with_pair(self, pair: ChannelPair | None) -> "CheckpointAdapter":
        """The same model in memory that hears other channels: another system, unless they are its own."""
        if pair is None:
            return self
        pair.check(self.processor.array.num_mics)
        if pair.is_own(self.processor.channels):
            return self
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.pair, other._identity = pair, {**self._identity, "pair": pair.name}
        return other

    def hear(self, example: Example, clip: Clip | None) -> Clip | None:
        """What of a recording reaches the model: all of it here, changed under an evaluation condition."""
        return clip

    @torch.inference_mode()
    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        heard = [self.hear(example, clip) for example, clip in zip(examples, clips, strict=True)]
        said = self._generate(examples, [self._cut(clip) for clip in heard], self._generation["max_new_tokens"])
        if not self.truncate:
            return said
        return [Output(text, self._cut_from(clip)) for text, clip in zip(said, heard, strict=True)]

    def _cut(self, clip: Clip | None) -> Clip | None:
        if clip is None or not self._cut_from(clip):
            return clip
        samples = int(self._audio_limit() * SAMPLE_RATE)
        return Clip(clip.audio_MN[:, :samples], None if clip.beam_N is None else clip.beam_N[:samples])

    def _cut_from(self, clip: Clip | None) -> dict[str, float]:
        """``truncated_from_s`` of a recording that is too long; {} for all others."""
        if clip is None or not self.truncate or self.input == "transcript":
            return {}
        seconds = clip.audio_MN.shape[1] / SAMPLE_RATE
        return {"truncated_from_s": round(seconds, 3)} if seconds > self._audio_limit() else {}

    @torch.inference_mode()
    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        heard = self._cut(self.hear(example, clip))
        self._synchronise()
        started = time.perf_counter()
        self._generate([example], [heard], 1)
        self._synchronise()
        return time.perf_counter() - started

    def _generate(self, examples: Sequence[Example], clips: Sequence[Clip | None], tokens: int) -> list[str]:
        inputs = [self._prepare(example, clip) for example, clip in zip(examples, clips, strict=True)]
        batch = self.processor([messages for messages, _ in inputs], [audio for _, audio in inputs]).to(self.device)
        out_BS = self.model.generate(**batch, max_new_tokens=tokens, do_sample=False, num_beams=1)
        return self.processor.batch_decode(out_BS[:, batch["input_ids"].shape[1] :])

    def _prepare(self, example: Example, clip: Clip | None) -> tuple[list[dict[str, Any]], Any]:
        if clip is None:
            return example.messages, None
        if self.input == "transcript":
            words = str(example.metadata.get("transcript") or "")
            turns = [m if isinstance(m["content"], str) else {**m, "content": words} for m in example.messages]
            return turns, None
        audio = self.waveforms(clip)
        if self.input == "silence":
            zeros = torch.zeros_like
            audio = (zeros(audio[0]), zeros(audio[1])) if isinstance(audio, tuple) else zeros(audio)
        return example.messages, audio

    def waveforms(self, clip: Clip) -> Tensor | tuple[Tensor, Tensor]:
        """What the processor takes of a clip: (c_0, c_x) where the beam was recorded, chosen or the clip is mono."""
        if self.pair is not None:
            return self.pair.waveforms(clip, self.processor.array, self.processor.beam)
        if clip.beam_N is not None:
            return clip.audio_MN[self.processor.array.reference], clip.beam_N
        if clip.audio_MN.shape[0] == 1:
            return clip.audio_MN[0], clip.audio_MN[0]
        return clip.audio_MN

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class MajorityAdapter:
    """Says the most frequent target, whatever it hears: the score of the prior.

    One constant for all tasks that share a prompt (requests and side-talk do), one for each other task: no better
    constant exists, and no system below it has heard anything.
    """

    max_audio_seconds = None

    def __init__(self, examples: Sequence[Example]) -> None:
        classes: dict[str, Counter[str]] = {}
        targets: dict[tuple[str, str], str] = {}
        for example in examples:
            family, name = _family(example), _class(example)
            classes.setdefault(family, Counter())[name] += 1
            targets.setdefault((family, name), example.target)
        self.constant = {
            family: targets[family, counts.most_common(1)[0][0]] for family, counts in sorted(classes.items())
        }
        self.generation: dict[str, Any] = {"constant": dict(sorted(self.constant.items()))}
        self.identity = {"model": "majority class", "weights": "none", "input": "none"}

    def generate(self, examples: Sequence[Example], clips: Sequence[Clip | None]) -> list[str]:
        return [self.constant[_family(example)] for example in examples]

    def first_token_seconds(self, example: Example, clip: Clip | None) -> float | None:
        return None


def _family(example: Example) -> str:
    """Tasks between which only the sound decides."""
    if example.dialect == "vgbench" or example.task in ("tool_call", "non-assistant-directed"):
        return example.dialect
    return example.task


def _class(example: Example) -> str:
    """A target's class: its tools' names (arguments never repeat), or its words."""
    action = parse_action(example.target, example.dialect)  # type: ignore[arg-type]
    return " ".join(call.name for call in action.calls) if action.kind == "tool" else example.target


def folder_name(folder: Path) -> str:
    """A checkpoint's name in tables: the last two parts of its path."""
    return "/".join(folder.resolve().parts[-2:])
