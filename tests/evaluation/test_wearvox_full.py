"""WearVox beyond the turns: the paper's arithmetic, translated sessions, search results, prompts, broken data."""

import bz2
import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wearllama.evaluation import published
from wearllama.evaluation.crag import CragIndex, format_results
from wearllama.evaluation.intervals import mean_of, paired_bootstrap
from wearllama.evaluation.translation import Turn, gold_turns, languages_of, said_turns, session_score
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox, read_wearvox
from wearllama.evaluation.wearvox_prompts import WearVoxPrompts, load_wearvox_prompts
from wearllama.evaluation.wearvox_scores import weighted_average

# --- the published arithmetic ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", published.WEARVOX)
def test_nine_micro_averages_to_the_printed_digit(name: str) -> None:
    *scores, printed = published.WEARVOX[name]
    assert round(weighted_average(scores, published.WEARVOX_COUNTS), 1) == printed
    assert len(published.WEARVOX) == 9


def test_printed_counts() -> None:
    assert sum((547, 588, 1082, 1125, 1000)) == 4342 and sum((547, 588, 1082, 1125, 500)) == 3842
    assert sum(count for _, _, count in published.WEARVOX_NOISE.values()) == 3035
    assert published.WEARVOX_NOISE.keys() == published.WEARVOX_NOISE_OTHERS.keys()


def test_session_score() -> None:
    assert session_score([1.0, 0.5], predicted=2) == 0.75
    assert session_score([1.0, 0.5], predicted=3) == 0.5  # an invented turn costs
    assert session_score([1.0, 0.0, 0.0], predicted=1) == pytest.approx(1 / 3)  # missing turns cost
    assert session_score([0.0], predicted=0) == 0.0
    for scores, predicted in (([], 1), ([1.2], 1), ([0.5], -1)):
        with pytest.raises(ValueError, match="turn scores"):
            session_score(scores, predicted)


# --- turns -----------------------------------------------------------------------------------------------------------

GOLD = "0 [0.0,2.5] Where is the station?\n1 [2.9,5] Geradeaus, dann links."


def test_gold_turns_in_every_form() -> None:
    turns = gold_turns(GOLD)
    assert turns == [Turn(0, "Where is the station?", 0.0, 2.5), Turn(1, "Geradeaus, dann links.", 2.9, 5.0)]
    objects = [{"speaker_id": "speaker0", "timestamp": [0, 2.5], "utterance": "Where is the station?"},
               {"speaker": 1, "start": 2.9, "end": 5, "text": "Geradeaus, dann links."}]  # fmt: skip
    for form in (GOLD.splitlines(), json.dumps(GOLD.splitlines()), objects, "\n" + GOLD + "\n\n"):
        assert gold_turns(form) == turns
    assert gold_turns("\n".join(turn.gold_line() for turn in turns)) == turns
    assert gold_turns("Speaker 1: [3,4]: ja")[0] == Turn(1, "ja", 3.0, 4.0)


@pytest.mark.parametrize(
    "bad", ["", [], "hello", "2 [0,1] x", "0 [2,1] x", "0 [0,1] ", None, 3, [{"speaker": 0}], [None], "0 [a,b] x"]
)
def test_bad_gold_turns(bad: Any) -> None:
    with pytest.raises(ValueError, match="translation"):
        gold_turns(bad)


def test_said_turns() -> None:
    text = "As asked:\n\n**speaker0:** Where is it?\n`speaker1: Dort.`\n  und zwar links\n- Speaker 0: Thanks"
    assert said_turns(text) == [Turn(0, "Where is it?"), Turn(1, "Dort. und zwar links"), Turn(0, "Thanks")]
    assert said_turns("") == said_turns("[Mute]") == [] and said_turns("speaker2: x") == []


def test_languages() -> None:
    system = "* `speaker0` speaks German. Translate to **English**.\n* `speaker1` speaks English. ..."
    assert languages_of([{"role": "system", "content": system}]) == ("German", "English")
    assert languages_of([{"role": "system", "content": ""}])[1] == "the language of speaker 1"


# --- search results and prompts --------------------------------------------------------------------------------------

PAGE = {"page_name": "A <b>page</b>", "page_snippet": "it is  <i>blue</i>", "page_result": "<script>x()</script>sky",
        "page_last_modified": None, "page_url": "u"}  # fmt: skip


def crag_file(folder: Path, rows: list[dict[str, Any]], name: str = "crag.jsonl") -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = folder / name
    path.write_bytes(bz2.compress(text.encode()) if name.endswith("bz2") else text.encode())
    return path


@pytest.mark.parametrize("name", ["crag.jsonl", "crag.jsonl.bz2"])
def test_crag_join(name: str, tmp_path: Path) -> None:
    rows = [
        {
            "interaction_id": "x1",
            "query": "What colour is the sky?",
            "query_time": "03/01/2024",
            "search_results": [PAGE],
        },
        {"interaction_id": "x2", "query": "twice", "search_results": [PAGE]},
        {"interaction_id": "x3", "query": "Twice?", "search_results": []},
    ]
    index = CragIndex(crag_file(tmp_path, rows, name), page_chars=10)
    by_words = index.find({"id": 5, "gt_transcript": "what color is the sky"})
    assert by_words is not None and by_words == index.find({"id": "x1"}) and by_words.query_time == "03/01/2024"
    assert by_words.text == "[1] A page\nit is blue\nsky"
    assert index.find({"id": 5, "gt_transcript": "twice"}) is None  # two questions with these words: by id only
    assert index.find({"id": 5, "interaction_id": "x2"}) is not None
    assert format_results(None) == ""
    (tmp_path / "torn.jsonl").write_text("{")
    with pytest.raises(ValueError, match="line 1: no JSON"):
        CragIndex(tmp_path / "torn.jsonl")
    with pytest.raises(ValueError, match="not a CRAG file"):
        CragIndex(crag_file(tmp_path, [{"a": 1}], "f.jsonl"))


def test_grounded_rows_get_their_results(make_wearvox: Callable[..., Path], tmp_path: Path) -> None:
    rows = [{"interaction_id": "row-7", "query": "q", "query_time": "noon", "search_results": [PAGE]}]
    crag = str(crag_file(tmp_path, rows))

    def placeholder(rows: list[dict[str, Any]]) -> None:
        rows[7]["text_prompt"] = "Asked at {query_time}. Results: {search_result} End."

    folder = make_wearvox()
    plain = {e.id: e for e in load_wearvox(folder, WearVoxConfig())}
    joined = read_wearvox(folder, WearVoxConfig(crag=crag))
    found = {e.id: e for e in joined.examples}
    assert found["row-7"].messages[0]["content"].endswith("\n[1] A page\nit is blue")
    assert all(found[key].messages == plain[key].messages for key in plain if key != "row-7")
    assert joined.without_results == []
    filled = load_wearvox(make_wearvox(placeholder), WearVoxConfig(crag=crag, tasks=("grounding",)))
    assert filled[0].messages[0]["content"] == "Asked at noon. Results: [1] A page\nit is blue End."
    other = str(crag_file(tmp_path, [{"interaction_id": "zz", "query": "zz", "search_results": []}], "o.jsonl"))
    with pytest.raises(ValueError, match="holds none of the 1 grounded questions"):
        load_wearvox(folder, WearVoxConfig(crag=other))


def test_prompts_travel_and_can_be_replaced(make_wearvox: Callable[..., Path], tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
    ]

    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["text_prompt"] = turns
        rows[5]["text_prompt"] = None

    folder = make_wearvox(change)
    rows = load_wearvox(folder, WearVoxConfig())
    assert [m["content"] for m in rows[0].messages[:3]] == ["S", "hi", "yes"]
    assert "as few words" in rows[5].messages[0]["content"]  # ours, since the row has none
    file = tmp_path / "prompts.yaml"
    shared = "Mine. {original}"
    file.write_text(json.dumps({"tool_call": shared, "non-assistant-directed": shared}))
    mine = load_wearvox(folder, WearVoxConfig(prompts=str(file)))
    assert [m["content"] for m in mine[0].messages[:3]] == ["Mine. S", "hi", "yes"]
    assert mine[5].messages == rows[5].messages


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"juggling": "x"}, "unknown tasks"),
        ({"closed_book": 3}, "closed_book is int"),
        ({"closed_book": "{nothing}"}, "cannot be filled in"),
        ({"tool_call": "x"}, "must share one prompt"),
    ],
)
def test_bad_prompts(texts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        WearVoxPrompts(texts=texts)
    (tmp_path / "p.yaml").write_text("- a")
    with pytest.raises(ValueError, match="wanted a mapping"):
        load_wearvox_prompts(tmp_path / "p.yaml")


# --- broken data -----------------------------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1e308, "", " ", "x", "\ud800", "x" * 50_000, [], {}, [[]], [None], {"a": {}}, ["a", 1],
    [{"role": "system"}], [{"role": "boss", "content": "x"}], [{"role": "user", "content": {"a": 1}}],
    "<|TOOL|>[{", [{"name": "weather"}], [{"name": 3, "parameters": []}], {"answer": None},
    "../../etc/passwd", "/etc/hosts", "wav/../../x.wav", "wav\\x.wav", "wav/a\0b.wav",
    "live_translation", "tool_call", "grounding", "0 [1,0] x",
)  # fmt: skip
FIELDS = ("id", "task", "text_prompt", "audio_query", "audio_query_mc", "gt_transcript", "ground_truth")


def break_row(rows: list[Any], draw: random.Random) -> None:
    """One random harm to one random row."""
    index, field = draw.randrange(len(rows)), draw.choice(FIELDS)
    harm = draw.randrange(10)
    if harm == 0:
        rows[index] = draw.choice(JUNK)
    elif harm == 1:
        rows[index].pop(field)
    elif harm == 2:
        rows[index]["id"] = rows[index - 1]["id"]
    elif harm == 3 and isinstance(rows[index]["ground_truth"], str):
        text = rows[index]["ground_truth"]
        rows[index]["ground_truth"] = text[: draw.randrange(len(text))]
    else:
        rows[index][field] = draw.choice(JUNK)


def break_wav(path: Path, draw: random.Random) -> None:
    """Harm the header, or cut the file."""
    data = bytearray(path.read_bytes())
    if draw.random() < 0.3:
        del data[draw.randrange(min(len(data), 60)) :]
    else:
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(44)] = draw.randrange(256)
    path.write_bytes(bytes(data))


def test_five_hundred_broken_rows(wearvox_data: Path, tmp_path: Path) -> None:
    """A named error, or a row left out and counted; what is left is exactly what it was."""
    good = json.loads((wearvox_data / "data_public.json").read_text())
    whole = {e.id: e for e in load_wearvox(wearvox_data, WearVoxConfig())}
    folder = tmp_path / "broken"
    folder.mkdir()
    shutil.copy(wearvox_data / "audio_metadata.json", folder)
    for name in ("wav", "wav_mc"):
        (folder / name).symlink_to(wearvox_data / name)
    refused = 0
    for seed in range(500):
        draw = random.Random(seed)
        rows = copy.deepcopy(good)
        break_row(rows, draw)
        (folder / "data_public.json").write_text(json.dumps(rows))
        try:
            load_wearvox(folder, WearVoxConfig())
            strict = True
        except ValueError as error:
            strict, refused = False, refused + 1
            assert "data_public.json, row" in str(error) or f"{folder}/" in str(error), error
        found = read_wearvox(folder, WearVoxConfig(on_error="record"))
        assert len(found.skipped) == (0 if strict else 1) and len(found.examples) + len(found.skipped) == len(good)
        changed = [e for e in found.examples if e.id not in whole or e.to_dict() != whole[e.id].to_dict()]
        assert len(changed) <= 1 and all((e.audio or {})["mc"].startswith("wav") for e in found.examples)
    assert refused > 250


def test_broken_recordings(make_wearvox: Callable[..., Path]) -> None:
    folder = make_wearvox()
    clean = (folder / "wav_mc/a99.wav").read_bytes()
    for seed in range(60):
        (folder / "wav_mc/a99.wav").write_bytes(clean)
        break_wav(folder / "wav_mc/a99.wav", random.Random(seed))
        found = read_wearvox(folder, WearVoxConfig(on_error="record"))
        assert len(found.examples) + len(found.skipped) == 9 and len(found.skipped) <= 1
        if found.skipped:
            assert "a99.wav" in found.skipped[0]


@pytest.mark.parametrize("name", ["../x.wav", "/etc/passwd", "wav/../../x.wav", "wav\\..\\x.wav", "", "a\0b"])
def test_paths_out_of_the_folder(name: str, make_wearvox: Callable[..., Path]) -> None:
    folder = make_wearvox(lambda rows: rows[2].update(audio_query=name))
    with pytest.raises(ValueError, match="leads out of the dataset's folder"):
        load_wearvox(folder, WearVoxConfig())


@pytest.mark.parametrize("text", ["", "{", "[1", '{"a": 1}', "[" * 100_000, "[]", "[3]"])
def test_broken_files(text: str, tmp_path: Path) -> None:
    (tmp_path / "data_public.json").write_text(text)
    for on_error in ("error", "record"):
        with pytest.raises(ValueError, match=r"data_public\.json"):
            read_wearvox(tmp_path, WearVoxConfig(on_error=on_error))  # type: ignore[arg-type]


# --- intervals -------------------------------------------------------------------------------------------------------


def test_bootstrap() -> None:
    mean = mean_of([0.0, 1.0] * 50)
    assert mean.value == 0.5 and mean.interval.low == pytest.approx(0.40, abs=0.02) and mean.total == 100
    better = {str(i): float(i % 10 < 8) for i in range(200)}
    worse = {str(i): float(i % 10 < 5) for i in range(200)}
    found = paired_bootstrap(better, worse)
    assert found.difference == pytest.approx(0.3) and 0.2 < found.low < 0.3 < found.high < 0.4 and found.p_value < 0.001
    same = paired_bootstrap(better, better)
    assert same.difference == 0 and same.p_value == 1.0
    half = paired_bootstrap({"a": 1.0, "x": 0.0}, {"a": 0.5, "y": 1.0})
    assert half.items == 1 and half.difference == 0.5


@pytest.fixture
def make_wearvox(wearvox_data: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the tiny benchmark with changed rows."""
    count = iter(range(100))

    def write(change: Callable[[list[dict[str, Any]]], None] = lambda rows: None) -> Path:
        folder = tmp_path / f"data{next(count)}"
        shutil.copytree(wearvox_data, folder)
        rows = json.loads((folder / "data_public.json").read_text())
        change(rows)
        (folder / "data_public.json").write_text(json.dumps(rows))
        return folder

    return write
