"""The decoder's side of streaming: keys and values that grow, and prompts whose beginning is computed once.

Shape suffixes: P positions, E decoder width, V vocabulary.
"""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.llama.modeling_llama import LlamaModel

from wearllama.modeling import llama_steps
from wearllama.modeling.kv_cache import RoomyLayer, make_room
from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration, decoder_body

ROOM = 1024
"""Positions that a session sets memory aside for; 40 s of two channels. Longer ones are copied once on their way."""


class Decoding:
    """One row of the decoder that is fed piece by piece."""

    def __init__(self, model: WearLlamaForConditionalGeneration, cache: DynamicCache) -> None:
        self.model, self.cache = model, cache
        # Transformers 5.24 renames the argument; later ones will know the new name only.
        names = inspect.signature(decoder_body(model.decoder).forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        # Layers with a window (Llama 4's chunks) have let go of what would have to come back.
        self._forgets = all(type(layer) is RoomyLayer for layer in cache.layers)

    @property
    def length(self) -> int:
        """Positions fed so far."""
        return int(self.cache.get_seq_length())

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (1, P, E) of tokens."""
        return self.model.embed_tokens(torch.tensor([list(ids)], device=self.model.device))

    def feed(self, embeds_1PE: Tensor, *, logits: bool = True) -> Tensor:
        """Take in positions; the logits (V,) after the last of them, or without ``logits`` its hidden state (E,)."""
        hidden_E = self._read(embeds_1PE)[0, -1]
        return self.model.logits(hidden_E) if logits else hidden_E

    def _read(self, embeds_1PE: Tensor) -> Tensor:
        """Hidden states (1, P, E) behind what was read so far."""
        body = decoder_body(self.model.decoder)
        if self._forgets and llama_steps.fits(body):
            return llama_steps.read(cast(LlamaModel, body), embeds_1PE, self.cache)
        cached = {self._cache_name: self.cache}
        hidden_1PE: Tensor = body(inputs_embeds=embeds_1PE, use_cache=True, **cached)[0]
        return hidden_1PE

    def peek(self, embeds_1PE: Tensor) -> Tensor:
        """The logits (V,) after some positions, which are then forgotten again."""
        if self._forgets:
            logits_V = self.feed(embeds_1PE)
            self.cache.crop(-embeds_1PE.shape[1])
            return logits_V
        kept, self.cache = self.cache, copy.deepcopy(self.cache)
        logits_V = self.feed(embeds_1PE)
        self.cache = kept
        return logits_V

    def greedy(self, logits_V: Tensor, max_new_tokens: int) -> Iterator[int]:
        """The likeliest tokens from ``logits_V`` on, up to an end of ``generation_config`` (given out as well)."""
        ends = self.model.generation_config.eos_token_id
        ends = set(ends) if isinstance(ends, list) else {ends}
        for number in range(max_new_tokens):
            token = int(logits_V.argmax())
            yield token
            if token in ends or number == max_new_tokens - 1:
                return
            logits_V = self.feed(self.embed([token]))


class PromptCache:
    """Keys and values of prompts' beginnings, computed once and copied for every session that starts with them.

    Make a new one when the model's weights have changed.

    Args:
        model: whose decoder reads the prompts.
        size: how many different beginnings are kept; the one unused for longest goes first.
    """

    def __init__(self, model: WearLlamaForConditionalGeneration, size: int = 8) -> None:
        if size < 1:
            raise ValueError(f"size is {size}, wanted 1 or more")
        self.model, self.size = model, size
        self._kept: OrderedDict[tuple[int, ...], DynamicCache] = OrderedDict()

    @torch.inference_mode()
    def start(self, ids: Sequence[int]) -> Decoding:
        """A decoder that has read ``ids``; what it is fed afterwards stays its own."""
        key = tuple(ids)
        if key not in self._kept:
            decoding = Decoding(self.model, DynamicCache(config=self.model.config.decoder_config()))
            if key:
                decoding.feed(decoding.embed(key), logits=False)
            self._kept[key] = decoding.cache
            if len(self._kept) > self.size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        cache = copy.copy(self._kept[key])
        make_room(cache, ROOM)
        cache.layers = [layer if type(layer) is RoomyLayer else copy.deepcopy(layer) for layer in cache.layers]
        return Decoding(self.model, cache)
