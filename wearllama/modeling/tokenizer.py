"""Tokenizers: a small byte-level BPE of our own, and the tokens every tokenizer needs added.

Any text survives byte-level BPE.  Words keep their underscores, so that a frequent tool name is one token; digits
stand alone, so that times and amounts are spelled out.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

AUDIO, AUDIO_START, AUDIO_END = "<|audio|>", "<|audio_start|>", "<|audio_end|>"
MUTE, TOOL_OPEN, TOOL_CLOSE = "[Mute]", "<|TOOL|>", "</|TOOL|>"
PAD = "<|pad|>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"

AUDIO_TOKENS = (AUDIO, AUDIO_START, AUDIO_END)
"""Never part of an output: dropped when decoding."""
ACTION_TOKENS = (MUTE, TOOL_OPEN, TOOL_CLOSE)
"""Part of outputs: one token each, kept when decoding."""

WORDS = r" ?\p{N}| ?[\p{L}\p{M}_']+| ?[^\s\p{L}\p{M}\p{N}_']+|\s+"

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""One token a turn: at the demo's scale every prompt token costs as much as 40 ms of speech."""


class TokenIds(NamedTuple):
    """Ids that the model and the processor look up."""

    audio: int
    audio_start: int
    audio_end: int
    mute: int
    eos: int
    pad: int


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with this project's tokens and chat template.

    Args:
        texts: training texts: commands, answers, prompts and targets, in the proportions they will be used.
        vocab_size: all tokens, the 256 bytes and the special ones included.
    """
    special = [PAD, END, SYSTEM, USER, ASSISTANT, *AUDIO_TOKENS, *ACTION_TOKENS]
    if vocab_size < 256 + len(special):
        raise ValueError(f"vocab_size is {vocab_size}, wanted at least {256 + len(special)}: bytes and special tokens")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator((_without_special(text, special) for text in texts), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_own_tokens_not_special(backend), pad_token=PAD, eos_token=END, padding_side="right"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [SYSTEM, USER, ASSISTANT, *AUDIO_TOKENS]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def add_project_tokens(tokenizer: PreTrainedTokenizerBase) -> int:
    """Add what is missing of the audio, action and pad tokens to a pretrained tokenizer; returns how many were added.

    The pad token ends up distinct from eos: a pad that is masked from the loss must not mask the end of every answer.
    """
    before = len(tokenizer)
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in AUDIO_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ACTION_TOKENS])
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.add_special_tokens({"pad_token": PAD})
    return len(tokenizer) - before


def token_ids(tokenizer: PreTrainedTokenizerBase) -> TokenIds:
    """The ids in question; ValueError where the tokenizer lacks one or pads with its eos."""
    missing = [token for token in (*AUDIO_TOKENS, MUTE) if len(tokenizer.encode(token, add_special_tokens=False)) != 1]
    if missing:
        raise ValueError(f"tokenizer does not know {missing} as single tokens; call add_project_tokens first")
    if tokenizer.eos_token_id is None or tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        raise ValueError(
            f"tokenizer needs an eos and another pad, found eos {tokenizer.eos_token!r} and pad {tokenizer.pad_token!r}"
        )
    audio, start, end, mute = (tokenizer.encode(token, add_special_tokens=False)[0] for token in (*AUDIO_TOKENS, MUTE))
    return TokenIds(audio, start, end, mute, tokenizer.eos_token_id, tokenizer.pad_token_id)


def _without_special(text: str, special: list[str]) -> str:
    """Merges must not be learnt from the letters of tokens that never reach the merges."""
    for token in special:
        text = text.replace(token, " ")
    return text


def _own_tokens_not_special(backend: Tokenizer) -> Tokenizer:
    """The trainer marks every given token special; those of outputs must survive ``skip_special_tokens``."""
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in ACTION_TOKENS])
    return backend
