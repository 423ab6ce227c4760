"""Audio language models of transformers, by hub id or path: Qwen2.5-Omni, Qwen3-Omni, Qwen2-Audio, Gemma 3n, Phi-4, ...

Each is asked through its own processor and chat template, greedily, in left-padded batches.  A model that transformers
has no class for (Kimi-Audio) is reached through a server: ``model=openai:NAME base_url=...`` with vLLM, for instance.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.prompts import Message
from wearllama.evaluation.adapters import weights_hash
from wearllama.evaluation.device import default_device
from wearllama.evaluation.mono import AudioLimit, Heard, MonoAdapter
from wearllama.evaluation.output import Output

LIMITS_S: dict[str, float | None] = {
    "qwen2_audio": 30.0, "qwen2_5_omni": 30.0, "gemma3n": 30.0, "qwen3_omni_moe": None, "phi4_multimodal": None,
    "granite_speech": None, "audioflamingo3": 30.0,
}  # fmt: skip
"""Longest recording by model type. Qwen2.5-Omni takes more; 30 s is what the WearVox paper gave it."""

THINKERS = {
    "qwen2_5_omni": "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen3_omni_moe": "Qwen3OmniMoeThinkerForConditionalGeneration",
}
"""Omni models whose text part alone is loaded: nothing here listens to what they would say."""

_TOKEN_STYLE = ("phi4_multimodal", "granite_speech")
"""Their templates take text only, with a placeholder for the sound."""


class HfAudioAdapter(MonoAdapter):
    """A transformers audio model."""

    def __init__(
        self,
        path: str,
        *,
        max_new_tokens: int = 256,
        device: str | None = None,
        dtype: torch.dtype = torch.float32,
        limit: AudioLimit | None = None,
    ) -> None:
        from transformers import AutoConfig

        self.path, self.dtype = path, dtype
        self.device = device or default_device()
        try:
            self.kind = str(AutoConfig.from_pretrained(path).model_type)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"hf:{path}: transformers cannot open it ({str(error).splitlines()[0]}); a model that it has no class "
                "for can be served (vLLM, say) and named as openai:NAME with base_url"
            ) from None
        folder = Path(path)
        name = "/".join(folder.resolve().parts[-2:]) if folder.is_dir() else path
        identity = {"model": f"hf:{name}", "weights": weights_hash(path) if folder.is_dir() else f"hub:{path}"}
        generation = {
            "decoding": "greedy", "max_new_tokens": max_new_tokens, "dtype": str(dtype).removeprefix("torch."),
        }  # fmt: skip
        super().__init__(identity, generation, limit=limit or AudioLimit(seconds=LIMITS_S.get(self.kind, 30.0)))
        self._loaded: list[Any] = []

    def answer(self, items: Sequence[Heard]) -> list[Output]:
        texts, counts = self._generate(items, self.generation["max_new_tokens"])
        return [
            Output(text, {**item.extra, **count}) for text, count, item in zip(texts, counts, items, strict=True)
        ]  # fmt: skip

    def first_token(self, item: Heard) -> float | None:
        started = time.perf_counter()
        self._generate([item], 1)
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - started

    @torch.inference_mode()
    def _generate(self, items: Sequence[Heard], tokens: int) -> tuple[list[str], list[dict[str, int]]]:
        model, processor = self._load()
        inputs = self._inputs(items, processor)
        width = inputs["input_ids"].shape[1]
        out_BS = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, num_beams=1)
        new_BS = out_BS[:, width:]
        pad = processor.tokenizer.pad_token_id
        mask_B = inputs["attention_mask"].sum(1).tolist()
        counts = [
            {"prompt_tokens": int(n), "completion_tokens": int((row != pad).sum())}
            for n, row in zip(mask_B, new_BS, strict=True)
        ]
        said = processor.tokenizer.batch_decode(new_BS, skip_special_tokens=True)
        return [text.strip() for text in said], counts

    def _inputs(self, items: Sequence[Heard], processor: Any) -> dict[str, Any]:
        texts = [self._prompt(item.messages, processor) for item in items]
        sounds = [item.audio_N.numpy() for item in items if item.audio_N is not None]
        self._check(sounds, processor)
        arguments: dict[str, Any] = {}
        if sounds:
            arguments = {"audio": sounds, "audio_kwargs": {"sampling_rate": SAMPLE_RATE}}
        inputs = processor(text=texts, return_tensors="pt", padding=True, **arguments).to(self.device)
        return {name: x.to(self.dtype) if torch.is_floating_point(x) else x for name, x in inputs.items()}

    def _prompt(self, messages: Sequence[Message], processor: Any) -> str:
        turns = [{**m, "content": self._content(m["content"], processor)} for m in messages]
        return str(processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def _content(self, content: Any, processor: Any) -> Any:
        if self.kind in _TOKEN_STYLE:
            return content if isinstance(content, str) else processor.audio_token
        part = {"type": "text", "text": content} if isinstance(content, str) else {"type": "audio", "audio": "clip"}
        return [part]

    def _check(self, sounds: Sequence[Any], processor: Any) -> None:
        """Feature extractors cut silently at their own length: that would be a wrong score, so it is an error."""
        extractor = processor.feature_extractor
        rate = getattr(extractor, "sampling_rate", SAMPLE_RATE)
        if rate != SAMPLE_RATE:
            raise ValueError(f"hf:{self.path}: its front end takes {rate} Hz, the recordings have {SAMPLE_RATE} Hz")
        most = getattr(extractor, "n_samples", None)
        longest = max(map(len, sounds), default=0)
        if most is not None and longest > most:
            raise ValueError(
                f"hf:{self.path}: {longest / SAMPLE_RATE:.1f} s of sound, its front end cuts at "
                f"{most / SAMPLE_RATE:g} s; set max_audio_seconds={most / SAMPLE_RATE:g}"
            )

    def _load(self) -> list[Any]:
        if not self._loaded:
            import transformers

            processor = transformers.AutoProcessor.from_pretrained(self.path)
            processor.tokenizer.padding_side = "left"
            if processor.tokenizer.pad_token_id is None:
                processor.tokenizer.pad_token = processor.tokenizer.eos_token
            name = THINKERS.get(self.kind, "AutoModelForMultimodalLM")
            model = getattr(transformers, name).from_pretrained(self.path, dtype=self.dtype)
            self._loaded.extend((model.to(self.device).eval(), processor))
        return self._loaded
