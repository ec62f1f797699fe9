"""Transcripts folder: one gzip JSON Lines file per run, readable while it is written.

Every record is flushed when it is written, so a killed run loses no recorded calls. The next run
starts a new file, so nothing has to be repaired.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec

from prill.errors import InputError, UsageError
from prill.io.lines import is_stream
from prill.io.outputs import append_whole
from prill.io.store import encode, read_lines
from prill.locks import Closing
from prill.models.calls import Call, ImageFile, Transcript, Turn
from prill.types import Verdict

_log = logging.getLogger("prill.models.transcripts")
_PARTS = "calls-*.jsonl.gz"
# Requests mostly repeat the previous one, so higher compression levels save little.
_LEVEL = 2
_decoder = msgspec.json.Decoder(Transcript)


def read_transcripts(folder: str | os.PathLike[str]) -> Iterator[Transcript]:
    """Reads the transcripts of a folder, oldest first.

    A trajectory that was judged again has several transcripts; the last one counts. The incomplete
    last record of a killed run is skipped. The rest of a damaged file is skipped with a warning.

    Args:
        folder: The folder. A missing folder counts as empty.

    Yields:
        The transcripts, with absolute paths of images.
    """
    yield from _read(Path(folder))


def read_transcript(folder: str | os.PathLike[str], verdict: Verdict) -> Transcript | None:
    """Finds the transcript of a verdict, by its id and key.

    Returns:
        The newest matching transcript, or None.
    """
    beginning = encode(Transcript(verdict.id, verdict.key, ())).removesuffix(b"]}\n")
    latest = None
    for latest in _read(Path(folder), beginning):  # noqa: B007 - the last one counts
        pass
    return latest


class TranscriptLog(Closing):
    """Writes transcripts to a folder.

    The folder and the file are created with the first transcript. `lost` counts the transcripts
    that could not be written.

    Args:
        folder: The folder.
        resume: Keep the existing transcripts. False: rename the folder to `.bak`.

    Raises:
        UsageError: The path is not a folder.
    """

    def __init__(self, folder: str | os.PathLike[str], *, resume: bool = True) -> None:
        self.folder = Path(folder)
        self.lost = 0
        self._file, self._part = -1, self.folder
        self._packer = zlib.compressobj()
        if os.path.exists(self.folder) and not self.folder.is_dir():
            raise UsageError(
                f"{self.folder}: not a folder; transcripts are written to a folder",
                parameters=("transcripts",),
            )
        if not resume:
            for part in self.folder.glob(_PARTS):
                part.replace(part.with_name(part.name + ".bak"))

    def append(self, transcript: Transcript) -> None:
        """Writes a transcript to disk.

        A failure is logged once and does not affect verdicts.
        """
        try:
            line = encode(_with_paths(transcript, lambda path: os.path.relpath(path, self.folder)))
            self._write(line)
        except (OSError, UnicodeEncodeError) as error:
            if not self.lost:
                _log.warning(
                    "%s: a transcript cannot be written: %s; judging continues", self.folder, error
                )
            self.lost += 1

    def close(self) -> None:
        """Closes the file."""
        if self._file < 0:
            return
        # all records are complete; only the optional end marker is missing
        with suppress(OSError):
            os.write(self._file, self._packer.flush())
            os.fsync(self._file)
        self._end_part()

    def _write(self, line: bytes) -> None:
        if self._file < 0:
            self._begin_part()
        try:
            append_whole(
                self._file, self._packer.compress(line) + self._packer.flush(zlib.Z_SYNC_FLUSH)
            )
        except OSError:
            # Later data would depend on the missing data, so a new file is started.
            with suppress(OSError):
                if not os.fstat(self._file).st_size:
                    self._part.unlink()
            self._end_part()
            raise

    def _begin_part(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (part.name.removeprefix("calls-").partition(".")[0] for part in _parts(self.folder))
        for number in count(max((int(name) for name in names if name.isdecimal()), default=0) + 1):
            with suppress(FileExistsError):
                self._part = self.folder / f"calls-{number:04}.jsonl.gz"
                self._file = os.open(
                    self._part, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644
                )
                break
        self._packer = zlib.compressobj(_LEVEL, wbits=31)

    def _end_part(self) -> None:
        os.close(self._file)
        self._file = -1


def _parts(folder: Path) -> list[Path]:
    parts = (part for part in folder.glob(_PARTS) if not is_stream(part))
    return sorted(parts, key=lambda part: (len(part.name), part.name))


def _read(folder: Path, beginning: bytes = b"") -> Iterator[Transcript]:
    root = os.path.abspath(folder)
    for part in _parts(folder):
        try:
            for line in read_lines(part):
                if line.complete and line.data.startswith(beginning):
                    yield _with_paths(
                        _decoded(line.data, f"{part}:{line.number}"),
                        lambda path: _absolute(root, path),
                    )
        except InputError as error:
            # EOFError means a killed run, whose records were all read
            if not isinstance(error.__cause__, EOFError):
                _log.warning("%s", error)


def _decoded(data: bytes, place: str) -> Transcript:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{place}: not a transcript ({error}); the rest of the file is ignored"
        ) from None


def _absolute(root: str, path: str) -> str:
    return os.path.normpath(Path(root) / path)


def _with_paths(transcript: Transcript, change: Callable[[str], str]) -> Transcript:
    def moved(call: Call) -> Call:
        if all(isinstance(part, str) for turn in call.messages for part in turn.parts):
            return call
        return replace(
            call,
            messages=tuple(
                Turn(turn.role, tuple(map(placed, turn.parts))) for turn in call.messages
            ),
        )

    def placed(part: str | ImageFile) -> str | ImageFile:
        return part if isinstance(part, str) else replace(part, path=change(part.path))

    return replace(transcript, calls=tuple(map(moved, transcript.calls)))
