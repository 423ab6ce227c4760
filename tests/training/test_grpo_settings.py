"""Settings that GRPO would not read, or cannot run with, are refused by name."""

from typing import Any

import pytest

from wearllama.training.grpo import check_settings
from wearllama.training.grpo_config import GrpoConfig
from wearllama_launch import compose_config

UNREAD = {
    "parallel": "fsdp2", "accumulation": 2, "rates": {"projector": 0.1}, "packed": True, "ema": 0.9, "distill": 0.5,
    "distill_temperature": 2.0, "prefetch": 2, "staging": "/tmp", "log_ids": True, "eval_every": 5, "workers": 2,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNREAD.items())
def test_settings_that_grpo_does_not_read_are_refused(name: str, value: Any, quick: Any) -> None:
    with pytest.raises(ValueError, match=rf"train\.{name}"):
        check_settings(quick(warmup_steps=0, **{name: value}), GrpoConfig())


def test_checkpoints_fall_between_uses_of_completions(quick: Any) -> None:
    with pytest.raises(ValueError, match="multiple of grpo"):
        check_settings(quick(save_every=2), GrpoConfig(num_iterations=4))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["data.tolerance=0.1"], "data.tolerance is 0.1, wanted 0"),
        (["data.augment.warp=0.1", "grpo.rollout.engine=openai", "grpo.rollout.sync_url=x"], "hears the clip itself"),
        (["train.packed=true"], "train.packed=True is not read by GRPO"),
    ],
)
def test_the_recipe_refuses_data_that_one_side_would_not_see(load_script: Any, changes: list[str], said: str) -> None:
    recipe = load_script("recipes", "grpo")
    with pytest.raises(ValueError, match=said):
        compose_config("grpo", recipe.GrpoCommand, ["experiment=tiny_grpo", "ckpt=x", "data.manifest=x", *changes])
