"""Play a recording to a model as if it were spoken now, and watch it listen in the terminal.

Run as: python tools/listen.py clip.wav ckpt=runs/sft
        python tools/listen.py clip.wav ckpt=runs/sft look_ahead=1 pace=0
        python tools/listen.py clip.wav ckpt=runs/demo/sft recompute=true

A line follows the sound: time, level of each encoded channel, embeddings that the decoder has taken in, and P([Mute])
if speech ended there.  At the end: what the model said, and how long its first token took.  The file holds the
microphones of the checkpoint's array (one channel for an SC model) at 16 kHz.  ``recompute=true`` is for encoders of
whole clips, such as the demo's: they hear everything at the end.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from wearllama.audio.io import read_audio
from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.prompts import Message, PromptStyle, build_messages, load_prompts
from wearllama.data.tools import CONSEQUENTIAL_TOOLS, WEARVOX_TOOLS
from wearllama.evaluation.adapters import checkpoint_folder
from wearllama.modeling.factory import load_checkpoint
from wearllama.modeling.streaming import StreamingResult, StreamingSession
from wearllama_launch import existing_path, launch

TOOLS = {"wearvox": WEARVOX_TOOLS, "vgbench": CONSEQUENTIAL_TOOLS, "asr": ()}
QUIETEST_DBFS, BAR = -72.0, 12


@dataclass(kw_only=True)
class ListenCommand:
    """What is played to whom, and how it is shown."""

    file: str
    """WAV or FLAC; the first argument without '='."""
    ckpt: str
    """Checkpoint folder, or a training run's folder with its ``final`` inside."""
    look_ahead: int | None = None
    """In frames of 80 ms, one of those that the encoder learnt; default: its first."""
    recompute: bool = False
    """Encode the whole clip at its end."""
    task: Literal["wearvox", "vgbench", "asr"] = "wearvox"
    """Which of the prompts the model gets, and how its reply is read."""
    style: PromptStyle = "compact"
    """``compact`` for the demo scale, ``full`` for real decoders."""
    prompts: str | None = None
    """YAML or JSON file with prompts in place of those."""
    pace: float = 1.0
    """Speed of the clip; 0: as fast as it can be heard."""
    piece_s: float = 0.08
    """Seconds pushed at once."""
    gate: bool = True
    """Show P([Mute]) while listening; it costs a step of the decoder a chunk."""
    max_new_tokens: int = 96
    threads: int = 1

    def __post_init__(self) -> None:
        if self.pace < 0 or self.piece_s <= 0:
            raise ValueError(f"pace is {self.pace}, wanted 0 or more; piece_s is {self.piece_s}, wanted above 0")


@launch("listen", ListenCommand)
def main(config: ListenCommand) -> None:
    torch.set_num_threads(config.threads)
    file, folder = existing_path(config.file, "file"), checkpoint_folder(existing_path(config.ckpt, "ckpt"))
    model, processor = load_checkpoint(folder)
    one_channel = processor.num_channels == 1 and read_audio(file).shape[0] == 1
    audio = read_audio(file)[0] if one_channel else read_audio(file, channels=processor.array.num_mics)
    session = StreamingSession(
        model, processor, messages_for(config), look_ahead=config.look_ahead, recompute=config.recompute,
        max_new_tokens=config.max_new_tokens, dialect="vgbench" if config.task == "vgbench" else "wearvox",
    )  # fmt: skip
    play(session, audio, config)
    print("\nend of speech")
    show(session.finish(), config)


def messages_for(config: ListenCommand) -> list[Message]:
    """The chat up to the model's turn."""
    prompts = load_prompts(config.prompts, style=config.style)
    return build_messages(system=prompts.system(config.task, TOOLS[config.task]))


def play(session: StreamingSession, audio: Tensor, config: ListenCommand) -> None:
    """Push the clip piece by piece at the asked pace, one line kept up to date."""
    started, positions, p_mute = time.perf_counter(), 0, None
    for piece in audio.split(int(config.piece_s * SAMPLE_RATE), dim=-1):
        now = session.push(piece)
        if config.gate and now != positions:
            p_mute = session.p_mute()
        positions = now
        heard_s = session.num_samples / SAMPLE_RATE
        if config.pace:
            time.sleep(max(0.0, heard_s / config.pace - (time.perf_counter() - started)))
        print(f"\r{status_line(piece, heard_s, positions, p_mute)}", end="", flush=True)


def status_line(piece: Tensor, heard_s: float, positions: int, p_mute: float | None) -> str:
    """Time, level, embeddings and the gate."""
    level_dbfs = 10.0 * torch.log10(piece.float().square().mean() + 1e-12).item()
    filled = round(BAR * min(1.0, max(0.0, 1.0 - level_dbfs / QUIETEST_DBFS)))
    gate = "   -  " if p_mute is None else f"{p_mute:6.1%}"
    meter = "#" * filled + "." * (BAR - filled)
    return f"{heard_s:6.2f} s  [{meter}] {level_dbfs:6.1f} dBFS  {positions:4d} embeddings  P([Mute]) {gate}"


def show(result: StreamingResult, config: ListenCommand) -> None:
    """What the model said, what that does, and the times."""
    action = result.action
    kind = action.kind if action.kind != "malformed" else f"malformed: {action.reason}"
    times = result.timings
    print(f"said       {result.text}")
    if config.task != "asr":
        print(f"action     {kind}")
    print(
        f"P([Mute])  {result.p_mute:.1%}\n"
        f"time       first token {1000 * times.first_token:.0f} ms and whole reply {1000 * times.total:.0f} ms after "
        f"the end of speech; {times.pushes / times.audio:.2f} s of work a second of sound while listening"
    )


def with_file_first(arguments: list[str]) -> list[str]:
    """``clip.wav`` becomes ``file='clip.wav'``; whatever has '=' and is no file stays."""

    def is_file(text: str) -> bool:
        return not text.startswith("-") and ("=" not in text or Path(text).is_file())

    quoted = ["file='" + text.replace("'", "\\'") + "'" for text in arguments if is_file(text)]
    return quoted + [text for text in arguments if not is_file(text)]


if __name__ == "__main__":
    sys.argv[1:] = with_file_first(sys.argv[1:])
    main()
