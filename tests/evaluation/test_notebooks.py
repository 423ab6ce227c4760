"""The ablation notebooks run top to bottom in their fast mode and show plots and players; stored without outputs."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from wearllama.evaluation.commands import RunCommand, run_benchmark
from wearllama.evaluation.harness import HarnessConfig
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "recipes/notebooks").glob("*.ipynb"))
NEEDS = {"voxgate_factors": "WEARLLAMA_CKPT", "evaluation_explorer": "WEARLLAMA_RUNS"}
PLAYERS = {"array_and_beam": 2, "mixing": 2, "model_fusion": 2, "voxgate_factors": 8, "evaluation_explorer": 2}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, ckpt: Path, wearvox_data: Path) -> Path:
    """The folder of a small run, as eval/wearvox.py leaves one."""
    out = tmp_path_factory.mktemp("runs")
    command = RunCommand(
        ckpt=str(ckpt), out=str(out), max_new_tokens=4, device="cpu", harness=HarnessConfig(ttft_items=1)
    )
    run_benchmark("wearvox", command, load_wearvox(wearvox_data, WearVoxConfig()), root=wearvox_data, channels=5)
    return out / "wearvox"


def test_there_are_five() -> None:
    assert sorted(file.stem for file in NOTEBOOKS) == sorted(PLAYERS)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_stored_without_outputs(file: Path) -> None:
    book = nbformat.read(file, as_version=4)
    nbformat.validate(book)
    for cell in book.cells:
        assert cell.cell_type != "code" or (cell.outputs == [] and cell.execution_count is None)
    assert "widgets" not in book.metadata


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_runs_top_to_bottom(file: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEARLLAMA_FAST", "1")
    if needed := NEEDS.get(file.stem):
        monkeypatch.setenv(needed, str(request.getfixturevalue("ckpt" if needed.endswith("CKPT") else "runs")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(file, as_version=4)
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(file.parent)}}).execute()
    shown = [output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in data for data in shown) >= 1
    assert sum("<audio" in data.get("text/html", "") for data in shown) >= PLAYERS[file.stem]
