"""The page's pictures: a map one can click, log-mels, and P([Mute]) over time."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle, Wedge
from numpy.typing import NDArray
from playground.hearing import Heard, Sound
from playground.scene import NO_NOISE, Controls, space_of

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.simulation.spaces import RoomSpec

MAP_PIXELS = 480
COLOURS = {"wearer": "#2f6690", "partner": "#3f8f5b", "bystander": "#b5651d", "noise": "#7a5c99"}
MODEL_COLOURS = ("#2f6690", "#b03a2e")


class MapView(NamedTuple):
    """What part of the world the map shows: a square around the wearer, ahead is up."""

    half_m: float

    def to_metres(self, x: float, y: float) -> tuple[float, float]:
        """(left, ahead) of a pixel."""
        scale = 2 * self.half_m / MAP_PIXELS
        return self.half_m - x * scale, self.half_m - y * scale


def view_of(controls: Controls) -> MapView:
    """As wide as people may stand, at most six metres; close up in a car."""
    space = space_of(controls)
    if not isinstance(space, RoomSpec):
        return MapView(4.0)
    corners = [abs(float(edge)) for edge in _walls(space)]
    return MapView(float(np.clip(max(corners) + 0.3, 1.8, 6.0)))


def _walls(space: RoomSpec) -> tuple[float, float, float, float]:
    """Right, left, behind, ahead edges in metres, seen from a wearer who looks along the first side."""
    x, y, _ = space.head_m
    length, width, _ = space.size_m
    return -y, width - y, -x, length - x


def draw_map(controls: Controls) -> NDArray[np.uint8]:
    """The room from above, (pixels, pixels, 3); who is silent is pale."""
    view = view_of(controls)
    figure = Figure(figsize=(MAP_PIXELS / 100, MAP_PIXELS / 100), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(view.half_m, -view.half_m), ylim=(-view.half_m, view.half_m))  # left is left
    axes.set_axis_off()
    space = space_of(controls)
    if isinstance(space, RoomSpec):
        right, left, behind, ahead = _walls(space)
        axes.add_patch(
            Rectangle((right, behind), left - right, ahead - behind, facecolor="#f6f4ef", edgecolor="#555", lw=2)
        )
    for radius in (0.5, 1, 2, 4):
        axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor="#cfd6dd", lw=0.8, ls=":"))
        if radius < view.half_m:
            axes.text(
                -0.707 * radius, -0.707 * radius, f"{radius:g} m", fontsize=7, color="#8a96a3", ha="left", va="top"
            )
    unit = view.half_m / 4
    _draw_head(axes, unit)
    for role, person in controls.people.items():
        if role != "wearer":
            shown = 1.0 if person.speaks else 0.35
            _draw_source(axes, role, person.azimuth_deg, person.distance_m, shown, unit, view)
    shown = 0.35 if controls.noise == NO_NOISE else 1.0
    _draw_source(axes, "noise", controls.noise_azimuth_deg, controls.noise_distance_m, shown, unit, view)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _draw_head(axes: Axes, unit: float) -> None:
    axes.add_patch(Circle((0, -0.10 * unit), 0.24 * unit, facecolor="#dfe7ee", edgecolor=COLOURS["wearer"], lw=1.5))
    axes.plot([-0.24 * unit, 0.24 * unit], [0.02 * unit] * 2, color=COLOURS["wearer"], lw=3)
    axes.add_patch(Wedge((0, 0.14 * unit), 0.12 * unit, 60, 120, facecolor=COLOURS["wearer"]))
    axes.text(0, -0.4 * unit, "wearer", fontsize=8, ha="center", va="top", color=COLOURS["wearer"])


def _draw_source(
    axes: Axes, role: str, azimuth_deg: float, distance_m: float, shown: float, unit: float, view: MapView
) -> None:
    azimuth = np.deg2rad(azimuth_deg)
    left, ahead = distance_m * np.sin(azimuth), distance_m * np.cos(azimuth)
    if max(abs(left), abs(ahead)) > view.half_m - 0.25 * unit:
        return
    axes.add_patch(Circle((left, ahead), 0.16 * unit, facecolor=COLOURS[role], alpha=shown))
    axes.text(
        left, ahead - 0.2 * unit, role, fontsize=8, ha="center", va="top", color=COLOURS[role], alpha=max(shown, 0.5)
    )


def draw_mels(sound: Sound) -> Figure:
    """c_0, c_x and their difference; the difference is what tells own voice from others."""
    c0_TF, cx_TF = sound.mels_CTF.numpy()
    seconds = len(sound.c0_N) / SAMPLE_RATE
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    rows = figure.subplots(3, 1, sharex=True)
    shown = (("c_0 (nose)", c0_TF, "magma", (-2.5, 2.5)), ("c_x (beam)", cx_TF, "magma", (-2.5, 2.5)),
             ("c_x - c_0", cx_TF - c0_TF, "RdBu_r", (-1.5, 1.5)))  # fmt: skip
    for axes, (title, mel_TF, colours, limits) in zip(rows, shown, strict=True):
        picture = axes.imshow(
            mel_TF.T, origin="lower", aspect="auto", cmap=colours, vmin=limits[0], vmax=limits[1],
            extent=(0, seconds, 0, mel_TF.shape[1]),
        )  # fmt: skip
        axes.set_ylabel(f"{title}\nmel bin", fontsize=8)
        axes.tick_params(labelsize=8)
        figure.colorbar(picture, ax=axes, pad=0.01).ax.tick_params(labelsize=7)
    rows[-1].set_xlabel("seconds", fontsize=8)
    return figure


def draw_gate(heard: Sequence[Heard]) -> Figure:
    """P([Mute]) if speech ended at each moment, one line a checkpoint."""
    figure = Figure(figsize=(8.5, 2.6), layout="constrained")
    axes = figure.subplots()
    for result, colour in zip(heard, MODEL_COLOURS, strict=False):
        axes.plot(
            [point.seconds for point in result.curve], [point.p_mute for point in result.curve], marker="o",
            markersize=3.5, color=colour, label=result.name,
        )  # fmt: skip
    axes.axhline(0.5, color="#9aa5b1", lw=0.8, ls=":")
    axes.set(ylim=(-0.03, 1.03), xlabel="seconds", ylabel="P([Mute])", title="If speech ended here")
    axes.title.set_fontsize(9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    return figure
