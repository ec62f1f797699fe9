"""A small application of ours that speaks the API of WebArena-Infinity's: state, reset, events."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from typing import Any

_state: dict[str, Any] = {"now": None, "seed": None}
_resets = threading.Condition()


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self) -> None:
        _state["now"] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _state["seed"] = _state["seed"] or _state["now"]
        self._reply({"status": "ok"})

    def do_POST(self) -> None:
        _state["now"] = _state["seed"]
        with _resets:
            _resets.notify_all()
        self._reply({"status": "ok"})

    def do_GET(self) -> None:
        if self.path == "/api/state":
            self._reply(_state["now"] or {}, 200 if _state["now"] else 404)
        elif self.path == "/api/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            while True:
                with _resets:
                    _resets.wait()
                self.wfile.write(b"data: reset\n\n")
        else:
            super().do_GET()

    def _reply(self, value: object, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 8000
    server = http.server.ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    server.serve_forever()
