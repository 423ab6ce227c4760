"""tools/beam_report.py: tables, verdict and figures from one small run."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def report(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "beam_report")


def test_one_run_writes_tables_and_figures(
    report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"out_dir={tmp_path}", "array=easycom4", "azimuths_deg=[0]", "draws=5"]
    monkeypatch.setattr(sys, "argv", ["beam_report", *arguments])
    with pytest.raises(SystemExit) as ended:
        report.main()
    assert ended.value.code == 0, capsys.readouterr().err
    results = json.loads((tmp_path / "results.json").read_text())
    beams = {row["beam"] for row in results["gains"]}
    assert beams == {"fixed", "delay and sum", "NLCMV 0"}
    talker = {row["beam"]: row for row in results["talker"]}
    assert (
        talker["adaptive MVDR"]["talker_db"][0]
        < talker["fixed"]["talker_db"][0]
        < talker["delay and sum"]["talker_db"][0]
    )
    assert "| fixed | own voice | nominal |" in (tmp_path / "report.md").read_text()
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("gains.png", "patterns.png"))


def test_the_verdict_says_what_is_missed(report: ModuleType) -> None:
    config = report.BeamReport(measured=report.Measured(folder="x"))
    row = {"beam": "fixed", "source": "mouth", "device": "nominal", "diffuse_db": [12.0, 15.0, 11.0, 4.0, 2.0]}
    assert report.verdict([{**row, "least_white_db": 0.0}], config)[0].endswith(": met")
    assert report.verdict([{**row, "least_white_db": -0.1}], config)[0].endswith("NOT MET")
    assert report.verdict([{**row, "least_white_db": 0.1, "diffuse_db": [12, 14, 11, 4, 2]}], config)[0].endswith(
        "NOT MET"
    )
