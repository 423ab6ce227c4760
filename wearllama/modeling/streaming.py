"""StreamingSession: one clip heard while it is spoken, so that little is left to do when it ends.

Every push runs the front end, encodes the chunks of the encoder's context that are complete, and feeds their embeddings
to the decoder, whose keys and values grow.  The system prompt and its tools are in the cache before the first sample.
At the end of speech the last chunk and the suffix of the prompt remain; their logits are those of the whole clip with
the same look-ahead, and the first of them is the gate P([Mute]).  ``end()`` stops there, ``finish()`` goes on to the
reply and the action that it is.

Shape suffixes: M microphones, N samples, C encoded channels, T mel frames, F mel bins, L encoder frames, D encoder
width, E decoder width, P positions, V vocabulary.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from wearllama.audio.streaming import FrontEndStream
from wearllama.audio.timebase import SAMPLE_RATE, num_embeddings
from wearllama.data.actions import Action, Dialect, parse_action
from wearllama.modeling.encoder_stream import EncoderStream, ProjectorStream
from wearllama.modeling.interleave import interleave_channels
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import Clip, Message, WearLlamaProcessor
from wearllama.modeling.prompt_cache import PromptCache


@dataclass(frozen=True, kw_only=True)
class StreamingTimings:
    """Seconds of wall time in a session."""

    audio: float
    """Length of the clip."""
    pushes: float
    """Work done while it was heard."""
    first_token: float
    """From the end of speech to P([Mute]), and so to the first token."""
    total: float
    """From the end of speech to the last token."""


@dataclass(frozen=True, kw_only=True)
class StreamingResult:
    """What the model made of a clip."""

    text: str
    """The reply, as ``WearLlamaProcessor.batch_decode`` gives it."""
    action: Action
    """What it does: ``[Mute]``, tool call(s), an answer, or malformed; by the session's dialect."""
    ids: list[int]
    """Its tokens, the end included where it was reached."""
    p_mute: float
    """Probability of ``[Mute]`` as the first token."""
    positions: int
    """Audio embeddings in the decoder's context."""
    timings: StreamingTimings


class StreamingSession:
    """One conversation whose one audio part arrives in pieces.

    Args:
        model: in evaluation mode; its weights must not change during the session.
        processor: of the same checkpoint.
        messages: chat turns up to the model's, with exactly one audio part.
        look_ahead: which of the encoder's contexts to use, by its look-ahead in frames of 80 ms; None: the encoder's
            choice (``ConformerEncoder.set_look_ahead``).
        prompts: shared among sessions, it holds their common beginning; None: this session computes its own.
        max_new_tokens: longest reply.
        recompute: for encoders of whole clips (``encoder.contexts`` empty), which have nothing to say before the clip
            ends: prompt and front end still run ahead, encoder and decoder's audio at ``end()``.
        dialect: in which the reply is read as an action, ``wearvox`` or ``vgbench``.

    Raises:
        ValueError: a model in training mode, an encoder of whole clips without ``recompute``, an untrained look-ahead,
            an unknown dialect, or messages without exactly one audio part.
    """

    def __init__(
        self,
        model: WearLlamaForConditionalGeneration,
        processor: WearLlamaProcessor,
        messages: Sequence[Message],
        *,
        look_ahead: int | None = None,
        prompts: PromptCache | None = None,
        max_new_tokens: int = 96,
        recompute: bool = False,
        dialect: Dialect = "wearvox",
    ) -> None:
        if model.training:
            raise ValueError("the model is in training mode; call model.eval() before a streaming session")
        if model.projector.adapter is not None:
            raise ValueError("projector.adapter_width is set: the papers' adapter attends to whole clips, wanted 0")
        if prompts is not None and prompts.model is not model:
            raise ValueError("prompts belongs to another model")
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens}, wanted 1 or more")
        if dialect not in get_args(Dialect):
            raise ValueError(f"dialect is {dialect!r}, wanted one of {', '.join(get_args(Dialect))}")
        self.model, self.processor, self.dialect = model, processor, dialect
        self.max_new_tokens = max_new_tokens
        self._encoder: EncoderStream | None = None
        if not recompute:
            if not model.encoder.config.contexts:
                raise ValueError(
                    "the encoder of this model attends to whole clips (encoder.contexts is empty) and cannot stream; "
                    "recompute=True runs it when the clip has ended"
                )
            self._encoder = EncoderStream(model.encoder, processor.num_channels, look_ahead)
        elif look_ahead is not None:
            raise ValueError(f"look_ahead is {look_ahead}, but recompute=True encodes the whole clip at its end")
        self._prefix, self._suffix = _split_prompt(processor, messages)
        self._check_length(0)
        self._front = FrontEndStream(processor.channels, processor.array, processor.beam, processor.frontend)
        self._projector = ProjectorStream(model.projector)
        self._feats: list[Tensor] = []
        self._decoding = (prompts or PromptCache(model)).start(self._prefix)
        with torch.inference_mode():
            self._suffix_1PE = self._decoding.embed(self._suffix)
        self._push_seconds = 0.0
        self._started: float | None = None
        """When speech ended."""
        self._first_token_seconds = 0.0
        self._logits_V: Tensor | None = None
        self._replied = False

    @property
    def num_samples(self) -> int:
        """Samples a channel pushed so far."""
        return self._front.num_samples

    @property
    def num_positions(self) -> int:
        """Audio embeddings that the decoder has taken in so far."""
        return self._decoding.length - len(self._prefix)

    @torch.inference_mode()
    def push(self, audio: Clip) -> int:
        """Hear the next samples; returns how many embeddings have been given to the decoder so far.

        Args:
            audio: (M, N) of the array's microphones, a pair (c_0, c_x) of (N,), or (N,) for an SC model; any N.

        Raises:
            ValueError: speech has ended, the clip would pass ``max_audio_seconds`` or the decoder's positions,
                or the front end refuses the samples; the session then stays as it was.
        """
        started = time.perf_counter()
        self._refuse_after_end()
        self._hear(self._take(audio), last=False)
        self._push_seconds += time.perf_counter() - started
        return self.num_positions

    @torch.inference_mode()
    def p_mute(self) -> float | None:
        """P([Mute]) if the clip consisted of what the decoder has taken in; None while that is nothing.

        The chunk that is not complete yet is not part of it; ``end()`` has the probability of the whole clip.
        """
        self._refuse_after_end()
        return self._p_mute(self._decoding.peek(self._suffix_1PE)) if self.num_positions else None

    @torch.inference_mode()
    def end(self, audio: Clip | None = None) -> float:
        """End of speech: take in the rest; returns P([Mute]), the gate that says whether a reply is worth its time.

        Args:
            audio: the last samples, where they are known to be the last: sooner than ``push`` and ``end``, which
                would give the decoder two readings.

        Raises:
            ValueError: speech has ended before, no sample was pushed, or as ``push`` has it.
        """
        started = time.perf_counter()
        self._refuse_after_end()
        last_CTF = [] if audio is None else [self._take(audio)]
        rest_CTF = torch.cat([*last_CTF, self._front.finish()], dim=1)
        self._started = started
        audio_1PE = self._hear(rest_CTF, last=True)
        expected = num_embeddings(self.num_samples, self.processor.positions_per_frame)
        assert self.num_positions + audio_1PE.shape[1] == expected, "the parts add up to the clip's embeddings"
        self._logits_V = self._decoding.feed(torch.cat((audio_1PE, self._suffix_1PE), dim=1))
        gate = self._p_mute(self._logits_V)
        self._first_token_seconds = time.perf_counter() - started
        return gate

    @torch.inference_mode()
    def finish(self, on_text: Callable[[str], None] | None = None) -> StreamingResult:
        """End of speech, where ``end()`` has not been called, and the greedy reply.

        Args:
            on_text: called with the reply so far after every token.

        Raises:
            ValueError: the session has replied already, or no sample was pushed.
        """
        if self._replied:
            raise ValueError("the session is finished: a new clip needs a new StreamingSession")
        if self._started is None:
            self.end()
        assert self._logits_V is not None and self._started is not None, "speech has ended"
        self._replied = True
        ids: list[int] = []
        for token in self._decoding.greedy(self._logits_V, self.max_new_tokens):
            ids.append(token)
            if on_text is not None:
                on_text(self.processor.batch_decode([ids])[0])
        text = self.processor.batch_decode([ids])[0]
        return StreamingResult(
            text=text,
            action=parse_action(text, self.dialect),
            ids=ids,
            p_mute=self._p_mute(self._logits_V),
            positions=num_embeddings(self.num_samples, self.processor.positions_per_frame),
            timings=StreamingTimings(
                audio=self.num_samples / SAMPLE_RATE,
                pushes=self._push_seconds,
                first_token=self._first_token_seconds,
                total=time.perf_counter() - self._started,
            ),
        )

    def _take(self, audio: Clip) -> Tensor:
        """The frames (C, T, F) that the next samples complete."""
        samples = _as_tensors(audio)
        length = (samples[0] if isinstance(samples, tuple) else samples).shape[-1:]
        self._check_length(self.num_samples + sum(length))
        return self._front.push(samples)

    def _hear(self, feats_CTF: Tensor, *, last: bool) -> Tensor:
        """Encode new frames; feed their embeddings to the decoder, or return them (1, P, E) if they are the last."""
        if self._encoder is None:
            self._feats.append(feats_CTF)
            return self._encode_whole() if last else feats_CTF
        feats_CTF = feats_CTF.to(self.model.device)
        encoded_CLD = self._encoder.finish(feats_CTF) if last else self._encoder.push(feats_CTF)
        audio_1PE = interleave_channels(self._projector.push(encoded_CLD[None], last=last))
        if not last and audio_1PE.shape[1]:
            self._decoding.feed(audio_1PE, logits=False)
        return audio_1PE

    def _encode_whole(self) -> Tensor:
        feats_1CTF = torch.cat(self._feats, dim=1)[None].to(self.model.device)
        lengths_1 = torch.tensor([feats_1CTF.shape[2]], device=self.model.device)
        return self.model.embed_audio(feats_1CTF, lengths_1)[0]

    def _p_mute(self, logits_V: Tensor) -> float:
        return float(logits_V.float().softmax(-1)[self.processor.ids.mute])

    def _refuse_after_end(self) -> None:
        if self._started is not None:
            raise ValueError("speech has ended: a new clip needs a new StreamingSession")

    def _check_length(self, samples: int) -> None:
        limit = self.processor.max_audio_seconds
        if samples > limit * SAMPLE_RATE:
            raise ValueError(
                f"audio of {samples / SAMPLE_RATE:.2f} s is longer than the model's limit of {limit:g} s "
                "(max_audio_seconds); nothing is cut silently"
            )
        positions = len(self._prefix) + num_embeddings(max(samples, 1), self.processor.positions_per_frame)
        positions += len(self._suffix)
        if positions > self.processor.tokenizer.model_max_length:
            raise ValueError(
                f"the prompt takes {positions} positions with {samples / SAMPLE_RATE:.2f} s of audio, the decoder's "
                f"limit is {self.processor.tokenizer.model_max_length}; nothing is cut"
            )


def _as_tensors(audio: Clip) -> Tensor | tuple[Tensor, Tensor]:
    if isinstance(audio, tuple):
        c0_N, cx_N = (torch.as_tensor(part) for part in audio)
        return c0_N, cx_N
    return torch.as_tensor(audio)


def _split_prompt(processor: WearLlamaProcessor, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
    """Token ids before and after the place of the audio embeddings."""
    ids = processor.tokenizer.encode(processor.render(messages), add_special_tokens=False)
    if ids.count(processor.ids.audio) != 1:
        raise ValueError(f"messages have {ids.count(processor.ids.audio)} audio parts, a streaming session wants one")
    place = ids.index(processor.ids.audio)
    return ids[:place], ids[place + 1 :]
