"""A page to play with: place people and noise around the glasses, hear both channels, watch the model decide.

Run as: python tools/play.py ckpt=runs/demo/sft
        python tools/play.py ckpt=runs/demo/sft ckpt2=runs/demo/grpo clips=[data/demo/wearvox]

The page is local (http://127.0.0.1:7860) and asks nothing of any other machine.  Rooms, responses, noise and mixing are
those of training.  Needs the extra `play`: pip install -e '.[play]'.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import torch

from wearllama.data.prompts import PromptStyle
from wearllama.simulation.noise import NoiseBank
from wearllama_launch import existing_path, launch

ROOT = Path(__file__).resolve().parents[1]
PACKAGED_CLIPS = ROOT / "tests/fixtures/speech"


@dataclass(kw_only=True)
class PlayCommand:
    """Who listens, what there is to say, and where the page is."""

    ckpt: str
    """Checkpoint folder, or a training run's folder with its ``final`` inside."""
    ckpt2: str | None = None
    """A second one, which hears the same scenes."""
    clips: list[str] = field(default_factory=list)
    """Folders with speech to choose from: with ``transcripts.json`` (file to words), or ``data/demo/wearvox``.
    Default: twelve commands and questions that come with the code, and the demo's where it has been made."""
    noise: list[str] = field(default_factory=list)
    """Folders of recorded noise; default: synthesised."""
    speech: list[str] = field(default_factory=list)
    """Folders of speech for conversation as noise."""
    style: PromptStyle = "compact"
    """``compact`` for the demo scale, ``full`` for real decoders."""
    prompts: str | None = None
    """YAML or JSON file with prompts in place of ours."""
    step_s: float = 0.24
    """Between two points of P([Mute])."""
    host: str = "127.0.0.1"
    """0.0.0.0 shows the page to the whole network."""
    port: int = 7860
    """0 takes a free one."""
    threads: int = 1

    def __post_init__(self) -> None:
        if self.step_s < 0.04:
            raise ValueError(f"step_s is {self.step_s}, wanted 0.04 or more")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port is {self.port}, wanted 0 to 65535")


@launch("play", PlayCommand)
def main(config: PlayCommand) -> None:
    if find_spec("gradio") is None:
        raise ValueError("the page needs gradio: pip install -e '.[play]'")
    from playground.clips import find_clips
    from playground.hearing import Listener
    from playground.page import Page
    from playground.serving import serve

    torch.set_num_threads(config.threads)
    paths = [config.ckpt, *([config.ckpt2] if config.ckpt2 else [])]
    listeners = [
        Listener(str(existing_path(path, name)), style=config.style, prompts=config.prompts)
        for name, path in zip(("ckpt", "ckpt2"), paths, strict=False)
    ]
    folders = [existing_path(folder, "clips") for folder in config.clips] or default_clips()
    clips = list({clip.words: clip for folder in folders for clip in find_clips(folder)}.values())
    noise = NoiseBank(config.noise or None, speech=config.speech or None)
    page = Page(listeners, clips, noise, config.step_s)
    serve(page, config.host, config.port)


def default_clips() -> list[Path]:
    """The packaged clips, and those of a finished ``make demo``."""
    demo = Path("data/demo/wearvox")
    return [PACKAGED_CLIPS, *([demo] if (demo / "scenes.json").is_file() else [])]


if __name__ == "__main__":
    main()
