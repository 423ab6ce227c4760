"""A language model as judge of side-talk's free answers: assistant-directed, bystander-directed, both or neither.

The role is pinned: one prompt (hashed), temperature 0, any server with the OpenAI API.  What the server does not answer
with one of the four labels is not guessed: the rule of ``side_talk`` stands in, and results count how often.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wearllama.data.actions import Action
from wearllama.data.prompts import content_hash
from wearllama.evaluation.side_talk import LABELS, Label, label_action

PROMPT = (
    "A person who wears smart glasses said two things in a row, one to the assistant and one to another person.\n"
    "To the assistant: {assistant}\nTo the other person: {person}\nThe assistant replied: {reply}\n"
    "Whom does the reply serve? Answer with one of: assistant-directed, bystander-directed, both, neither."
)
"""In our words: the paper's judge prompt is not public."""
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(kw_only=True)
class JudgeConfig:
    """Which model judges; without ``base_url`` the rule does."""

    base_url: str | None = None
    """Root of an OpenAI-compatible API, http://host:port/v1."""
    model: str = "Qwen/Qwen3.5-35B-A3B"
    """The paper's judge by default."""
    timeout_s: float = 60.0


class SideTalkJudge:
    """Labels answers; remembers each, so that an item is asked about once a run."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self._known: dict[str, Label | None] = {}

    @property
    def name(self) -> str:
        """Model and prompt, for results."""
        return f"{self.config.model} (prompt {content_hash(PROMPT)}, temperature 0)"

    def __call__(self, action: Action, item: Mapping[str, Any]) -> tuple[Label, str]:
        """The label and who gave it: ``judge`` for answers that it could label, else ``rule``."""
        label = self._ask(action.text, item) if action.kind == "answer" and self.config.base_url else None
        return (label, "judge") if label is not None else (label_action(action, item), "rule")

    def _ask(self, reply: str, item: Mapping[str, Any]) -> Label | None:
        words = {segment["part"]: segment["text"] for segment in item["segments"]}
        prompt = PROMPT.format(assistant=words["assistant"], person=words["person"], reply=reply)
        if prompt not in self._known:
            self._known[prompt] = _only_label(self._complete(prompt))
        return self._known[prompt]

    def _complete(self, prompt: str) -> str:
        """The judge's words; ValueError names a server that cannot be reached (a run must not end half judged)."""
        body = {"model": self.config.model, "temperature": 0, "max_tokens": 16,
                "messages": [{"role": "user", "content": prompt}]}  # fmt: skip
        url = f"{self.config.base_url}/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with _WITHOUT_PROXY.open(request, timeout=self.config.timeout_s) as reply:
                return str(json.loads(reply.read())["choices"][0]["message"]["content"])
        except (urllib.error.URLError, TimeoutError, KeyError, IndexError, ValueError) as error:
            raise ValueError(f"judge at {url}: {error}; judge.base_url=null judges by rule") from None


def _only_label(text: str) -> Label | None:
    """The label in the judge's words, where there is exactly one."""
    lowered = text.lower()
    found = [label for label in LABELS if label in lowered]
    return found[0] if len(found) == 1 else None
