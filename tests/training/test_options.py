"""Options of a run: WSD, a moving average, distillation from the transcript, broken rows, data.json, the plot."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import set_seed

from wearllama.data.collate import Collator
from wearllama.data.dataset import Item
from wearllama.data.faults import TooManyFaults
from wearllama.data.sampling import BatchConfig
from wearllama.modeling.factory import ModelConfig, build_model, build_processor, load_checkpoint
from wearllama.modeling.modeling_wearllama import num_targets
from wearllama.training.batches import TrainingCollator, take_extras
from wearllama.training.checkpoint import FINAL
from wearllama.training.config import TrainConfig
from wearllama.training.data import SftData, batch_sampler, load_sets
from wearllama.training.distill import divergence, teacher_batch, teacher_logits, without_lora
from wearllama.training.ema import EMA
from wearllama.training.provenance import Origin
from wearllama.training.sft import run_sft
from wearllama_launch import compose_config

Quick = Callable[..., TrainConfig]
Train = Callable[..., Any]


def log_lines(run_dir: Path) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, (run_dir / "log.jsonl").read_text().splitlines()) if "loss" in line]


def test_wsd_and_the_average_resume_exactly(tmp_path: Path, train: Train, quick: Quick) -> None:
    config = quick(schedule="wsd", decay_steps=3, final_lr=0.1, ema=0.9)
    train(tmp_path / "whole", config)
    rates = [line["learning_rate"] / config.learning_rate for line in log_lines(tmp_path / "whole")]
    assert rates == pytest.approx([0.1, 1.0, 1.0, 1.0, 0.7, 0.4], abs=0.02)
    final = load_file(tmp_path / "whole" / FINAL / "model.safetensors")
    last = load_file(tmp_path / "whole" / "checkpoint-6" / "model.safetensors")
    averaged = load_file(tmp_path / "whole" / "checkpoint-6" / EMA)
    for name, value in averaged.items():
        torch.testing.assert_close(final[name], value)
    assert any(not torch.equal(final[name], last[name]) for name in averaged)

    def stop() -> None:
        raise RuntimeError("the power went")

    def after_three(collate: Callable[..., Any]) -> Callable[..., Any]:
        calls = iter(range(100))
        return lambda rows: stop() if next(calls) == 4 else collate(rows)

    with pytest.raises(RuntimeError):
        train(tmp_path / "cut", config, collate=after_three)
    train(tmp_path / "cut", config)
    again = load_file(tmp_path / "cut" / FINAL / "model.safetensors")
    for name, value in final.items():
        assert torch.equal(again[name], value), name


def with_transcripts(manifest: Path, folder: Path) -> Path:
    """The rows again, most of those with sound with words."""
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for number, row in enumerate(rows):
        if row.get("audio"):
            row["audio"]["mc"] = str(manifest.parent / row["audio"]["mc"])
            if number % 3:
                row["metadata"]["transcript"] = f"please call Ann {number}"
    path = folder / "told.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_teacher_reads_and_the_student_hears(manifest: Path, tiny: ModelConfig, tmp_path: Path) -> None:
    set_seed(3)
    config = replace(tiny, lora={"r": 4})
    processor = build_processor(config)
    model = build_model(config, processor).train()
    data = load_sets(SftData(manifest=str(with_transcripts(manifest, tmp_path))), processor, seed=3).train
    items = [data[index] for index in (0, 1, 3, 4)]  # without words, with, text only, with
    batch, has_teacher_B = teacher_batch(items, processor)
    assert has_teacher_B.tolist() == [False, True, False, True] and "input_features" not in batch
    read = processor.tokenizer.decode(batch["input_ids"][0])
    assert "please call Ann 1" in read and items[1].example.target in read
    before = teacher_logits(model, batch)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_()
    assert torch.equal(teacher_logits(model, batch), before)  # LoRA is not its
    student = model(**Collator(processor)(items), target_logits=True).logits
    counts_B = torch.tensor([len(processor.encode_target(item.example.target)) for item in items])
    taught_N = has_teacher_B.repeat_interleave(counts_B)
    kl = divergence(student, before, taught_N, temperature=1.0)
    wanted = sum(
        (F.softmax(t, -1) * (F.log_softmax(t, -1) - F.log_softmax(s, -1))).sum()
        for t, s in zip(before, student[taught_N], strict=True)
    )
    torch.testing.assert_close(kl, wanted, rtol=1e-4, atol=1e-4)
    assert (
        float(
            divergence(student, student.detach(), torch.ones(len(student), dtype=torch.bool), temperature=2.0).detach()
        )
        < 1e-4
    )
    with without_lora(model):
        pass
    assert not torch.equal(model(**batch, target_logits=True).logits, before)


def run_with(config: TrainConfig, data: SftData, model_config: ModelConfig, run_dir: Path) -> None:
    set_seed(3)
    batches = BatchConfig(max_rows=4, audio_buckets=1, text_buckets=1)
    processor = build_processor(model_config)
    train_data = load_sets(data, processor, seed=3).train
    run_sft(
        model=build_model(model_config, processor), processor=processor, train_data=train_data,
        sampler=batch_sampler(train_data, processor, 2, batches, seed=3),
        collator=Collator(processor), config=config, run_dir=run_dir, tolerance=data.tolerance,
    )  # fmt: skip


def test_validation_rows_are_each_measured_once_by_their_tokens(
    tmp_path: Path, manifest: Path, recipe: ModuleType
) -> None:
    lines = manifest.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if row.get("audio"):
            row["audio"]["mc"] = str(manifest.parent / row["audio"]["mc"])
    rows += [{**row, "id": f"held-{row['id']}", "split": "validation"} for row in rows[:5]]
    copied = tmp_path / "rows.jsonl"
    copied.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config, _ = compose_config("sft", recipe.SftCommand, [
        "experiment=tiny", f"data.manifest={copied}", f"run_dir={tmp_path / 'run'}", "train.steps=4", "train.workers=2",
        "train.eval_every=2", "batches.max_rows=2", "batches.weights={tool_call: 2}", "train.save_every=4",
        "train.bf16=false",
    ])  # fmt: skip
    recipe.main.__wrapped__(config)
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    found = {line["step"]: line["eval_loss"] for line in logged if "eval_loss" in line}
    assert sorted(found) == [2, 4]
    model, processor = load_checkpoint(tmp_path / "run" / FINAL)
    held = load_sets(SftData(manifest=str(copied)), processor).validation
    assert held is not None
    wanted = model(**Collator(processor)([held[index] for index in range(5)])).loss
    assert found[4] == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_what_fills_up_a_ranks_validation_is_not_counted(manifest: Path, tiny: ModelConfig, ranks: int) -> None:
    processor = build_processor(tiny)
    data = load_sets(SftData(manifest=str(manifest)), processor).train
    counted: list[int] = []
    for rank in range(ranks):
        sampler = batch_sampler(data, processor, 2, BatchConfig(max_rows=5), rank=rank, world_size=ranks)
        counted += [draw.index for batch in list(sampler)[: sampler.num_own] for draw in batch]
    assert sorted(counted) == list(range(16))


def test_validation_without_rows_is_refused(tmp_path: Path, manifest: Path, tiny: ModelConfig, quick: Quick) -> None:
    with pytest.raises(ValueError, match=r"train\.eval_every is 2, but there are no rows"):
        run_with(quick(eval_every=2), SftData(manifest=str(manifest)), tiny, tmp_path)


def test_a_step_without_targets_is_divided_by_one() -> None:
    """Loss and distillation alike: 0, not 0/0."""
    assert num_targets(torch.tensor(0), torch.zeros(0)) == 1 and num_targets(None, torch.zeros(0)) == 1
    assert num_targets(7, torch.zeros(2)) == 7 and num_targets(None, torch.zeros(2)) == 2


def test_distillation_is_logged_and_needs_a_decoder_that_stays(
    tmp_path: Path, manifest: Path, tiny: ModelConfig, quick: Quick
) -> None:
    told = SftData(manifest=str(with_transcripts(manifest, tmp_path)))
    run_with(quick(steps=3, distill=0.5, learning_rate=1e-2), told, replace(tiny, lora={"r": 4}), tmp_path / "run")
    assert all(line["distillation"] > 0 for line in log_lines(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"train\.distill needs a decoder that stays"):
        run_with(quick(distill=0.5), told, tiny, tmp_path / "moving")
    with pytest.raises(ValueError, match=r"rows with sound and metadata\.transcript, found none of 16"):
        run_with(quick(distill=0.5), SftData(manifest=str(manifest)), replace(tiny, lora={"r": 4}), tmp_path / "mute")


def test_broken_rows_are_named_and_stop_the_run_at_the_tolerance(
    tmp_path: Path, manifest: Path, tiny: ModelConfig, quick: Quick
) -> None:
    copied = with_transcripts(manifest, tmp_path)
    rows = [json.loads(line) for line in copied.read_text().splitlines()]
    (tmp_path / "broken.wav").write_bytes(b"RIFF not a sound")
    rows[2]["audio"]["mc"] = str(tmp_path / "broken.wav")
    copied.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match="row-02"):
        run_with(quick(steps=4), SftData(manifest=str(copied)), tiny, tmp_path / "strict")
    allowed = SftData(manifest=str(copied), tolerance=0.1)
    run_with(quick(steps=6, log_ids=True), allowed, tiny, tmp_path / "run")
    faults = [json.loads(line) for line in (tmp_path / "run" / "faults-rank0.jsonl").read_text().splitlines()]
    assert {fault["name"] for fault in faults} == {"row-02"} and "broken.wav" in faults[0]["why"]
    ids = [json.loads(line)["ids"] for line in (tmp_path / "run" / "rows-rank0.jsonl").read_text().splitlines()]
    assert len(ids) == 6 and not any("row-02" in batch for batch in ids)
    for row in rows[4:8]:
        if row.get("audio"):
            row["audio"]["mc"] = str(tmp_path / "broken.wav")
    copied.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(TooManyFaults, match="named in"):
        run_with(quick(steps=6), allowed, tiny, tmp_path / "many")


def test_a_batch_of_broken_rows_alone_is_a_step_without_targets(manifest: Path, tiny: ModelConfig) -> None:
    processor = build_processor(tiny)
    model = build_model(tiny, processor).train()
    data = load_sets(SftData(manifest=str(manifest)), processor).train
    items = [Item(data.examples[index], None, fault="gone") for index in (0, 1)]
    batch = TrainingCollator(Collator(processor), ["tool_call"], ids=True)(items)
    extras = take_extras(batch)
    assert (
        extras["ids"] == []
        and len(extras["tasks"]) == 0
        and [name for name, _ in extras["faults"]] == ["row-00", "row-01"]
    )
    assert model(**batch, num_items_in_batch=torch.tensor(0)).loss.item() == 0, "no target on any rank"
    loss = model(**batch, num_items_in_batch=7).loss
    loss.backward()
    assert float(loss) == 0 and all(p.grad is not None for p in model.projector.parameters())


def test_the_run_folder_names_its_data(tmp_path: Path, manifest: Path) -> None:
    made_from = Origin({"seed": 3}, [manifest])
    made_from.record(tmp_path)
    described = json.loads((tmp_path / "data.json").read_text())
    (file,) = described["files"]
    assert described["fingerprint"] == made_from.fingerprint and described["settings"] == {"seed": 3}
    assert file["lines"] == 16 and file["bytes"] == manifest.stat().st_size


def test_the_log_can_be_drawn(
    tmp_path: Path, train: Train, quick: Quick, load_script: Callable[[str, str], ModuleType],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    train(tmp_path, quick(steps=3))
    line = log_lines(tmp_path)[-1]
    for key in ("tokens_per_second", "audio_seconds_per_second", "mfu", "memory_gib", "grad_norm", "loss/tool_call"):
        assert line[key] > 0, key
    assert 0 <= line["data_wait"] <= 1 and line["loss/tool_call"] == pytest.approx(line["loss"], abs=1e-3)
    script = load_script("tools", "plot_run")
    monkeypatch.setattr("sys.argv", ["plot_run", f"run={tmp_path}", "smooth=2"])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 0 and (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")
    assert "loss by task" in script.panels_of({"a": script.read_log(tmp_path / "log.jsonl")})
    monkeypatch.setattr("sys.argv", ["plot_run", f"run={tmp_path}", "panels=[loss,speed]"])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert (
        stopped.value.code == 2 and "panels ['speed'] are not in the log, which has ['loss'," in capsys.readouterr().err
    )
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert stopped.value.code == 2 and "is empty" in capsys.readouterr().err
