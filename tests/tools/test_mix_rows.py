"""tools/mix_rows.py: paths under one root, so many of each, ids once; a corpus has a folder of its own."""

from pathlib import Path
from typing import Any

import pytest

from wearllama.data.corpus_job import claim
from wearllama.data.manifest import Example, read_manifest, write_manifest


def row(name: str) -> Example:
    turn = {"role": "user", "content": [{"type": "audio"}]}
    return Example(
        id=name, task="asr", split="train", messages=[turn], target="x", audio={"mc": f"wav/{name}.wav", "beam": None}
    )


@pytest.fixture
def mix(load_script, tmp_path: Path):
    tool = load_script("tools", "mix_rows")
    write_manifest(tmp_path / "demo" / "train.jsonl", [row(f"a{n}") for n in range(6)])
    write_manifest(tmp_path / "rows" / "mine.jsonl", [row("b0"), row("b1")])

    def run(**settings: Any) -> list[Example]:
        names = settings.pop("manifests", ("demo/train.jsonl", "rows/mine.jsonl"))
        paths = tuple(str(tmp_path / name) for name in names)
        config = tool.MixRows(manifests=paths, root=str(tmp_path), out=str(tmp_path / "mix.jsonl"), **settings)
        tool.main.__wrapped__(config)
        return read_manifest(tmp_path / "mix.jsonl")

    return run


def test_paths_and_shares(mix, tmp_path: Path) -> None:
    mixed = mix(rows=(3, 2), roots=(str(tmp_path / "demo"), str(tmp_path)))
    assert [example.id for example in mixed] == ["a0", "a2", "a4", "b0", "b1"]
    assert [example.audio["mc"] for example in mixed][2:4] == ["demo/wav/a4.wav", "wav/b0.wav"]
    assert len(mix()) == 8 and mix()[-1].audio == {"mc": "rows/wav/b1.wav", "beam": None}


def test_what_cannot_be_mixed_is_named(mix, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"id 'b0' stands in \S+mine\.jsonl and in \S+mine\.jsonl"):
        mix(manifests=("rows/mine.jsonl", "rows/mine.jsonl"))
    with pytest.raises(ValueError, match="rows has 1 values, wanted one for each of 2 manifests"):
        mix(rows=(1,))
    with pytest.raises(ValueError, match="is not below"):
        mix(roots=(str(tmp_path.parent), str(tmp_path)))


def test_a_folder_of_another_corpus_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, "ImportSpeech folder /a")
    claim(tmp_path, "ImportSpeech folder /a")
    with pytest.raises(ValueError, match=r"was filled by 'ImportSpeech folder /a', now .*take another out_dir"):
        claim(tmp_path, "ImportSpeech table /a/manifest.jsonl")
