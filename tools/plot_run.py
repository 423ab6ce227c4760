"""Draw a training run's log: losses, rate, gradient norm, throughput, padding, data wait, memory, loss by task.

Run as: python tools/plot_run.py run=runs/demo/sft
        python tools/plot_run.py run=runs/a others=[runs/b,runs/c] out=compare.svg panels=[loss] smooth=10

Reads run/log.jsonl, which recipes/sft.py, recipes/pretrain_encoder.py and recipes/best_rq.py write; several runs share
the axes.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from wearllama.atomic import replacing
from wearllama_launch import existing_path, launch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = {
    "loss": ("loss", "eval_loss"),
    "learning rate": ("learning_rate",),
    "gradient norm": ("grad_norm",),
    "tokens a second": ("tokens_per_second", "target_tokens_per_second"),
    "audio seconds a second": ("audio_seconds_per_second",),
    "MFU": ("mfu",),
    "share that is padding, or waited for data": ("position_padding", "audio_padding", "data_wait"),
    "memory, GiB": ("memory_gib",),
}
"""Title -> keys of the log; a panel without any of its keys is left out. Keys that are in no panel get one each."""
_NOT_CURVES = ("step", "epoch", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos")


@dataclass(kw_only=True)
class PlotRun:
    """What is drawn, and where it goes."""

    run: str
    """Run folder, or its log.jsonl."""
    others: list[str] = field(default_factory=list)
    """More of them, drawn over it."""
    out: str | None = None
    """PNG, PDF or SVG; run/log.png if not given."""
    panels: list[str] = field(default_factory=list)
    """Titles of the panels to draw; all that the logs have if not given."""
    smooth: int = 1
    """Lines of the log that are averaged."""

    def __post_init__(self) -> None:
        if self.smooth < 1:
            raise ValueError(f"smooth is {self.smooth}, wanted at least 1")


Lines = list[dict[str, Any]]


@launch("plot_run", PlotRun)
def main(config: PlotRun) -> None:
    logs = {name: read_log(log_file(name)) for name in (config.run, *config.others)}
    panels = chosen(panels_of(logs), config.panels)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5.2 * columns, 3.4 * rows), squeeze=False)
    for axis, (title, keys) in zip(axes.flat, panels.items(), strict=False):
        draw(axis, title, keys, logs, config.smooth)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    out = Path(config.out) if config.out else log_file(config.run).with_name("log.png")
    with replacing(out) as temporary:
        figure.savefig(temporary, dpi=110, format=out.suffix.lstrip(".") or "png")
    print(f"{out}: {len(panels)} panels, {sum(map(len, logs.values()))} lines of {len(logs)} runs")


def log_file(name: str) -> Path:
    """The log of a run folder, or the file itself."""
    path = existing_path(name, "run")
    return path / "log.jsonl" if path.is_dir() else path


def read_log(path: Path) -> Lines:
    """Lines in order of steps; a last line that was cut short is left out.

    Raises:
        ValueError: no such log, or a line that is none.
    """
    if not path.is_file():
        raise ValueError(f"no {path}: wanted the folder of a training run")
    lines: Lines = []
    texts = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(texts, start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            if number < len(texts):
                raise ValueError(f"{path}, line {number}: not JSON") from None
    if not lines:
        raise ValueError(f"{path} is empty")
    return sorted(lines, key=lambda line: line["step"])


def panels_of(logs: dict[str, Lines]) -> dict[str, list[str]]:
    """Title -> keys that some log has."""
    found = {
        key
        for lines in logs.values()
        for line in lines
        for key, value in line.items()
        if isinstance(value, (int, float))
        and key not in _NOT_CURVES
        and not key.startswith(("train_", "eval_r", "eval_s"))
    }
    panels = {title: [key for key in keys if key in found] for title, keys in PANELS.items()}
    known = {key for keys in PANELS.values() for key in keys}
    tasks = sorted(key for key in found if key.startswith("loss/"))
    panels["loss by task"] = tasks
    panels |= {key: [key] for key in sorted(found - known - set(tasks))}
    return {title: keys for title, keys in panels.items() if keys}


def chosen(panels: dict[str, list[str]], wanted: list[str]) -> dict[str, list[str]]:
    """The panels that are asked for; ValueError where the logs have no such one."""
    if missing := [title for title in wanted if title not in panels]:
        raise ValueError(f"panels {missing} are not in the log, which has {list(panels)}")
    return {title: panels[title] for title in wanted or panels}


def draw(axis: Any, title: str, keys: list[str], logs: dict[str, Lines], smooth: int) -> None:
    """One panel."""
    for number, (name, lines) in enumerate(logs.items()):
        for key in keys:
            points = [(line["step"], line[key]) for line in lines if isinstance(line.get(key), (int, float))]
            if not points:
                continue
            steps, values = np.array(points, dtype=np.float64).T
            label = key.removeprefix("loss/") if len(logs) == 1 else f"{Path(name).name}: {key}"
            style = ("-", "--", ":", "-.")[number % 4]
            axis.plot(*_smoothed(steps, values, smooth), style, label=label, linewidth=1.2)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("step", fontsize=8)
    axis.grid(alpha=0.3)
    if len(keys) * len(logs) > 1:
        axis.legend(fontsize=7)


def _smoothed(steps: Any, values: Any, smooth: int) -> tuple[Any, Any]:
    width = min(smooth, len(values))
    return steps[width - 1 :], np.convolve(values, np.ones(width) / width, mode="valid")


if __name__ == "__main__":
    main()
