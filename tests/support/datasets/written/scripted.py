"""What the programs of this folder have in common: pictures, a model's replies, and a server that
gives them. Of the standard library alone, as each runs in an environment of its own.
"""

from __future__ import annotations

import base64
import http.server
import json
import struct
import threading
import zlib
from typing import Any


def picture(width: int, height: int, shade: int) -> bytes:
    """Returns a grey PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([shade]) * width) * height)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def png(shade: int) -> str:
    """Returns an image of 64 × 32 pixels, as a data URL."""
    return "data:image/png;base64," + base64.b64encode(picture(64, 32, shade)).decode()


def calls(text: str, *made: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns a reply of chat completions with calls of functions."""
    listed = [
        {
            "id": f"call-{text}-{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(made)
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": listed} if listed else {})}


class Server(http.server.ThreadingHTTPServer):
    """Runs until the program ends. `replies` are given one after the other."""

    replies: list[Any]

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers chat completions; a request after the last reply is refused."""

    server: Server

    def do_POST(self) -> None:
        """Gives the next reply."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.replies:
            self.answer(400, {"error": {"message": "no reply is left"}})
            return
        self.answer(200, self.completion(self.server.replies.pop(0)))

    def completion(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer that contains a reply."""
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted-1"}
        return {**head, "choices": choices, "usage": usage}

    def answer(self, status: int, body: dict[str, Any]) -> None:
        """Sends JSON."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
