"""P([Mute]) over time: what the model would do if speech ended now.

Encoders that stream are asked while they listen; encoders of whole clips hear each beginning of the clip anew, as
evaluation would.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import Message, WearLlamaProcessor
from wearllama.modeling.streaming import StreamingSession


class GatePoint(NamedTuple):
    """The gate after a part of a clip."""

    seconds: float
    p_mute: float


@torch.inference_mode()
def mute_curve(
    model: WearLlamaForConditionalGeneration,
    processor: WearLlamaProcessor,
    messages: Sequence[Message],
    audio_CN: Tensor,
    *,
    step_s: float = 0.24,
    rows: int = 8,
) -> list[GatePoint]:
    """P([Mute]) as the first token after each ``step_s`` of a clip and after all of it.

    Args:
        messages: chat turns up to the model's, with exactly one audio part.
        audio_CN: the microphones of the processor's array (M, N), or (N,) for an SC model.
        rows: beginnings that are encoded at once by an encoder of whole clips.
    """
    if step_s <= 0 or rows < 1:
        raise ValueError(f"step_s is {step_s}, wanted above 0; rows is {rows}, wanted 1 or more")
    samples, step = audio_CN.shape[-1], max(int(step_s * SAMPLE_RATE), 1)
    ends = [*range(step, samples, step), samples]
    if model.encoder.config.contexts:
        return _streamed(model, processor, messages, audio_CN, ends)
    values: list[float] = []
    for first in range(0, len(ends), rows):
        clips = [audio_CN[..., :end] for end in ends[first : first + rows]]
        batch = processor([list(messages)] * len(clips), clips).to(model.device)
        out = model.generate(
            **batch, max_new_tokens=1, do_sample=False, num_beams=1, output_logits=True, return_dict_in_generate=True
        )
        values += out.logits[0].float().softmax(-1)[:, processor.ids.mute].tolist()
    return [GatePoint(end / SAMPLE_RATE, value) for end, value in zip(ends, values, strict=True)]


def _streamed(
    model: WearLlamaForConditionalGeneration,
    processor: WearLlamaProcessor,
    messages: Sequence[Message],
    audio_CN: Tensor,
    ends: Sequence[int],
) -> list[GatePoint]:
    session = StreamingSession(model, processor, messages, max_new_tokens=1)
    points = []
    for start, end in zip([0, *ends], ends, strict=False):
        session.push(audio_CN[..., start:end])
        if end != ends[-1] and (p_mute := session.p_mute()) is not None:
            points.append(GatePoint(end / SAMPLE_RATE, p_mute))
    return [*points, GatePoint(ends[-1] / SAMPLE_RATE, session.finish().p_mute)]
