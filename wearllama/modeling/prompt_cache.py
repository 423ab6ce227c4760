"""The decoder's side of streaming: keys and values that grow, and prompts whose beginning is computed once.

Shape suffixes: P positions, E decoder width, V vocabulary.
"""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration


class Decoding:
    """One row of the decoder that is fed piece by piece."""

    def __init__(self, model: WearLlamaForConditionalGeneration, cache: DynamicCache) -> None:
        self.model, self.cache = model, cache
        # Transformers 5.24 renames the argument; later ones will know the new name only.
        names = inspect.signature(model.decoder.get_decoder().forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    @property
    def length(self) -> int:
        """Positions fed so far."""
        return int(self.cache.get_seq_length())

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (1, P, E) of tokens."""
        return self.model.embed_tokens(torch.tensor([list(ids)], device=self.model.device))

    def feed(self, embeds_1PE: Tensor, *, logits: bool = True) -> Tensor:
        """Take in positions; the logits (V,) after the last of them, or without ``logits`` its hidden state (E,)."""
        outputs = self.model.decoder.get_decoder()(
            inputs_embeds=embeds_1PE, use_cache=True, **{self._cache_name: self.cache}
        )
        hidden_E = outputs[0][0, -1]
        return self.model.logits(hidden_E) if logits else hidden_E

    def peek(self, ids: Sequence[int]) -> Tensor:
        """The logits (V,) after some tokens, which are then forgotten again."""
        logits_V = self.feed(self.embed(ids))
        self.cache.crop(-len(ids))
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
        return Decoding(self.model, copy.deepcopy(self._kept[key]))
