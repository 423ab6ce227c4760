"""Training in stages: ``init`` starts a run from the weights of another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import set_seed

from wearllama.modeling.factory import ModelConfig, build_model, build_processor, load_checkpoint
from wearllama.training.checkpoint import FINAL, load_initial_weights, weights_file
from wearllama_launch import LaunchError, compose_config

CHAT = [{"role": "system", "content": "Answer."}, {"role": "user", "content": [{"type": "audio"}]}]


def logits(model: torch.nn.Module, processor: Any) -> torch.Tensor:
    clip = 0.1 * torch.randn(5, 8000, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model.eval()(**processor([CHAT], [clip])).logits


def fresh(config: ModelConfig, seed: int = 8) -> tuple[Any, Any]:
    set_seed(seed)
    processor = build_processor(config)
    return processor, build_model(config, processor)


@pytest.fixture
def finished(train: Callable[..., Any], quick: Callable[..., Any], tmp_path: Path) -> Path:
    """A run of two steps."""
    train(tmp_path / "reading", quick(steps=2))
    return tmp_path / "reading"


def test_a_finished_run_and_its_checkpoint_give_their_logits(tiny: ModelConfig, finished: Path) -> None:
    processor, model = fresh(tiny)
    before = logits(model, processor)
    wanted = logits(load_checkpoint(finished / FINAL)[0], processor)
    assert not torch.equal(before, wanted)
    for folder in (finished, finished / FINAL, finished / "checkpoint-2"):
        model = fresh(tiny)[1]
        load_initial_weights(model, folder)
        assert torch.equal(logits(model, processor), wanted), folder


def test_a_named_encoder_is_kept(tiny: ModelConfig, finished: Path) -> None:
    _, model = fresh(tiny)
    encoder = {name: weight.clone() for name, weight in model.encoder.state_dict().items()}
    decoder = {name: weight.clone() for name, weight in model.decoder.state_dict().items()}
    load_initial_weights(model, finished, keep=("encoder.",))
    assert all(torch.equal(weight, encoder[name]) for name, weight in model.encoder.state_dict().items())
    assert not all(torch.equal(weight, decoder[name]) for name, weight in model.decoder.state_dict().items())


def test_another_fusion_takes_all_but_the_projector(tiny: ModelConfig, finished: Path) -> None:
    _, model = fresh(replace(tiny, channels="sc_beam"))
    with pytest.raises(ValueError, match=r"1 weights differ, first projector\.channel"):
        load_initial_weights(model, finished)
    own = {name: weight.clone() for name, weight in model.projector.state_dict().items()}
    load_initial_weights(model, finished, keep=("projector.",))
    assert all(torch.equal(weight, own[name]) for name, weight in model.projector.state_dict().items())
    trained = load_checkpoint(finished / FINAL)[0].decoder.state_dict()
    assert all(torch.equal(weight, trained[name]) for name, weight in model.decoder.state_dict().items())
    with pytest.raises(ValueError, match=r"no weight's name begins with \['project_'\]"):
        load_initial_weights(model, finished, keep=("project_",))


def test_what_is_trained_stays_as_the_new_run_says(tiny: ModelConfig, finished: Path) -> None:
    _, model = fresh(replace(tiny, freeze={"projector": True}))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    load_initial_weights(model, finished)
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trained
    assert trained and not any(name.startswith("projector.") for name in trained)


def test_an_encoder_that_init_brings_stays_frozen(
    recipe: ModuleType, tiny: ModelConfig, finished: Path, manifest: Path
) -> None:
    """experiment=tiny has encoder=scratch: a random encoder is trained, this one is none."""
    base = ["experiment=tiny", f"data.manifest={manifest}", f"init={finished}", "model.freeze.encoder=true"]
    for overrides, frozen in ([], True), (["init_without=[encoder.]"], False):
        config, _ = compose_config("sft", recipe.SftCommand, [*base, *overrides])
        _, model = fresh(config.model)
        recipe.start_from(model, config)
        assert model.encoder_frozen == frozen


def test_a_trained_word_path_is_not_written_over(
    recipe: ModuleType, tiny: ModelConfig, finished: Path, tmp_path: Path
) -> None:
    def check(init: Path, *overrides: str) -> None:
        base = ["experiment=demo", f"init={init}"]
        recipe.check_word_path(compose_config("sft", recipe.SftCommand, [*base, *overrides])[0])

    fresh(tiny)[1].save_pretrained(tmp_path / "untrained")
    check(tmp_path / "untrained")  # a decoder that only read: its projector is as it began
    with pytest.raises(ValueError, match=rf"that init={finished} has trained: wanted align=false"):
        check(finished)
    frozen = load_checkpoint(finished / FINAL)[0]
    frozen.config.freeze = {"projector": True}  # as after GRPO
    frozen.save_pretrained(tmp_path / "later")
    with pytest.raises(ValueError, match="align=false"):
        check(tmp_path / "later")
    check(finished, "align=false")
    check(finished, "init_without=[projector.]")
    (tmp_path / "wordless").mkdir()
    (tmp_path / "wordless" / "encoder.safetensors").touch()
    (tmp_path / "wordless" / "config.json").write_text('{"encoder": {}}')
    check(finished, f"encoder={tmp_path / 'wordless'}")  # nothing to align with


def test_init_without_needs_init(recipe: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"only init=\.\.\. reads"):
        compose_config("sft", recipe.SftCommand, ["experiment=demo", "init_without=[projector.]"])


def test_a_folder_without_a_model_is_named(recipe: ModuleType, manifest: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"init={tmp_path}: .*{tmp_path}/model\.safetensors.*/final/model\.safetensors"
    ):
        weights_file(tmp_path)
    nowhere = tmp_path / "nowhere"
    base = ["experiment=tiny", f"data.manifest={manifest}"]
    config, _ = compose_config("sft", recipe.SftCommand, [*base, f"init={nowhere}"])
    with pytest.raises(LaunchError, match=f"init.*{nowhere}"):
        recipe.origin(config)


def test_a_model_of_other_sizes_is_refused(tiny: ModelConfig, finished: Path) -> None:
    wider = replace(tiny, decoder_config={**tiny.decoder_config, "intermediate_size": 80})
    deeper = replace(tiny, decoder_config={**tiny.decoder_config, "num_hidden_layers": 3})
    for config, words in [
        (wider, r"6 weights differ, first \S+down_proj\.weight: found \(48, 96\), wanted \(48, 80\)"),
        (deeper, r"9 weights differ, first \S+layers\.2\.\S+: found nothing, wanted \("),
    ]:
        _, model = fresh(config)
        kept = {name: weight.clone() for name, weight in model.state_dict().items()}
        with pytest.raises(
            ValueError, match=rf"init={finished}: {finished}/final/\S+ does not fit this model: {words}"
        ):
            load_initial_weights(model, finished)
        assert all(torch.equal(weight, kept[name]) for name, weight in model.state_dict().items())


def test_the_fingerprint_follows_the_initial_weights(recipe: ModuleType, manifest: Path, tmp_path: Path) -> None:
    base = ["experiment=tiny", f"data.manifest={manifest}"]

    def mark(*overrides: str) -> str:
        return recipe.origin(compose_config("sft", recipe.SftCommand, [*base, *overrides])[0]).fingerprint

    (tmp_path / "model.safetensors").write_bytes(b"one")
    first = mark(f"init={tmp_path}")
    assert first not in (mark(), None)
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert mark(f"init={tmp_path}") != first
