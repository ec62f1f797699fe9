"""Serves a function of prompt, image and settings as an OpenAI-compatible endpoint on this machine.

It is for models whose code needs an old Python and old libraries. It requires only Python 3.8 and
Pillow, and does not import prill. It answers one request at a time.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

Answer = Callable[[str, Image.Image, dict[str, Any]], str]
MAX_BYTES = 64_000_000  # of a request


def serve(answer: Answer, port: int) -> None:
    """Serves at http://127.0.0.1:PORT/v1 until the process ends. It prints the address once it
    listens; port 0 selects a free port.
    """
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                size = int(self.headers.get("Content-Length", 0))
                if size > MAX_BYTES:
                    raise ValueError(f"the request has {size} bytes; at most {MAX_BYTES}")
                request = json.loads(self.rfile.read(size))
                text, picture = question(request)
                with one_at_a_time:
                    said = answer(text, picture, request)
            except (ValueError, KeyError, TypeError, OSError) as error:
                self.reply(
                    400,
                    {
                        "error": {
                            "message": f"{type(error).__name__}: {error}",
                            "type": "invalid_request_error",
                        }
                    },
                )
                return
            except Exception as error:  # noqa: BLE001 - whatever the model raises
                self.reply(
                    500,
                    {
                        "error": {
                            "message": f"{type(error).__name__}: {error}",
                            "type": "server_error",
                        }
                    },
                )
                return
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": said},
                "finish_reason": "stop",
            }
            usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}  # not counted
            self.reply(
                200,
                {
                    "object": "chat.completion",
                    "model": request.get("model"),
                    "choices": [choice],
                    "usage": usage,
                },
            )

        def reply(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Logs nothing, because requests contain screenshots of users."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


def question(request: Any) -> tuple[str, Image.Image]:
    """Returns the text and the image of the last message."""
    texts, pictures = [], []
    for part in request["messages"][-1]["content"]:
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            pictures.append(part["image_url"]["url"])
    if len(pictures) != 1 or not pictures[0].startswith("data:"):
        raise ValueError(f"expected one picture as a data URL, got {len(pictures)} pictures")
    data = base64.b64decode(pictures[0].partition(",")[2])
    return "\n".join(texts), Image.open(io.BytesIO(data)).convert("RGB")
