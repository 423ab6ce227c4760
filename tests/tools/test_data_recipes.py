"""Recipes that make training rows: what they write is a manifest, and what is no good is left out and told."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile

from wearllama.data.manifest import Example, read_manifest
from wearllama.data.schemas import read_schemas, why_not
from wearllama.data.speech_rows import SpeechManifest
from wearllama.data.text_checks import repeats_itself, word_normaliser
from wearllama.simulation.mixing import MixtureRecipe

Run = Callable[..., int]


@pytest.fixture
def run(load_script: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call a tool with overrides; its exit code."""

    def call(name: str, *arguments: str) -> int:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        with pytest.raises(SystemExit) as stopped:
            load_script("tools", name).main()
        return int(stopped.value.code or 0)

    return call


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Eight clips of two voices, with translations."""
    manifest = SpeechManifest(tmp_path / "en" / "manifest.jsonl")
    for number in range(8):
        manifest.append({
            "id": f"c{number}", "file": f"wav/{number}.flac", "text": f"This is story number {number}.",
            "voice": f"en/{number % 2}", "seconds": 1.0 + number / 10, "language": "en", "source": "en",
            "translations": {"es": f"Esta es la frase {number}."}, "translation_en": f"Sentence {number}.",
        })  # fmt: skip
    return tmp_path / "en"


def write_lines(requests: list[dict[str, Any]], out_dir: Path, *, workers: int) -> Iterator[dict[str, Any]]:
    """Stands for synthesis: the manifest's lines without clips; nothing fails."""
    manifest = SpeechManifest(out_dir / "manifest.jsonl")
    for ask in requests:
        assert {"text", "voice", "speed", "pitch", "id"} <= set(ask)
        if ask["id"] not in manifest:
            manifest.append({**ask, "file": f"wav/{ask['id']}.flac", "seconds": 1.5})
    yield from ()


def recipe_of(row: Example) -> MixtureRecipe:
    assert row.audio is not None
    return MixtureRecipe.from_dict(row.audio["mixture"])


def test_silence_has_four_colours(tmp_path: Path, speech: Path, run: Run) -> None:
    arguments = [f"speech={speech}", f"root={tmp_path}", "rows.bystander=3", "rows.partner=2", "rows.to_partner=4"]
    assert run("make_mute", *arguments, f"out_dir={tmp_path}/a", "rows.noise=2") == 0
    assert run("make_mute", *arguments, f"out_dir={tmp_path}/b", "rows.noise=2") == 0
    rows = read_manifest(tmp_path / "a" / "examples.jsonl")
    assert [row.to_dict() for row in rows] == [
        row.to_dict() for row in read_manifest(tmp_path / "b" / "examples.jsonl")
    ]
    assert {row.target for row in rows} == {"[Mute]"} and len({json.dumps(row.messages) for row in rows}) == 1
    roles = [tuple(segment.role for segment in recipe_of(row).segments) for row in rows]
    assert roles[:5] == [("bystander",)] * 3 + [("partner",)] * 2 and roles[-2:] == [(), ()]
    assert all(role[0] == "wearer" for role in roles[5:9]) and ("wearer", "partner") in roles[5:9]
    assert recipe_of(rows[0]).segments[0].file.startswith("en/wav/")
    assert all(row.metadata["seconds"] == recipe_of(row).duration_s for row in rows)


def test_self_talk_is_spoken_and_muted(
    tmp_path: Path, speech: Path, run: Run, load_script: Callable[[str, str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    script = load_script("tools", "make_mute")
    monkeypatch.setattr(script, "synthesize_all", write_lines)
    counts = [f"rows.{kind}=0" for kind in ("bystander", "partner", "to_partner", "noise")]
    arguments = [f"speech={speech}", f"root={tmp_path}", f"out_dir={tmp_path}/self", "engines=[flite]"]
    assert run("make_mute", *arguments, *counts, "rows.self_talk=12") == 0
    rows = read_manifest(tmp_path / "self" / "examples.jsonl")
    assert len(rows) == 12 and {(row.task, row.target) for row in rows} == {("self_talk", "[Mute]")}
    assert len({row.metadata["transcript"] for row in rows}) > 8
    assert all(recipe_of(row).segments[0].file.startswith("self/speech/") for row in rows)


def test_translations_alternate_and_carry_their_times(tmp_path: Path, speech: Path, run: Run) -> None:
    out = tmp_path / "tr.jsonl"
    assert run("make_translations", f"wearer={speech}", f"partner={speech}", f"out={out}", "dialogues=5") == 0
    for row in read_manifest(out):
        segments = recipe_of(row).segments
        lines = row.target.splitlines()
        assert [segment.role for segment in segments] == row.metadata["turns"] and 2 <= len(lines) <= 4
        for line, segment in zip(lines, segments, strict=True):
            assert line.startswith(f"{segment.role} [{segment.start_s:.1f},")
            assert ("Esta es" in line) == (segment.role == "wearer")
        assert len({segment.role for segment in segments}) == 2
    assert run("make_translations", f"wearer={speech}", f"partner={speech}", f"out={out}", "languages=[fr,es]") == 2


SCHEMAS = [
    {"type": "function", "function": {"name": "setThermostat", "description": "Set a room", "parameters": {
        "type": "object", "required": ["room"], "properties": {
            "room": {"type": "string", "enum": ["hall", "attic"]}, "degrees": {"examples": ["19"]}}}}},
    {"name": "lock_door", "description": "Lock", "parameters": {"door": {"type": "string", "required": True}}},
]  # fmt: skip


def test_calls_for_any_schema(tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(SCHEMAS))
    first, second = read_schemas(tmp_path / "tools.json")
    assert first.spec.required == ("room",) and second.spec.required == ("door",)
    assert (
        why_not(first, {"room": "hall"}) is None and why_not(first, {"room": "cellar"}) == "room is none of its values"
    )
    assert (
        why_not(first, {"degrees": "19"}) == "no room"
        and why_not(second, {"door": "x", "y": 1}) == "unknown argument y"
    )
    out = tmp_path / "calls.jsonl"
    assert run("make_tool_calls", f"schemas={tmp_path}/tools.json", f"out={out}", "per_tool=6") == 0
    assert "lock_door: no sentence" in capsys.readouterr().out
    for row in map(json.loads, out.read_text().splitlines()):
        call = json.loads(row["target"].removeprefix("<|TOOL|>").removesuffix("</|TOOL|>"))[0]
        assert call["name"] == "setThermostat" and call["parameters"]["room"] in row["prompt"]
        assert "lock_door" in row["system"] and "thermostat" in row["prompt"].lower()


def test_instructions_are_spoken_in_words(
    tmp_path: Path, run: Run, load_script: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("tools", "speak_instructions")

    monkeypatch.setattr(script, "synthesize_all", write_lines)
    texts = tmp_path / "in.jsonl"
    rows = [{"instruction": "What is 20% of 50?", "output": "Ten."}, {"prompt": "word " * 60, "target": "No."}]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("speak_instructions", f"texts={texts}", f"out_dir={tmp_path}/out", "engines=[flite]") == 0
    (row,) = read_manifest(tmp_path / "out" / "examples.jsonl")
    assert row.metadata["transcript"] == "What is twenty percent of fifty?" and row.target == "Ten."
    assert row.metadata["written"] == "What is 20% of 50?" and row.metadata["voices"][0].startswith("flite/")
    texts.write_text('{"prompt": "Only this."}\n')
    assert run("speak_instructions", f"texts={texts}", f"out_dir={tmp_path}/out") == 2


class Server:
    """An OpenAI-compatible server that answers from a function of the last user turn, or fails."""

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self.requests = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.requests += 1
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                text = answer(body["messages"][-1]["content"])
                self.send_response(500 if text is None else 200)
                self.end_headers()
                if text is not None:
                    self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())

            def log_message(self, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"


def test_replies_of_an_endpoint_become_targets_once(
    tmp_path: Path, speech: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(lambda words: "I can only read the text." if "3" in words else f"You said {words.lower()}")
    out = tmp_path / "qa.jsonl"
    arguments = [
        f"speech={speech}", f"out={out}", "chat.model=openai:x", f"chat.endpoint.base_url={server.url}",
        "asr_share=0.5",
    ]  # fmt: skip
    assert run("speech_qa", *arguments) == 0
    rows = read_manifest(out)
    told = [row for row in rows if row.task == "speech_qa"]
    assert len(told) == 7 and sum(row.task == "asr" for row in rows) == 4
    assert told[0].target == "You said this is story number 0." and told[0].messages[-1]["content"] == [
        {"type": "audio"}
    ]
    assert all("3" not in row.target for row in told) and "speaks of text" in capsys.readouterr().out
    assert server.requests == 8
    assert run("speech_qa", *arguments) == 0 and server.requests == 8  # nothing is asked twice
    assert [row.to_dict() for row in read_manifest(out)] == [row.to_dict() for row in rows]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Nine o'clock.", None),
        ('She said "no."', None),
        ("", "empty"),
        ("I can help you find your", "cut off"),
        ("I am sorry for that. I am sorry for that.", "repeats itself"),
        ("What time is it?", "echo"),
        ("Time is it.", "echo"),
        ("I am not a chatbot.", "speaks of text"),
        ("[Mute]", "no plain answer"),
    ],
)
def test_replies_are_judged(reply: str, reason: str | None, load_script: Callable[[str, str], ModuleType]) -> None:
    assert load_script("tools", "speech_qa").why_not(reply, "What time is it?", 60) == reason


def test_an_endpoint_that_fails_ends_the_run_and_is_named(
    tmp_path: Path, speech: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(lambda words: None if "number 5" in words else "Fine, thank you.")
    arguments = [
        f"speech={speech}", f"out={tmp_path}/qa.jsonl", "chat.model=openai:x", f"chat.endpoint.base_url={server.url}",
        "chat.endpoint.retries=1", "chat.endpoint.backoff_s=0",
    ]  # fmt: skip
    assert run("speech_qa", *arguments) == 2
    assert "1 request failed" in capsys.readouterr().err and not (tmp_path / "qa.jsonl").exists()
    assert json.loads((tmp_path / "qa.faults.jsonl").read_text())["name"] == "c5"
    assert run("speech_qa", *arguments, "tolerance=0.3", "asr_share=0") == 0
    assert len(read_manifest(tmp_path / "qa.jsonl")) == 7


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("Hello there, hello there.", True),
        ("Wait here. I have to make a call. Wait here. I have to make", True),
        ("You've made a mistake. I'm not him. You've made a mistake. I", True),
        ("There's no reason for this droid. There's no reason for this dro", True),
        ("You do what you have to do, I do what I have to do.", False),
        ("No. No. No.", False),
        ("", False),
    ],
)
def test_a_decoder_in_a_loop_is_seen(text: str, loops: bool) -> None:
    assert repeats_itself(text) is loops


def test_words_are_compared_without_signs() -> None:
    assert word_normaliser("en")("...and no further...") == word_normaliser("en")("And no further.")
    assert word_normaliser("es")("¡Ya... no!") == "ya no"


def test_labels_are_judged(
    tmp_path: Path, run: Run, load_script: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    script = load_script("tools", "pseudo_label")
    said = {
        "good": ("Hello there, Ann.", -0.2),
        "unsure": ("Bla.", -2.0),
        "silent": ("", -0.1),
        "again": ("Hello there Ann", -0.3),
    }

    class Labeller:
        def __init__(self, *arguments: Any) -> None:
            self.names = iter(sorted(said))

        def __call__(self, audio_N: np.ndarray) -> tuple[str, float]:
            return said[next(self.names)]

    monkeypatch.setattr(script, "Labeller", Labeller)
    for name in said:
        path = tmp_path / "in" / f"{name}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, 0.2 * np.random.default_rng(0).standard_normal(16000), 16000)
        path.with_suffix(".txt").write_text("hello there anna")
    arguments = ["source.layout=folder", f"source.root={tmp_path}/in", f"out_dir={tmp_path}/out", "per_text=1"]
    assert run("pseudo_label", *arguments) == 0
    kept = [json.loads(line) for line in (tmp_path / "out" / "manifest.jsonl").read_text().splitlines()]
    assert [row["id"] for row in kept] == ["again"] and kept[0]["transcript"] == "hello there anna"
    told = capsys.readouterr().out
    assert all(reason in told for reason in ("'unsure': 1", "'no words': 1", "'said before': 1"))
    assert "word error rate of kept labels against 1 transcripts: 33.3%" in told
    monkeypatch.setattr(Labeller, "__call__", None)  # a second run labels nothing
    assert run("pseudo_label", *arguments) == 0
