"""GRPO runs: learns the gate, skips what is dead, resumes exactly, runs on two ranks and against a server."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))

from grpo_world import TOOL, explorer, start, teach, write_pairs

from wearllama.data.augment import Augmentation
from wearllama.data.dataset import Item
from wearllama.data.manifest import Example
from wearllama.modeling.factory import ModelConfig, load_checkpoint
from wearllama.training import grpo
from wearllama.training.checkpoint import FINAL, mark_complete
from wearllama.training.grpo import run_grpo
from wearllama.training.grpo_config import GrpoConfig, RolloutConfig
from wearllama.training.grpo_data import GroupStream, make_groups, side_of
from wearllama.training.grpo_explore import Explorer
from wearllama.training.policy import Policy
from wearllama.training.rewards import ActionReward, Judge, RewardConfig
from wearllama.training.rollout import LocalEngine, encode_items
from wearllama.training.rollout_openai import OpenAIEngine

ROOT = Path(__file__).resolve().parents[2]
QUICK: dict[str, Any] = {"num_generations": 4, "max_completion_length": 16, "groups_per_step": 2, "loss_constant": 8.0}


@pytest.fixture(scope="module")
def start_folder(tiny: ModelConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that guesses between the tool and [Mute], as a checkpoint, and its pairs."""
    folder = tmp_path_factory.mktemp("guessing")
    processor, model = start(tiny)
    config = GrpoConfig(**QUICK)
    manifest = write_pairs(folder, pairs=3)
    teach(model, processor, explorer(model, processor, manifest, config).dataset)
    model.save_pretrained(folder / "ckpt")
    processor.save_pretrained(folder / "ckpt")
    mark_complete(folder / "ckpt", {})
    return folder


def train(folder: Path, run_dir: Path, quick: Any, *, steps: int, config: GrpoConfig, **changes: Any) -> Any:
    model, processor = load_checkpoint(folder / "ckpt")
    explore = explorer(model, processor, folder / "pairs.jsonl", config)
    settings = quick(steps=steps, learning_rate=3e-3, schedule="constant", warmup_steps=0, **changes)
    result = run_grpo(policy=Policy(model), processor=processor, explorer=explore, config=config, train=settings,
                      run_dir=run_dir)  # fmt: skip
    return result, explore


def history(run_dir: Path, step: int) -> list[dict[str, float]]:
    return json.loads((run_dir / f"checkpoint-{step}" / "trainer_state.json").read_text())["log_history"]


def test_learns_to_tell_the_sides_apart_and_logs_them(start_folder: Path, tmp_path: Path, quick: Any) -> None:
    config = GrpoConfig(**{**QUICK, "num_generations": 8}, weights={"self_talk": 0.0}, beta=0.01)
    train(start_folder, tmp_path, quick, steps=24, config=config, save_every=24)
    lines = history(tmp_path, 24)
    first, last = lines[0], lines[-2] if "train_runtime" in lines[-1] else lines[-1]
    for side in ("same_speaker", "switch"):
        assert {f"reward/speaker_switch/{side}", f"advantage/speaker_switch/{side}"} <= set(first)
    assert first["rollout_gap/max"] < 1e-3 and first["kl"] == pytest.approx(0.0, abs=1e-5)
    assert sum(line["reward"] for line in lines[18:24]) / 6 > sum(line["reward"] for line in lines[:6]) / 6 + 0.1
    assert last["reward/speaker_switch/switch"] > first["reward/speaker_switch/switch"] - 0.2
    assert load_checkpoint(tmp_path / FINAL)[0].config.model_type == "wearllama"


def test_stopped_and_resumed_equals_uninterrupted(start_folder: Path, tmp_path: Path, quick: Any) -> None:
    config = GrpoConfig(**QUICK)
    train(start_folder, tmp_path / "whole", quick, steps=4, config=config)
    train(start_folder, tmp_path / "parts", quick, steps=4, config=config, save_every=2)
    for name in (FINAL, "checkpoint-4"):
        for path in sorted((tmp_path / "parts" / name).glob("*")):
            path.unlink()
        (tmp_path / "parts" / name).rmdir()
    _, explore = train(start_folder, tmp_path / "parts", quick, steps=4, config=config)
    one, other = (load_file(tmp_path / name / FINAL / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    assert explore.stream.position > 2


def test_stopped_between_two_uses_of_completions_and_resumed_equals_uninterrupted(
    start_folder: Path, tmp_path: Path, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = GrpoConfig(**QUICK, num_iterations=2)
    train(start_folder, tmp_path / "whole", quick, steps=4, config=config)
    loss_of, calls = grpo.policy_loss, []

    def stop_in_the_first_step(*args: Any, **kwargs: Any) -> Any:
        if not calls:
            os.kill(os.getpid(), signal.SIGTERM)
        calls.append(1)
        return loss_of(*args, **kwargs)

    monkeypatch.setattr(grpo, "policy_loss", stop_in_the_first_step)
    stopped, _ = train(start_folder, tmp_path / "parts", quick, steps=4, config=config)
    assert stopped.stopped_by == signal.SIGTERM and stopped.steps == 2, "the completions are used up first"
    train(start_folder, tmp_path / "parts", quick, steps=4, config=config)
    one, other = (load_file(tmp_path / name / FINAL / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_checkpoint_between_two_uses_goes_on_with_new_completions(
    start_folder: Path, tmp_path: Path, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As earlier versions left them."""
    train(start_folder, tmp_path, quick, steps=1, config=GrpoConfig(**QUICK), save_every=1)
    explored: list[int] = []
    explore = Explorer.explore
    monkeypatch.setattr(Explorer, "explore", lambda self, step: explored.append(step) or explore(self, step))
    train(start_folder, tmp_path, quick, steps=4, config=GrpoConfig(**QUICK, num_iterations=2))
    assert explored == [1, 2]


def test_a_condition_is_augmented_without_its_padding(start_folder: Path) -> None:
    _, processor = load_checkpoint(start_folder / "ckpt")
    augment = Augmentation(warp=0.1, mask_spans=3)
    clip = torch.randn(2, 4800, generator=torch.Generator().manual_seed(0))
    turns = [{"role": "user", "content": [{"type": "audio"}]}]
    short, long = (
        Item(Example(id="x", task="t", split="train", messages=turns, target="", audio={"mc": "x"}),
             (audio_CN[0], audio_CN[1]), partial(augment, seed=5))
        for audio_CN in (clip, clip.repeat(1, 4))
    )  # fmt: skip
    alone = encode_items(processor, [short], "cpu")
    beside = encode_items(processor, [short, long], "cpu")
    frames = int(alone["feature_lengths"][0])
    torch.testing.assert_close(beside["input_features"][0, :, :frames], alone["input_features"][0, :, :frames])


def test_dead_groups_cost_no_forward_pass_and_move_nothing(start_folder: Path, tmp_path: Path, quick: Any) -> None:
    config = GrpoConfig(**QUICK, weights={"speaker_switch": 0.0}, max_draws=3, pairing="none")
    model, processor = load_checkpoint(start_folder / "ckpt")
    explore = explorer(model, processor, start_folder / "pairs.jsonl", config)
    explore.judge = Judge({"action": 1.0}, RewardConfig(action=ActionReward(correct=1e-9, wrong=0.0, malformed=0.0)))
    explore.judge.weights["action"] = 0.0  # every reward is 0: nothing differs
    before = {name: value.clone() for name, value in model.state_dict().items()}
    policy = Policy(model)
    calls: list[int] = []
    policy.register_forward_hook(lambda *_: calls.append(1))
    run_grpo(policy=policy, processor=processor, explorer=explore, config=config, train=quick(steps=2, warmup_steps=0),
             run_dir=tmp_path)  # fmt: skip
    assert not calls and explore.stream.position == 2 * 2 * 3  # two steps, two groups, three tries
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_rank_without_live_groups_waits_for_the_next_exploration(
    start_folder: Path, tmp_path: Path, quick: Any
) -> None:
    config = GrpoConfig(**QUICK, weights={"speaker_switch": 0.0}, pairing="none", num_iterations=2, max_draws=1)
    model, processor = load_checkpoint(start_folder / "ckpt")
    explore = explorer(model, processor, start_folder / "pairs.jsonl", config)
    explore.judge.weights["action"] = 0.0
    run_grpo(policy=Policy(model), processor=processor, explorer=explore, config=config,
             train=quick(steps=4, warmup_steps=0), run_dir=tmp_path)  # fmt: skip
    assert explore.stream.position == 2 * 2, "four steps are two explorations, as on the ranks that have live groups"


def test_denominator_counts_live_groups_only(start_folder: Path) -> None:
    config = GrpoConfig(**QUICK, dynamic_sampling=False, weights={"self_talk": 3.0})
    model, processor = load_checkpoint(start_folder / "ckpt")
    explore = explorer(model, processor, start_folder / "pairs.jsonl", config)
    batch = explore.explore(0)
    assert batch is not None
    live = {side_of(item.example) for item in batch.items}
    assert live <= {"same_speaker", "switch", "alone"}
    assert len(batch.advantages_N) == 4 * len(batch.items) and bool(batch.advantages_N.any())
    parts = batch.split(8)
    assert sum(len(part.advantages_N) for part in parts) == len(batch.advantages_N)
    for part in parts:
        assert len(part.advantages_N) <= 8 and set(part.rollouts.prompt_N.tolist()) == set(range(len(part.items)))


def test_groups_are_explicit_and_checked() -> None:
    def row(id: str, target: str, **metadata: Any) -> Example:
        turns = [{"role": "user", "content": "x"}]
        return Example(id=id, task="t", split="train", messages=turns, target=target, metadata=metadata)

    rows = [row("a", TOOL, group="p", side="same"), row("c", "[Mute]"), row("b", "[Mute]", group="p", side="switch")]
    assert [group.rows for group in make_groups(rows, "pair")] == [(0, 2), (1,)]
    assert [group.rows for group in make_groups(rows, "none")] == [(0,), (1,), (2,)]
    with pytest.raises(ValueError, match="at least two that differ"):
        make_groups(rows[:2], "pair")
    with pytest.raises(ValueError, match="nothing is contrasted"):
        make_groups([rows[0], row("b", TOOL, group="p", side="switch")], "pair")
    with pytest.raises(ValueError, match="top_p is 0"):
        GrpoConfig(top_p=0.9)
    many = make_groups([row(str(number), TOOL) for number in range(7)], "none")
    ranks = [GroupStream(many, seed=1, rank=rank, world_size=2) for rank in range(2)]
    drawn = [draw for _ in range(7) for stream in ranks for draw in stream.take(1)]
    assert sorted((int(draw.group.id), draw.epoch) for draw in drawn) == [(g, e) for g in range(7) for e in range(2)]


def test_rewards_follow_the_action_contract() -> None:
    reward = ActionReward()
    said = ["[Mute]", TOOL, '{"name": "pay", "params": {}}', '{"name": "call", ', "Paris.", ""]

    def judged(target: str) -> list[float]:
        return reward([None] * 6, said, target=[target] * 6, dialect=["vgbench"] * 6)

    assert judged("[Mute]") == [1.0, 0.0, 0.0, -0.5, 0.0, 0.0]
    assert judged(TOOL) == [0.0, 1.0, 0.0, -0.5, 0.0, 0.0]
    assert judged("Rome.") == [0.0, -0.5, -0.5, -0.5, 1.0, -0.5]
    turns = [[{"role": "assistant", "content": text}] for text in said]  # TRL's conversational form
    assert reward([None] * 6, turns, target=[TOOL] * 6, dialect=["vgbench"] * 6) == judged(TOOL)
    with pytest.raises(ValueError, match="wanted some of"):
        Judge({"kindness": 1.0}, RewardConfig())


def test_two_ranks_end_with_the_same_weights(start_folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "recipes/grpo.py",
        "experiment=tiny_grpo", f"ckpt={start_folder}/ckpt", f"data.manifest={start_folder}/pairs.jsonl",
        f"run_dir={tmp_path}", "train.steps=2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / FINAL / "model.safetensors").is_file()
    places = [json.loads((tmp_path / f"checkpoint-2/groups-0000{rank}.json").read_text()) for rank in range(2)]
    assert all(place["position"] >= 4 for place in places)


class _Server(BaseHTTPRequestHandler):
    """A stand-in for vLLM: chat completions with token ids and log-probabilities, from weights it is told of."""

    world: dict[str, Any] = {}  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self._load(body) if self.path == "/sync" else self._complete(body)
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _load(self, body: dict[str, Any]) -> dict[str, Any]:
        model, processor = load_checkpoint(body["path"])
        self.world["engine"] = LocalEngine(model, processor, temperature=1.0, max_completion_length=16, max_rows=64)
        self.world["syncs"] = self.world.get("syncs", 0) + 1
        return {}

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        audio, turns = None, []
        for turn in body["messages"]:
            if not isinstance(turn["content"], str):
                data = base64.b64decode(turn["content"][0]["input_audio"]["data"])
                samples, _ = soundfile.read(io.BytesIO(data), dtype="float32")
                audio = (torch.tensor(samples[:, 0]), torch.tensor(samples[:, 1]))
                turn = {**turn, "content": [{"type": "audio"}]}
            turns.append(turn)
        example = Example(id="x", task="t", split="train", messages=turns, target="",
                          audio=None if audio is None else {"mc": "x"})  # fmt: skip
        rollouts = self.world["engine"].sample([Item(example, audio)], body["n"], body["seed"])
        choices = []
        for ids, logps, ended in zip(rollouts.ids, rollouts.logps_NT.tolist(), rollouts.ended_N.tolist(), strict=True):
            content = [{"logprob": value} for value in logps[: len(ids)]]
            choices.append({"token_ids": ids, "logprobs": {"content": content}, "message": {"content": ""},
                            "finish_reason": "stop" if ended else "length"})  # fmt: skip
        return {"choices": choices}

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""


def test_rollouts_of_a_server_are_the_policys_own(start_folder: Path, tmp_path: Path, quick: Any) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    config = GrpoConfig(**QUICK, rollout=RolloutConfig(engine="openai", base_url=f"{url}/v1", sync_url=f"{url}/sync"))
    model, processor = load_checkpoint(start_folder / "ckpt")
    explore = explorer(model, processor, start_folder / "pairs.jsonl", config)
    explore.engine = OpenAIEngine(model, processor, config.rollout, sync_dir=tmp_path / "sync", temperature=1.0,
                                  max_completion_length=16)  # fmt: skip
    settings = quick(steps=2, warmup_steps=0, save_every=1)
    run_grpo(policy=Policy(model), processor=processor, explorer=explore, config=config, train=settings,
             run_dir=tmp_path / "run")  # fmt: skip
    server.shutdown()
    assert _Server.world["syncs"] == 2
    assert all(line["rollout_gap/max"] < 1e-3 for line in history(tmp_path / "run", 2))
    with pytest.raises(ValueError, match="needs rollout"):
        RolloutConfig(engine="openai")
