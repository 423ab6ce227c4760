"""GRPO's arithmetic: equal to TRL's on the same rollouts, blind to order, exact about dead groups."""

import copy
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer

from wearllama.modeling.factory import ModelConfig, build_model, build_processor
from wearllama.training.grpo_loss import LossSettings, denominator, group_advantages, policy_loss
from wearllama.training.policy import Policy

OURS = {"grpo": "grpo", "dapo": "dapo", "dr_grpo": "dr_grpo", "luspo": "sum"}
"""TRL's loss types that we share, and our names (luspo: a sequence's sum over a constant of 1)."""


@pytest.fixture(scope="module")
def model(tiny: ModelConfig) -> Any:
    set_seed(0)
    processor = build_processor(tiny)
    model = build_model(tiny, processor).eval()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.2)
    return processor, model


@pytest.fixture(scope="module")
def rollouts() -> dict[str, torch.Tensor]:
    """Two prompts of different length, eight completions of different length, in mixed order."""
    generator = torch.Generator().manual_seed(1)
    prompt_ids = torch.randint(300, 900, (2, 6), generator=generator)
    prompt_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    lengths_N = torch.tensor([1, 7, 3, 9, 2, 9, 5, 4])
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "prompt_N": torch.tensor([0, 1, 1, 0, 0, 1, 0, 1]),
        "tokens_NT": torch.randint(300, 900, (8, 9), generator=generator),
        "mask_NT": (torch.arange(9) < lengths_N[:, None]).long(),
        "advantages_N": torch.randn(8, generator=generator),
        "old_NT": -6.0 + 2.0 * torch.randn(8, 9, generator=generator),
        "ref_NT": -6.0 + torch.randn(8, 9, generator=generator),
    }


@pytest.fixture(scope="module")
def trl_trainer(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's trainer on a twin of our decoder; it takes half a minute to build, so its settings are changed in place."""
    processor, wearllama = model
    folder = tmp_path_factory.mktemp("trl")
    twin = copy.deepcopy(wearllama.decoder)
    twin.save_pretrained(folder / "reference")  # TRL reads its reference anew
    twin.config._name_or_path = str(folder / "reference")
    args = GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=8, num_generations=4, max_completion_length=24, beta=0.04,
        use_cpu=True, bf16=False, report_to="none", gradient_checkpointing=False, epsilon=0.2, epsilon_high=0.28,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=twin,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=processor.tokenizer,
    )
    trainer.model.eval()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def trl_loss(trainer: Any, rollouts: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    trainer.model.zero_grad()
    index, mask = rollouts["prompt_N"], rollouts["mask_NT"]
    loss = trainer._compute_loss(trainer.model, {
        "prompt_ids": rollouts["prompt_ids"][index], "prompt_mask": rollouts["prompt_mask"][index],
        "completion_ids": rollouts["tokens_NT"], "completion_mask": mask,
        "advantages": rollouts["advantages_N"], "old_per_token_logps": rollouts["old_NT"],
        "ref_per_token_logps": rollouts["ref_NT"], "num_items_in_batch": mask.sum().float(),
    })  # fmt: skip
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("beta", "corrected"), [(0.0, False), (0.04, False), (0.04, True)])
@pytest.mark.parametrize("theirs", list(OURS))
def test_loss_and_gradient_equal_trl(
    theirs: str, beta: float, corrected: bool, model: Any, trl_trainer: Any, rollouts: dict[str, torch.Tensor]
) -> None:
    _, wearllama = model
    trl_trainer.loss_type, trl_trainer.beta = theirs, beta
    trl_trainer.args.use_bias_correction_kl = corrected
    wanted, gradients = trl_loss(trl_trainer, rollouts)
    settings = LossSettings(
        loss_type=OURS[theirs],  # type: ignore[arg-type]
        epsilon=0.2, epsilon_high=0.28, beta=beta, max_completion_length=24, use_bias_correction_kl=corrected,
    )  # fmt: skip
    wearllama.zero_grad()
    prompts = {"input_ids": rollouts["prompt_ids"], "attention_mask": rollouts["prompt_mask"]}
    logps_NT = Policy(wearllama)(prompts, rollouts["tokens_NT"], rollouts["mask_NT"], rollouts["prompt_N"])
    parts = policy_loss(
        logps_NT, rollouts["mask_NT"], rollouts["advantages_N"], settings,
        old_logps_NT=rollouts["old_NT"], ref_logps_NT=rollouts["ref_NT"],
    )  # fmt: skip
    loss = parts.total / denominator(settings, 8, float(rollouts["mask_NT"].sum()))
    loss.backward()
    assert abs(float(loss.detach() - wanted)) < 1e-5 * max(1.0, abs(float(wanted)))
    assert len(gradients) > 10
    for name, gradient in gradients.items():
        found = wearllama.decoder.get_parameter(name).grad
        torch.testing.assert_close(found, gradient, atol=1e-5, rtol=1e-4)


def test_advantages_equal_trls_formula() -> None:
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, -0.5, 1.0, 0.0, 0.0])
    grouped = rewards.view(2, 4)
    centred = grouped - grouped.mean(1, keepdim=True)
    groups = torch.tensor([7, 7, 7, 7, 2, 2, 2, 2])
    found = group_advantages(rewards, groups, "group").values_N
    torch.testing.assert_close(found, (centred / (grouped.std(1, keepdim=True) + 1e-4)).flatten())
    torch.testing.assert_close(group_advantages(rewards, groups, "none").values_N, centred.flatten())
    found = group_advantages(rewards, groups, "batch").values_N
    torch.testing.assert_close(found, centred.flatten() / (rewards.std() + 1e-4))


def test_equal_rewards_are_dead_exactly_and_others_do_not_notice() -> None:
    tenths = torch.full((8,), 0.1)
    rewards, groups = torch.cat((tenths, torch.tensor([0.1, 0.3]))), torch.tensor([0] * 8 + [1] * 2)
    found = group_advantages(rewards, groups)
    assert found.live_N.tolist() == [False] * 8 + [True] * 2
    assert not found.values_N[:8].any()
    torch.testing.assert_close(found.values_N[8:], group_advantages(rewards[8:], groups[8:]).values_N)


def test_both_sides_of_a_pair_make_a_deaf_policy_live() -> None:
    # Always the tool: right on one side, wrong on the other. One group: +a and -a; a group a side: nothing.
    rewards = torch.tensor([1.0] * 8 + [0.0] * 8)
    pair = group_advantages(rewards, torch.zeros(16, dtype=torch.long))
    assert pair.live_N.all() and torch.equal(pair.values_N[:8], -pair.values_N[8:]) and pair.values_N[0] > 0.9
    assert not group_advantages(rewards, torch.arange(2).repeat_interleave(8)).live_N.any()


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo", "sum"])
def test_order_of_completions_and_groups_does_not_matter(
    loss_type: str, model: Any, rollouts: dict[str, torch.Tensor]
) -> None:
    _, wearllama = model
    settings = LossSettings(loss_type=loss_type, max_completion_length=24)  # type: ignore[arg-type]
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, -0.5, 1.0, 0.0, 0.0])
    groups = rollouts["prompt_N"]

    def loss(order: torch.Tensor, prompt_order: torch.Tensor) -> float:
        place = torch.argsort(prompt_order)
        prompts = {"input_ids": rollouts["prompt_ids"][prompt_order], "attention_mask": rollouts["prompt_mask"][
            prompt_order]}  # fmt: skip
        advantages = group_advantages(rewards[order], groups[order]).values_N
        with torch.no_grad():
            logps = Policy(wearllama)(prompts, rollouts["tokens_NT"][order], rollouts["mask_NT"][order],
                                      place[groups[order]])  # fmt: skip
        return float(policy_loss(logps, rollouts["mask_NT"][order], advantages, settings,
                                 old_logps_NT=rollouts["old_NT"][order]).total)  # fmt: skip

    straight = loss(torch.arange(8), torch.arange(2))
    mixed = loss(torch.tensor([5, 2, 7, 0, 3, 6, 1, 4]), torch.tensor([1, 0]))
    assert abs(straight - mixed) < 1e-5 * max(1.0, abs(straight)) and abs(straight) > 1e-3
