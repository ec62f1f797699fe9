"""Runs code that a model wrote, in a process of its own that can compute and nothing else; jail.py is its program.

The boundary is the kernel's: limits and a filter of system calls. Where they cannot be set, no code is run.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from prill.errors import UsageError

SECONDS = 2  # of the processor, and as many by the clock once the code has begun
MEMORY = 512 << 20  # bytes, the interpreter's own included
MOST_CODE = MOST_RESULT = 20_000  # characters
_MOST_OUTPUT = 6 * MOST_RESULT + 10_000  # as JSON writes the result at worst
_START = 60.0  # seconds until the process has locked itself in: only a machine that hangs takes so long
_READY = b"ready\n"
_JAIL = Path(__file__).resolve().parent / "jail.py"


class CodeFailed(Exception):
    """The code came to nothing: the message says why."""


async def run_code(code: str, names: Mapping[str, str]) -> str:
    """What the code sets as the text `obs`, with these names set before. Raises CodeFailed.

    The process has no environment, no network, no files; it gets processor time, memory and a time by the clock, and the
    code and its result have at most 20,000 characters. Only Linux can lock it in so: elsewhere no code is run.
    """
    if sys.platform != "linux":
        raise CodeFailed(f"generated code is not run on {sys.platform}: only the kernel of Linux can lock it in")
    if len(code) > MOST_CODE:
        raise CodeFailed(f"the code has {len(code)} characters; {MOST_CODE} are allowed")
    request = {"code": code, "names": dict(names), "cpu_seconds": SECONDS, "memory_bytes": MEMORY}
    return _result(*await asyncio.to_thread(_run, json.dumps(request).encode()))


def _run(request: bytes) -> tuple[bytes, int]:
    """What the process wrote, and how it ended."""
    try:
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", "-B", str(_JAIL)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
    except OSError as error:
        raise UsageError(f"a process for generated code cannot be started: {error.strerror}") from None
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(request)
            answer = _read(process.stdout.fileno(), _START, until=_READY)
            if answer.startswith(_READY):
                answer = answer.removeprefix(_READY) + _read(process.stdout.fileno(), SECONDS)
        finally:
            process.kill()
    return answer, process.returncode


def _read(pipe: int, seconds: float, until: bytes | None = None) -> bytes:
    """All that comes, as far as it can be a result. Raises CodeFailed when time runs out."""
    data, end = b"", time.monotonic() + seconds
    waiting = select.poll()  # select.select takes no descriptor above 1023, and a busy process has those
    waiting.register(pipe, select.POLLIN)
    while len(data) <= _MOST_OUTPUT and not (until and data.startswith(until)):
        if not waiting.poll(1000 * max(0.0, end - time.monotonic())):
            raise CodeFailed(f"the code took more than {seconds:g} s")
        if not (piece := os.read(pipe, 1 << 16)):
            break
        data += piece
    return data


def _result(answer: bytes, status: int) -> str:
    """What the answer gives. It is not trusted: code that got out of Python may have written it."""
    if len(answer) > _MOST_OUTPUT:
        raise CodeFailed(f"the code wrote more than {_MOST_OUTPUT} bytes")
    try:
        record = json.loads(answer)
    except (ValueError, RecursionError):
        raise CodeFailed(f"the code ended its process (status {status})") from None
    found = record.get("obs") if isinstance(record, dict) else None
    if not isinstance(found, str):
        why = record.get("error") if isinstance(record, dict) else None
        raise CodeFailed(str(why or "the code gave no answer")[:500])
    if found.encode("utf-8", "replace").decode() != found:
        raise CodeFailed("the result has half of a pair of surrogates, which is no text")
    if len(found) > MOST_RESULT:
        raise CodeFailed(f"the result has {len(found)} characters; {MOST_RESULT} are allowed")
    return found
