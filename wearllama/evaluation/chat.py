"""Text models behind one face, local or remote: what judges, cascades and text benchmarks talk to.

A conversation is a list of ``{"role", "content"}``; content is text, or parts where a model takes sound.  A model is
named ``openai:NAME`` (any OpenAI-compatible server), ``hf:PATH_OR_ID`` (a transformers causal model) or ``smollm2``
(the packaged one).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from wearllama.unread import refuse_unread

Conversation: TypeAlias = Sequence[Mapping[str, Any]]
UNREAD = {"openai": ("device", "dtype", "batch_size"), "hf": ("endpoint",), "smollm2": ("endpoint",)}
"""Settings that a kind of text model does not read: refused where they are given."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of a model, or why there is none."""

    text: str = ""
    error: str = ""
    """Why there is no text; empty where there is."""
    transient: bool = False
    """The error may pass (network, server, budget): ask again another time, never count it."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """``prompt_tokens`` and ``completion_tokens`` where the model tells."""
    seconds: float = 0.0
    """From the first attempt to the end, waiting included."""
    attempts: int = 1
    served_by: str = ""
    """Name under which a server says that it answered."""


OnReply: TypeAlias = Callable[[int, Reply], None]
"""Called in the caller's thread with an index and its reply as soon as the reply is there."""


class ChatModel(Protocol):
    """A model that continues conversations."""

    @property
    def identity(self) -> dict[str, str]:
        """``model`` and ``weights`` (a hash, or the server's address)."""

    @property
    def generation(self) -> dict[str, Any]:
        """Settings that decide an answer."""

    @property
    def at_once(self) -> int:
        """Conversations that it works on at the same time."""

    def complete(self, conversations: Sequence[Conversation], on_reply: OnReply | None = None) -> list[Reply]:
        """One reply a conversation, in order; never raises for a single conversation."""

    def first_token_seconds(self, conversation: Conversation) -> float | None:
        """Seconds to the first token of an answer, alone; None where it cannot be told."""


@dataclass(kw_only=True)
class EndpointConfig:
    """An OpenAI-compatible server and how it is asked."""

    base_url: str | None = None
    """Address up to and with ``/v1``; by default OpenAI's own."""
    label: str | None = None
    """Stands for the address in keys, for servers that move (another port, another host) and stay the same."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the key; a local server needs none."""
    temperature: float | None = 0.0
    """None leaves the field out, for models that refuse it."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """How the server calls the longest reply."""
    audio_part: Literal["input_audio", "audio_url"] = "input_audio"
    """How a recording is sent: OpenAI's part, or a data: URI (older vLLM servers)."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields of the request (``+endpoint.extra.modalities=[text]``); part of a prediction's key."""
    timeout_s: float = 120.0
    """Longest request, from sending to the last byte."""
    retries: int = 6
    """Attempts after the first one."""
    backoff_s: float = 1.0
    """Pause before the second attempt; doubled each time, with jitter; the server's Retry-After goes first."""
    backoff_max_s: float = 60.0
    """Longest pause."""
    concurrency: int = 8
    """Requests in flight."""
    budget_tokens: int | None = None
    """Tokens that one launch may spend; the run stops cleanly when they are gone."""
    budget_usd: float | None = None
    """The same in money; needs the two prices."""
    usd_per_million_input: float = 0.0
    """Price of a million prompt tokens."""
    usd_per_million_output: float = 0.0
    """Price of a million completion tokens."""

    def __post_init__(self) -> None:
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url is {self.base_url!r}, wanted http://... or https://...")
        if self.timeout_s <= 0 or self.backoff_s < 0 or self.backoff_max_s < 0:
            raise ValueError(f"timeout_s {self.timeout_s}, backoff_s {self.backoff_s}: wanted positive seconds")
        if self.retries < 0 or self.concurrency < 1:
            raise ValueError(f"retries {self.retries} or concurrency {self.concurrency} is too small")
        if self.budget_usd is not None and not (self.usd_per_million_input or self.usd_per_million_output):
            raise ValueError("budget_usd needs usd_per_million_input and usd_per_million_output")

    def usd(self, tokens: Mapping[str, float]) -> float:
        """What ``prompt_tokens`` and ``completion_tokens`` cost by the configured prices."""
        prompt, completion = tokens.get("prompt_tokens", 0), tokens.get("completion_tokens", 0)
        return (prompt * self.usd_per_million_input + completion * self.usd_per_million_output) / 1e6


@dataclass(kw_only=True)
class ChatConfig:
    """A text model and how it answers."""

    model: str | None = None
    """``openai:NAME``, ``hf:PATH_OR_ID``, ``smollm2``; None for none."""
    max_new_tokens: int = 256
    """Longest reply."""
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    """For ``openai:``."""
    device: str | None = None
    """For local models: ``cpu``, ``cuda:0``, ...; by default a GPU where there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """For local models: of the weights in memory."""
    batch_size: int = 8
    """For local models: conversations decoded together."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.batch_size < 1:
            raise ValueError(f"max_new_tokens {self.max_new_tokens} or batch_size {self.batch_size} is too small")
        if self.model is not None:
            kind, _ = split_model(self.model, ("openai", "hf", "smollm2"))
            refuse_unread(self, UNREAD[kind], f"by {kind} text models")


def split_model(name: str, kinds: Sequence[str]) -> tuple[str, str]:
    """``kind:rest`` -> (kind, rest); ValueError names the kinds that are known."""
    kind, _, rest = name.partition(":")
    if kind not in kinds or (not rest and kind not in ("smollm2", "cascade")):
        wanted = ", ".join(k if k in ("smollm2", "cascade") else f"{k}:NAME" for k in kinds)
        raise ValueError(f"model is {name!r}, wanted one of {wanted}")
    return kind, rest


def open_chat(config: ChatConfig) -> ChatModel:
    """The model that a config names; weights are loaded when first needed."""
    if config.model is None:
        raise ValueError(
            "no text model is named: set its key model (chat.model, llm.model, ...) to openai:NAME, hf:PATH_OR_ID or "
            "smollm2"
        )
    kind, name = split_model(config.model, ("openai", "hf", "smollm2"))
    if kind == "openai":
        from wearllama.evaluation.endpoints import EndpointChat

        return EndpointChat(name, config.endpoint, max_new_tokens=config.max_new_tokens)
    from wearllama.evaluation.local_chat import LocalChat

    return LocalChat(
        name or None, max_new_tokens=config.max_new_tokens, device=config.device, dtype=config.dtype,
        batch_size=config.batch_size,
    )  # fmt: skip
