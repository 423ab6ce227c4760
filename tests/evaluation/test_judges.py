"""Judges: prompts, verdicts, the log, and a whole judged run from a served model to the pages."""

import csv
import json
import math
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from transformers.utils.import_utils import is_serve_available

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import Answer, Script, Server, last_words  # type: ignore[import-not-found]

from wearllama.data.assets import cache_root
from wearllama.evaluation.agreement import agree, cohen_kappa, read_scores
from wearllama.evaluation.chat import ChatConfig, EndpointConfig, open_chat
from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.compare import compare
from wearllama.evaluation.endpoints import EndpointError
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.items import ITEMS, PAGE, read_items
from wearllama.evaluation.judges import (
    PROMPTS,
    Judge,
    JudgeItem,
    last_json_object,
    load_role,
    parse_label,
    parse_qa,
    parse_translation,
)
from wearllama.evaluation.judging import JudgesConfig
from wearllama.evaluation.report import read_run
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox

FAST = {"retries": 2, "backoff_s": 0.01, "timeout_s": 20.0, "concurrency": 3}


def served(url: str, **changes: Any) -> ChatConfig:
    return ChatConfig(model="openai:judge", endpoint=EndpointConfig(base_url=url, **{**FAST, **changes}))


# --- prompts ---------------------------------------------------------------------------------------------------------

KINDS = """hedged answer; self-contradiction; correct comparison; wrong time frame; wrong number; item sets equal;
item sets missing; item sets extra; item sets reordered; exact; abbreviation; alias; near-homonym entity;
win/loss inference; unit paraphrase; partial dates; rounding accepted; rounding rejected; over X against X;
birth date instead of age; denied premise; extra framing with the right answer; count with list;
reversed comparison"""


def test_worked_examples_cover_the_kinds() -> None:
    examples = load_role("qa").examples
    kinds = {" ".join(kind.split()) for kind in KINDS.split(";")}
    assert len(examples) == 34 and kinds <= {e["kind"] for e in examples}
    assert Counter(e["score"] for e in examples) == {0: 21, 1: 13}
    assert len({e["question"] for e in examples}) == 34
    system = load_role("qa").conversation({"question": "q", "ground_truth": "g", "prediction": "p"})[0]["content"]
    assert system.count('"explanation"') == 35 and '{"explanation": "<a few words>"' in system


def test_prompts_are_pinned_and_replaceable(tmp_path: Path) -> None:
    assert load_role("qa").prompt_hash == load_role("qa", PROMPTS).prompt_hash
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"qa": {"system": "Grade.", "user": "{question} {ground_truth} {prediction}"}}))
    mine = load_role("qa", file)
    assert mine.prompt_hash != load_role("qa").prompt_hash and mine.examples == ()
    assert load_role("translation", file).prompt_hash == load_role("translation").prompt_hash
    for text, message in (
        ("jury: {}", "unknown judge roles"),
        ("qa: {system: a}", "system and user"),
        ("- a", "mapping"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            load_role("qa", file)
    file.write_text("qa: {system: '{x}', user: a}")
    with pytest.raises(ValueError, match="cannot be filled in"):
        load_role("qa", file).conversation({})


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_the_last_object_counts() -> None:
    text = 'Example {"score": 1}. Think {broken. ```json\n{"explanation": "so {it} is", "score": 0}\n``` done {"a": 1}'
    assert last_json_object(text, "score") == {"explanation": "so {it} is", "score": 0} and parse_qa(text) == 0.0
    assert last_json_object("{" * 100_000, "score") is None and last_json_object('{"a":' * 30_000, "a") is None


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 1}', 1.0), ('{"score": "0"}', 0.0), ('{"score": 1.0}', 1.0), ('{"score": 0.5}', None),
        ('{"score": true}', None), ('{"score": null}', None), ("score: 1", None), ("", None), ('{"score": 1', None),
        ('{"score": [1]}', None), ('{"grade": 1}', None),
    ],
)  # fmt: skip
def test_qa_verdicts(text: str, score: float | None) -> None:
    assert parse_qa(text) == score


@pytest.mark.parametrize(
    ("value", "score"),
    [("0.85", 0.85), ('"0.85"', 0.85), ("1", 1.0), ("0", 0.0), ("0.87", None), ("1.05", None), ("-0.05", None),
     ("NaN", None), ('"good"', None), ("true", None), ("0.15000000000000002", 0.15)],
)  # fmt: skip
def test_translation_verdicts(value: str, score: float | None) -> None:
    assert parse_translation(f'{{"translation_score": {value}}}') == score


def test_labels() -> None:
    assert parse_label('{"label": " Both "}') == "both" and parse_label('{"label": "all"}') is None
    assert parse_label('{"label": 3}') is None


# --- the log ---------------------------------------------------------------------------------------------------------

ITEMS_TO_JUDGE = [
    JudgeItem(f"i{n}", {"question": "q", "ground_truth": "g", "prediction": f"answer {n}"}) for n in range(9)
]


def verdict(request: dict[str, Any], number: int) -> Answer:
    n = int(last_words(request).rsplit(" ", 1)[1])
    return Answer(text=f'{{"score": {n % 2}}}') if n != 4 else Answer(text="no idea")


def judge(url: str, folder: Path, **changes: Any) -> Judge:
    return Judge(load_role("qa"), open_chat(served(url, label="here", **changes)), folder)


def test_nothing_is_asked_twice_and_what_is_unreadable_is_counted(tmp_path: Path) -> None:
    with Server(verdict) as server:
        found = judge(server.url, tmp_path).judge([*ITEMS_TO_JUDGE, ITEMS_TO_JUDGE[0]._replace(id="same")])
        assert [v.score for v in found] == [0, 1, 0, 1, None, 1, 0, 1, 0, 0]
        assert found[4].error == "the judge's words hold no verdict" and found[4].raw == "no idea"
        assert len(server.requests) == 9 and found[0].prompt_hash == load_role("qa").prompt_hash
        assert server.requests[0]["temperature"] == 0
        judge(server.url, tmp_path).judge(ITEMS_TO_JUDGE)
        assert len(server.requests) == 9
        again = judge(server.url, tmp_path).judge(ITEMS_TO_JUDGE, again=True)
        assert len(server.requests) == 10 and again[4].score is None  # only the unreadable one
    with pytest.raises(ValueError, match=r"temperature is 0\.7, wanted 0"):
        judge(server.url, tmp_path, temperature=0.7)


def test_a_judge_killed_in_mid_run_goes_on(tmp_path: Path) -> None:
    died: Script = lambda r, n: verdict(r, n) if n < 5 else Answer(status=503, body=b"")  # noqa: E731
    with Server(died) as server, pytest.raises(EndpointError, match="4 of 9 items were not judged"):
        judge(server.url, tmp_path, concurrency=1).judge(ITEMS_TO_JUDGE)
    log = tmp_path / "judgements-qa.jsonl"
    log.write_bytes(log.read_bytes()[:-9])  # and the last line is torn
    with Server(verdict) as server:
        found = judge(server.url, tmp_path).judge(ITEMS_TO_JUDGE)
        assert len(server.requests) == 5
    assert [v.score for v in found] == [0, 1, 0, 1, None, 1, 0, 1, 0]
    whole = [row["id"] for row in map(_row, log.read_text().splitlines()) if row]
    assert sorted(whole) == [item.id for item in ITEMS_TO_JUDGE]


def _row(line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError:
        return {}


# --- agreement -------------------------------------------------------------------------------------------------------


def test_agreement(tmp_path: Path, load_script: Callable[[str, str], ModuleType]) -> None:
    assert cohen_kappa([1, 1, 0, 0], [1, 0, 0, 0]) == pytest.approx(0.5)
    assert math.isnan(cohen_kappa([1, 1], [1, 1])) and cohen_kappa(["a", "b"], ["b", "a"]) == -1
    with Server(verdict) as server:
        judge(server.url, tmp_path).judge(ITEMS_TO_JUDGE)
    people = tmp_path / "people.csv"
    people.write_text("id,score\n" + "".join(f"i{n},{n % 2 if n < 8 else 1}\n" for n in range(9)) + "other,1\n")
    found = agree(read_scores(tmp_path / "judgements-qa.jsonl"), read_scores(people))
    assert found.items == 8 and found.only_second == 2 and found.raw == pytest.approx(7 / 8)
    assert found.kappa == pytest.approx(0.75) and found.pearson == pytest.approx(0.7746, abs=1e-3)
    with pytest.raises(ValueError, match="no id is scored on both sides"):
        agree({"a": 1}, {"b": 1})
    for text, message in (("id,grade\n", "wanted id and score"), ("id,score\na,1\na,2\n", "given twice")):
        people.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_scores(people)


# --- a judged run ----------------------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def model(request: dict[str, Any], number: int) -> Answer:
    system = str(request["messages"][0]["content"])
    return Answer(text="speaker0: hello there" if "translate" in system.lower() else EVIL)


def strict_judge(request: dict[str, Any], number: int) -> Answer:
    if "Turn to grade" in last_words(request):
        return Answer(text='{"translation_score": 0.6, "reason": "so"}')
    return Answer(text='{"score": 1}' if "Paris" in last_words(request) else "hmm")


def test_a_judged_run_from_model_to_pages(
    make_wearvox_copy: Path, tmp_path: Path, load_script: Callable[[str, str], ModuleType], capsys: Any
) -> None:
    harness = HarnessConfig(progress=False, batch_size=3, ttft_items=1)
    examples = load_wearvox(make_wearvox_copy, WearVoxConfig())
    with Server(model) as server, Server(strict_judge) as court:
        endpoint = EndpointConfig(label="here", usd_per_million_input=2e4, **FAST)
        chat = served(court.url, label="court")

        def command(**changes: Any) -> RunCommand:
            fields = {"model": "openai:m", "base_url": server.url, "endpoint": endpoint, "out": str(tmp_path / "out"),
                      "harness": harness, "controls": ("majority",), **changes}  # fmt: skip
            return RunCommand(**fields)

        (page,) = run_benchmark("wearvox", command(), examples, root=make_wearvox_copy, channels=5)
        asked = len(server.requests)
        results, _ = read_run(page.parent)
        assert results["systems"][0]["unscored"] == {"live_translation": 1} and results["judges"] == {}
        judges = JudgesConfig(qa=chat, translation=chat)
        (page,) = run_benchmark("wearvox", command(judges=judges), examples, root=make_wearvox_copy, channels=5)
        assert len(server.requests) == asked  # judged anew, nothing inferred again
        results, _ = read_run(page.parent)
    first = results["systems"][0]
    assert first["rates"]["live_translation/session"]["mean"] == pytest.approx(0.6)  # one turn of one
    assert first["rates"]["closed_book/correct"]["total"] == 1 and first["rates"]["closed_book/correct"]["hits"] == 1
    assert first["unscored"] == {"closed_book": 1, "grounding": 1}
    assert (
        results["judges"]["qa"]["unscored"] == 2 + 1
        and results["judges"]["qa"]["prompt"] == load_role("qa").prompt_hash
    )
    assert first["usage"]["prompt_tokens"] == 10 * len(examples)
    assert first["usage"]["usd"] == pytest.approx(0.2 * len(examples)) and results["judges"]["qa"]["usd"] == 0.0
    assert f"| {0.2 * len(examples):.4f} |" in (page.parent / "report.md").read_text()
    for name in ("report.html", "report.md", PAGE):
        text = (page.parent / name).read_text()
        assert "(published)" in text or name == PAGE
        if name.endswith("html"):
            assert "<script>alert" not in text and "<img src=x" not in text
    data = (page.parent / PAGE).read_text().split('id="data">')[1].split("</script>")[0]
    rows = json.loads(data)["rows"]
    assert len(rows) == 9 and sum(row["said"] == EVIL for row in rows) == 8
    audio = page.parent / json.loads(data)["base"] / rows[0]["audio"]
    assert audio.is_file()  # the player's address leads to the recording
    with (page.parent / ITEMS).open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 2 * 9
    for title in ("Table 5", "Table 6", "Figure 3", "Tokens", "Not scored"):
        assert title in (page.parent / "report.md").read_text()
    compared = compare(read_items(page.parent)["model"], read_items(page.parent)["majority class"])
    side = next(row for row in compared.tables[0].rows if row[0] == "non-assistant-directed")
    assert side[1:4] == ("3", "0.0 %", "100.0 %") and side[-3:-1] == ("0", "3")
    script = load_script("tools", "compare")
    sys.argv = ["compare.py", str(page.parent), str(page.parent), "--systems", "model", "majority class"]
    script.main()
    assert "-100.0 [-100.0, -100.0]" in capsys.readouterr().out


def test_comparing_other_data_is_refused() -> None:
    row = {"id": "a", "task": "closed_book", "wanted": "x", "correct": "1"}
    with pytest.raises(ValueError, match="share no item"):
        compare([row], [{**row, "id": "b"}])
    with pytest.raises(ValueError, match="another wanted"):
        compare([row], [{**row, "wanted": "y"}])


@pytest.fixture
def make_wearvox_copy(wearvox_data: Path, tmp_path: Path) -> Path:
    """The tiny benchmark with a prompt for its translation."""
    import shutil

    folder = tmp_path / "data"
    shutil.copytree(wearvox_data, folder)
    rows = json.loads((folder / "data_public.json").read_text())
    rows[8]["text_prompt"] = "Translate. `speaker0` speaks German. `speaker1` speaks English."
    (folder / "data_public.json").write_text(json.dumps(rows))
    return folder


# --- a real model behind a real server -------------------------------------------------------------------------------


SMOLLM2 = cache_root() / "smollm2"


def start(kind: str, port: int) -> subprocess.Popen[bytes]:
    """A server that listens; ``transformers`` is `transformers serve`, ``ours`` the few lines of chat_server.py."""
    command = {
        "ours": [str(Path(__file__).with_name("chat_server.py")), str(port)],
        "transformers": ["-m", "transformers.cli.transformers", "serve", str(SMOLLM2), "--device", "cpu", "--host",
                         "127.0.0.1", "--port", str(port)],
    }[kind]  # fmt: skip
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.5)
    raise AssertionError("the server does not listen")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "transformers"])
def test_smollm2_behind_a_server_killed_and_started_again(tmp_path: Path, kind: str) -> None:
    """The packaged SmolLM2 as a text model and as a judge over HTTP; kill -9 in mid-run; the rest is asked, no more."""
    if kind == "transformers" and not (is_serve_available() and (SMOLLM2 / "config.json").is_file()):
        pytest.skip("`transformers serve` needs the extra `serve`, and SmolLM2 (tools/convert_smollm2.py)")
    from faulty_server import free_port  # type: ignore[import-not-found]

    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    items = [JudgeItem(f"i{n}", {"question": f"{n}?", "ground_truth": "a", "prediction": "b"}) for n in range(6)]
    role = load_role("side_talk")
    items = [JudgeItem(i.id, {"assistant": i.fields["question"], "person": "x", "prediction": "y"}) for i in items]
    config = served(url, concurrency=1, retries=0, timeout_s=240.0)
    config.model = f"openai:{SMOLLM2}" if kind == "transformers" else config.model
    config.max_new_tokens = 8
    process = start(kind, port)
    try:
        said = open_chat(config).complete([[{"role": "user", "content": "What is the capital of France?"}]])
        assert "Paris" in said[0].text and said[0].usage["prompt_tokens"] > 5
        log = tmp_path / "judgements-side_talk.jsonl"

        def kill(index: int, reply: Any) -> None:
            if log.is_file() and len(log.read_text().splitlines()) == 2:
                process.kill()  # SIGKILL; nothing where it is dead already
                process.wait()

        chat = open_chat(config)
        plain = chat.complete
        chat.complete = lambda c, note=None: plain(c, lambda i, r: (note(i, r), kill(i, r)))  # type: ignore
        with pytest.raises(EndpointError, match="4 of 6 items were not judged"):
            Judge(role, chat, tmp_path).judge(items)
        time.sleep(0.2)
        process = start(kind, port)
        found = Judge(role, open_chat(config), tmp_path).judge(items)
        ids = [json.loads(line)["id"] for line in log.read_text().splitlines()]
        assert sorted(ids) == [item.id for item in items] == [v.id for v in found]
    finally:
        process.kill()
        process.wait()
