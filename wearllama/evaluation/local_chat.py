"""A transformers causal model as a chat model: greedy, in batches sorted by length."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jinja2.exceptions import TemplateError

from wearllama.data.assets import cache_root
from wearllama.evaluation.adapters import weights_hash
from wearllama.evaluation.chat import Conversation, OnReply, Reply
from wearllama.evaluation.device import default_device


def smollm2_folder() -> Path:
    """The packaged SmolLM2, converted; ValueError where that has not been done."""
    folder = cache_root() / "smollm2"
    if not (folder / "config.json").is_file():
        raise ValueError(f"no {folder}: run `python tools/convert_smollm2.py` first")
    return folder


class LocalChat:
    """A causal language model with a chat template, by hub id or path; None for the packaged SmolLM2."""

    def __init__(
        self,
        path: str | None,
        *,
        max_new_tokens: int = 256,
        device: str | None = None,
        dtype: str = "float32",
        batch_size: int = 8,
    ) -> None:
        self.path = str(smollm2_folder()) if path is None else path
        self.device = device or default_device()
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.at_once = batch_size
        self._loaded: list[Any] = []
        is_folder = Path(self.path).is_dir()
        name = "smollm2" if path is None else "/".join(Path(path).resolve().parts[-2:]) if is_folder else path
        self.identity = {"model": f"hf:{name}", "weights": weights_hash(self.path) if is_folder else f"hub:{self.path}"}
        self.generation: dict[str, Any] = {"decoding": "greedy", "max_new_tokens": max_new_tokens, "dtype": dtype}

    def complete(self, conversations: Sequence[Conversation], on_reply: OnReply | None = None) -> list[Reply]:
        """One reply a conversation, in order; one that exceeds the model's context is an error of its own."""
        model, tokenizer = self._load()
        prompts = [self._ids(conversation) for conversation in conversations]
        order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        replies: dict[int, Reply] = {}
        fitting = []
        for index in order:
            size = len(prompts[index]) + self.generation["max_new_tokens"]
            if limit is not None and size > limit:
                words = f"{len(prompts[index])} prompt tokens and the reply exceed the model's context of {limit}"
                replies[index] = Reply(error=words, attempts=0)
            else:
                fitting.append(index)
        for start in range(0, len(fitting), self.at_once):
            batch = fitting[start : start + self.at_once]
            replies |= dict(zip(batch, self._generate([prompts[i] for i in batch], model, tokenizer), strict=True))
            if on_reply is not None:
                for index in batch:
                    on_reply(index, replies[index])
        for index in sorted(set(order) - set(fitting)):
            if on_reply is not None:
                on_reply(index, replies[index])
        return [replies[index] for index in range(len(prompts))]

    def first_token_seconds(self, conversation: Conversation) -> float | None:
        """Seconds to the first token, tokenisation included."""
        model, tokenizer = self._load()
        started = time.perf_counter()
        self._generate([self._ids(conversation)], model, tokenizer, tokens=1)
        return time.perf_counter() - started

    def _ids(self, conversation: Conversation) -> list[int]:
        _, tokenizer = self._load()
        turns = [dict(turn) for turn in conversation]
        try:
            text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except TemplateError:
            # Some templates insist on alternating turns.
            text = tokenizer.apply_chat_template(merge_turns(turns), tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[list[int]], model: Any, tokenizer: Any, tokens: int | None = None
    ) -> list[Reply]:
        started = time.perf_counter()
        width = max(map(len, prompts))
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        ids_BT = torch.tensor([[pad] * (width - len(ids)) + ids for ids in prompts], device=self.device)
        mask_BT = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=self.device)
        out_BS = model.generate(
            input_ids=ids_BT, attention_mask=mask_BT, do_sample=False, num_beams=1, pad_token_id=pad,
            max_new_tokens=tokens or self.generation["max_new_tokens"], temperature=None, top_p=None, top_k=None,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        replies = []
        for ids, new_S in zip(prompts, out_BS[:, width:].tolist(), strict=True):
            text = tokenizer.decode(new_S, skip_special_tokens=True).strip()
            count = len(new_S) if pad not in new_S else new_S.index(pad) + 1
            usage = {"prompt_tokens": len(ids), "completion_tokens": count}
            replies.append(Reply(text=text, usage=usage, seconds=seconds, served_by=self.identity["model"]))
        return replies

    def _load(self) -> list[Any]:
        if not self._loaded:
            from transformers import AutoModelForCausalLM, AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(self.path)
            if tokenizer.chat_template is None:
                raise ValueError(f"{self.path}: its tokenizer has no chat template, which a chat model needs")
            model: Any = AutoModelForCausalLM.from_pretrained(self.path, dtype=self.dtype)
            model = model.to(self.device).eval()
            self._loaded.extend((model, tokenizer))
        return self._loaded


def merge_turns(conversation: Conversation) -> list[dict[str, Any]]:
    """Consecutive turns of one role as one, joined by a line break."""
    merged: list[dict[str, Any]] = []
    for turn in conversation:
        if merged and merged[-1]["role"] == turn["role"]:
            merged[-1]["content"] += f"\n{turn['content']}"
        else:
            merged.append(dict(turn))
    return merged
