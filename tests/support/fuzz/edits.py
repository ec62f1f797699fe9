"""Edits of real files. Most of a file is unchanged, so that readers get far before the fault.

PRILL_FUZZ is the number of cases for each file (default: 100). They are the same in every run.
"""

from __future__ import annotations

import copy
import faulthandler
import gzip
import io
import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from prill.errors import PrillError

T = TypeVar("T")
CASES = int(os.environ.get("PRILL_FUZZ", "100"))
# Seconds for one case. The first limit is for slow machines; the second is the strict limit.
BOUND = 5 if os.environ.get("PRILL_FUZZ_STRICT") else 60
fuzzed = settings(
    max_examples=CASES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
_SIZE = 8  # bytes that define one edit
edits = st.binary(min_size=_SIZE, max_size=4 * _SIZE)

_DEEP: Any = []
for _ in range(300):
    _DEEP = [_DEEP]
_ABYSS = "deeper than any decoder goes"  # Python itself cannot serialize it: `as_json` does
ODD_VALUES: tuple[Any, ...] = (
    _ABYSS,
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    -(2**63),
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    " ",
    "a",
    "\0",
    "\n",
    "\x1b[31m\x9b",
    "\ud800",
    "‮x",
    "é" * 300,
    "a" * 20_000,
    "9" * 5000,
    "-",
    "../../x",
    "/etc/passwd",
    "data:image/png;base64,AAAA",
    "click [",
    "click('",
    "[" * 2000,
    "{" * 2000,
    "<" * 2000,
    "(" * 2000,
    "\\" * 999,
    "1e999",
    "null",
    "2024-13-45T99:99:99",
    [],
    {},
    [None],
    [[]],
    {"": {}},
    {"id": []},
    [{}] * 50,
    list(range(300)),
    _DEEP,
)
ODD_BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r\n",
    b"\r",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"'",
    b",",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"9" * 5000,
    b"-",
    b"1e999",
    b"NaN",
    b"null",
    b"\x1b[2J",
    b"\xed\xa0\x80",
    b"\xc3",
    b"=",
    b"[[",
    b"#",
    b"<",
    b">",
    b"\t" * 50,
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 1500,
    b" " * 3000,
    b"\x80\x04",
    b"\x1f\x8b",
    b"(((",
    b"a" * 3000,
)


def edited_bytes(data: bytes, change: bytes) -> bytes:
    """Returns the data with a few positions changed, cut, doubled or replaced by unusual bytes."""
    for kind, place, what in _edits(change):
        at = place % (len(data) + 1)
        size = (1, 2, 4, 9, 40, 400)[what % 6]
        if kind == 0:
            data = data[:at] + bytes([what % 256]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] + data[at + size :]
        elif kind == 2:
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        elif kind == 3:
            data = data[:at]
        elif kind == 4:
            data = data[:at] + ODD_BYTES[what % len(ODD_BYTES)] + data[at:]
        else:
            data = data[:at] + ODD_BYTES[what % len(ODD_BYTES)] + data[at + size :]
    return data


def edited_value(value: Any, change: bytes) -> Any:
    """Returns the JSON value with a few of its parts replaced, removed, renamed or doubled."""
    value = copy.deepcopy(value)
    for kind, place, what in _edits(change):
        places = list(_places(value))
        if not places:
            break
        holder, key = places[place % len(places)]
        odd = ODD_VALUES[what % len(ODD_VALUES)]
        if odd is not _DEEP:
            # the next edit may change it; later cases need the original
            odd = copy.deepcopy(odd)
        if kind <= 2:
            holder[key] = odd
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[str(odd)[:50]] = holder.pop(key)
        elif isinstance(holder, list):
            holder.insert(key, odd)
        else:
            holder[key] = [holder[key], odd]
    return value


def as_json(value: Any) -> bytes:
    """Returns the value as escaped JSON. It may contain invalid Unicode."""
    return (
        json.dumps(value).encode().replace(json.dumps(_ABYSS).encode(), b"[" * 5_000 + b"]" * 5_000)
    )


def edited_json(value: Any, change: bytes) -> bytes:
    """Edits the value, and for every other change its text too."""
    if change[0] % 3:
        return as_json(edited_value(value, change))
    return edited_bytes(as_json(edited_value(value, change[_SIZE:])), change[:_SIZE])


def edited_file(data: bytes, change: bytes) -> bytes:
    """Edits a file by what it is: inside of an archive, a value of JSON, or its bytes."""
    if change[1] % 5 == 0:
        return edited_bytes(data, change)
    if data.startswith(b"\x1f\x8b"):
        return gzip.compress(edited_file(gzip.decompress(data), change), 1, mtime=0)
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = [*parts][change[2] % len(parts)]
        parts[name] = edited_file(parts[name], change)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, part in parts.items():
                archive.writestr(name, part)
        return file.getvalue()
    lines = data.splitlines()
    at = change[2] % len(lines) if lines else 0
    for before, part, after in (
        (b"", data, b""),
        (
            b"\n".join([*lines[:at], b""]),
            lines[at] if lines else b"",
            b"\n".join([b"", *lines[at + 1 :]]),
        ),
    ):
        try:
            value = json.loads(part)
        except ValueError:
            continue
        if isinstance(value, list | dict):
            return before + edited_json(value, change) + after
    return edited_bytes(data, change)


def attempt(read: Callable[[], T]) -> T | None:
    """Returns the reader's result, or None if it raises a PrillError. Other exceptions
    propagate.
    """
    with bounded():
        try:
            return read()
        except PrillError as error:
            assert str(error)
            return None


@contextmanager
def bounded() -> Iterator[None]:
    """Fails if the block does not end in time."""
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, BOUND)
    # For code that ignores signals: print its traceback and end the process.
    faulthandler.register(signal.SIGVTALRM, chain=True)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * BOUND)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.unregister(signal.SIGVTALRM)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_long(*_: object) -> None:
    raise AssertionError(f"no end within {BOUND} s")


def _edits(change: bytes) -> Iterator[tuple[int, int, int]]:
    for start in range(0, len(change) - _SIZE + 1, _SIZE):
        part = change[start : start + _SIZE]
        yield part[0] % 6, int.from_bytes(part[1:5], "big"), int.from_bytes(part[5:8], "big")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if holder is _DEEP:
            continue
        for key, part in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(part, dict | list):
                waiting.append(part)
