"""SmolLM2 behind the OpenAI interface, for tests: a real model, real HTTP, one request at a time.

Run as: python tests/evaluation/chat_server.py PORT      # prints "ready" when it listens
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import Answer, Server, completion  # type: ignore[import-not-found]

from wearllama.evaluation.local_chat import LocalChat


def main() -> None:
    lock, models = threading.Lock(), dict[int, LocalChat]()

    def answer(request: dict[str, Any], number: int) -> Answer:
        tokens = int(request["max_tokens"])
        with lock:
            model = models.setdefault(tokens, LocalChat(None, max_new_tokens=tokens))
            (reply,) = model.complete([request["messages"]])
        if reply.error:
            return Answer(status=400, body=reply.error.encode())
        return Answer(body=completion(reply.text, reply.usage["prompt_tokens"], reply.usage["completion_tokens"]))

    with Server(answer, int(sys.argv[1])):
        print("ready", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
