"""The policy: log-probabilities of completions, with each condition's sound encoded once and its prompt read once.

Completions find their condition by an explicit index, never by their place: ``prompt_N[n]`` is the row of ``prompts``
that completion ``n`` answers.

Shape suffixes: P conditions, S prompt positions (padded on the left), N completions, T completion tokens (padded on the
right), E decoder width, V vocabulary, M real completion tokens.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wearllama.modeling.modeling_wearllama import WearLlamaForConditionalGeneration, decoder_body

Prompts = Mapping[str, Tensor]
"""What the processor gives for P conditions without targets: ``input_ids`` and ``attention_mask`` (P, S), and the
features of their clips, if any."""


class Prefix(NamedTuple):
    """Prompts that have passed the decoder."""

    last_PE: Tensor
    """Hidden state behind each prompt: it predicts the first token."""
    cache: Any
    """Keys and values, P rows; of ``transformers``."""
    cache_name: str
    """What the decoder calls them, which depends on the version of transformers."""
    mask_PS: Tensor
    length_P: Tensor
    """Real positions of each prompt."""

    def expand(self, index: Tensor) -> "Prefix":
        """The same for the rows ``index`` (N,); the cache is changed in place, so the old prefix is used up."""
        self.cache.batch_select_indices(index)
        return Prefix(self.last_PE[index], self.cache, self.cache_name, self.mask_PS[index], self.length_P[index])


def read_prompts(model: WearLlamaForConditionalGeneration, prompts: Prompts) -> Prefix:
    """Encode the sound of P conditions and pass their prompts through the decoder, all once."""
    embeds_PSE = embed_prompts(model, prompts)
    mask_PS = prompts["attention_mask"]
    outputs = decoder_body(model.decoder)(
        inputs_embeds=embeds_PSE,
        attention_mask=mask_PS,
        position_ids=_positions(mask_PS),
        use_cache=True,
        return_dict=True,
    )
    name = "cache" if "cache" in outputs else "past_key_values"
    return Prefix(outputs[0][:, -1], outputs[name], name, mask_PS, mask_PS.sum(1))


def embed_prompts(model: WearLlamaForConditionalGeneration, prompts: Prompts) -> Tensor:
    """Decoder inputs (P, S, E) of the conditions; every clip passes the encoder once."""
    return model.embed_inputs(prompts["input_ids"], prompts.get("input_features"), prompts.get("feature_lengths"))


def extend(
    model: WearLlamaForConditionalGeneration, prefix: Prefix, tokens_NT: Tensor, mask: Tensor, positions_NT: Tensor
) -> Tensor:
    """Hidden states (N, T, E) of tokens behind a prefix; its cache grows by them.

    Args:
        mask: (N, S + ... + T), 1 on everything the tokens may see, causality aside; or (N, 1, T, S + ... + T), added to
            the scores of attention.
    """
    outputs = decoder_body(model.decoder)(
        inputs_embeds=model.embed_tokens(tokens_NT),
        attention_mask=mask,
        position_ids=positions_NT,
        use_cache=True,
        return_dict=True,
        **{prefix.cache_name: prefix.cache},
    )
    return outputs[0]


class Policy(nn.Module):
    """WearLlama as a module whose forward pass is what GRPO differentiates; what trainers wrap (DDP) is this."""

    def __init__(
        self, model: WearLlamaForConditionalGeneration, *, temperature: float = 1.0, share_prefix: bool = True
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.share_prefix = share_prefix

    def forward(self, prompts: Prompts, tokens_NT: Tensor, mask_NT: Tensor, prompt_N: Tensor) -> Tensor:
        """Log-probabilities (N, T) of the tokens at the sampling temperature; 0 where ``mask_NT`` is 0."""
        count = len(prompts["input_ids"])
        if prompt_N.shape != tokens_NT.shape[:1] or int(prompt_N.max()) >= count or int(prompt_N.min()) < 0:
            raise ValueError(f"prompt_N must give one of {count} conditions to each of {len(tokens_NT)} completions")
        hidden_NTE = (self._shared if self.share_prefix else self._repeated)(prompts, tokens_NT, mask_NT, prompt_N)
        real_NT = mask_NT.bool()
        logits_MV = self.model.logits(hidden_NTE[real_NT]).float() / self.temperature
        logps_M = logits_MV.log_softmax(-1).gather(1, tokens_NT[real_NT][:, None])[:, 0]
        return torch.zeros(tokens_NT.shape, device=logps_M.device).masked_scatter(real_NT, logps_M)

    def _shared(self, prompts: Prompts, tokens_NT: Tensor, mask_NT: Tensor, prompt_N: Tensor) -> Tensor:
        prefix = read_prompts(self.model, prompts).expand(prompt_N)
        first_N1E = prefix.last_PE[:, None]
        if tokens_NT.shape[1] == 1:
            return first_N1E
        mask_NX = torch.cat((prefix.mask_PS, mask_NT[:, :-1].to(prefix.mask_PS)), dim=1)
        steps_T = torch.arange(tokens_NT.shape[1] - 1, device=tokens_NT.device)
        positions_NT = prefix.length_P[:, None] + steps_T
        rest_NTE = extend(self.model, prefix, tokens_NT[:, :-1], mask_NX, positions_NT)
        return torch.cat((first_N1E, rest_NTE), dim=1)

    def _repeated(self, prompts: Prompts, tokens_NT: Tensor, mask_NT: Tensor, prompt_N: Tensor) -> Tensor:
        """The plain way, for activation checkpointing (which knows no cache) and as the reference in tests."""
        embeds_NSE = embed_prompts(self.model, prompts)[prompt_N]
        mask_NX = torch.cat((prompts["attention_mask"][prompt_N], mask_NT[:, :-1].to(prompts["attention_mask"])), 1)
        outputs = decoder_body(self.model.decoder)(
            inputs_embeds=torch.cat((embeds_NSE, self.model.embed_tokens(tokens_NT[:, :-1])), dim=1),
            attention_mask=mask_NX,
            position_ids=_positions(mask_NX),
            use_cache=False,
            return_dict=True,
        )
        return outputs[0][:, embeds_NSE.shape[1] - 1 :]


def _positions(mask_BS: Tensor) -> Tensor:
    """Positions that start at 0 with the first real token of each row."""
    return (mask_BS.long().cumsum(1) - 1).clamp_min(0)
