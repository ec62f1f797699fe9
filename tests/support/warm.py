"""Runs commands without interpreter startup: a process that has imported their modules forks for
each command.

A fork has its own arguments, working directory, environment, standard streams and exit code.
Documents and examples therefore run as written, but numpy, scikit-learn, openai and the rest are
imported once per test file rather than once per command (one to five seconds of CPU time each).
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

ROOT = Path(__file__).resolve().parents[2]
# Modules that commands import on demand, if installed.
LATER = (
    "aiohttp", "numpy", "openai", "openai.resources.chat", "PIL.Image", "PIL.ImageDraw",
    "PIL.PngImagePlugin", "playwright.async_api", "sklearn.feature_extraction.text",
    "sklearn.isotonic", "sklearn.linear_model", "sklearn.model_selection", "sklearn.pipeline",
)  # fmt: skip
# What training imports on demand as well, and the environment in which it does: with one thread, as
# several wait for each other actively.
TRAINING = ("prill.models.local.torchvision:mend_torchvision", "peft", "trl.trainer.sft_trainer")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
# The shell starts this instead of `prill` and `python`. It passes its arguments and environment to
# the process and exits with the returned code. -IS: no installed package is imported.
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
def warm_commands(*modules: str, **environment: str) -> Iterator[Path]:
    """Yields a folder for PATH with `prill` and `python` (for scripts). `modules` are imported in
    addition to the usual ones, and `module:function` is called; `environment` is for what they read
    while they are imported.
    """
    folder = Path(tempfile.mkdtemp(prefix="prill-"))  # a socket address has to be short
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
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"warm\n"
            yield folder
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # including commands that are still running
            shutil.rmtree(folder)


def serve(address: str, modules: Sequence[str]) -> None:
    """Imports modules, then forks for each command. It returns in the fork, which then runs the
    command.
    """
    del sys.path[0]  # the tests' folder is not on a command's path
    import prill

    light = [
        module.name
        for module in pkgutil.walk_packages(prill.__path__, "prill.")
        if not module.name.endswith("__main__")
    ]
    for entry in (*light, *LATER, *modules):
        name, _, function = entry.partition(":")
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            module = importlib.import_module(name)
            if function:
                getattr(module, function)()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    gc.collect()
    gc.freeze()  # garbage collection in a fork would touch, and so copy, all shared memory
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
    # Two forks: the first waits for the second, whose end is that of an interpreter, and reports
    # its exit status.
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
    """Runs `prill WORDS`, `python SCRIPT WORDS` or `python -m MODULE WORDS`. `-u`, as torch's
    launcher starts Python, changes nothing.
    """
    if Path(sys.argv[0]).name == "prill":
        from prill.cli import main

        sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))
        sys.exit(main())
    del sys.argv[0]
    if sys.argv[0] == "-u":
        del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def end(code: object) -> None:
    """Ends like an interpreter, but without freeing memory, which takes longer than most
    commands.
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
