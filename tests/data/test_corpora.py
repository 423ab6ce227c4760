"""Corpora in their published layouts, on small directories; what is broken is named and judged."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

from wearllama.audio.io import AudioError, AudioWarning
from wearllama.data.corpora import Broken, CorpusSource, Recording, read_source
from wearllama.data.faults import Faults, TooManyFaults
from wearllama.data.speech_rows import SpeechManifest, read_mono, read_rows


def tone(path: Path, seconds: float = 0.6, rate: int = 16000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.2 * np.sin(np.arange(int(seconds * rate)) * 0.1), rate)
    return path


def librispeech(root: Path) -> CorpusSource:
    for number in range(3):
        tone(root / "84" / "121550" / f"84-121550-{number:04d}.flac")
    (root / "84" / "121550" / "84-121550.trans.txt").write_text(
        "84-121550-0000 BUT WITH FULL RAVISHMENT\n84-121550-0001 THE HOURS\n84-121550-0002 OF PRIME\n"
    )
    return CorpusSource(layout="librispeech", root=str(root))


def common_voice(root: Path) -> CorpusSource:
    tone(root / "clips" / "common_voice_fr_1.mp3")
    (root / "train.tsv").write_text(
        'client_id\tpath\tsentence\tup_votes\tlocale\nabc\tcommon_voice_fr_1.mp3\t"Bonjour" a tous\t2\tfr\n'
    )
    return CorpusSource(layout="common_voice", root=str(root))


def mls(root: Path) -> CorpusSource:
    tone(root / "train" / "audio" / "10" / "20" / "10_20_000000.flac")
    (root / "train" / "transcripts.txt").write_text("10_20_000000\thola a todos\n")
    return CorpusSource(layout="mls", root=str(root), language="es")


def csv_table(root: Path) -> CorpusSource:
    tone(root / "a.wav")
    (root / "rows.csv").write_text('clip,words,who,mood\na.wav,"Well, hello",ann,calm\n')
    columns = {"file": "clip", "text": "words", "speaker": "who"}
    return CorpusSource(layout="table", root=str(root / "rows.csv"), columns=columns)


def jsonl_table(root: Path) -> CorpusSource:
    tone(root / "audio" / "7.flac", rate=11025)
    row = {"id": "7", "audio": "audio/7.flac", "text": "Hi.", "speaker": "s1", "translations": {"es": "Hola."}}
    (root / "rows.jsonl").write_text(json.dumps(row) + "\n")
    return CorpusSource(layout="table", root=str(root / "rows.jsonl"))


def folder(root: Path) -> CorpusSource:
    tone(root / "ann" / "one.wav")
    (root / "ann" / "one.txt").write_text("Good morning.\n")
    tone(root / "bob" / "two.ogg")
    return CorpusSource(layout="folder", root=str(root))


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (librispeech, ("84-121550-0000", "BUT WITH FULL RAVISHMENT", "84", "en", 3)),
        (common_voice, ("common_voice_fr_1", '"Bonjour" a tous', "abc", "fr", 1)),
        (mls, ("10_20_000000", "hola a todos", "10", "es", 1)),
        (csv_table, ("a", "Well, hello", "ann", "en", 1)),
        (jsonl_table, ("7", "Hi.", "s1", "en", 1)),
        (folder, ("ann-one", "Good morning.", "ann", "en", 2)),
    ],
)
def test_layouts(tmp_path: Path, make: Callable[[Path], CorpusSource], wanted: tuple[str, str, str, str, int]) -> None:
    found = list(read_source(make(tmp_path)))
    first = found[0]
    assert isinstance(first, Recording) and first.path.is_file()
    assert (first.id, first.text, first.speaker, first.language, len(found)) == wanted


def test_further_columns_are_kept(tmp_path: Path) -> None:
    (only,) = read_source(jsonl_table(tmp_path))
    assert isinstance(only, Recording) and only.extra == {"translations": {"es": "Hola."}}


def test_missing_audio_and_duplicate_ids_are_told(tmp_path: Path) -> None:
    source = librispeech(tmp_path)
    (tmp_path / "84" / "121550" / "84-121550-0001.flac").unlink()
    transcript = tmp_path / "84" / "121550" / "84-121550.trans.txt"
    transcript.write_text(transcript.read_text() + "84-121550-0000 AGAIN\nnonsense\n")
    broken = [(found.kind, found.name) for found in read_source(source) if isinstance(found, Broken)]
    assert broken == [
        ("transcript without audio", "84-121550-0001"), ("duplicate id", "84-121550-0000"),
        ("broken line", f"{transcript}, line 5"),
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["librispeech", "common_voice", "mls", "folder"])
def test_an_empty_directory_is_refused(tmp_path: Path, layout: str) -> None:
    with pytest.raises(ValueError, match="no "):
        list(read_source(CorpusSource(layout=layout, root=str(tmp_path))))


def test_import_resumes_and_stops_at_the_tolerance(
    tmp_path: Path, load_script: Callable[[str, str], ModuleType], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    script = load_script("tools", "import_speech")
    source = librispeech(tmp_path / "in")

    def run(**changes: float) -> int:
        arguments = [f"source.layout={source.layout}", f"source.root={source.root}", f"out_dir={tmp_path}/out"]
        monkeypatch.setattr("sys.argv", ["x", *arguments, *(f"{key}={value}" for key, value in changes.items())])
        with pytest.raises(SystemExit) as stopped:
            script.main()
        return int(stopped.value.code or 0)

    assert run(limit=2) == 0
    assert len(list(read_rows(tmp_path / "out" / "manifest.jsonl"))) == 2
    with (tmp_path / "out" / "manifest.jsonl").open("a") as stream:
        stream.write('{"id": "cut sh')  # a kill while writing
    (tmp_path / "in" / "84" / "121550" / "84-121550-0002.flac").write_bytes(b"fLaC nonsense")
    assert run() == 2
    assert "1 undecodable clip" in capsys.readouterr().err
    assert run(tolerance=0.5) == 0
    rows = list(read_rows(tmp_path / "out" / "manifest.jsonl"))
    assert [row["id"] for row in rows] == ["84-121550-0000", "84-121550-0001"]
    assert rows[0]["text"] == "BUT WITH FULL RAVISHMENT" and rows[0]["voice"] == "out/84" and rows[0]["seconds"] == 0.6
    named = json.loads((tmp_path / "out" / "faults.jsonl").read_text())
    assert named["name"] == "84-121550-0002" and named["kind"] == "undecodable clip"


def test_a_corpus_is_parted_into_training_and_test(
    tmp_path: Path, load_script: Callable[[str, str], ModuleType]
) -> None:
    script, source = load_script("tools", "import_speech"), librispeech(tmp_path / "in")
    ids = {}
    for part in ("all", "train", "test"):
        out = tmp_path / part
        script.main.__wrapped__(script.ImportSpeech(source=source, out_dir=str(out), part=part, every=2))
        ids[part] = [row["id"] for row in read_rows(out / "manifest.jsonl")]
    assert ids["test"] == ids["all"][::2] and ids["train"] == ids["all"][1::2]
    with pytest.raises(ValueError, match=r"was filled by .* test 2"):
        script.main.__wrapped__(
            script.ImportSpeech(source=source, out_dir=str(tmp_path / "test"), part="train", every=2)
        )
    with pytest.raises(ValueError, match="every is 1, wanted 2 or more"):
        script.ImportSpeech(source=source, out_dir="x", every=1)


def test_clipped_recordings_are_counted(
    tmp_path: Path, load_script: Callable[[str, str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        soundfile.write(tmp_path / f"{name}.wav", np.sign(np.sin(np.arange(16_000) / 20)), 16_000)
    script = load_script("tools", "import_speech")
    source = CorpusSource(layout="folder", root=str(tmp_path))
    with pytest.warns(AudioWarning, match=r"a\.wav: clipped, .*others are not named") as caught:
        script.main.__wrapped__(script.ImportSpeech(source=source, out_dir=str(tmp_path / "out")))
    assert sum(issubclass(warning.category, AudioWarning) for warning in caught) == 1
    assert "3 warnings of clipping or silence" in capsys.readouterr().out


def test_faults_wait_for_enough_items_and_judge_at_the_end(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults.jsonl", 0.02)
    faults.good(10)
    faults.add("late", "a", "why")
    faults.add("late", "b", "why")
    with pytest.raises(
        TooManyFaults, match=r"3 of 13 items broken \(3 late\), tolerance=0.02, named in .*; last c: why"
    ):
        faults.add("late", "c", "why")
    strict = Faults(tmp_path / "strict.jsonl", 0.0)
    with pytest.raises(TooManyFaults):
        strict.add("late", "a", "why")
    few = Faults(tmp_path / "few.jsonl", 0.02)
    few.good(10)
    few.add("late", "a", "why")
    with pytest.raises(TooManyFaults, match="1 of 11"):
        few.finish()


def test_a_manifest_appends_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    SpeechManifest(path).append({"id": "a"})
    path.write_bytes(path.read_bytes() + b'{"id": "b"')
    manifest = SpeechManifest(path)
    assert manifest.ids == {"a"}
    manifest.append({"id": "b"})
    assert [row["id"] for row in read_rows(path)] == ["a", "b"]


def test_stereo_is_refused_unless_something_is_said(tmp_path: Path) -> None:
    left, right = np.full(8000, 0.25), np.full(8000, -0.125)
    soundfile.write(tmp_path / "two.wav", np.stack([left, right], 1), 16000)
    with pytest.raises(AudioError, match="found 2 channels, wanted 1"):
        read_mono(tmp_path / "two.wav")
    assert float(read_mono(tmp_path / "two.wav", "first")[0]) == 0.25
    assert float(read_mono(tmp_path / "two.wav", "average")[0]) == 0.0625
