"""The client against a server that does everything servers do."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import Answer, Script, Server, completion, last_words  # type: ignore[import-not-found]

from wearllama.evaluation.chat import ChatConfig, EndpointConfig, open_chat
from wearllama.evaluation.endpoints import EndpointChat, EndpointError, read_completion

CONVERSATIONS = [[{"role": "user", "content": f"item {number}"}] for number in range(12)]


def chat(server: Server, **changes: Any) -> EndpointChat:
    fields = {"retries": 3, "backoff_s": 0.01, "backoff_max_s": 0.05, "timeout_s": 5.0, "concurrency": 4, **changes}
    return EndpointChat("m", EndpointConfig(base_url=server.url, **fields), max_new_tokens=8)


def echo(request: dict[str, Any], number: int) -> Answer:
    return Answer(text=f"to {last_words(request)}")


def test_answers_in_order_and_requests_as_asked() -> None:
    with Server(lambda r, n: echo(r, n)._replace(delay_s=0.02)) as server:
        model = chat(server, extra={"modalities": ["text"]})
        seen: list[int] = []
        replies = model.complete(CONVERSATIONS, lambda index, reply: seen.append(index))
        assert [reply.text for reply in replies] == [f"to item {n}" for n in range(12)]
        assert sorted(seen) == list(range(12)) and 1 < server.busiest <= 4
        request = server.requests[0]
        assert request["temperature"] == 0 and request["max_tokens"] == 8 and request["modalities"] == ["text"]
        assert model.client.spent == {"requests": 12, "prompt_tokens": 120, "completion_tokens": 36}
        assert replies[0].served_by == "served" and replies[0].attempts == 1


FAULTS: dict[str, Answer] = {
    "429": Answer(status=429, headers={"Retry-After": "0.02"}),
    "500": Answer(status=500, body=b"<html>oops</html>"),
    "503": Answer(status=503, body=b""),
    "truncated JSON": Answer(body=completion("x")[:-20]),
    "no JSON": Answer(body=b"hello"),
    "no choices": Answer(body=b'{"choices": []}'),
    "error in 200": Answer(body=b'{"error": {"message": "overloaded"}}'),
    "content no text": Answer(body=b'{"choices": [{"message": {"content": 3}}]}'),
    "hang-up": Answer(text="cut", hang_up=True),
    "slow": Answer(delay_s=1.2),
    "drip": Answer(drip_s=0.05),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_tried_again(fault: str) -> None:
    failed: set[str] = set()

    def script(request: dict[str, Any], number: int) -> Answer:
        words = last_words(request)
        if words in failed or words != "item 1":
            return echo(request, number)
        failed.add(words)
        return FAULTS[fault]

    with Server(script) as server:
        replies = chat(server, timeout_s=0.6).complete(CONVERSATIONS[:3])
        assert [reply.text for reply in replies] == ["to item 0", "to item 1", "to item 2"]
        assert replies[1].attempts == 2 and len(server.requests) == 4


@pytest.mark.parametrize("fault", ["429", "500", "truncated JSON"])
def test_one_poisoned_item_does_not_stop_the_others(fault: str) -> None:
    with Server(lambda r, n: FAULTS[fault] if last_words(r) == "item 1" else echo(r, n)) as server:
        replies = chat(server).complete(CONVERSATIONS[:4])
        assert [reply.text for reply in replies] == ["to item 0", "", "to item 2", "to item 3"]
        assert replies[1].transient and "4 attempts" in replies[1].error


def test_a_refused_item_is_an_error_of_its_own() -> None:
    script: Script = lambda r, n: Answer(status=400, body=b"too long") if n == 0 else echo(r, n)  # noqa: E731
    with Server(script) as server:
        first, second = chat(server, concurrency=1).complete(CONVERSATIONS[:2])
        assert first.error == "HTTP 400: 'too long'" and not first.transient and second.text == "to item 1"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_ends_at_once(status: int) -> None:
    with Server(lambda r, n: Answer(status=status, body=b"no")) as server:
        with pytest.raises(EndpointError, match=f"HTTP {status}.*OPENAI_API_KEY"):
            chat(server, concurrency=1).complete(CONVERSATIONS)
        assert len(server.requests) <= 2


def test_a_server_that_is_gone_is_not_asked_for_every_item() -> None:
    with Server(echo) as server:
        model = chat(server, retries=1)
    started = time.perf_counter()
    replies = model.complete(CONVERSATIONS * 50)
    assert all(reply.transient and "no connection" in reply.error for reply in replies)
    assert time.perf_counter() - started < 5 and sum(reply.attempts for reply in replies) <= 2 * 4


def test_a_server_that_only_fails_is_given_up() -> None:
    with Server(lambda r, n: FAULTS["500"]) as server:
        replies = chat(server, retries=0).complete(CONVERSATIONS * 50)
        assert all(reply.transient for reply in replies) and len(server.requests) < 30


def test_the_budget_stops_cleanly() -> None:
    with Server(echo) as server:
        replies = chat(server, budget_tokens=30, concurrency=1).complete(CONVERSATIONS)
        assert [bool(reply.text) for reply in replies] == [True] * 3 + [False] * 9
        assert "budget_tokens=30 is spent (39 tokens)" in replies[-1].error and len(server.requests) == 3
        priced = chat(server, budget_usd=2e-5, usd_per_million_input=1.0, concurrency=1)
        assert sum(bool(reply.text) for reply in priced.complete(CONVERSATIONS)) == 2
        assert priced.client.usd == pytest.approx(2e-5)


def test_first_token_is_streamed() -> None:
    with Server(lambda r, n: Answer(text="hi", delay_s=0.05)) as server:
        model = chat(server)
        seconds = model.client.first_token_seconds(model.body(CONVERSATIONS[0]))
        assert seconds is not None and 0.05 <= seconds < 1.0
    assert model.client.first_token_seconds(model.body(CONVERSATIONS[0])) is None


def test_bodies_that_are_no_plain_text() -> None:
    parts = b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}}]}'
    assert read_completion(parts).text == "ab"
    refused = b'{"choices": [{"message": {"content": null, "refusal": "no"}}], "usage": null}'
    assert read_completion(refused).text == "no" and read_completion(refused).usage == {}
    assert read_completion(b'{"choices": [{"message": {"content": "\\ud800x"}}]}').text == "?x"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base_url": "localhost:1"}, "base_url is 'localhost:1'"),
        ({"timeout_s": 0}, "timeout_s 0"),
        ({"concurrency": 0}, "concurrency 0"),
        ({"budget_usd": 1.0}, "budget_usd needs"),
    ],
)
def test_bad_settings(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EndpointConfig(**fields)


def test_models_are_named() -> None:
    assert open_chat(ChatConfig(model="openai:x")).identity == {
        "model": "openai:x",
        "weights": "https://api.openai.com/v1",
    }
    for name in ("openai", "openai:", "gpt", "hf:"):
        with pytest.raises(ValueError, match="wanted one of openai:NAME, hf:NAME, smollm2"):
            ChatConfig(model=name)
