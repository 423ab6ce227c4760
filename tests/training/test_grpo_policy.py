"""The policy: shared prefixes change nothing, completions stay with their own sound, samples tell their own odds."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from grpo_world import explorer, start, teach, write_pairs

from wearllama.modeling.factory import ModelConfig
from wearllama.training.data import SftData, load_sets
from wearllama.training.grpo_config import GrpoConfig
from wearllama.training.grpo_reference import ReferencePolicy, lora_off
from wearllama.training.policy import Policy
from wearllama.training.rollout import LocalEngine, encode_items
from wearllama.training.sampling import sample_completions


@pytest.fixture(scope="module")
def world(tiny: ModelConfig, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Model, processor, four items with sound of different length (and a fifth without), K = 8 completions of each."""
    folder = tmp_path_factory.mktemp("pairs")
    processor, model = start(tiny)
    dataset = load_sets(SftData(manifest=str(write_pairs(folder, pairs=2))), processor).train
    teach(model, processor, dataset, steps=10)
    with torch.no_grad():
        model.projector.norm_out.weight.fill_(1.0)  # what is heard counts
    items = [dataset[index] for index in range(5)]
    engine = LocalEngine(model, processor, temperature=0.7, max_completion_length=12, max_rows=64)
    return model.eval(), processor, items, engine.sample(items, 8, seed=5)


def test_shared_prefix_equals_repeated_prompts_with_gradient(world: Any) -> None:
    model, processor, items, rollouts = world
    prompts = encode_items(processor, items, "cpu")
    inputs = (prompts, rollouts.tokens_NT, rollouts.mask_NT, rollouts.prompt_N)
    found = []
    for share in (True, False):
        model.zero_grad()
        logps_NT = Policy(model, temperature=0.7, share_prefix=share)(*inputs)
        (logps_NT * torch.linspace(0.5, 1.5, logps_NT.shape[1])).sum().backward()
        found.append(
            (logps_NT.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        )
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5, rtol=1e-4)
    assert found[0][1].keys() == found[1][1].keys() and any(name.startswith("projector") for name in found[0][1])
    for name, gradient in found[0][1].items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(gradient / scale, found[1][1][name] / scale, atol=1e-4, rtol=1e-3)


def test_sampled_odds_are_those_of_the_policy_and_of_each_row_alone(world: Any) -> None:
    model, processor, items, rollouts = world
    assert rollouts.prompt_N.tolist() == [at for at in range(5) for _ in range(8)]
    policy = Policy(model, temperature=0.7)
    with torch.no_grad():
        together = policy(encode_items(processor, items, "cpu"), rollouts.tokens_NT, rollouts.mask_NT,
                          rollouts.prompt_N)  # fmt: skip
        torch.testing.assert_close(together, rollouts.logps_NT, atol=1e-4, rtol=0)
        for row in range(0, 40, 3):
            alone = encode_items(processor, [items[int(rollouts.prompt_N[row])]], "cpu")
            one = policy(alone, rollouts.tokens_NT[row][None], rollouts.mask_NT[row][None], torch.tensor([0]))
            torch.testing.assert_close(one[0], together[row], atol=1e-4, rtol=0)


def test_completions_hear_their_own_sound_and_no_other(world: Any) -> None:
    """Batch 4, K 8: a poisoned clip moves exactly the eight completions of its condition."""
    model, processor, items, _ = world
    items = items[:4]
    prompts = encode_items(processor, items, "cpu")
    rollouts = sample_completions(model, prompts, 8, temperature=1.0, max_completion_length=6, eos=processor.ids.eos,
                                  pad=processor.ids.pad, generator=torch.Generator().manual_seed(0))  # fmt: skip
    mixed = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    policy = Policy(model)
    for poisoned in range(4):
        changed = {**prompts, "input_features": prompts["input_features"].clone()}
        changed["input_features"][poisoned] += 3 * torch.randn(prompts["input_features"][poisoned].shape)
        with torch.no_grad():
            before, after = (
                policy(given, rollouts.tokens_NT[mixed], rollouts.mask_NT[mixed], rollouts.prompt_N[mixed])
                for given in (prompts, changed)
            )
        moved_N = (before - after).abs().sum(1) > 1e-5
        assert torch.equal(moved_N, rollouts.prompt_N[mixed] == poisoned)


def test_swapped_sound_is_noticed(world: Any) -> None:
    """The counterpart: what public code does (repeat beside repeat_interleave) gives other log-probabilities."""
    model, processor, items, rollouts = world
    prompts = encode_items(processor, items, "cpu")
    with torch.no_grad():
        swapped = Policy(model, temperature=0.7)(prompts, rollouts.tokens_NT, rollouts.mask_NT,
                                                 torch.arange(5).repeat(8))  # fmt: skip
    assert float((swapped - rollouts.logps_NT).abs().max()) > 0.01


def test_samples_follow_the_distribution(world: Any) -> None:
    model, processor, items, _ = world
    prompts = encode_items(processor, items[:1], "cpu")
    rollouts = sample_completions(model, prompts, 2000, temperature=1.0, max_completion_length=1, eos=0, pad=0,
                                  generator=torch.Generator().manual_seed(2))  # fmt: skip
    first = rollouts.tokens_NT[:, 0]
    token = int(first.mode().values)
    probability = math.exp(float(rollouts.logps_NT[first == token][0, 0]))
    share = float((first == token).float().mean())
    assert abs(share - probability) < 4 * math.sqrt(probability * (1 - probability) / 2000) + 1e-3


def test_rollouts_end_at_their_end_and_repeat_by_seed(world: Any) -> None:
    model, processor, items, rollouts = world
    engine = LocalEngine(model, processor, temperature=0.7, max_completion_length=12, max_rows=64)
    assert torch.equal(engine.sample(items, 8, seed=5).tokens_NT, rollouts.tokens_NT)
    assert not torch.equal(engine.sample(items, 8, seed=6).logps_NT, rollouts.logps_NT)
    for ids, ended in zip(rollouts.ids, rollouts.ended_N.tolist(), strict=True):
        assert (ids[-1] == processor.ids.eos) == ended and processor.ids.eos not in ids[:-1]
        assert ended or len(ids) == 12


def test_reference_is_the_start_with_lora_off_or_a_copy(tiny: ModelConfig, tmp_path: Path) -> None:
    processor, model = start(tiny)
    manifest = write_pairs(tmp_path, pairs=1)
    items = explorer(model, processor, manifest, GrpoConfig(num_generations=2)).dataset
    inputs = (encode_items(processor, [items[0]], "cpu"), torch.tensor([[300, 301]]), torch.ones(1, 2).bool(),
              torch.tensor([0]))  # fmt: skip
    model.eval()
    with pytest.raises(ValueError, match="no LoRA"):
        ReferencePolicy(Policy(model), "lora_off")
    model.add_lora({"r": 4})
    model.apply_freeze()
    with pytest.raises(ValueError, match=r"weights outside LoRA are trained, first model\.\w+"):
        ReferencePolicy(Policy(model), "lora_off")
    model.config.freeze = {"encoder": True, "projector": True}
    model.apply_freeze()
    policy = Policy(model)
    references = [ReferencePolicy(policy, kind) for kind in ("auto", "frozen_copy")]  # type: ignore[arg-type]
    assert [reference.kind for reference in references] == ["lora_off", "frozen_copy"]
    with torch.no_grad():
        before = policy(*inputs)
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_()
        assert float((policy(*inputs) - before).abs().max()) > 1e-3
        for reference in references:
            torch.testing.assert_close(reference.logps(*inputs), before)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    with lora_off(policy):
        pass
    assert trained == {name for name, p in model.named_parameters() if p.requires_grad} and trained
    with pytest.raises(ValueError, match="trained already"):
        ReferencePolicy(policy, "lora_off")
