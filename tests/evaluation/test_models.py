"""Models of every kind behind the harness' interface: endpoints, transformers audio models, cascades."""

import base64
import io
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import Answer, Server, last_words  # type: ignore[import-not-found]

from wearllama.data.manifest import Clip, Example
from wearllama.evaluation.cascade import AsrConfig, CascadeAdapter
from wearllama.evaluation.chat import ChatConfig, EndpointConfig, open_chat
from wearllama.evaluation.chat_adapter import ChatAdapter
from wearllama.evaluation.endpoint_adapter import EndpointAdapter
from wearllama.evaluation.harness import HarnessConfig, run
from wearllama.evaluation.hf_audio import HfAudioAdapter
from wearllama.evaluation.local_chat import LocalChat
from wearllama.evaluation.models import ModelSettings, open_model
from wearllama.evaluation.mono import AudioLimit
from wearllama.evaluation.predictions import read_log
from wearllama.evaluation.wearvox import WearVoxConfig, load_wearvox

QUIET = HarnessConfig(progress=False, batch_size=3, ttft_items=1)
FAST = EndpointConfig(retries=1, backoff_s=0.01, timeout_s=5.0, concurrency=3)


@pytest.fixture(scope="module")
def examples(wearvox_data: Path) -> list[Example]:
    return load_wearvox(wearvox_data, WearVoxConfig())


def endpoint(server: Server, *, limit: AudioLimit | None = None, **changes: Any) -> EndpointAdapter:
    config = replace(FAST, base_url=server.url, **changes)
    return EndpointAdapter("m", config, max_new_tokens=5, limit=limit or AudioLimit())


def sound_of(request: dict[str, Any]) -> np.ndarray:
    part = request["messages"][-1]["content"][0]
    assert part["type"] == "input_audio" and part["input_audio"]["format"] == "wav"
    audio, rate = soundfile.read(io.BytesIO(base64.b64decode(part["input_audio"]["data"])))
    assert rate == 16_000
    return audio


# --- endpoints -------------------------------------------------------------------------------------------------------


def test_an_endpoint_hears_the_beam(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    with Server(lambda r, n: Answer(text="[Mute]")) as server:
        found = run(examples, endpoint(server), root=wearvox_data, folder=tmp_path, config=QUIET, channels=5)
        assert {p.raw for p in found} == {"[Mute]"} and found[0].extra["prompt_tokens"] == 10
        assert sum("ttft_s" in p.latency for p in found) == len({e.task for e in examples})
        beams = [soundfile.read(wearvox_data / e.audio["beam"])[0] for e in examples]  # type: ignore[index]
        heard = [sound_of(r) for r in server.requests if not r.get("stream")]
        for audio in heard:
            assert any(len(b) == len(audio) and np.abs(b - audio).max() < 1e-3 for b in beams)
        asked = len(server.requests)
        run(examples, endpoint(server), root=wearvox_data, folder=tmp_path, config=QUIET)
        assert len(server.requests) == asked  # complete: nothing is asked again


def test_killed_in_mid_run_and_resumed(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    """Nothing lost and nothing asked twice: what was answered in the batch in which the server died is kept."""
    seen: list[int] = []
    server = Server(lambda r, n: Answer(text=f"first {n}"))
    dying = Server(lambda r, n: Answer(text=f"first {n}") if n < 4 else Answer(hang_up=True, text="x" * 200))
    adapter = endpoint(dying, concurrency=1, label="one")
    with pytest.raises(ValueError, match=r"items have no answer yet .*the same command goes on"):
        run(examples, adapter, root=wearvox_data, folder=tmp_path, config=replace(QUIET, ttft_items=0))
    dying.close()
    assert len(read_log(tmp_path)) == 4
    again = endpoint(server, concurrency=1, label="one")
    found = run(examples, again, root=wearvox_data, folder=tmp_path, config=replace(QUIET, ttft_items=0))
    assert len(server.requests) == len(examples) - 4 and not seen
    assert len({p.id for p in found}) == len(examples)
    lines = [json.loads(x) for f in tmp_path.glob("predictions-*") for x in f.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(e.id for e in examples)
    server.close()


def test_a_refused_item(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    with Server(lambda r, n: Answer(status=400, body=b"policy") if n == 1 else Answer()) as server:
        adapter = endpoint(server, concurrency=1)
        with pytest.raises(ValueError, match=r"HTTP 400: 'policy'; harness\.bad_item=score_wrong"):
            run(examples, adapter, root=wearvox_data, folder=tmp_path / "a", config=QUIET)
    with Server(lambda r, n: Answer(status=400, body=b"policy") if n == 1 else Answer()) as server:
        config = replace(QUIET, bad_item="score_wrong", ttft_items=0)
        found = run(examples, endpoint(server, concurrency=1), root=wearvox_data, folder=tmp_path / "b", config=config)
        assert [p.error for p in found if p.error] == ["HTTP 400: 'policy'"] and len(found) == len(examples)


def test_what_was_refused_is_asked_again_without_score_wrong(
    examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    """The server was mended: the failure in the log is no answer, while answers stay."""
    config, settings = replace(QUIET, bad_item="score_wrong", ttft_items=0), {"root": wearvox_data, "folder": tmp_path}
    with Server(lambda r, n: Answer(status=400, body=b"too long") if n == 1 else Answer(text="first")) as server:
        adapter = endpoint(server, concurrency=1, label="one")
        (bad,) = [p for p in run(examples, adapter, config=config, **settings) if p.error]
        run(examples, adapter, config=config, **settings)
        assert len(server.requests) == len(examples)  # counted as wrong, and left alone
    with Server(lambda r, n: Answer(text="second")) as mended:
        again = endpoint(mended, concurrency=1, label="one")
        found = run(examples, again, config=replace(config, bad_item="error"), **settings)
        assert len(mended.requests) == 1
        assert {p.id: p.raw for p in found} == {e.id: "second" if e.id == bad.id else "first" for e in examples}
        assert run(examples, again, config=config, **settings) == found and len(mended.requests) == 1


def test_a_server_has_as_many_requests_as_it_takes(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    """More than a batch of the harness: each answer waits until all of them are asked."""
    everyone = threading.Barrier(len(examples))

    def answer(request: dict[str, Any], number: int) -> Answer:
        everyone.wait(timeout=20)
        return Answer()

    with Server(answer) as server:
        adapter = endpoint(server, concurrency=len(examples))
        found = run(examples, adapter, root=wearvox_data, folder=tmp_path, config=replace(QUIET, ttft_items=0))
        assert len(found) == len(examples) > QUIET.batch_size and server.busiest == len(examples)


def test_truncation_is_marked_or_refused(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    with Server(lambda r, n: Answer()) as server:
        cut = endpoint(server, limit=AudioLimit(seconds=0.5))
        found = run(examples, cut, root=wearvox_data, folder=tmp_path, config=replace(QUIET, ttft_items=0))
        long = {e.id: e.seconds for e in examples if e.seconds > 0.5}
        assert {p.id: p.extra["truncated_from_s"] for p in found if "truncated_from_s" in p.extra} == pytest.approx(
            long
        )
        assert max(len(sound_of(r)) for r in server.requests) == 8000
        strict = endpoint(server, limit=AudioLimit(seconds=0.5, truncate=False))
        with pytest.raises(ValueError, match=r"recordings exceed the model's 0\.5 s"):
            run(examples, strict, root=wearvox_data, folder=tmp_path, config=QUIET)
    assert cut.generation["audio_limit_s"] == 0.5


def test_silence_and_reading(examples: list[Example]) -> None:
    clip = Clip(torch.ones(5, 800), 0.5 * torch.ones(800))
    with Server(lambda r, n: Answer()) as server:
        adapter = endpoint(server)
        adapter.with_input("silence").generate(examples[:1], [clip])
        assert np.abs(sound_of(server.requests[-1])).max() == 0
        adapter.with_input("transcript").generate(examples[:1], [clip])
        assert last_words(server.requests[-1]) == "some words"
    with pytest.raises(ValueError, match="5 channels and no recorded beam"):
        adapter.generate(examples[:1], [Clip(torch.ones(5, 800), None)])


# --- transformers audio models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def qwen2_audio(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real Qwen2-Audio class with random weights of a toy size, its processor and chat template."""
    from transformers import (
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    from wearllama.modeling.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["wearer asks answer or call mute weather in Oslo " * 20], vocab_size=300)
    tokenizer.add_special_tokens({
        "additional_special_tokens": ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|im_start|>", "<|im_end|>"],
        "pad_token": "<pad>", "eos_token": "<|im_end|>",
    })  # fmt: skip
    processor = Qwen2AudioProcessor(WhisperFeatureExtractor(feature_size=16), tokenizer)
    torch.manual_seed(0)
    config = Qwen2AudioConfig(
        audio_config={"num_mel_bins": 16, "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2,
                      "encoder_ffn_dim": 16},
        text_config={"model_type": "qwen2", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
                     "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer)},
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("qwen2_audio")
    model = Qwen2AudioForConditionalGeneration(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(2.0)  # so that what is heard decides what is said
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_a_transformers_audio_model(
    qwen2_audio: Path, examples: list[Example], wearvox_data: Path, tmp_path: Path
) -> None:
    adapter = open_model(ModelSettings(model=f"hf:{qwen2_audio}", max_new_tokens=4, device="cpu"))
    assert isinstance(adapter, HfAudioAdapter) and adapter.limit.seconds == 30.0 and adapter.max_audio_seconds is None
    found = run(examples, adapter, root=wearvox_data, folder=tmp_path / "a", config=QUIET)
    alone = run(examples, adapter, root=wearvox_data, folder=tmp_path / "b", config=replace(QUIET, batch_size=1))
    assert [p.raw for p in found] == [p.raw for p in alone] and any(p.raw for p in found)
    assert all(p.extra["prompt_tokens"] > 10 and p.extra["completion_tokens"] <= 4 for p in found)
    noisy = [Clip(torch.zeros(1, 4000), torch.randn(4000)), Clip(torch.zeros(1, 4000), torch.zeros(4000))]
    model, processor = adapter._load()
    items = [adapter._heard(examples[0], clip) for clip in noisy]
    with torch.inference_mode():
        noise, silence = model(**adapter._inputs(items, processor)).logits
    assert not torch.allclose(noise, silence)  # what is heard reaches the decoder
    deaf = adapter.with_input("silence")._heard(examples[0], noisy[0])
    assert deaf.audio_N is not None and not deaf.audio_N.any()
    assert adapter.with_input("transcript").generate(examples[:1], noisy[:1])


def test_nothing_is_cut_in_silence(qwen2_audio: Path, examples: list[Example]) -> None:
    adapter = HfAudioAdapter(str(qwen2_audio), device="cpu", limit=AudioLimit(seconds=60.0))
    with pytest.raises(ValueError, match=r"31\.0 s of sound, its front end cuts at 30 s; set max_audio_seconds=30"):
        adapter.generate(examples[:1], [Clip(torch.zeros(1, 31 * 16_000), None)])


def test_each_rank_has_a_gpu_of_its_own(qwen2_audio: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    models = [HfAudioAdapter(str(qwen2_audio)), LocalChat(str(qwen2_audio), batch_size=5)]
    assert [model.device for model in models] == ["cuda:1", "cuda:1"] and models[1].at_once == 5
    assert HfAudioAdapter(str(qwen2_audio), device="cuda:0").device == "cuda:0"


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "kimi_audio"}')
    with pytest.raises(ValueError, match=r"transformers cannot open it.*openai:NAME with base_url"):
        HfAudioAdapter(str(tmp_path))


# --- cascades --------------------------------------------------------------------------------------------------------


class Stub:
    identity = "stub beam 1"

    def __call__(self, audio_N: np.ndarray) -> str:
        return f"{len(audio_N)} samples"


def test_a_cascade(examples: list[Example], wearvox_data: Path, tmp_path: Path) -> None:
    with Server(lambda r, n: Answer(text=f"heard {last_words(r)}")) as server:
        chat = open_chat(ChatConfig(model="openai:text", endpoint=replace(FAST, base_url=server.url)))
        adapter = CascadeAdapter(Stub(), chat)
        assert adapter.identity["model"] == "stub + openai:text"
        found = run(examples, adapter, root=wearvox_data, folder=tmp_path, config=QUIET)
        assert adapter.at_once == ChatAdapter(chat).at_once == FAST.concurrency
        assert found[0].raw == "heard 4800 samples" and found[0].extra["transcript"] == "4800 samples"
        assert any(p.latency.get("ttft_s") for p in found)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "either ckpt=FOLDER or model="),
        ({"ckpt": "a", "model": "cascade"}, "either ckpt=FOLDER or model="),
        ({"model": "gpt-4o"}, "model is 'gpt-4o', wanted one of openai:NAME, hf:NAME, cascade"),
        ({"model": "cascade", "too_long": "x"}, "too_long is 'x'"),
    ],
)
def test_bad_model_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSettings(**fields)


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        ("cascade", "base_url", "http://localhost:9/v1"),
        ("cascade", "dtype", "bfloat16"),
        ("cascade", "too_long", "error"),
        ("hf:x", "base_url", "http://localhost:9/v1"),
        ("openai:x", "device", "cuda:0"),
        (None, "max_audio_seconds", 3.0),
        ("hf:x", "look_ahead", 6),
        ("openai:x", "look_ahead", 6),
        ("cascade", "max_new_tokens", 5),
    ],
)
def test_settings_that_a_kind_of_model_does_not_read_are_refused(model: str | None, name: str, value: object) -> None:
    kind = (model or "ckpt").split(":")[0]
    with pytest.raises(ValueError, match=f"{name}={value} is not read by {kind} models"):
        ModelSettings(model=model, ckpt=None if model else "x", **{name: value})


def test_bad_recogniser() -> None:
    with pytest.raises(ValueError, match="wanted one of faster-whisper:NAME, hf:NAME"):
        AsrConfig(model="whisper")


@pytest.mark.slow
def test_packaged_cascade(tmp_path: Path) -> None:
    """Whisper-base and SmolLM2 from the packages, on a real recording."""
    from wearllama.data.assets import fetch

    settings = ModelSettings(model="cascade", llm=ChatConfig(model="smollm2", max_new_tokens=16))
    adapter = open_model(settings)
    path = next((fetch("pocketsphinx_testdata") / "librivox").glob("*.wav"))
    audio = torch.from_numpy(soundfile.read(path, dtype="float32")[0])[None]
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": [{"type": "audio"}]}]
    example = Example(id="a", task="closed_book", split="test", messages=messages, target="x", audio={"mc": "a"})
    (said,) = adapter.generate([example], [Clip(audio, None)])
    assert said and len(said.extra["transcript"].split()) > 3  # type: ignore[attr-defined]
