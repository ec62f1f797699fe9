"""The processes beside a run: `python host.py serve FOLDER` runs an application's `server.py` on a
free port of this machine and writes the port; `python host.py verify FILE ADDRESS` runs a task's
verifier and writes what it returned as JSON: `[true, "the message"]`.

This file imports no other module of prill, so that the processes stay small.
"""

from __future__ import annotations

import json
import os
import runpy
import socketserver
import sys


def serve(folder: str) -> None:
    """Serves the application until the process is ended."""
    bind = socketserver.TCPServer.server_bind

    def bind_here(server: socketserver.TCPServer) -> None:
        server.server_address = ("127.0.0.1", 0)
        bind(server)
        server.socket.listen()
        os.write(1, f"{server.server_address[1]}\n".encode())

    # The server's own option takes a port that must be known to be free.
    setattr(socketserver.TCPServer, "server_bind", bind_here)  # noqa: B010 - a method
    os.chdir(folder)
    sys.argv[:] = ["server.py"]
    runpy.run_path("server.py", run_name="__main__")


def verify(file: str, address: str) -> None:
    """Runs the verifier. One that fails ends the process with its error."""
    os.environ["NO_PROXY"] = "*"  # the application is on this machine
    result = os.dup(1)
    os.dup2(2, 1)  # a verifier may print
    passed, message = runpy.run_path(file)["verify"](address)
    if not isinstance(passed, bool):
        raise TypeError(f"the verifier returned {passed!r} instead of a truth value")
    os.write(result, json.dumps([passed, str(message)]).encode())


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1] == "serve" else verify(*sys.argv[2:])
