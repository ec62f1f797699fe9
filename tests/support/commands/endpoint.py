"""A scripted OpenAI-compatible endpoint in a thread, for commands that run in this process."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from types import TracebackType
from typing import Any, Self

from PIL import Image as Picture


class Endpoint:
    """An OpenAI-compatible endpoint in a thread. `answer` receives the last turn's text and returns
    a reply, a message or a status.
    """

    def __init__(self, answer: Callable[[str], str | dict[str, object] | int]) -> None:
        self.turns: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.pictures: list[tuple[int, int]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.bodies.append(body)
                said = answer(endpoint.heard(body["messages"][-1]["content"]))
                status, reply = (
                    (said, {"error": {"message": "no"}})
                    if isinstance(said, int)
                    else (200, completion(said))
                )
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def heard(self, content: str | list[dict[str, Any]]) -> str:
        """Returns the text of a turn. It records the text and the sizes of the images."""
        parts: list[dict[str, Any]] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        for part in parts:
            if part["type"] == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                self.pictures.append(Picture.open(BytesIO(data)).size)
        self.turns.append("".join(part["text"] for part in parts if part["type"] == "text"))
        return self.turns[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def words(self) -> tuple[str, ...]:
        """The options that select this endpoint."""
        return (
            "--model",
            "m",
            "--model.base-url",
            f"http://127.0.0.1:{self._server.server_port}/v1",
            "--model.retries",
            "0",
        )


def completion(said: str | dict[str, object]) -> dict[str, object]:
    message = {"role": "assistant", **({"content": said} if isinstance(said, str) else said)}
    choices = [
        {"index": 0, "finish_reason": message.pop("finish_reason", "stop"), "message": message}
    ]
    return {
        "object": "chat.completion",
        "choices": choices,
        "usage": {"prompt_tokens": 9, "completion_tokens": 9},
    }
