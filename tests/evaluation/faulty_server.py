"""An OpenAI-compatible server on loopback that answers by a script: well, late, torn, or not at all."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What goes back for one request."""

    text: str = "ok"
    status: int = 200
    body: bytes | None = None
    """Sent as it is instead of a completion."""
    delay_s: float = 0.0
    drip_s: float = 0.0
    """Pause between single bytes."""
    headers: dict[str, str] = {}  # noqa: RUF012
    hang_up: bool = False
    """Closes the connection with half of the promised bytes sent."""


Script = Callable[[dict[str, Any], int], Answer]
"""``script(request, number)``: the answer to the number-th request (from 0)."""


class Server:
    """Serves until closed; remembers every request."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self.requests: list[dict[str, Any]] = []
        self.busy = self.busiest = 0
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(request)
                    outer.busy += 1
                    outer.busiest = max(outer.busiest, outer.busy)
                try:
                    self.send(request, script(request, number))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                finally:
                    with lock:
                        outer.busy -= 1

            def send(self, request: dict[str, Any], answer: Answer) -> None:
                time.sleep(answer.delay_s)
                if request.get("stream") and answer.status == 200:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    for piece in ("", answer.text):
                        line = json.dumps({"choices": [{"delta": {"content": piece}}]})
                        self.wfile.write(f"data: {line}\n\n".encode())
                    self.wfile.write(b"data: [DONE]\n\n")
                    self.close_connection = True
                    return
                body = completion(answer.text) if answer.body is None else answer.body
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if answer.hang_up:
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                elif answer.drip_s:
                    for byte in body:
                        self.wfile.write(bytes([byte]))
                        time.sleep(answer.drip_s)
                else:
                    self.wfile.write(body)

        self._httpd = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._httpd.daemon_threads = True
        self.port = self._httpd.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def completion(text: str, prompt_tokens: int = 10, completion_tokens: int = 3) -> bytes:
    """A chat completion's body."""
    return json.dumps({
        "model": "served", "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens},
    }).encode()  # fmt: skip


def last_words(request: dict[str, Any]) -> str:
    """Text of a request's last turn."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else json.dumps(content)
