"""What a stored encoder hears by its own CTC head, channel by channel: an encoder's words before any decoder's.

Shapes: C channels, L encoder frames, V word pieces.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam
from wearllama.audio.frontend import LogMel, LogMelConfig
from wearllama.audio.timebase import num_mel_frames
from wearllama.data.ctc_text import WordPieces
from wearllama.data.manifest import Clip, Example
from wearllama.evaluation.intervals import error_rate_of, relative_reduction
from wearllama.evaluation.pairs import channel_of
from wearllama.evaluation.table import Table, cell
from wearllama.evaluation.transcription import count_errors
from wearllama.modeling.encoder_io import find_encoder, load_encoder, stored_config, stored_head
from wearllama.modeling.pretraining import greedy_ctc

CHANNELS = ("c_x", "c_0", "c_1")
BEAM, MICROPHONE = CHANNELS[:2]
HEARD = (("c_x",), ("c_0",), ("c_x", "c_0"), ("c_0", "c_1"), ("c_x", "c_1"))
"""Channels whose distributions over word pieces are averaged, frame by frame."""
ORACLE = "better of c_x and c_0"
Counts = Mapping[str, tuple[int, int]]
"""(errors, words) by recording."""


class Heard(NamedTuple):
    """One recording's words and (errors, words), by what was heard."""

    words: dict[str, str]
    counts: dict[str, tuple[int, int]]


class StoredRecogniser:
    """The encoder and CTC head of a folder that recipes/pretrain_encoder.py exports, or ``packaged``."""

    def __init__(self, encoder: str, *, device: str) -> None:
        self.weights = find_encoder(encoder)
        self.device = device
        weight_VD, bias_V = stored_head(self.weights)
        self.pieces = WordPieces.load(self.weights.with_name("pieces.json"))
        if self.pieces.size != len(weight_VD):
            raise ValueError(
                f"encoder={encoder}: its head gives {len(weight_VD)} pieces, its pieces.json has {self.pieces.size}"
            )
        self.head_VD, self.bias_V = weight_VD.to(device), bias_V.to(device)
        self.encoder = load_encoder(encoder).to(device).eval()
        self.log_mel = LogMel(LogMelConfig(**stored_config(encoder).get("frontend", {})))

    @torch.inference_mode()
    def distributions(self, audio_CN: Tensor) -> Tensor:
        """Probabilities of the word pieces, (C, L, V), of one recording's channels."""
        feats_CTF = self.log_mel(audio_CN.to(self.device))
        lengths_C = torch.full((len(audio_CN),), num_mel_frames(audio_CN.shape[1]), device=self.device)
        embeddings_CLD = self.encoder(feats_CTF, lengths_C).embeddings_BLD
        return torch.nn.functional.linear(embeddings_CLD, self.head_VD, self.bias_V).softmax(-1)

    def words(self, distribution_LV: Tensor) -> str:
        """Greedy CTC."""
        return self.pieces.decode(greedy_ctc(distribution_LV[None], torch.tensor([len(distribution_LV)]))[0])


def hear(recogniser: StoredRecogniser, example: Example, clip: Clip, array: ArrayGeometry, beam: Beam) -> Heard:
    """Words of a recording with a transcript by each choice of channels, and their errors."""
    audio_CN = torch.stack([channel_of(name, clip, array, beam) for name in CHANNELS])
    of = dict(zip(CHANNELS, recogniser.distributions(audio_CN), strict=True))
    words = {"-".join(names): recogniser.words(torch.stack([of[name] for name in names]).mean(0)) for names in HEARD}
    counts = {name: count_errors(example, text) for name, text in words.items()}
    return Heard(words, counts | {ORACLE: min(counts[BEAM], counts[MICROPHONE])})


def results(heard: Mapping[str, Heard]) -> dict[str, Any]:
    """By system: its error rate, how many fewer errors it makes than c_x (None where c_x makes none), every count."""
    systems = list(next(iter(heard.values())).counts)
    counts = {system: {name: one.counts[system] for name, one in heard.items()} for system in systems}
    return {system: _result(counts[system], counts[BEAM]) for system in systems}


def _result(counts: Counts, beam: Counts) -> dict[str, Any]:
    comparable = any(errors for errors, _ in beam.values())
    return {
        "wer": error_rate_of(list(counts.values())).to_dict(),
        "fewer_errors_than_c_x": relative_reduction(beam, counts).to_dict() if comparable else None,
        "errors_and_words": {name: list(pair) for name, pair in counts.items()},
    }


def table_of(systems: Mapping[str, Any]) -> Table:
    """A row a choice of channels."""
    rows = [
        (name, cell(found["wer"]), "-" if name == BEAM else cell(found["fewer_errors_than_c_x"]))
        for name, found in systems.items()
    ]
    note = "Two channels: the mean of their distributions over word pieces. 95 % bootstrap intervals over recordings."
    return Table(
        "Words of the encoder's own CTC head", ("heard", "word error rate", "fewer errors than c_x"), rows, note
    )
