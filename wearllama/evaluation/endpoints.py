"""OpenAI-compatible servers: a client that survives what servers do, and the text model on top of it.

What may pass (no connection, time-out, 408, 409, 425, 429, 5xx, a body that is no answer) is tried again with growing
pauses; what will not (400, 413, 422: this item) is an error of the item; a wrong key, address or model name (401, 403,
404) ends the run at once.  A server that is gone, or a budget that is spent, ends the work and leaves the rest.
"""

import email.utils
import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import httpx

from wearllama.evaluation.chat import Conversation, EndpointConfig, OnReply, Reply

OPENAI = "https://api.openai.com/v1"
MAX_BODY_BYTES = 1 << 24
_PASSING = frozenset({408, 409, 425, 429})
_MISCONFIGURED = frozenset({401, 403, 404, 405})
_GIVE_UP_AFTER = 10
"""So many items in a row that failed after all retries mean that the server is down."""


class EndpointError(ValueError):
    """The server cannot be used as configured, is gone, or the budget is spent; what was answered is logged."""


class _Passing(Exception):
    """This attempt failed and another may not. ``pause_s`` is the server's own wish; ``lost`` means no connection."""

    def __init__(self, message: str, pause_s: float | None = None, lost: bool = False) -> None:
        super().__init__(message)
        self.pause_s, self.lost = pause_s, lost


class EndpointClient:
    """POSTs chat completions: concurrent, patient, within a budget. Safe to use from several threads."""

    def __init__(self, config: EndpointConfig, read: Callable[[bytes], Reply] | None = None) -> None:
        """``read`` takes a body that answers with 200 apart; :func:`read_completion` by default."""
        self.config, self._parse = config, read or read_completion
        self.base_url = (config.base_url or OPENAI).rstrip("/")
        self.stopped = ""
        """Why nothing more is sent; empty while all is well."""
        self.spent = {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0}
        self._failures = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        key = os.environ.get(config.api_key_env, "")
        limits = httpx.Limits(max_connections=config.concurrency + 2)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(config.timeout_s, connect=min(10.0, config.timeout_s), pool=None)
        self._http = httpx.Client(headers=headers, limits=limits, timeout=timeout)

    @property
    def usd(self) -> float:
        """Money spent by this launch."""
        return self.config.usd(self.spent)

    def ask_all(self, bodies: Sequence[Callable[[], dict[str, Any]]], on_reply: OnReply | None = None) -> list[Reply]:
        """One reply a body, in order; bodies are made when their turn comes, so that recordings are not all in memory.

        Raises EndpointError where the server refuses the configuration (key, address, model).
        """
        replies: dict[int, Reply] = {}
        pool = ThreadPoolExecutor(self.config.concurrency)
        futures = {pool.submit(self._ask, make): index for index, make in enumerate(bodies)}
        try:
            for future in as_completed(futures):
                index = futures[future]
                replies[index] = future.result()
                if on_reply is not None:
                    on_reply(index, replies[index])
        except BaseException:
            self._stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._stop.clear()
        return [replies[index] for index in range(len(bodies))]

    def first_token_seconds(self, body: dict[str, Any]) -> float | None:
        """Seconds from sending to the first piece of text of a streamed answer, alone; None where none came."""
        started = time.perf_counter()
        deadline = started + self.config.timeout_s
        try:
            with self._http.stream("POST", self._url, json={**body, "stream": True}) as response:
                if response.status_code != 200:
                    return None
                for line in response.iter_lines():
                    if _has_text(line):
                        return time.perf_counter() - started
                    if time.perf_counter() > deadline:
                        return None
        except httpx.HTTPError:
            return None
        return None

    @property
    def _url(self) -> str:
        return f"{self.base_url}/chat/completions"

    def _ask(self, make: Callable[[], dict[str, Any]]) -> Reply:
        if reason := self._refusal():
            return Reply(error=reason, transient=True, attempts=0)
        body, started = make(), time.perf_counter()
        for attempt in range(1, self.config.retries + 2):
            try:
                reply = self._attempt(body)
            except _Passing as error:
                if attempt <= self.config.retries and not self._pause(attempt, error.pause_s) and not self.stopped:
                    continue
                self._count_failure(error)
                return Reply(error=f"{error} ({attempt} attempts)", transient=True, attempts=attempt,
                             seconds=time.perf_counter() - started)  # fmt: skip
            self._count(reply)
            seconds = time.perf_counter() - started
            return Reply(**{**reply.__dict__, "attempts": attempt, "seconds": seconds})
        raise AssertionError("the last attempt returns")

    def _attempt(self, body: dict[str, Any]) -> Reply:
        deadline = time.perf_counter() + self.config.timeout_s
        content = bytearray()
        try:
            with self._http.stream("POST", self._url, json=body) as response:
                for chunk in response.iter_bytes():
                    content += chunk
                    if time.perf_counter() > deadline:  # a server may drip for ever without a single long silence
                        raise _Passing(f"{self.base_url}: no whole answer in {self.config.timeout_s:g} s")
                    if len(content) > MAX_BODY_BYTES:
                        raise _Passing(f"{self.base_url}: an answer of more than {MAX_BODY_BYTES} bytes")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise _Passing(f"{self.base_url}: no connection ({error})", lost=True) from None
        except httpx.HTTPError as error:
            raise _Passing(f"{self.base_url}: {type(error).__name__} ({error})") from None
        return self._read(response, bytes(content))

    def _read(self, response: httpx.Response, content: bytes) -> Reply:
        status, words = response.status_code, content[:200].decode("utf-8", "replace")
        if status in _MISCONFIGURED:
            raise EndpointError(f"{self._url}: HTTP {status}: {words!r}; check address, model and {self._key_name}")
        if status in _PASSING or status >= 500:
            raise _Passing(f"HTTP {status}: {words!r}", pause_s=_retry_after(response.headers.get("retry-after")))
        if status != 200:
            return Reply(error=f"HTTP {status}: {words!r}")
        return self._parse(content)

    @property
    def _key_name(self) -> str:
        return f"the key in {self.config.api_key_env}"

    def _refusal(self) -> str:
        """Why nothing may be sent now; "" where something may."""
        with self._lock:
            config, tokens = self.config, self.spent["prompt_tokens"] + self.spent["completion_tokens"]
            if config.budget_tokens is not None and tokens >= config.budget_tokens:
                self.stopped = f"budget_tokens={config.budget_tokens} is spent ({tokens} tokens)"
            if config.budget_usd is not None and self.usd >= config.budget_usd:
                self.stopped = f"budget_usd={config.budget_usd:g} is spent ({self.usd:.4f} USD)"
            return self.stopped or ("stopped" if self._stop.is_set() else "")

    def _pause(self, attempt: int, wish_s: float | None) -> bool:
        """Wait before the next attempt; True where the work was stopped meanwhile."""
        pause = min(self.config.backoff_max_s, self.config.backoff_s * 2 ** (attempt - 1))
        pause *= 0.5 + 0.5 * random.random()
        return self._stop.wait(pause if wish_s is None else max(pause, min(wish_s, self.config.backoff_max_s)))

    def _count(self, reply: Reply) -> None:
        with self._lock:
            self._failures = 0
            self.spent["requests"] += 1
            for name, count in reply.usage.items():
                self.spent[name] += count

    def _count_failure(self, error: _Passing) -> None:
        with self._lock:
            self._failures += 1
            if error.lost or self._failures >= _GIVE_UP_AFTER:
                self.stopped = self.stopped or str(error)


def read_completion(content: bytes) -> Reply:
    """The answer in a response's body; :class:`_Passing` where it is none (truncated, not JSON, without choices)."""
    try:
        value = json.loads(content)
        choice = value["choices"][0]
        message = choice["message"]
        text = message["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise _Passing(f"no chat completion: {content[:200].decode('utf-8', 'replace')!r}") from None
    if isinstance(text, list):
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
    if text is None:
        text = message.get("refusal") or ""
    if not isinstance(text, str):
        raise _Passing(f"no chat completion: content is {type(text).__name__}")
    usage = value.get("usage") if isinstance(value.get("usage"), Mapping) else {}
    counts = {
        name: usage[name]
        for name in ("prompt_tokens", "completion_tokens")
        if isinstance(usage.get(name), int) and usage[name] >= 0
    }
    # Lone surrogates can be spelt in JSON, and no file takes them.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return Reply(text=text, usage=counts, served_by=str(value.get("model") or ""))


def read_object(content: bytes) -> Reply:
    """A body as it came, for callers who need more of it than one answer's words; ``text`` is a JSON object."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _Passing(f"no JSON object: {content[:200].decode('utf-8', 'replace')!r}")
    return Reply(text=content.decode("utf-8", "replace"))


def _has_text(line: str) -> bool:
    if not line.startswith("data:"):
        return False
    try:
        return bool(json.loads(line[5:])["choices"][0]["delta"].get("content"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return False


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            return None


class EndpointChat:
    """A model of an OpenAI-compatible server."""

    def __init__(self, name: str, config: EndpointConfig, *, max_new_tokens: int) -> None:
        self.name, self.client = name, EndpointClient(config)
        self.identity = {"model": f"openai:{name}", "weights": config.label or self.client.base_url}
        self.generation: dict[str, Any] = {
            "temperature": config.temperature, "max_new_tokens": max_new_tokens, "extra": dict(config.extra),
        }  # fmt: skip

    @property
    def at_once(self) -> int:
        """Requests in flight."""
        return self.client.config.concurrency

    def body(self, conversation: Conversation) -> dict[str, Any]:
        """The request for a conversation."""
        config = self.client.config
        fields: dict[str, Any] = {
            "model": self.name, "messages": list(conversation),
            config.max_tokens_field: self.generation["max_new_tokens"],
        }  # fmt: skip
        if config.temperature is not None:
            fields["temperature"] = config.temperature
        return {**fields, **config.extra}

    def complete(self, conversations: Sequence[Conversation], on_reply: OnReply | None = None) -> list[Reply]:
        """One reply a conversation, in order."""
        return self.client.ask_all([lambda c=c: self.body(c) for c in conversations], on_reply)  # type: ignore[misc]

    def first_token_seconds(self, conversation: Conversation) -> float | None:
        """Seconds to the first piece of a streamed answer, asked alone."""
        return self.client.first_token_seconds(self.body(conversation))
