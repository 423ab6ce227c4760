"""The front end on sound that arrives piece by piece: pushed samples -> c_0 and c_x -> log-mel frames.

A frame leaves as soon as its samples are there: its whole window, and for the beam ``Beam.delay_samples`` (5.5 ms) of
what follows it.  Pieces may be cut anywhere.  The frames are those of the whole clip, to the rounding of the Fourier
transforms: nothing is filtered in another way, only what overlaps is filtered again.

Shapes: M microphones, N samples, C encoded channels, T mel frames, F mel bins.
"""

import torch
from torch import Tensor

from wearllama.audio.array import ArrayGeometry
from wearllama.audio.beamforming import Beam, apply_beam
from wearllama.audio.frontend import LogMel, LogMelConfig
from wearllama.audio.timebase import HOP_SAMPLES, WINDOW_SAMPLES, num_mel_frames

PICKED = {"mc": (0, 1), "sc_beam": (1,), "sc_c0": (0,)}
"""What of (c_0, c_x) is encoded, by the model's ``channels``."""


class BeamStream:
    """``select_channels`` with carried overlap: pieces (M, N) in, aligned pieces (2, N') of c_0 and c_x out."""

    def __init__(self, array: ArrayGeometry, beam: Beam) -> None:
        self.array, self.beam = array, beam
        overlap = beam.fir_MK.shape[1] - 1
        self._held_MN = torch.zeros(array.num_mics, overlap)
        self.early = beam.delay_samples
        """Outputs that still lie before the first sample."""

    def push(self, audio_MN: Tensor) -> Tensor:
        """The samples that ``audio_MN`` (one sample or more) completes: as many as it has, delayed by the beam's."""
        overlap, delay = self._held_MN.shape[1], self.beam.delay_samples
        segment_MN = torch.cat((self._held_MN, audio_MN), dim=1)
        size = segment_MN.shape[1]
        pair_2N = torch.stack((segment_MN[self.array.reference], apply_beam(segment_MN, self.beam)))
        # Nearer to its ends than the filter is long, the segment lacks samples that the clip has.
        pair_2N = pair_2N[:, overlap - delay : size - delay]
        self._held_MN = segment_MN[:, size - overlap :]
        early = min(self.early, pair_2N.shape[1])
        self.early -= early
        return pair_2N[:, early:]


class FrontEndStream:
    """Normalised log-mel (C, T, F) of a clip that arrives in pieces.

    Args:
        channels: ``mc``, ``sc_beam`` or ``sc_c0``.
        array: geometry of the microphones.
        beam: its beam.
        frontend: settings of the features.
    """

    def __init__(self, channels: str, array: ArrayGeometry, beam: Beam, frontend: LogMelConfig) -> None:
        self.channels, self.array, self.beam = channels, array, beam
        self.num_samples = 0
        """Samples a channel pushed so far."""
        self.num_frames = 0
        """Frames given out so far."""
        self._log_mel = LogMel(frontend)
        self._kind = ""
        self._beam: BeamStream | None = None
        self._waiting: list[Tensor] = []
        self._ready_CN = torch.zeros(len(PICKED[channels]), 0)
        """Selected channels from the first sample of the next frame on."""

    def push(self, audio: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """Take microphones (M, N), a pair (c_0, c_x) of (N,), or (N,) for an SC model: any N, one kind a clip.

        Returns:
            The frames (C, T, F) that are complete now; T may be 0.

        Raises:
            ValueError: not the array's channels, another kind than before, or samples that are not finite floats.
        """
        kind, audio_RN = self._checked(audio)
        if not self._kind and kind == "microphones":
            self._beam = BeamStream(self.array, self.beam)
        self._kind = kind
        if audio_RN.shape[1]:
            self._waiting.append(audio_RN)
        self.num_samples += audio_RN.shape[1]
        early = self._beam.early if self._beam is not None else 0
        coming = self._ready_CN.shape[1] + sum(piece.shape[1] for piece in self._waiting) - early
        if coming >= WINDOW_SAMPLES:  # the beam waits for a frame's worth: single samples would cost a transform each
            self._select()
        return self._frames(max(0, (self._ready_CN.shape[1] - WINDOW_SAMPLES) // HOP_SAMPLES + 1))

    def finish(self) -> Tensor:
        """The remaining frames (C, T, F), the last one padded as in ``LogMel``; ValueError for a clip of no samples."""
        total = num_mel_frames(self.num_samples)
        if self._beam is not None:  # silence follows the clip, as in ``apply_beam``
            self._waiting.append(torch.zeros(self.array.num_mics, self.beam.delay_samples))
        self._select()
        return self._frames(total - self.num_frames)

    def _checked(self, audio: Tensor | tuple[Tensor, Tensor]) -> tuple[str, Tensor]:
        """What is pushed and its samples (R, N), float32: microphones, (c_0, c_x), or one waveform."""
        if isinstance(audio, tuple):
            kind, wanted = "pair", "(samples,) twice"
            fits = len(audio) == 2 and all(part.ndim == 1 for part in audio) and audio[0].shape == audio[1].shape
        elif audio.ndim == 1:
            kind, wanted = "waveform", f"c_0 and c_x for channels={self.channels!r}"
            fits = len(PICKED[self.channels]) == 1
        else:
            kind, wanted = "microphones", f"({self.array.num_mics}, samples) of array {self.array.name!r}"
            fits = audio.ndim == 2 and audio.shape[0] == self.array.num_mics
        if not fits:
            found = [tuple(part.shape) for part in audio] if isinstance(audio, tuple) else tuple(audio.shape)
            raise ValueError(f"pushed audio of shape {found}, wanted {wanted}")
        if self._kind not in ("", kind):
            raise ValueError(f"pushed a {kind} after {self._kind}: a clip arrives in one form")
        audio_RN = torch.stack(audio) if isinstance(audio, tuple) else torch.atleast_2d(audio)
        if not audio_RN.is_floating_point() or not audio_RN.isfinite().all():
            raise ValueError(f"pushed {audio_RN.dtype} samples, wanted finite floats with full scale 1.0")
        return kind, audio_RN.float()

    def _select(self) -> None:
        """Beam what waits and keep the encoded channels of it."""
        if not self._waiting:
            return
        audio_RN = torch.cat(self._waiting, dim=1)
        self._waiting.clear()
        pair_2N = audio_RN.expand(2, -1) if self._beam is None else self._beam.push(audio_RN)
        self._ready_CN = torch.cat((self._ready_CN, pair_2N[list(PICKED[self.channels])]), dim=1)

    def _frames(self, count: int) -> Tensor:
        """The next ``count`` frames, and their samples let go of."""
        if count == 0:
            return self._ready_CN.new_zeros(self._ready_CN.shape[0], 0, self._log_mel.config.n_mels)
        feats_CTF = self._log_mel(self._ready_CN[:, : HOP_SAMPLES * (count - 1) + WINDOW_SAMPLES])
        self._ready_CN = self._ready_CN[:, HOP_SAMPLES * count :]
        self.num_frames += count
        assert feats_CTF.shape[1] == count, "the frames of a clip's parts add up to those of the clip"
        return feats_CTF
