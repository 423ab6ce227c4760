"""The page: sliders and a map on the left, what the glasses hear and what the model does on the right."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from playground.clips import SpeechClip, visitor_clip
from playground.figures import MapView, draw_gate, draw_map, draw_mels, view_of
from playground.hearing import TASKS, Heard, Listener, render_for
from playground.scene import (
    FARTHEST_M,
    MOVABLE,
    NEAREST_M,
    NO_NOISE,
    PEOPLE,
    SILENT,
    Controls,
    PersonControls,
    polar_of,
    scene_of,
)

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.simulation.mixing import Mixture
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import SPACES

TITLE = "WearLlama playground"
START = {"partner": (20.0, 1.2), "bystander": (-50.0, 1.5), "noise": (120.0, 1.5)}
CSS = ".action textarea { font-size: 1.25rem; font-weight: 600 } footer { display: none !important }"
FIRST_WORDS = "How is Apple stock doing?"
PEAK = 0.7
"""Players get both channels by one factor, so that their levels compare."""


class Page:
    """Widgets, and the listeners behind them."""

    def __init__(
        self, listeners: Sequence[Listener], clips: Sequence[SpeechClip], noise: NoiseBank, step_s: float
    ) -> None:
        self.listeners, self.clips, self.noise, self.step_s = listeners, clips, noise, step_s
        self._folder = tempfile.TemporaryDirectory(prefix="wearllama-play-")
        self.names: list[str] = []
        self.inputs: list[Any] = []
        self.blocks = self._build()

    def close(self) -> None:
        """Forget what visitors recorded."""
        self._folder.cleanup()

    # ---- widgets ----------------------------------------------------------------------------------------------------

    def _build(self) -> gr.Blocks:
        with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as blocks:
            gr.Markdown(
                f"# {TITLE}\nPlace people around the glasses, let them speak, and hear what the microphones hear. "
                "Choose whom to move, then click on the map; ahead of the wearer is up."
            )
            with gr.Row():
                with gr.Column(scale=4):
                    mover, plan = self._scene_widgets()
                with gr.Column(scale=5):
                    results = self._result_widgets()
            blocks.load(self.draw, self.inputs, plan, show_progress="hidden")
            for widget in self.inputs:
                widget.change(self.draw, self.inputs, plan, show_progress="hidden")
            places = [self._widget(f"{name}_{what}") for name in MOVABLE for what in ("azimuth", "distance")]
            plan.select(self.move, [mover, *self.inputs], places, show_progress="hidden")
            self.play_button.click(self.play, self.inputs, results)
        return blocks

    def _scene_widgets(self) -> tuple[Any, Any]:
        plan = gr.Image(show_label=False, interactive=False, buttons=[], elem_id="map", height=490)
        with gr.Row(equal_height=True):
            mover = gr.Radio(list(MOVABLE), value="bystander", label="a click on the map moves the", elem_id="mover")
            self.play_button = gr.Button("Simulate and listen", variant="primary", elem_id="play", min_width=150)
        with gr.Row():
            self._add("space", gr.Dropdown(list(SPACES), value="living room", label="where", elem_id="space"))
            self._add("task", gr.Dropdown(list(TASKS), value="wearvox", label="the model's prompt"))
        for role in PEOPLE:
            self._person_widgets(role)
        with gr.Accordion("noise", open=False):
            with gr.Row():
                self._add("noise", gr.Dropdown([NO_NOISE, *self.noise.names], value=NO_NOISE, label="kind"))
                self._add("noise_dba", _slider("level at the head, dB(A)", 35, 95, 60, 1))
            with gr.Row():
                self._place_widgets("noise")
        with gr.Accordion("room and chance", open=False), gr.Row():
            self._add("rt60", _slider("reverberation (s), of rooms", 0.15, 1.2, 0.35, 0.05))
            self._add("seed", gr.Number(0, label="seed of late echoes, noise and device", precision=0))
        return mover, plan

    def _person_widgets(self, role: str) -> None:
        words = [SILENT, *(clip.words for clip in self.clips)]
        spoken = FIRST_WORDS if FIRST_WORDS in words else words[-1]
        with gr.Accordion(role, open=role != "partner"):
            value = spoken if role == "wearer" else SILENT
            self._add(f"{role}_clip", gr.Dropdown(words, value=value, label="says", elem_id=f"{role}_clip"))
            if role != "wearer":
                with gr.Row():
                    self._place_widgets(role)
            with gr.Row():
                self._add(f"{role}_level", _slider("voice, dB over normal", -12, 15, 0, 1))
                self._add(f"{role}_start", _slider("begins at (s)", 0, 6, 0.2, 0.1))
            if role != "wearer":
                self._add(f"{role}_faces", gr.Checkbox(True, label="faces the wearer"))
            with gr.Accordion("record or upload instead", open=False):
                own = gr.Audio(
                    sources=["upload", "microphone"], type="filepath", show_label=False, elem_id=f"{role}_own"
                )
                self._add(f"{role}_own", own)

    def _place_widgets(self, name: str) -> None:
        azimuth, distance = START[name]
        self._add(f"{name}_azimuth", _slider("degrees to the left", -180, 180, azimuth, 1, f"{name}_azimuth"))
        metres = _slider("metres away", NEAREST_M, FARTHEST_M, distance, 0.05, f"{name}_distance")
        self._add(f"{name}_distance", metres)

    def _result_widgets(self) -> list[Any]:
        widgets: list[Any] = [gr.Textbox(label="what the nose microphone hears", interactive=False, elem_id="status")]
        for number, listener in enumerate(self.listeners):
            with gr.Group():
                does, says = f"{listener.name} does", "its words"
                widgets.append(
                    gr.Textbox(label=does, interactive=False, elem_id=f"action{number}", elem_classes="action")
                )
                widgets.append(gr.Textbox(label=says, interactive=False, elem_id=f"said{number}"))
        widgets.append(gr.Plot(show_label=False, elem_id="gate"))
        with gr.Row():
            for name, title in (("c0", "c_0: the nose microphone"), ("cx", "c_x: the beam to the mouth")):
                widgets.append(gr.Audio(label=title, interactive=False, elem_id=name, buttons=["download"]))
        widgets.append(gr.Plot(show_label=False, elem_id="mels"))
        return widgets

    def _add(self, name: str, widget: Any) -> None:
        self.names.append(name)
        self.inputs.append(widget)

    def _widget(self, name: str) -> Any:
        return self.inputs[self.names.index(name)]

    # ---- what happens -----------------------------------------------------------------------------------------------

    def controls(self, *values: Any) -> tuple[Controls, str, list[str]]:
        """Controls, task and notes of the widgets' values."""
        v = dict(zip(self.names, values, strict=True))
        people, notes = {}, []
        for role in PEOPLE:
            own = None
            if v[f"{role}_own"]:
                loaded = visitor_clip(v[f"{role}_own"], Path(self._folder.name))
                own = str(loaded.clip.file)
                notes += [f"{role}: {loaded.note}"] if loaded.note else []
            people[role] = PersonControls(
                clip=v[f"{role}_clip"] or SILENT, own_file=own, level_db=v[f"{role}_level"],
                start_s=v[f"{role}_start"], azimuth_deg=v.get(f"{role}_azimuth", 0.0),
                distance_m=v.get(f"{role}_distance", 1.0), faces_wearer=v.get(f"{role}_faces", True),
            )  # fmt: skip
        controls = Controls(
            space=v["space"], rt60_s=v["rt60"], people=people, noise=v["noise"], noise_dba=v["noise_dba"],
            noise_azimuth_deg=v["noise_azimuth"], noise_distance_m=v["noise_distance"], seed=int(v["seed"] or 0),
        )  # fmt: skip
        return controls, v["task"], notes

    def draw(self, *values: Any) -> Any:
        """The map."""
        return _told(lambda: draw_map(self.controls(*values)[0]))

    def move(self, mover: str, event: gr.SelectData, *values: Any) -> list[Any]:
        """Slider values after a click on the map: the chosen one stands there."""
        view: MapView = view_of(self.controls(*values)[0])
        place = polar_of(*view.to_metres(*event.index))
        return [value for name in MOVABLE for value in (place if name == mover else (gr.skip(), gr.skip()))]

    def play(self, *values: Any) -> list[Any]:
        """Simulate, listen, and show everything; in the order of ``_result_widgets``."""
        return _told(lambda: self._play(*values))

    def _play(self, *values: Any) -> list[Any]:
        controls, task, notes = self.controls(*values)
        scene = scene_of(controls, self.clips)
        mixtures: dict[str, Mixture] = {}
        heard: list[Heard] = []
        for listener in self.listeners:
            array = listener.adapter.processor.array
            mixture = mixtures.setdefault(array.name, render_for(listener, scene, self.noise))
            heard.append(listener.hear(mixture, task, self.step_s))
        first = mixtures[self.listeners[0].adapter.processor.array.name]
        sound = self.listeners[0].sound(first)
        scale = PEAK / max(float(sound.c0_N.abs().max()), float(sound.cx_N.abs().max()), 1e-6)
        shown: list[Any] = [describe(first, notes)]
        for result in heard:
            shown += [f"{result.action}   (P([Mute]) {result.p_mute:.1%})", result.said]
        players = [(SAMPLE_RATE, (x_N * scale * 32767).short().numpy()) for x_N in (sound.c0_N, sound.cx_N)]
        return [*shown, draw_gate(heard), *players, draw_mels(sound)]


def describe(mixture: Mixture, notes: Sequence[str]) -> str:
    """Who was how loud at the nose, in words."""
    data = mixture.metadata
    parts = [f"{len(mixture.audio_MN[0]) / SAMPLE_RATE:.1f} s"]
    parts += [f"{s['role']} {s['level_dbfs']:.0f} dBFS" for s in data["sources"]] or ["nobody speaks"]
    if data.get("noise_dba") is not None:
        parts.append(
            f"{data['noise_type']} at {data['noise_dba']:.0f} dB(A), voices raised by {data['lombard_db']:.0f} dB"
        )
    return "; ".join([", ".join(parts), *notes])


def _slider(title: str, low: float, high: float, value: float, step: float, name: str | None = None) -> Any:
    return gr.Slider(low, high, value=value, step=step, label=title, elem_id=name, min_width=180)


def _told(work: Callable[[], Any]) -> Any:
    """Errors that a visitor can mend are shown on the page."""
    try:
        return work()
    except ValueError as error:
        raise gr.Error(str(error), duration=None, print_exception=False) from None
