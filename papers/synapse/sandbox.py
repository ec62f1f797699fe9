"""Model-written code: reads it from a reply, and runs it, or an XPath, in a separate process that
can only compute. jail.py is its program.

The security boundary is the kernel's limits and system call filter. If they cannot be set, the code
is not run.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from prill.errors import MissingExtraError, UsageError
from prill.papers.replies import (
    UnreadableReplyError,
    json_values,
    one_answer,
    plain_line,
    tool_calls,
    visible_text,
)
from prill.papers.synapse.jail import MAX_CALLS, MAX_CHARS, MAX_PLACES, read_page

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# The argument of each method; prompts/system.md describes the methods.
METHODS: Mapping[str, str] = {
    "type": "characters",
    "click_xpath": "xpath",
    "press": "key",
    "click_option": "xpath",
    "movemouse": "xpath",
}
_FENCE = re.compile(r"```[ \t]*(?:[A-Za-z0-9_+-]*[ \t]*\r?\n)?(.*?)```", re.DOTALL)
_BULLET = re.compile(r"^\s*[-*•+]\s", re.MULTILINE)
_CALLING = re.compile(r"\bagent\.\w+\(")
_RECORDED = re.compile(r"agent\.(\w+)\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the agent: `agent.press("enter")`."""

    method: str
    argument: str

    def __str__(self) -> str:
        plain = self.argument.isprintable() and not {'"', "\\"} & set(self.argument)
        quoted = f'"{self.argument}"' if plain else repr(self.argument)
        return f"agent.{self.method}({quoted})"


def recorded_call(text: str) -> Call | None:
    """Parses a recorded call. Returns None if the text is not one call with a literal string."""
    match = _RECORDED.fullmatch(text)
    if match is None or match[1] not in METHODS:
        return None
    try:
        argument = ast.literal_eval(match[2])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return Call(match[1], argument) if isinstance(argument, str) else None


def read_block(reply: str) -> str:
    """Returns the block of calls in a reply: a fenced block (without calls only if there is no
    other), one tool call per line, or unfenced lines of calls. Raises UnreadableReplyError.
    """
    text = visible_text(reply)
    blocks = [block for found in _FENCE.finditer(text) if (block := found[1].strip())]
    calling = [block for block in blocks if _CALLING.search(block) and not _tool_block(block)]
    if (
        block := one_answer(calling) or (blocks[0] if blocks and not _tool_block(text) else "")
    ) != "":
        return re.sub(r"^>>> ?", "", block, flags=re.MULTILINE)  # an interpreter's prompts
    if (written := _tool_block(text)) or (written := "" if "```" in text else _bare_lines(text)):
        return written
    raise UnreadableReplyError(
        "the reply has no block of calls: write them between triple back-ticks"
    )


def _tool_block(text: str) -> str:
    """Returns the calls of a JSON or XML reply, one per line, or the code in it."""
    lines = list[str]()
    for call in tool_calls(text):
        name = call.name.rpartition(".")[2]
        if name in METHODS and len(values := call.values()) == 1:
            lines.append(str(Call(name, values[0])))
        elif _CALLING.match(call.name):
            lines.append(call.name)
        else:
            code = str(call.get("code", "python", "source", "script"))
            lines += [code] if _CALLING.search(code) else []
    objects = (value for value in json_values(text) if isinstance(value, dict))
    codes = (str(value.get("code")) for value in objects)
    return "\n".join(lines) or next((code for code in codes if _CALLING.search(code)), "")


def _bare_lines(text: str) -> str:
    """Returns the lines that are calls in a reply without a fence, without list marks."""
    lines = [plain_line(line).strip() for line in text.splitlines()]
    calls = [line for line in lines if _CALLING.match(line)]
    code = "\n".join(line for line in text.splitlines() if line.strip())
    for block in ([] if _BULLET.search(code) else [code]) + ["\n".join(calls)]:
        try:
            ast.parse(block)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return block if calls else ""
    return ""


def first_block(reply: str) -> str:
    """Returns the content of the first fenced block of a reply."""
    match = _FENCE.search(reply.rpartition("</think>")[2])
    return match[1].strip("\r\n") if match else ""


class Page:
    """A page that was shown to an agent. Invalid HTML is accepted."""

    def __init__(self, html: str) -> None:
        # Environments write the content of <body>; agents write XPaths from the root.
        is_page = "<html" in html[:500].lower() or "<body" in html[:500].lower()
        self.html = html if is_page else f"<html><body>{html}"

    @cached_property
    def elements(self) -> list[Element]:
        """Returns all elements, in document order."""
        try:
            from lxml import etree
        except ImportError:
            raise MissingExtraError("lxml", "mind2web") from None
        return list(read_page(self.html, etree).iter())

    def own(self, xpath: str) -> list[Element]:
        """Returns the elements that one of our own XPaths selects; models' need the sandbox."""
        from lxml import etree

        try:
            return list(self.elements[0].xpath(xpath))
        except (etree.XPathError, ValueError):  # a name or a text that XPath cannot express
            return []


def get_text(element: Element) -> str:
    """Returns all text inside an element."""
    return "".join(element.itertext())


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
    """Returns the string that the code assigns to `obs`. Raises CodeFailedError."""
    return _text(await _run(code=_bounded(code), names=dict(names)))


async def run_block(block: str) -> Block:
    """Returns the calls that a block makes to `agent`. Raises CodeFailedError."""
    return _calls(await _run(code=_bounded(block), names={}, methods=dict(METHODS)))


async def find(page: Page, xpath: str) -> list[Element]:
    """Returns the elements that an XPath selects, in document order. Raises CodeFailedError."""
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


async def _run(**request: object) -> _Answer:
    return await asyncio.to_thread(_run_now, **request)


def _run_now(**request: object) -> _Answer:
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


class _Answer(msgspec.Struct):
    """The answer of jail.py. The code may have written it."""

    locked: bool = True
    error: str = ""
    obs: str | None = None
    calls: Annotated[list[tuple[str, str]], Meta(max_length=MAX_CALLS)] | None = None
    places: Annotated[list[int], Meta(max_length=MAX_PLACES)] | None = None

    @property
    def problem(self) -> str:
        """The error, of bounded length."""
        return (self.error or "the code gave no answer")[:500]


def _record(answer: bytes, status: int) -> _Answer:
    if len(answer) > _MAX_OUTPUT:
        raise CodeFailedError(f"the code wrote more than {_MAX_OUTPUT} bytes")
    try:
        record = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CodeFailedError(
            f"the code ended its process (status {status}), or its result is invalid"
        ) from None
    if not record.locked:
        raise NoSandboxError(
            "generated code cannot be run on this machine, because the kernel cannot "
            f"sandbox it: {record.problem}"
        )
    size = len(record.obs or "") + sum(len(argument) for _, argument in record.calls or ())
    if size > MAX_CHARS:
        raise CodeFailedError(f"the result has {size} characters; {MAX_CHARS} are allowed")
    return record


def _text(record: _Answer) -> str:
    if record.obs is None:
        raise CodeFailedError(record.problem)
    return record.obs


def _calls(record: _Answer) -> Block:
    if record.calls is None or any(method not in METHODS for method, _ in record.calls):
        raise CodeFailedError(record.problem)
    return Block(tuple(Call(*call) for call in record.calls), record.error[:500])


def _places(record: _Answer, elements: int) -> list[int]:
    if record.places is None or not all(0 <= place < elements for place in record.places):
        raise CodeFailedError(record.problem)
    return record.places
