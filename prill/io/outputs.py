"""Writes output files: checked against inputs, locked, and written atomically.

`-` is standard output. Pipes and devices are written to directly.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ENOTDIR
from itertools import count
from pathlib import Path
from typing import IO, Literal, Protocol, TextIO

from prill.errors import InputError, UsageError
from prill.io.kinds import detect_kind, parse_object
from prill.io.lines import STREAM, is_stream, open_lines, read_lines

# re-exported for packages that write files
from prill.locks import Closing, lock_if_free

Content = Literal[
    "trajectories", "labels", "verdicts", "a calibration", "a fitted judge", "a report", "a diagram", "a table",  # noqa: E501
    "disagreements", "red team figures", "captions",
    "scores of candidates", "annotations", "a JUnit report", "a comparison",
]  # fmt: skip
_Path = str | os.PathLike[str]
_STDOUT = (STREAM, "/dev/stdout", "/dev/fd/1")
_HEAD = 1 << 14
_BEGINNING = (
    b'{"id":"'  # start of prill's own records: a file may contain only one, truncated by a crash
)
_REPORT = b'<meta name="generator" content="prill report">'
# First bytes of non-JSON files; tables are recognised by their first columns, as `prill.io.tables`
# writes them.
_BEGINNINGS: dict[bytes, Content] = {
    b"<svg ": "a diagram",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="prill compare"': "a JUnit report",
    b"## prill compare": "a comparison",
    b"id,success,score,": "a table",
    b"| id | success | score |": "a table",
    b'[\n {\n  "id":': "a table",
    b"| attack ": "red team figures",
    b'{"scores":': "scores of candidates",
    b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"prill"}': "annotations",  # noqa: E501
}
# Keys that identify prill's JSON files other than trajectories, labels and verdicts.
_KEYS: dict[Content, frozenset[str]] = {
    "disagreements": frozenset({"kind", "annotators", "label"}),
    "red team figures": frozenset({"attacks_version", "effects"}),
    "captions": frozenset({"captioner", "caption"}),
    "annotations": frozenset({"run_id", "key", "value", "comment"}),
}
_FORMATS: dict[str, Content] = {
    "prill calibration": "a calibration",
    "prill student": "a fitted judge",
    "prill stack": "a fitted judge",
}


class Writer(Protocol):
    """The target of an output. Raises UsageError if it cannot be written."""

    def write(self, data: bytes, /) -> int:
        """Writes all bytes."""
        ...

    def flush(self) -> None:
        """Flushes buffered bytes."""
        ...


def check_output(
    path: _Path,
    content: Content,
    inputs: Iterable[_Path | None] = (),
    *,
    continued: bool = False,
    parameter: str = "output",
) -> None:
    """Checks in advance that a file may be written; call it before reading or paying for anything.

    Raises UsageError if the path is one of the inputs (also under another name), has other content,
    or cannot be written. `continued` is for files that are appended to, whose writer checks each
    line: they may have unrecognised content. `parameter` is the name of the caller's parameter for
    the path.
    """
    if is_stdout(path) or is_stream(path):
        return
    for other in inputs:
        if other is not None and is_same_file(path, other):
            raise UsageError(
                f"{path}: this is also an input; choose another file", parameters=(parameter,)
            )
    target = Path(os.path.realpath(path))
    with write_errors(path):
        _expect_writable(target, continued=continued)
    there = read_content(target) if target.exists() else ""
    if there not in ("", content) and not (there is None and continued):
        raise UsageError(
            f"{path}: contains {there or 'something that prill does not know'}, not "
            f"{content}; choose another file",
            parameters=(parameter,),
        )


def expect_writable(path: _Path) -> None:
    """Raises UsageError in advance if a file cannot be written. An existing file may be
    replaced.
    """
    with write_errors(path):
        _expect_writable(Path(os.path.realpath(path)))


def read_content(path: _Path) -> Content | Literal[""] | None:
    """Detects the content of a file.

    Returns an empty text for a file without a complete record, and None for content that prill does
    not write.
    """
    with open_lines(path) as file, suppress(OSError, EOFError, zlib.error):
        head = file.read(_HEAD).lstrip()
        if not head:
            return ""
        if _REPORT in head:
            return "a report"
        for beginning, content in _BEGINNINGS.items():
            if head.startswith(beginning):
                return content
    with suppress(InputError):
        for line in read_lines(path):
            is_torn = (
                not line.complete
                and line.data.startswith(_BEGINNING)
                and parse_object(line.data) is None
            )
            return "" if is_torn else detect_line_content(line.data)
    return None


def detect_line_content(data: bytes) -> Content | None:
    """Detects the content of a JSON file from one of its lines."""
    record = parse_object(data) or {}
    form = record.get("format")
    if isinstance(form, str):
        return next((content for name, content in _FORMATS.items() if form.startswith(name)), None)
    return next(
        (content for content, keys in _KEYS.items() if keys <= record.keys()), None
    ) or detect_kind(data)


def is_stdout(path: _Path) -> bool:
    """Returns whether a path means standard output."""
    return os.fspath(path) in _STDOUT


def message_stream(*outputs: _Path | None) -> TextIO:
    """Returns the stream for messages: standard error if an output goes to standard output."""
    return (
        sys.stderr
        if any(output is not None and is_stdout(output) for output in outputs)
        else sys.stdout
    )


def expect_file(path: _Path, what: str) -> None:
    """Raises UsageError if the path is a pipe or cannot be written.

    `what` names the output (a folder, or a file that is appended to). Call it before reading or
    paying for anything.
    """
    if is_stdout(path) or is_stream(path):
        raise UsageError(
            f"{path}: {what} cannot be written to a pipe; give a file", parameters=("output",)
        )
    with write_errors(path):
        _expect_permission(Path(os.path.realpath(path)))


def make_folder(path: _Path) -> None:
    """Creates the folder of a file. Raises UsageError."""
    with write_errors(path):
        os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)


@contextmanager
def writing(path: _Path) -> Iterator[Writer]:
    """Writes a file atomically: it replaces the old file when it is complete.

    Its folder is created; symbolic links and file modes are kept. Raises UsageError if the file
    cannot be written. Exceptions of the block are passed on.
    """
    if is_stdout(path):
        sys.stdout.flush()
        yield _Checked(sys.stdout.buffer, path)
        with write_errors(path):
            sys.stdout.buffer.flush()
    elif is_stream(path):
        with write_errors(path):
            file = open(path, "wb")  # noqa: SIM115 - closed below
        try:
            yield _Checked(file, path)
        finally:
            with write_errors(path):
                file.close()
    else:
        with _replacing(path, Path(os.path.realpath(path))) as target:
            yield target


def write_output(path: _Path, data: bytes) -> None:
    """Writes a file at once, as `writing` does."""
    with writing(path) as file:
        file.write(data)


class _Checked:
    """A file whose write errors are UsageErrors, so that they are not mistaken for read errors."""

    def __init__(self, file: IO[bytes], path: _Path) -> None:
        self._file = file
        self._path = path

    def write(self, data: bytes, /) -> int:
        with write_errors(self._path):
            return self._file.write(data)

    def flush(self) -> None:
        with write_errors(self._path):
            self._file.flush()


@contextmanager
def _replacing(path: _Path, target: Path) -> Iterator[Writer]:
    part = part_path(target)
    with write_errors(path):
        _expect_writable(target)
        make_folder(path)
        file = part.open("xb")
    try:
        try:
            yield _Checked(file, path)
            with write_errors(path):
                file.flush()
                os.fsync(file.fileno())
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        finally:
            # on a full disk, closing tries to write again
            with suppress(OSError):
                file.close()
        with write_errors(path):
            part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink()


def locked(path: _Path) -> int:
    """Opens a file for appending and locks it until it is closed; creates it if necessary.

    Raises UsageError.
    """
    while True:
        with write_errors(path):
            file = lock_or_raise(
                path,
                f"{path}: another process is writing this file",
                os.O_RDWR | os.O_APPEND | os.O_CREAT,
            )
        if is_current_file(file, path):
            return file
        # a writer that has just ended replaced the file after it was opened here
        os.close(file)


def lock_or_raise(path: _Path, refusal: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Opens and locks a file or folder until it is closed.

    Raises InUseError if another process has locked it, and OSError.
    """
    if (file := lock_if_free(path, flags)) is None:
        raise InUseError(refusal)
    return file


class InUseError(UsageError):
    """Raised if another process has locked the file or folder."""


class LockedFolder(Closing):
    """A folder that only one process at a time may use; `_lock` is its lock file, open until
    close.
    """

    _lock = -1

    def close(self) -> None:
        """Releases the lock; safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _expect_writable(target: Path, *, continued: bool = False) -> None:
    """Raises OSError if the target cannot be written.

    A file that is written atomically is replaced, so its folder must be writable too.
    """
    if target.is_dir():
        raise IsADirectoryError(EISDIR, "it is a directory; give a file in it")
    _expect_permission(target)
    if not continued:
        _expect_permission(target.parent)


def _expect_permission(path: Path) -> None:
    """Raises OSError if the file, or the folder that it would be created in, is not writable."""
    existing = path if path.exists() else next(folder for folder in path.parents if folder.exists())
    if existing != path and not existing.is_dir():
        raise NotADirectoryError(ENOTDIR, f"{existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK if existing.is_dir() else os.W_OK):
        raise PermissionError(EACCES, "permission denied")


def is_same_file(path: _Path, other: _Path) -> bool:
    """Returns whether both paths name the same file, also through links."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


# Atomic replacement and whole-line appends.


def part_path(path: Path) -> Path:
    """Returns an unpredictable temporary name next to a file; open it with mode "x"."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")


def backup_path(path: Path) -> Path:
    """Returns the first free name of a backup: `.bak`, `.bak2` and so on at the end."""
    endings = (".bak" if number == 1 else f".bak{number}" for number in count(1))
    names = (path.with_name(path.name + ending) for ending in endings)
    return next(name for name in names if not os.path.lexists(name))


def is_current_file(file: int, path: _Path, size: int | None = None) -> bool:
    """Returns whether the open file still has this name, and, if given, this size in bytes.

    Another program may have replaced or removed it.
    """
    try:
        status = os.fstat(file)
        return os.path.samestat(status, os.stat(path)) and size in (None, status.st_size)
    except OSError:
        return False


def append_whole(file: int, data: bytes) -> None:
    """Appends all of the data to a file, or nothing.

    A partial line, left by a full disk, would corrupt the next line. Raises OSError.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError:
        if written := len(data) - len(rest):
            os.ftruncate(file, os.fstat(file).st_size - written)
        raise


@contextmanager
def write_errors(path: _Path) -> Iterator[None]:
    """Converts write errors inside the block to UsageError.

    BrokenPipeError, raised when the reader of a pipe has exited, is passed on.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
