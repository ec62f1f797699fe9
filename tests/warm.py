"""Commands without a start of an interpreter: a process that has imported what they import forks
for each of them.

A fork has its own arguments, folder, environment, standard streams and exit code. So the documents
and examples run as they are written, while numpy, scikit-learn, openai and the rest are imported
once a file of tests instead of once a command (one to five seconds of the processor each).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What commands import when they need it, where it is installed.
LATER = (
    "aiohttp",
    "numpy",
    "openai",
    "openai.resources.chat",
    "PIL.Image",
    "PIL.ImageDraw",
    "PIL.PngImagePlugin",
    "playwright.async_api",
    "sklearn.feature_extraction.text",
    "sklearn.isotonic",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.pipeline",
)
# What the shell starts in the place of `prill` and `python`: it hands all that it was started with
# to the process, and ends with the code that it is given. -IS: nothing of what is installed is
# imported.
CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code = int(server.recv(16))
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def warm_commands(*modules: str) -> Iterator[Path]:
    """A folder for PATH with `prill` and `python` (for scripts). `modules` are imported too, beside
    what most commands need.
    """
    folder = Path(tempfile.mkdtemp(prefix="prill-"))  # the address of a socket has to be short
    address = str(folder / "socket")
    for name in ("prill", "python"):
        (folder / name).write_text(
            CLIENT.format(python=sys.executable, address=address), encoding="utf-8"
        )
        (folder / name).chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address, *modules],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"warm\n"
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # with commands that are still running
            shutil.rmtree(folder)


def serve(address: str, modules: Sequence[str]) -> None:
    """Imports, then forks for each command. Comes back in the fork, which is the command then."""
    del sys.path[0]  # the tests' folder is not on the path of commands
    import prill

    light = [
        module.name
        for module in pkgutil.walk_packages(prill.__path__, "prill.")
        if not module.name.endswith("__main__")
    ]
    for name in (*light, *LATER, *modules):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    gc.collect()
    gc.freeze()  # the collector of a fork would touch, and so copy, all that is shared
    print("warm", flush=True)
    running: set[int] = set()
    while True:
        connection, _ = listener.accept()
        running = {fork for fork in running if os.waitpid(fork, os.WNOHANG)[0] == 0}
        if (fork := os.fork()) == 0:
            break
        running.add(fork)
        connection.close()
    listener.close()
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    request = b""
    while part := connection.recv(1 << 16):
        request += part
    # Two forks: the first waits for the second, whose end is that of an interpreter, and says how
    # it ended.
    if command := os.fork():
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def become() -> None:
    """What `prill WORDS`, `python SCRIPT WORDS` or `python -m MODULE WORDS` does."""
    if Path(sys.argv[0]).name == "prill":
        from prill.cli import main

        sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))
        sys.exit(main())
    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def end(code: object) -> None:
    """Ends as an interpreter does, but leaves the memory as it is: to tidy it takes longer than
    most commands.
    """
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit((code or 0) & 255)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
    ended: object = 1
    try:
        become()
        ended = 0
    except SystemExit as error:
        ended = error.code
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        end(ended)
