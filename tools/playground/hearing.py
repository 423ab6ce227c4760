"""A checkpoint that listens to what the page simulates."""

from typing import NamedTuple

import torch
from torch import Tensor

from wearllama.audio.beamforming import select_channels
from wearllama.audio.frontend import LogMel
from wearllama.data.actions import parse_action
from wearllama.data.prompts import PromptStyle, build_messages, load_prompts
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, WEARVOX_TOOLS
from wearllama.evaluation.adapters import CheckpointAdapter
from wearllama.modeling.gate import GatePoint, mute_curve
from wearllama.simulation.mixing import Mixture
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import PlacedScene, render_placed

TASKS = {"wearvox": WEARVOX_TOOLS, "vgbench": CONSEQUENTIAL_TOOLS}
MAX_NEW_TOKENS = 64


class Heard(NamedTuple):
    """What one checkpoint made of a scene."""

    name: str
    said: str
    action: str
    """``[Mute]``, the tools' names, ``answer`` or ``malformed`` and why."""
    curve: list[GatePoint]

    @property
    def p_mute(self) -> float:
        return self.curve[-1].p_mute


class Sound(NamedTuple):
    """What the first checkpoint's device hands to a model."""

    c0_N: Tensor
    cx_N: Tensor
    mels_CTF: Tensor
    """Normalised log-mel of both."""


class Listener:
    """One checkpoint with its own array, beam and prompts."""

    def __init__(self, ckpt: str, *, style: PromptStyle = "compact", prompts: str | None = None) -> None:
        self.adapter = CheckpointAdapter(ckpt)
        self.name = self.adapter.identity["model"]
        self._prompts = load_prompts(prompts, style=style)

    @torch.inference_mode()
    def hear(self, mixture: Mixture, task: str, step_s: float) -> Heard:
        """Action, reply and P([Mute]) over time."""
        model, processor = self.adapter.model, self.adapter.processor
        messages = build_messages(system=self._prompts.system(task, TASKS[task]))
        audio_MN = mixture.audio_MN
        batch = processor([messages], [audio_MN]).to(model.device)
        out_1S = model.generate(**batch, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, num_beams=1)
        said = processor.batch_decode(out_1S[:, batch["input_ids"].shape[1] :])[0]
        return Heard(
            self.name, said, action_of(said, task), mute_curve(model, processor, messages, audio_MN, step_s=step_s)
        )

    def sound(self, mixture: Mixture) -> Sound:
        """c_0, c_x and their log-mels."""
        processor = self.adapter.processor
        c0_N, cx_N = select_channels(mixture.audio_MN, processor.array, processor.beam)
        return Sound(c0_N, cx_N, LogMel(processor.frontend)(torch.stack((c0_N, cx_N))))


def action_of(said: str, task: str) -> str:
    """A reply in one line."""
    action = parse_action(said, "vgbench" if task == "vgbench" else "wearvox")
    if action.kind == "tool":
        return "tool call: " + ", ".join(call.name for call in action.calls)
    return {"mute": "[Mute]", "malformed": f"malformed: {action.reason}"}.get(action.kind, action.kind)


def render_for(listener: Listener, scene: PlacedScene, noise: NoiseBank) -> Mixture:
    """The scene as the listener's own array records it."""
    return render_placed(scene, listener.adapter.processor.array, noise=noise)
