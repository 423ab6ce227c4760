"""The site's figures, drawn by the library itself: arrays, beams, mixtures and what a model sees of them."""

import io
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from wearllama.audio.array import load_array
from wearllama.audio.beam_metrics import pattern_db
from wearllama.audio.beamforming import delay_and_sum, design_beam, design_freqs_hz, select_channels
from wearllama.audio.frontend import LogMel
from wearllama.audio.head import place_around, point_transfer
from wearllama.audio.timebase import SAMPLE_RATE, num_embeddings, num_mel_frames
from wearllama.simulation.device import IDEAL_DEVICE
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import SPACES, Place, PlacedScene, Talker, render_placed

SPEECH = Path(__file__).resolve().parents[2] / "tests/fixtures/speech"
BLUE, ORANGE, GREEN, GREY = "#2f6690", "#b5651d", "#3f8f5b", "#5b6875"
WEARER = Talker(role="wearer", file=str(SPEECH / "flite_slt_f892.flac"), start_s=0.1)
BYSTANDER = Talker(
    role="bystander",
    file=str(SPEECH / "pico_en-gb_d70b.flac"),
    start_s=2.1,
    place=Place(azimuth_deg=-60, distance_m=1.0),
)


@lru_cache(maxsize=1)
def figures() -> dict[str, bytes]:
    """SVG by name."""
    drawn: dict[str, Callable[[], Figure]] = {
        "pipeline": pipeline, "array": array, "beam": beam, "mixture": mixture, "cue": cue, "timebase": timebase,
        "pair": pair,
    }  # fmt: skip
    return {name: svg(draw()) for name, draw in drawn.items()}


def svg(figure: Figure) -> bytes:
    """The figure without dates and random names, so that equal builds are equal."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL).encode()


def pipeline() -> Figure:
    """From microphones to an action."""
    figure = Figure(figsize=(10, 2.6))
    axes = _blank(figure, (0, 100), (0, 26))
    _box(axes, 1, 9, 13, 8, "five\nmicrophones", GREY)
    _box(axes, 21, 16, 15, 7, "c_0\n(the nose)", BLUE)
    _box(axes, 21, 3, 15, 7, "c_x: fixed beam\nto the mouth", BLUE)
    _box(axes, 42, 9, 15, 8, "log-mel, Conformer\n12.5 frames a second", GREEN)
    _box(axes, 62, 9, 14, 8, "c_0, c_x, c_0, c_x ...\nprojector", GREEN)
    _box(axes, 81, 9, 8, 8, "Llama", ORANGE)
    for start, end in (((14, 14.5), (21, 19)), ((14, 11.5), (21, 7)), ((36, 19), (42, 15)), ((36, 7), (42, 11)),
                       ((57, 13), (62, 13)), ((76, 13), (81, 13)), ((89, 13), (91.5, 13))):  # fmt: skip
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY})
    for y, text in ((18, "[Mute]"), (13, "tool call"), (8, "answer")):
        axes.text(92, y, text, va="center", fontsize=9)
    return figure


def array() -> Figure:
    """Where the microphones of the packaged geometries are, from above."""
    names = ("glasses5", "aria7", "easycom4")
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), sharey=True), names, strict=True):
        geometry = load_array(name)
        for number, (x, _, z) in enumerate(geometry.positions_M3 * 100):
            axes.scatter(x, z, s=60, facecolors=BLUE if number == geometry.reference else "none", edgecolors=BLUE)
            axes.annotate(str(number), (x, z), textcoords="offset points", xytext=(6, 4), fontsize=8)
        axes.scatter(*geometry.mouth_3[[0, 2]] * 100, marker="x", color=ORANGE)
        axes.set(title=name, xlim=(10, -10), ylim=(-9, 4), aspect="equal", xlabel="left (cm)")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("ahead (cm)")
    return figure


def beam() -> Figure:
    """What the fixed beam leaves of talkers around the wearer."""
    geometry, freqs_F = load_array("glasses5"), design_freqs_hz()
    azimuth_D = np.arange(0.0, 361.0, 6.0)
    around_DFM = np.stack([point_transfer(place_around(a), geometry.positions_M3, freqs_F) for a in azimuth_D])
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    bands = ((0, "150-500 Hz"), (2, "1-2 kHz"), (4, "4-7.5 kHz"))
    panels = figure.subplots(1, len(bands), subplot_kw={"projection": "polar"})
    for name, found, colour in (
        ("fixed beam", design_beam(geometry), BLUE),
        ("delay and sum", delay_and_sum(geometry), GREY),
    ):
        level_DB = pattern_db(found, around_DFM, freqs_F, geometry.reference)
        for axes, (band, title) in zip(panels, bands, strict=True):
            axes.plot(np.deg2rad(azimuth_D), np.clip(level_DB[:, band], -25, 5), color=colour, label=name)
            axes.set_theta_zero_location("N")
            axes.set(ylim=(-25, 5), yticks=(-20, -10, 0), title=title)
            axes.tick_params(labelsize=7)
    panels[0].legend(fontsize=7, loc="lower left", bbox_to_anchor=(-0.25, -0.2))
    return figure


def _rendered(*talkers: Talker, noise: str | None = None, dba: float = 62.0) -> Any:
    scene = PlacedScene(
        space=SPACES["living room"], talkers=talkers, noise_type=noise, noise_dba=dba, device=IDEAL_DEVICE, taps=4000,
        level_dbfs=-22.0,
    )  # fmt: skip
    return render_placed(scene, load_array("glasses5"), noise=NoiseBank())


def mixture() -> Figure:
    """The parts of a mixture at the nose, and their sum."""
    quiet = Talker(role="bystander", file=BYSTANDER.file, start_s=0.9, place=BYSTANDER.place)
    parts = {
        "s * h1: the wearer": (_rendered(WEARER), BLUE),
        "x * h3: a bystander": (_rendered(quiet), ORANGE),
        "S: both, and noise n * h2": (_rendered(WEARER, quiet, noise="Music", dba=56.0), GREY),
    }
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (title, (found, colour)) in zip(
        figure.subplots(3, 1, sharex=True, sharey=True), parts.items(), strict=True
    ):
        heard_N = found.audio_MN[0].numpy()[::4]
        axes.plot(np.arange(len(heard_N)) * 4 / SAMPLE_RATE, heard_N, color=colour, linewidth=0.4, rasterized=True)
        axes.set_title(title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.axes[-1].set_xlabel("seconds", fontsize=8)
    return figure


def cue() -> Figure:
    """Log-mels of both channels while the wearer and then a bystander speaks, and their difference."""
    geometry = load_array("glasses5")
    c0_N, cx_N = select_channels(_rendered(WEARER, BYSTANDER).audio_MN, geometry, design_beam(geometry))
    c0_TF, cx_TF = LogMel()(torch.stack((c0_N, cx_N))).numpy()
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = (("c_0", c0_TF, "magma", 2.5), ("c_x", cx_TF, "magma", 2.5), ("c_x - c_0", cx_TF - c0_TF, "RdBu_r", 1.5))
    for axes, (title, mel_TF, colours, limit) in zip(figure.subplots(3, 1, sharex=True), panels, strict=True):
        axes.imshow(
            mel_TF.T, origin="lower", aspect="auto", cmap=colours, vmin=-limit, vmax=limit,
            extent=(0, len(c0_N) / SAMPLE_RATE, 0, mel_TF.shape[1]),
        )  # fmt: skip
        axes.set_ylabel(title, fontsize=8)
        axes.tick_params(labelsize=7)
    figure.axes[0].set_title("the wearer speaks" + " " * 60 + "a bystander speaks", fontsize=9)
    figure.axes[-1].set_xlabel("seconds", fontsize=8)
    return figure


def timebase() -> Figure:
    """How half a second of sound becomes decoder positions."""
    samples = SAMPLE_RATE * 2 // 5
    figure = Figure(figsize=(9, 2.6))
    axes = _blank(figure, (-0.062, 0.43), (-0.4, 4.2))
    rows = (
        (3.2, "log-mel, 10 ms", num_mel_frames(samples), 0.01, (GREY,)),
        (2.1, "encoder, 80 ms", num_embeddings(samples, 1), 0.08, (GREEN,)),
        (1.0, "decoder", num_embeddings(samples, 2), 0.04, (BLUE, ORANGE)),
    )
    for y, title, count, width, colours in rows:
        axes.text(-0.004, y + 0.35, f"{title}\n({count})", ha="right", va="center", fontsize=8)
        for number in range(count):
            axes.add_patch(FancyBboxPatch(
                (number * width + 0.0012, y), width - 0.0024, 0.7, boxstyle="round,pad=0,rounding_size=0.001",
                facecolor=colours[number % len(colours)], alpha=0.75, linewidth=0,
            ))  # fmt: skip
            if width > 0.02:
                label = ("c_0", "c_x")[number % 2] if len(colours) == 2 else str(number)
                axes.text((number + 0.5) * width, y + 0.35, label, ha="center", va="center", color="white", fontsize=8)
    told = f"{samples} samples, {samples / SAMPLE_RATE:g} s a channel: {rows[2][2]} positions, 25 a second"
    axes.text(0.2, 0.2, told, ha="center", fontsize=8.5)
    return figure


def pair() -> Figure:
    """A counterfactual pair: the same words after the same words; only who says them differs."""
    figure = Figure(figsize=(9, 1.9))
    axes = _blank(figure, (-1.5, 10.5), (-0.2, 4))
    for y, speaker, colour, action in ((2.3, "the wearer", BLUE, "tool call"), (0.3, "a bystander", ORANGE, "[Mute]")):
        _box(axes, 0, y, 3.2, 1.2, "wearer: some remark", BLUE)
        axes.annotate("", (4.4, y + 0.6), (3.3, y + 0.6), arrowprops={"arrowstyle": "<->", "color": GREY})
        axes.text(3.85, y + 0.85, "600 ms", ha="center", fontsize=7, color=GREY)
        _box(axes, 4.5, y, 3.4, 1.2, f'{speaker}: "send it"', colour)
        axes.text(8.1, y + 0.6, f"→ {action}", va="center", fontsize=10)
    axes.text(-0.2, 2.9, "same speaker", ha="right", va="center", fontsize=8)
    axes.text(-0.2, 0.9, "switch", ha="right", va="center", fontsize=8)
    return figure


def _blank(figure: Figure, across: tuple[float, float], up: tuple[float, float]) -> Any:
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=across, ylim=up)
    axes.set_axis_off()
    return axes


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    axes.add_patch(FancyBboxPatch(
        (x, y), width, height, boxstyle=f"round,pad=0,rounding_size={0.1 * height}", facecolor=colour, alpha=0.14,
        edgecolor=colour,
    ))  # fmt: skip
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5)
