"""tools/voxgate.py: its steps are commands of the project in an order that works, and what was written stays."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool(load_script):
    return load_script("tools", "voxgate")


def test_every_checkpoint_is_made_before_it_is_used(tool) -> None:
    made = {"runs/demo/sft"}
    commands = [stage.command for stage in tool.stages(tool.VoxGate(seeds=(1, 2)))]
    for command in commands:
        words = dict(word.split("=", 1) for word in command.split() if "=" in word)
        assert (ROOT / command.split()[0]).is_file()
        assert {words[name] for name in ("init", "ckpt") if name in words} <= made, command
        made |= {words["run_dir"]} if "run_dir" in words else set()
    assert len(made) == 1 + 2 * 6 and len(commands) == 2 + 2 * (6 + 12)
    with pytest.raises(ValueError, match="unknown"):
        tool.VoxGate(variants=("sft", "nothing"))


def test_a_variant_brings_the_supervised_stage_that_it_starts_from(tool) -> None:
    names = [stage.name for stage in tool.stages(tool.VoxGate(seeds=(3,), variants=("grpo_cue_balanced",)))]
    assert names == ["build", "mix", "cue_balanced-3", "grpo_cue_balanced-3", "eval-grpo_cue_balanced-3",
                     "factors-grpo_cue_balanced-3"]  # fmt: skip
