"""tools/play.py: controls become scenes, scenes become sound and actions, and the page does so in a browser.

The checkpoint is a tiny decoder behind the packaged encoder that these tests teach two scenes: who speaks a foot away
gets a tool call, who is three metres away is muted.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
import yaml

from wearllama.audio.io import write_audio
from wearllama.data.prompts import build_messages, load_prompts
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.simulation.noise import NoiseBank
from wearllama.simulation.placed import render_placed

ROOT = Path(__file__).resolve().parents[2]
CLIPS = ROOT / "tests/fixtures/speech"
WORDS = "How is Apple stock doing?"
CALL = '<|TOOL|>[{"name": "stock", "parameters": {}}]</|TOOL|>'
NEAR_M, FAR_M = 0.3, 3.5


class Playground(NamedTuple):
    """The modules behind the page."""

    clips: ModuleType
    scene: ModuleType
    hearing: ModuleType
    figures: ModuleType


@pytest.fixture(scope="module")
def play(load_script: Callable[[str, str], ModuleType]) -> Playground:
    return Playground(*(load_script("tools", f"playground.{name}") for name in Playground._fields))


def controls(play: Playground, distance_m: float, **changes: Any) -> Any:
    person = play.scene.PersonControls(clip=WORDS, distance_m=distance_m)
    return play.scene.Controls(space="street", people={"bystander": person}, **changes)


@pytest.fixture(scope="module")
def ckpt(play: Playground, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained until the loss of both scenes is small."""
    folder = tmp_path_factory.mktemp("play") / "near-or-far"
    fields = yaml.safe_load((ROOT / "conf/model/tiny.yaml").read_text())
    changes = {"encoder": "packaged", "encoder_config": {}, "freeze": {"encoder": True}}
    config = ModelConfig(**{**fields, **changes})
    torch.manual_seed(0)
    processor = build_processor(config)
    model = build_model(config, processor)
    messages = build_messages(system=load_prompts(style="compact").system("wearvox", WEARVOX_TOOLS))
    clips = play.clips.find_clips(CLIPS)
    near_far = [play.scene.scene_of(controls(play, metres), clips) for metres in (NEAR_M, FAR_M)]
    audio = [render_placed(scene, processor.array, noise=NoiseBank()).audio_MN for scene in near_far]
    batches = [
        processor([messages], [clip], targets=[said]) for clip, said in zip(audio, (CALL, "[Mute]"), strict=True)
    ]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(100):
        losses = [model(**batch).loss for batch in batches]  # apart, or the call's many tokens drown [Mute]
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
        if max(losses) < 0.05:
            break
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_moving_the_bystander_changes_the_action(play: Playground, ckpt: Path) -> None:
    listener = play.hearing.Listener(str(ckpt))
    clips = play.clips.find_clips(CLIPS)
    heard = {}
    for metres in (NEAR_M, FAR_M):
        mixture = play.hearing.render_for(listener, play.scene.scene_of(controls(play, metres), clips), NoiseBank())
        heard[metres] = listener.hear(mixture, "wearvox", 0.4)
    assert heard[NEAR_M].action == "tool call: stock" and heard[NEAR_M].said == CALL
    assert heard[FAR_M].action == "[Mute]"
    assert heard[NEAR_M].p_mute < 0.2 < 0.8 < heard[FAR_M].p_mute
    seconds = [point.seconds for point in heard[FAR_M].curve]
    assert seconds == sorted(seconds) and seconds[-1] == pytest.approx(mixture.audio_MN.shape[1] / 16_000)
    sound = listener.sound(mixture)
    assert sound.mels_CTF.shape[0] == 2 and sound.c0_N.shape == sound.cx_N.shape
    assert len(play.figures.draw_mels(sound).axes) == 6
    lines = play.figures.draw_gate(list(heard.values())).axes[0].get_lines()
    assert lines[0].get_ydata().tolist() == [point.p_mute for point in heard[NEAR_M].curve]


def test_controls_become_the_scene(play: Playground) -> None:
    people = {
        "wearer": play.scene.PersonControls(clip=WORDS, level_db=3.0, start_s=0.5),
        "partner": play.scene.PersonControls(),
        "bystander": play.scene.PersonControls(clip=WORDS, azimuth_deg=-60.0, distance_m=1.2, faces_wearer=False),
    }
    asked = play.scene.Controls(people=people, rt60_s=0.6, noise="Music", noise_dba=70.0, seed=4)
    scene = play.scene.scene_of(asked, play.clips.find_clips(CLIPS))
    assert [talker.role for talker in scene.talkers] == ["wearer", "bystander"]  # the silent partner is not there
    wearer, bystander = scene.talkers
    assert (wearer.gain_db, wearer.start_s) == (3.0, 0.5)
    assert (bystander.place.azimuth_deg, bystander.place.distance_m, bystander.place.turn_deg) == (-60.0, 1.2, 180.0)
    assert (scene.space.rt60_s, scene.noise_type, scene.noise_dba, scene.seed) == (0.6, "Music", 70.0, 4)
    assert (
        play.scene.scene_of(replace(asked, noise=play.scene.NO_NOISE), play.clips.find_clips(CLIPS)).noise_type is None
    )
    with pytest.raises(ValueError, match="no packaged clip says"):
        play.scene.scene_of(controls(play, 1.0), [play.clips.SpeechClip(Path("a.wav"), "other")])
    with pytest.raises(ValueError, match="not inside the car"):
        play.scene.scene_of(replace(controls(play, 2.0), space="car"), play.clips.find_clips(CLIPS))


def test_a_click_on_the_map_is_a_place(play: Playground) -> None:
    pixels = play.figures.MAP_PIXELS
    view = play.figures.view_of(controls(play, 1.0))
    assert play.figures.draw_map(controls(play, 1.0)).shape == (pixels, pixels, 3)
    ahead, left = view.to_metres(pixels / 2, 0), view.to_metres(0, pixels / 2)
    assert play.scene.polar_of(*ahead) == (0, view.half_m) and play.scene.polar_of(*left) == (90, view.half_m)
    assert play.scene.polar_of(0.0, 0.0).distance_m == play.scene.NEAREST_M
    there, elsewhere = (play.figures.draw_map(controls(play, metres)) for metres in (1.0, 2.0))
    y = round(pixels / 2 * (1 - 1.0 / view.half_m))
    assert (there[y, pixels // 2] != elsewhere[y, pixels // 2]).any()


def test_visitors_clips_are_made_mono_16_khz_and_cuts_are_told(play: Playground, tmp_path: Path) -> None:
    stereo = 0.1 * torch.randn(2, 48_000 * 13)
    write_audio(tmp_path / "mine.wav", stereo, sample_rate=48_000)
    loaded = play.clips.visitor_clip(tmp_path / "mine.wav", tmp_path)
    assert "first of 2 channels" in loaded.note and "12 of 13.0 s" in loaded.note
    person = play.scene.PersonControls(own_file=str(loaded.clip.file))
    scene = play.scene.scene_of(play.scene.Controls(people={"wearer": person}), [])
    assert scene.talkers[0].file == str(loaded.clip.file)
    again = play.clips.visitor_clip(tmp_path / "mine.wav", tmp_path)
    assert again.clip == loaded.clip


def test_clips_come_from_transcripts_or_from_the_demo(play: Playground, tmp_path: Path) -> None:
    assert WORDS in [clip.words for clip in play.clips.find_clips(CLIPS)]
    segments = {"a": [{"file": "speech/a.flac"}], "b": [{"file": "x"}, {"file": "y"}]}
    mixtures = {name: {"recipe": {"segments": parts}} for name, parts in segments.items()}
    (tmp_path / "scenes.json").write_text(json.dumps({"audio_root": "..", "mixtures": mixtures}))
    (tmp_path / "data_public.json").write_text(json.dumps([{"id": n, "gt_transcript": n * 2} for n in segments]))
    assert [(clip.words, clip.file.name) for clip in play.clips.find_clips(tmp_path)] == [("aa", "a.flac")]
    with pytest.raises(ValueError, match=r"wanted a folder with transcripts\.json"):
        play.clips.find_clips(tmp_path / "none")


@pytest.fixture(scope="module")
def url(load_script: Callable[[str, str], ModuleType], ckpt: Path, play: Playground) -> Iterator[str]:
    pytest.importorskip("gradio")
    pages, serving = load_script("tools", "playground.page"), load_script("tools", "playground.serving")
    listeners = [play.hearing.Listener(str(ckpt)), play.hearing.Listener(str(ckpt))]
    page = pages.Page(listeners, play.clips.find_clips(CLIPS), NoiseBank(), 0.4)
    yield serving.start(page, "127.0.0.1", 0)
    page.blocks.close()
    page.close()


def test_the_page_in_a_browser(open_page: Callable[..., Any], url: str) -> None:
    """Load, let the bystander speak nearby, play; move him away by a click on the map, play: the action changes."""
    with open_page(viewport={"width": 1500, "height": 1800}) as page:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        page.locator("#map img").wait_for()
        choose(page, "#wearer_clip", "(silent)")
        choose(page, "#bystander_clip", WORDS)
        choose(page, "#space", "street")
        page.locator("#bystander_azimuth input[type=number]").fill("0")
        page.locator("#bystander_distance input[type=number]").fill(str(NEAR_M))
        page.keyboard.press("Tab")
        page.wait_for_timeout(500)
        assert play_and_read(page, "").startswith("tool call: stock")
        assert page.locator("#said0 textarea").input_value() == CALL
        box = page.locator("#map img").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * (1 - FAR_M / 4.0) / 2)
        page.wait_for_function("+document.querySelector('#bystander_distance input[type=number]').value > 2")
        metres = float(page.locator("#bystander_distance input[type=number]").input_value())
        assert metres == pytest.approx(FAR_M, abs=0.1)
        before = page.locator("#action0 textarea").input_value()
        after = play_and_read(page, before)
        assert after.startswith("[Mute]") and after == page.locator("#action1 textarea").input_value()
        assert page.locator("#gate img").count() == 1 and page.locator("#mels img").count() == 1
        assert "bystander" in page.locator("#status textarea, #status input").input_value()
        own = [address for address in requests if address.startswith((url, "data:", "blob:"))]
        assert own == requests, sorted(set(requests) - set(own))


def choose(page: Any, selector: str, value: str) -> None:
    page.locator(f"{selector} input").click()
    page.locator("[role=option]", has_text=value).first.click()


def play_and_read(page: Any, before: str) -> str:
    """Press the button; the action that comes in place of ``before``."""
    page.locator("#play").click()
    told = json.dumps(before)
    page.wait_for_function(f"document.querySelector('#action0 textarea').value !== {told}")
    page.locator("#mels img").wait_for()
    return str(page.locator("#action0 textarea").input_value())
