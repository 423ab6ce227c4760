"""tools/demo.py: every stage is a command that exists, and exit codes are passed on."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo(load_script: Callable[[str, str], ModuleType]) -> ModuleType:
    return load_script("tools", "demo")


def test_every_stage_is_a_script_of_the_project(demo: ModuleType) -> None:
    for stage in (*demo.STAGES, *demo.GRPO_STAGES):
        script = next(word for word in stage.command.split() if word.endswith(".py"))
        assert (ROOT / script).is_file(), stage.command
    assert sum(stage.minutes for stage in demo.STAGES) <= 25


@pytest.mark.parametrize(("code", "seen"), [(0, None), (3, 3), (130, 130)])
def test_a_stage_that_fails_ends_the_demo_with_its_code(
    demo: ModuleType, tmp_path: Path, code: int, seen: int | None
) -> None:
    script = tmp_path / "stage.py"
    script.write_text(f"import sys\nsys.exit({code})\n")
    stage = demo.Stage("fetch", "test", str(script), 0.1)
    if seen is None:
        assert demo.run_stage(stage) > 0
        return
    with pytest.raises(SystemExit) as left:
        demo.run_stage(stage)
    assert left.value.code == seen


def test_a_skipped_stage_does_not_hide_what_the_work_took(demo: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "times.json"
    demo.note_time(path, "train", 400.0)
    demo.note_time(path, "train", 2.0)
    assert json.loads(path.read_text()) == {"train": 400.0}
