"""Completions from a server with the OpenAI API (vLLM, SGLang, ...), for policies too large for one process.

Every condition is one request with ``n`` completions.  Sound travels as a WAV of the encoded channels (c_0, c_x).
Token ids are taken from the answer where the server gives them (vLLM: ``return_token_ids``), else its text is
tokenised again, which may cut words elsewhere than the sampler did: log the gap (``rollout_gap``) and look at it.
"""

import base64
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import soundfile
import torch
from torch import Tensor

from wearllama.audio.timebase import SAMPLE_RATE
from wearllama.data.dataset import Item
from wearllama.evaluation.chat import EndpointConfig
from wearllama.evaluation.endpoints import EndpointClient, read_object
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration
from wearllama.modeling.processing import WearLlamaProcessor
from wearllama.training.grpo_config import RolloutConfig
from wearllama.training.sampling import Rollouts

PARALLEL = 16
"""Requests under way at once."""
KEY = "WEARLLAMA_ROLLOUT_KEY"
"""Environment variable with the server's key, where it wants one."""


class OpenAIEngine:
    """Samples from ``base_url`` and tells the server at ``sync_url`` where each new set of weights lies."""

    def __init__(
        self,
        model: WearLlamaForConditionalGeneration,
        processor: WearLlamaProcessor,
        config: RolloutConfig,
        *,
        sync_dir: Path,
        temperature: float,
        max_completion_length: int,
    ) -> None:
        self.model, self.processor, self.config = model, processor, config
        self.sync_dir = sync_dir
        self.temperature, self.max_completion_length = temperature, max_completion_length
        endpoint = EndpointConfig(
            base_url=config.base_url, api_key_env=KEY, timeout_s=config.timeout_s, retries=config.retries,
            concurrency=PARALLEL,
        )  # fmt: skip
        self._client = EndpointClient(endpoint, read_object)

    def sample(self, items: Sequence[Item], count: int, seed: int) -> Rollouts:
        """As :class:`RolloutEngine` has it; ValueError names a server that fails or answers something else."""
        replies = self._client.ask_all([
            lambda at=at, item=item: self._body(item, count, seed + at)  # type: ignore[misc]
            for at, item in enumerate(items)
        ])  # fmt: skip
        if errors := [reply.error for reply in replies if reply.error]:
            raise ValueError(f"rollout server {self.config.base_url}: {errors[0]}")
        rows = [row for reply in replies for row in self._choices(reply.text, count)]
        longest = max(len(ids) for ids, _, _ in rows)
        tokens_NT = torch.full((len(rows), longest), self.processor.ids.pad)
        mask_NT = torch.zeros(len(rows), longest, dtype=torch.bool)
        logps_NT = torch.zeros(len(rows), longest)
        for row, (ids, logps, _) in enumerate(rows):
            tokens_NT[row, : len(ids)] = torch.tensor(ids)
            mask_NT[row, : len(ids)] = True
            logps_NT[row, : len(ids)] = torch.tensor(logps)
        prompt_N = torch.arange(len(items)).repeat_interleave(count)
        return Rollouts(tokens_NT, mask_NT, logps_NT, prompt_N, torch.tensor([ended for _, _, ended in rows]))

    def sync(self, step: int) -> None:
        """Rank 0 writes the weights and tells the server; the others wait until it has them."""
        if int(os.environ.get("RANK", "0")) == 0:
            folder = self.sync_dir / f"step-{step}"
            self.model.save_pretrained(folder)
            self.processor.save_pretrained(folder)
            assert self.config.sync_url is not None, "the config asks for one"
            self._tell(self.config.sync_url, folder.resolve())
            for old in self.sync_dir.glob("step-*"):
                if old != folder:
                    for file in old.iterdir():
                        file.unlink()
                    old.rmdir()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.barrier()

    def _body(self, item: Item, count: int, seed: int) -> dict[str, Any]:
        return {
            "model": self.config.model,
            "messages": [_message(turn, item.audio) for turn in item.example.messages],
            "n": count,
            "temperature": self.temperature,
            "top_p": 1.0,
            "max_tokens": self.max_completion_length,
            "seed": seed % 2**31,
            "logprobs": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }

    def _choices(self, text: str, count: int) -> list[tuple[list[int], list[float], bool]]:
        """(token ids, log-probabilities, whether it ended) of every completion in a reply."""
        choices = json.loads(text).get("choices")
        if not isinstance(choices, list) or len(choices) != count:
            raise ValueError(f"rollout server {self.config.base_url}: wanted {count} choices, found {text[:200]}")
        return [self._choice(choice) for choice in choices]

    def _choice(self, choice: dict[str, Any]) -> tuple[list[int], list[float], bool]:
        ended = choice.get("finish_reason") == "stop"
        ids = choice.get("token_ids")
        if ids is None:
            ids = self.processor.encode_target(choice["message"]["content"] or "")
            ids = ids if ended else ids[:-1]
        elif ended and (not ids or ids[-1] != self.processor.ids.eos):
            ids = [*ids, self.processor.ids.eos]
        ids = ids or [self.processor.ids.eos]
        told = [entry["logprob"] for entry in ((choice.get("logprobs") or {}).get("content") or ())]
        logps = told if len(told) == len(ids) else [math.nan] * len(ids)
        return list(ids), logps, ended

    def _tell(self, url: str, folder: Path) -> None:
        """The server reads the weights while this request lasts; never repeated by itself."""
        headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
        try:
            told = httpx.post(url, json={"path": str(folder)}, headers=headers, timeout=self.config.timeout_s)
            told.raise_for_status()
        except httpx.HTTPError as error:
            raise ValueError(f"rollout server {url}: {error}") from None


def _message(turn: dict[str, Any], audio: tuple[Tensor, Tensor] | None) -> dict[str, Any]:
    """A turn as the API has it: sound as base64 WAV."""
    if isinstance(turn["content"], str):
        return dict(turn)
    assert audio is not None, "a turn of sound comes with sound"
    file = io.BytesIO()
    soundfile.write(file, torch.stack(audio, dim=1).numpy(), SAMPLE_RATE, format="WAV", subtype="FLOAT")
    data = base64.b64encode(file.getvalue()).decode()
    return {"role": turn["role"], "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}
