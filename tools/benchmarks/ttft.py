"""Time to first token after the end of speech: a clip heard while it was spoken against the whole clip at once.

Both get the same five channels, prompt and weights, and use the same look-ahead; their P([Mute]) are compared.
``whole`` is beam, front end, encoder and prefill of everything in one batch of one; ``cached`` has the prompt in its
cache and the front end up to date, and still encodes the whole clip; ``streaming`` has only the last chunk left.  Times
of the last two are those of ``StreamingSession.end()``, measured on copies of one session; ``+ piece`` hears the last
piece of sound in it as well, as where a detector of speech's end or a button says that it is the last.  On a CPU they
are processor time of one thread (other programs on the machine steal less of it than of wall time), on a GPU wall time;
the quickest round counts.  Without ``ckpt`` the weights are random: times do not depend on them.  With look-aheads of 6
and 13 all three clips end shortly before a chunk would be complete or in its middle: much is left in every case.
"""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor
from tqdm import tqdm

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.assets import cache_root
from wearllama.data.prompts import Message, PromptSet, build_messages
from wearllama.data.tools import WEARVOX_TOOLS
from wearllama.modeling.encoder_io import stored_config
from wearllama.modeling.factory import ModelConfig, build_model, build_processor, load_checkpoint, model_folder
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.modeling.prompt_cache import PromptCache
from wearllama.modeling.streaming import StreamingSession
from wearllama_launch import CONF_DIR, existing_path, launch

CONTEXTS = [[70, 13], [70, 6], [70, 1], [70, 0]]
WANTED = {"stream_over_whole_10s": 0.15, "t30_over_t3": 1.3}
"""At most."""
SMOLLM2_SIZES = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
Times = dict[tuple[float, str], float]


class Way(NamedTuple):
    """One way to the first token; ``run`` takes what ``prepare`` gives, is timed, and returns P([Mute])."""

    prepare: Callable[[], Any]
    run: Callable[[Any], float]


@dataclass(kw_only=True)
class TtftBenchmark:
    """What is measured, and how often."""

    scales: list[str] = field(default_factory=lambda: ["demo", "smollm2"])
    """Sizes: ``demo``, ``smollm2`` (its decoder from the cache where it has been converted, otherwise random)."""
    ckpt: str | None = None
    """A checkpoint with a streaming encoder in place of ``scales``."""
    seconds: list[float] = field(default_factory=lambda: [3.0, 10.0, 30.0])
    look_ahead: int = 1
    """In frames of 80 ms, of the trained contexts: chunks of .16 s; 6 leaves up to .56 s of sound to the end of speech,
    13 up to 1.12 s."""
    piece_s: float = 0.08
    """How much is pushed at once."""
    rounds: int = 7
    device: str = "cpu"
    fast: bool = False
    """Fewer rounds, and of the whole clips only that of 10 s."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.scales or set(self.scales) - {"demo", "smollm2"}:
            raise ValueError(f"scales is {self.scales}, wanted some of demo, smollm2")
        if min(self.seconds, default=0) <= 0 or self.piece_s <= 0 or self.rounds < 1:
            raise ValueError(f"seconds {self.seconds}, piece_s {self.piece_s} and rounds must be positive")
        if not {3.0, 10.0, 30.0} <= set(self.seconds):
            raise ValueError(f"seconds is {self.seconds}, wanted 3, 10 and 30 among them: the ratios are theirs")


@launch("benchmark_ttft", TtftBenchmark)
def main(config: TtftBenchmark) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    found = {}
    for name in [config.ckpt] if config.ckpt else config.scales:
        model, processor = checkpoint(name) if config.ckpt else random_weights(name)
        model.to(config.device)
        times, gap = measure(config, model, processor)
        found[name] = ratios(times)
        report(config, name, model, times, found[name], gap)
    worst = {key: max(of_scale[key] for of_scale in found.values()) for key in ("with_last_piece_10s", *WANTED)}
    for key, wanted in WANTED.items():
        print(f"{key}: {worst[key]:.3f}, wanted at most {wanted:g}: {'met' if worst[key] <= wanted else 'NOT MET'}")
    print(json.dumps({
        "benchmark": "ttft",
        "ratios": {key: round(value, 4) for key, value in worst.items()},
        "scales": {name: {key: round(value, 4) for key, value in of.items()} for name, of in found.items()},
    }))  # fmt: skip


def checkpoint(path: str) -> tuple[WearLlamaForConditionalGeneration, WearLlamaProcessor]:
    """A trained model; ValueError where its encoder attends to whole clips."""
    folder = model_folder(existing_path(path, "ckpt"), "config.json")
    if folder is None:
        raise ValueError(f"ckpt={path} is no WearLlama checkpoint: neither it nor its 'final' has a config.json")
    return load_checkpoint(folder)


def random_weights(scale: str) -> tuple[WearLlamaForConditionalGeneration, WearLlamaProcessor]:
    """A model of the scale's size (conf/model/) whose encoder has the streaming contexts."""
    fields: dict[str, Any] = yaml.safe_load((CONF_DIR / "model" / f"{scale}.yaml").read_text(encoding="utf-8"))
    fields |= {
        "encoder": "scratch",
        "encoder_config": {**stored_config("packaged")["encoder"], "causal": True, "contexts": CONTEXTS},
        "projector": {**fields.get("projector", {}), "causal": True},
        "freeze": {},
        "lora": None,  # as after merging
    }
    if scale == "smollm2":
        folder = cache_root() / "smollm2"
        fields["decoder"] = str(folder)
        if not (folder / "config.json").is_file():
            print(f"{folder} is not there (tools/convert_smollm2.py): a random decoder of that size, fewer words")
            fields |= {"decoder": "scratch", "decoder_config": SMOLLM2_SIZES, "tokenizer": "packaged"}
    model_config = ModelConfig(**fields)
    processor = build_processor(model_config)
    return build_model(model_config, processor).eval(), processor


def measure(
    config: TtftBenchmark, model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor
) -> tuple[Times, float]:
    """Seconds by (clip, way), and the largest difference between the ways' P([Mute])."""
    messages = build_messages(system=PromptSet(style="compact").system("wearvox", WEARVOX_TOOLS))
    prompts = PromptCache(model)
    model.encoder.set_look_ahead(config.look_ahead)
    times: Times = {}
    gap = 0.0
    for seconds in tqdm(config.seconds, unit="clip", desc="clips"):
        audio_MN = 0.05 * torch.randn(processor.array.num_mics, int(seconds * SAMPLE_RATE))
        *heard, last_MN = audio_MN.split(int(config.piece_s * SAMPLE_RATE), dim=1)
        session = StreamingSession(model, processor, messages, prompts=prompts)
        for piece_MN in heard:
            session.push(piece_MN)
        ways = {"+ piece": end_of(session, last_MN), "streaming": end_of(after(session, last_MN))}
        if not config.fast or seconds == 10.0:
            late = StreamingSession(model, processor, messages, prompts=prompts, recompute=True)
            ways |= {
                "cached": end_of(after(late, audio_MN)),
                "whole": whole_clip(model, processor, messages, audio_MN),
            }
        p_mute: dict[str, float] = {}
        for _ in range(3 if config.fast else config.rounds):
            for name, way in ways.items():
                ready = way.prepare()
                started = clock(config.device)
                p_mute[name] = way.run(ready)
                taken = clock(config.device) - started
                times[seconds, name] = min(taken, times.get((seconds, name), taken))
        gap = max(gap, max(p_mute.values()) - min(p_mute.values()))
    if gap > 1e-4:
        raise ValueError(f"P([Mute]) differs by {gap:.1e} between the ways: they do not compute the same")
    return times, gap


def clock(device: str) -> float:
    """Seconds of this process' processor time; of wall time where a GPU does the work (P([Mute]) waits for it)."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def after(session: StreamingSession, audio_MN: Tensor) -> StreamingSession:
    """A copy of the session that has heard more; the model is shared."""
    shared = (session.model, session.model.encoder, session.model.projector, session.processor)
    with torch.inference_mode():
        copied = copy.deepcopy(session, {id(part): part for part in shared})
    copied.push(audio_MN)
    return copied


def end_of(session: StreamingSession, last_MN: Tensor | None = None) -> Way:
    """The end of speech, measured on copies of the session; with ``last_MN`` it still has to hear that."""
    return Way(
        lambda: after(session, torch.zeros(session.processor.array.num_mics, 0)), lambda copied: copied.end(last_MN)
    )


def whole_clip(
    model: WearLlamaForConditionalGeneration, processor: WearLlamaProcessor, messages: list[Message], audio_MN: Tensor
) -> Way:
    """Everything after the end of speech, up to the first token."""

    @torch.inference_mode()
    def run(_: None) -> float:
        batch = processor([messages], [audio_MN]).to(model.device)
        logits_V = model(**batch, use_cache=True, logits_to_keep=1).logits[0, -1]
        return float(logits_V.float().softmax(-1)[processor.ids.mute])

    return Way(lambda: None, run)


def ratios(times: Times) -> dict[str, float]:
    """What the targets are about."""
    return {
        "stream_over_whole_10s": times[10.0, "streaming"] / times[10.0, "whole"],
        "with_last_piece_10s": times[10.0, "+ piece"] / times[10.0, "whole"],
        "t30_over_t3": times[30.0, "streaming"] / times[3.0, "streaming"],
    }


def report(
    config: TtftBenchmark, name: str, model: WearLlamaForConditionalGeneration, times: Times, of: dict[str, float],
    gap: float,
) -> None:  # fmt: skip
    """Print one scale's table."""
    sizes = [sum(weight.numel() for weight in part.parameters()) / 1e6 for part in (model.encoder, model.decoder)]
    print(
        f"\n{name}: encoder {sizes[0]:.1f} M, decoder {sizes[1]:.1f} M, channels {model.config.channels}, look-ahead "
        f"{config.look_ahead} frames; milliseconds from the end of speech to the first token on {config.device}; "
        f"P([Mute]) within {gap:.0e}\n{'clip':>8}{'whole':>10}{'cached':>10}{'streaming':>11}{'+ piece':>10}"
        f"{'streaming / whole':>19}"
    )
    for seconds in config.seconds:
        row = [times.get((seconds, way)) for way in ("whole", "cached", "streaming", "+ piece")]
        share = f"{row[2] / row[0]:.3f}" if row[0] and row[2] else "-"
        cells = ["-" if value is None else f"{1000 * value:.1f}" for value in row]
        print(f"{seconds:>6g} s{cells[0]:>10}{cells[1]:>10}{cells[2]:>11}{cells[3]:>10}{share:>19}")
    print(", ".join(f"{key} {value:.3f}" for key, value in of.items()))
