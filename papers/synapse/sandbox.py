"""Runs model-written code or XPaths in a separate process that can only compute. jail.py is its
program.

The security boundary is the kernel's limits and system call filter. If they cannot be set, the code
is not run.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.errors import UsageError
from prill.papers.synapse.calls import METHODS, Call
from prill.papers.synapse.html import Page
from prill.papers.synapse.jail import MAX_CALLS, MAX_CHARS, MAX_PLACES

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

SECONDS = 2  # of processor time, and of wall-clock time once started
MEMORY = 512 << 20  # bytes, including the interpreter's own
_MAX_OUTPUT = 6 * MAX_CHARS + 10_000  # the result's maximum size as JSON
# seconds for the process to confine itself: only a hanging machine takes so long
_START = 60.0
_READY = b"ready\n"
_JAIL = Path(__file__).resolve().parent / "jail.py"


class CodeFailedError(Exception):
    """Raised if the code fails or has no result. The message says why."""


class NoSandboxError(CodeFailedError):
    """Raised if this machine cannot confine the process. Model-written code is then not run."""


@dataclass(frozen=True, slots=True)
class Block:
    """The calls of a block, and the error that ended it, if any."""

    calls: tuple[Call, ...]
    problem: str = ""


async def run_code(code: str, names: Mapping[str, str]) -> str:
    """Returns the string that the code assigns to `obs`, with `names` as predefined variables.
    Raises CodeFailedError.

    The process has no environment variables, network or files. Its processor time, wall-clock time
    and memory are limited; the code and its result have at most 20,000 characters. Only Linux can
    confine the process; on other systems no code is run.
    """
    return _text(await _run(code=_bounded(code), names=dict(names)))


async def run_block(block: str) -> Block:
    """Returns the calls that a block of Python makes to `agent`, without carrying them out. Raises
    CodeFailedError, also for an endless loop.

    The limits are those of `run_code`; a block makes at most 200 calls.
    """
    return _calls(await _run(code=_bounded(block), names={}, methods=dict(METHODS)))


async def find(page: Page, xpath: str) -> list[Element]:
    """Returns the elements of the page that an XPath selects, in document order. Raises
    CodeFailedError, also for a timeout.
    """
    return await asyncio.to_thread(find_now, page, xpath)


def find_now(page: Page, xpath: str) -> list[Element]:
    """Synchronous version of `find`."""
    elements = page.elements
    import lxml  # installed, because the page has been parsed

    record = _run_now(
        page=page.html, xpath=_bounded(xpath), lxml=str(Path(lxml.__file__).parents[1])
    )
    return [elements[place] for place in _places(record, len(elements))]


def _bounded(code: str) -> str:
    if len(code) > MAX_CHARS:
        raise CodeFailedError(f"the code has {len(code)} characters; {MAX_CHARS} are allowed")
    return code


async def _run(**request: object) -> dict[str, Any]:
    return await asyncio.to_thread(_run_now, **request)


def _run_now(**request: object) -> dict[str, Any]:
    if sys.platform != "linux":
        raise NoSandboxError(
            f"generated code cannot be run on {sys.platform}, because only Linux can sandbox it"
        )
    request |= {"cpu_seconds": SECONDS, "memory_bytes": MEMORY}
    return _record(*_started(json.dumps(request).encode()))


def _started(request: bytes) -> tuple[bytes, int]:
    """Returns the process's output and its exit status."""
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
        raise UsageError(
            f"a process for generated code cannot be started: {error.strerror}"
        ) from None
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
    """Reads output up to the maximum size of a result. Raises CodeFailedError on a timeout."""
    data, end = b"", time.monotonic() + seconds
    # select.select accepts no descriptor above 1023, which a busy process may exceed
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    while len(data) <= _MAX_OUTPUT and not (until and data.startswith(until)):
        if not waiting.poll(1000 * max(0.0, end - time.monotonic())):
            raise CodeFailedError(f"the code took more than {seconds:g} s")
        if not (piece := os.read(pipe, 1 << 16)):
            break
        data += piece
    return data


# The following code does not trust the answer: code that escaped from Python may have written it.


def _record(answer: bytes, status: int) -> dict[str, Any]:
    if len(answer) > _MAX_OUTPUT:
        raise CodeFailedError(f"the code wrote more than {_MAX_OUTPUT} bytes")
    try:
        record = json.loads(answer)
    except (ValueError, RecursionError):
        raise CodeFailedError(f"the code ended its process (status {status})") from None
    if not isinstance(record, dict):
        raise CodeFailedError("the code gave no answer")
    if record.get("locked") is False:
        why = str(record.get("error"))[:500]
        raise NoSandboxError(
            "generated code cannot be run on this machine, because the kernel cannot "
            f"sandbox it: {why}"
        )
    return record


def _text(record: dict[str, Any]) -> str:
    found = record.get("obs")
    if not isinstance(found, str):
        raise CodeFailedError(_problem(record))
    return _sound(found)


def _calls(record: dict[str, Any]) -> Block:
    given = record.get("calls")
    if not isinstance(given, list) or len(given) > MAX_CALLS:
        raise CodeFailedError(_problem(record))
    found = list[Call]()
    for one in given:
        match one:
            case [str(method), str(argument)] if method in METHODS:
                found.append(Call(method, _sound(argument)))
            case _:
                raise CodeFailedError(_problem(record))
    _sound("".join(call.argument for call in found))
    return Block(tuple(found), _problem(record) if "error" in record else "")


def _places(record: dict[str, Any], elements: int) -> list[int]:
    given = record.get("places")
    if not isinstance(given, list) or len(given) > MAX_PLACES:
        raise CodeFailedError(_problem(record))
    if any(type(place) is not int or not 0 <= place < elements for place in given):
        raise CodeFailedError("the code gave no answer")
    return given


def _problem(record: dict[str, Any]) -> str:
    return (
        str(record.get("error") or "the code gave no answer")
        .encode("utf-8", "replace")
        .decode()[:500]
    )


def _sound(text: str) -> str:
    if text.encode("utf-8", "replace").decode() != text:
        raise CodeFailedError("the result contains an unpaired surrogate")
    if len(text) > MAX_CHARS:
        raise CodeFailedError(f"the result has {len(text)} characters; {MAX_CHARS} are allowed")
    return text
