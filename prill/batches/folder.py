"""The batch folder: the judge, the request files by stage, and the answers received so far.

Request files are in the format of OpenAI's batch API, which `vllm run-batch` accepts too. The
`custom_id` of a request is its hash, so an answer applies to every equal request. `batch.json`
records the state of each file.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from prill.errors import InputError, UsageError
from prill.io.cache import scratch_database
from prill.io.lines import UNREADABLE, read_json
from prill.io.outputs import (
    LockedFolder,
    lock_or_raise,
    make_folder,
    part_path,
    write_errors,
    write_output,
    writing,
)
from prill.io.verdict_log import list_differences
from prill.locks import Closing
from prill.types import EvaluatorInfo

MANIFEST = "batch.json"
_ANSWERS = "answers"
_LATER = 10**9  # nanoseconds: more than the timestamp resolution of file systems
_FORMAT = "prill batch 1"
# Limits of one file, from OpenAI's documentation of the batch API.
MAX_REQUESTS, MAX_BYTES = 50_000, 200_000_000
URL = "/v1/chat/completions"
# Error codes of requests that were never executed and must be written again.
_NOT_DONE = ("batch_expired", "batch_cancelled")
_ID_BYTES = 16
Api = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile:
    """A request file, all for one model.

    `upload` and `batch` are its ids at a batch API. `fetched` is true once its answers are in the
    folder. `api` is the batch API that it was submitted to. Anthropic's API has no file uploads, so
    there `upload` is the time before the batch was created. `status` is the last status that the
    API returned.
    """

    name: str
    stage: int
    model: str
    base_url: str
    api_key_env: str
    requests: int
    api: Api | None = None
    upload: str | None = None
    batch: str | None = None
    status: str | None = None
    fetched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `batch.json`.

    `limit` is the maximum number of trajectories. `judge` is the judge's description for the
    command that created the folder; it is empty if the folder was created from Python. `secret`
    determines the quotation codes, so that equal requests are written identically; it is never
    sent.
    """

    format: str = _FORMAT
    evaluator: EvaluatorInfo
    trajectories: tuple[str, ...]
    limit: int | None = None
    secret: str
    judge: dict[str, Any] = field(default_factory=dict)
    files: tuple[RequestFile, ...] = ()


def expect_free(path: Path) -> bool:
    """Returns True if a new batch may start in the folder, and False if it already holds one.

    Raises UsageError if the folder holds anything else.
    """
    if os.path.exists(path / MANIFEST):
        return False
    if os.path.exists(path) and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(
            f"{path}: contains files that do not belong to a batch; choose a new folder",
            parameters=("output",),
        )
    return True


class BatchFolder(LockedFolder):
    """A batch folder, opened for writing by one process at a time.

    Args:
        path: The folder.
        evaluator: The judge that the requests are for; a missing folder is created. None: the
            folder must exist.
        trajectories: Trajectory files to add to those that were given before.
        limit: The maximum number of trajectories, counted from the first. None: all.
        judge: The judge's description, stored so that the judge can be recreated. None: not stored.

    Raises:
        UsageError: Another process works on the folder, it belongs to another judge, or it is not a
            batch folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        evaluator: EvaluatorInfo | None = None,
        *,
        trajectories: Sequence[str | os.PathLike[str]] = (),
        limit: int | None = None,
        judge: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        file = self.path / MANIFEST
        # unlike Path.exists, returns False for a name that is too long
        if evaluator is not None and not os.path.exists(file):
            expect_free(self.path)
            make_folder(file)
        with ExitStack() as on_failure:
            try:
                self._lock = lock_or_raise(
                    path,
                    f"{path}: another process is using this batch",
                    os.O_RDONLY | os.O_DIRECTORY,
                )
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror}") from None
            on_failure.callback(self.close)
            if file.exists():
                self.manifest = _read_manifest(file)
                if evaluator is not None:
                    self.expect(evaluator)
                    self._note(trajectories, limit, judge or {})
            elif evaluator is None:
                raise UsageError(f"{path}: not a batch folder, because {MANIFEST} is missing")
            else:
                self.manifest = Manifest(
                    evaluator=evaluator,
                    trajectories=(),
                    secret=secrets.token_hex(16),
                    judge=dict(judge or {}),
                )
                self._note(trajectories, limit, judge or {})
            on_failure.pop_all()

    def expect(self, evaluator: EvaluatorInfo) -> None:
        """Checks that the requests belong to a judge.

        Args:
            evaluator: The judge.

        Raises:
            UsageError: They belong to another judge or to other settings.
        """
        if changes := list_differences(self.manifest.evaluator, evaluator):
            raise UsageError(
                f"{self.path}: the requests were written for another judge ({changes}); "
                "write a new batch"
            )

    def _note(
        self,
        trajectories: Sequence[str | os.PathLike[str]],
        limit: int | None,
        judge: Mapping[str, Any],
    ) -> None:
        """Stores which files are judged, and the judge's description.

        Raises UsageError if the description differs from the stored one, because the model could be
        another one.
        """
        there, now = dict(_leaves(self.manifest.judge)), dict(_leaves(judge))
        if changes := sorted(key for key in {*there, *now} if there.get(key) != now.get(key)):
            differences = "; ".join(
                f"{key} {_shown(there.get(key))} there, {_shown(now.get(key))} now"
                for key in changes
            )
            raise UsageError(
                f"{self.path}: the requests were written with other options ({differences}); "
                "write a new batch"
            )
        paths = dict.fromkeys([*self.manifest.trajectories, *map(os.path.abspath, trajectories)])
        self.manifest = replace(self.manifest, trajectories=tuple(paths), limit=limit)
        self._save()

    def update(self, *files: RequestFile) -> None:
        """Updates the records of request files.

        Args:
            *files: The files, new or known by name.
        """
        known = {file.name: file for file in self.manifest.files} | {
            file.name: file for file in files
        }
        self.manifest = replace(self.manifest, files=tuple(known.values()))
        self._save()

    def take(self, path: str | os.PathLike[str]) -> list[str]:
        """Copies an answer file into the folder, unless it is already there.

        Args:
            path: The file of answers.

        Returns:
            A sentence for each line that cannot be read.

        Raises:
            UsageError: The file contains no answer to this batch.
        """
        try:
            with Path(path).open("rb") as file:
                problems = self._look_through(path, file)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                target = self.path / _ANSWERS / f"{digest[:32]}.jsonl"
                if not target.exists():
                    newest = max((one.stat().st_mtime_ns for one in self.answer_files()), default=0)
                    file.seek(0)
                    with writing(target) as copy:
                        while block := file.read(1 << 20):
                            copy.write(block)
                    # keep the order of arrival if the clock was set back
                    if target.stat().st_mtime_ns <= newest:
                        os.utime(target, ns=(newest + _LATER, newest + _LATER))
                return problems
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None

    def answer_files(self) -> list[Path]:
        """Returns the answer files, oldest first."""
        files = (self.path / _ANSWERS).glob("*.jsonl")
        return sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name))

    def written(self) -> Iterator[tuple[str, bool]]:
        """Yields each written request's id, and whether its file was completely answered.

        An id occurs once for each time that the request was written.
        """
        for entry in self.manifest.files:
            path = self.path / entry.name
            try:
                with path.open("rb") as file:
                    for line in file:
                        yield _decode_line(line).custom_id, entry.fetched
            except (OSError, *UNREADABLE) as error:
                raise UsageError(
                    f"{path}: the requests cannot be read ({error}); write a new batch"
                ) from None

    def _look_through(self, path: str | os.PathLike[str], file: IO[bytes]) -> list[str]:
        ours, problems, others = {id for id, _ in self.written()}, [], 0
        known = 0
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    is_ours = extract_answer(line)[0] in ours
                    known, others = known + is_ours, others + (not is_ours)
            except InputError as error:
                problems.append(f"{path}:{number}: not a batch answer ({error})")
        if not known and (others or problems):
            what = f"answers {others} requests, none of them" if others else "contains no answers"
            raise UsageError(f"{path}: {what} of this batch; choose another file")
        if others:
            problems.append(f"{path}: {others} lines do not answer a request of this batch")
        return problems

    def _save(self) -> None:
        write_output(
            self.path / MANIFEST,
            msgspec.json.format(msgspec.json.encode(self.manifest), indent=1) + b"\n",
        )


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested tables with their dotted paths."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _shown(value: object) -> object:
    """Returns an option's value for a message, without a URL's query, which may contain a key."""
    return re.sub(r"\?.*", "?…", value) if isinstance(value, str) and "://" in value else value


def _read_manifest(file: Path) -> Manifest:
    manifest = read_json(file, Manifest, "not a valid batch description", "write a new batch")
    if manifest.format != _FORMAT:
        raise UsageError(
            f"{file}: its format is {manifest.format!r}, but this version of prill reads "
            f"{_FORMAT!r}"
        )
    return manifest


class StageWriter(Closing):
    """Writes the requests of the next stage atomically.

    Requests are split by model and by the size limits of batch APIs.
    """

    def __init__(
        self, folder: BatchFolder, *, most_requests: int = MAX_REQUESTS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._folder, self._most = folder, (most_requests, most_bytes)
        self.stage = max((file.stage for file in folder.manifest.files), default=0) + 1
        self.count = 0
        self._open: dict[tuple[str, str, str], _Part] = {}
        self._parts: list[_Part] = []

    def add(self, id: str, body: bytes, base_url: str, api_key_env: str) -> None:
        """Adds a request."""
        model = str(msgspec.json.decode(body, type=_Model).model)
        request = {"custom_id": id, "method": "POST", "url": URL, "body": msgspec.Raw(body)}
        line = msgspec.json.encode(request) + b"\n"
        key = (base_url, api_key_env, model)
        part = self._open.get(key)
        if part is None or part.requests >= self._most[0] or part.size + len(line) > self._most[1]:
            name = f"requests-{self.stage:02}-{len(self._parts) + 1:03}.jsonl"
            part = self._open[key] = _Part(self._folder.path / name, key)
            self._parts.append(part)
        with write_errors(part.target):
            part.file.write(line)
        part.requests += 1
        part.size += len(line)
        self.count += 1

    def finish(self) -> None:
        """Moves the files to their final names and records them."""
        for part in self._parts:
            with write_errors(part.target):
                part.file.flush()
                os.fsync(part.file.fileno())
                part.path.replace(part.target)
        if self._parts:
            self._folder.update(*(part.described(self.stage) for part in self._parts))

    def close(self) -> None:
        """Deletes the files that were not finished."""
        for part in self._parts:
            part.file.close()
            part.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Model:
    model: str


class _Part:
    """A request file that is not finished."""

    def __init__(self, target: Path, key: tuple[str, str, str]) -> None:
        self.target, self.key = target, key
        self.path = part_path(target)
        self.requests = self.size = 0
        with write_errors(target):
            self.file: IO[bytes] = self.path.open("xb")

    def described(self, stage: int) -> RequestFile:
        """Returns the file's manifest entry."""
        base_url, api_key_env, model = self.key
        return RequestFile(
            name=self.target.name,
            stage=stage,
            model=model,
            base_url=base_url,
            api_key_env=api_key_env,
            requests=self.requests,
        )


_NULL = msgspec.Raw(b"null")


class _Response(msgspec.Struct, frozen=True):  # a dataclass cannot have raw JSON as a default
    status_code: int = 200
    body: msgspec.Raw = _NULL


@dataclass(frozen=True)
class _Line:
    custom_id: str
    response: _Response | msgspec.UnsetType | None = msgspec.UNSET
    error: Any = msgspec.UNSET


_decode_line = msgspec.json.Decoder(_Line).decode


def extract_answer(data: bytes) -> tuple[str, int, bytes, bool]:
    """Parses an answer line into request id, status, body, and whether the request was executed.

    Raises InputError for any other line.
    """
    try:
        line = _decode_line(data)
    except UNREADABLE as broken:
        raise InputError(str(broken)) from None
    if line.response is msgspec.UNSET and line.error is msgspec.UNSET:  # a request, say
        raise InputError("it has neither a response nor an error")
    response, error = line.response or None, line.error or None
    body = bytes(response.body if response else _NULL)
    if error or body == b"null":
        code = error.get("code") if isinstance(error, dict) else None
        body = (
            body
            if body != b"null"
            else msgspec.json.encode({"error": error or "the batch returned no answer"})
        )
        status = response.status_code if response else 500
        return line.custom_id, status if status != 200 else 500, body, code not in _NOT_DONE
    return line.custom_id, response.status_code if response else 500, body, True


class Answers:
    """An index of written requests and received answers, kept on disk.

    Unreadable answer lines are skipped. Once a batch is completely fetched, its requests without a
    readable answer count as not executed. With `retry_failed`, failed requests count as not
    executed too.
    """

    def __init__(self, folder: BatchFolder, *, retry_failed: bool = False) -> None:
        self._retry = retry_failed
        self._files = folder.answer_files()
        self._db = scratch_database(self)
        self._db.execute(
            "CREATE TABLE written (id TEXT PRIMARY KEY, times INTEGER, fetched INTEGER) WITHOUT "
            "ROWID"
        )
        self._db.execute(
            "CREATE TABLE answers (number INTEGER PRIMARY KEY, id TEXT, line BLOB, file INTEGER, "
            "start INTEGER, kind TEXT, UNIQUE (id, line))"
        )
        for id, fetched in folder.written():
            self.note_written(id, fetched=fetched)
        for number, path in enumerate(self._files):
            self._read(number, path)

    @property
    def written(self) -> int:
        """Returns the number of different requests."""
        return int(self._db.execute("SELECT COUNT(*) FROM written").fetchone()[0])

    @property
    def waiting(self) -> int:
        """Returns the number of requests without an answer."""
        answered = "SELECT id FROM answers WHERE kind != 'not done'"
        return int(
            self._db.execute(
                f"SELECT COUNT(*) FROM written WHERE id NOT IN ({answered})"
            ).fetchone()[0]
        )

    def get(self, id: str) -> tuple[int, bytes] | None:
        """Returns status and body of the first good answer, else of the last failed one, or
        None.
        """
        kinds = "'good'" if self._retry else "'good', 'failed'"
        row = self._db.execute(
            f"SELECT file, start FROM answers WHERE id = ? AND kind IN ({kinds}) ORDER BY kind = "
            "'good' DESC, CASE kind WHEN 'good' THEN number ELSE -number END LIMIT 1",
            (id,),
        ).fetchone()
        if row is None:
            return None
        with Path(self._files[row[0]]).open("rb") as file:
            file.seek(row[1])
            _, status, body, _ = extract_answer(file.readline())
        return status, body

    def wants(self, id: str) -> bool:
        """Returns whether the request must be written: it is new, or was not executed."""
        row = self._db.execute("SELECT times, fetched FROM written WHERE id = ?", (id,)).fetchone()
        if row is None:
            return True
        kinds = "'not done', 'failed'" if self._retry else "'not done'"
        counted = (
            f"SELECT COUNT(*), COUNT(*) FILTER (WHERE kind IN ({kinds})) FROM answers WHERE id = ?"
        )
        lines, undone = self._db.execute(counted, (id,)).fetchone()
        return bool(undone + max(0, row[1] - lines) >= row[0])

    def note_written(self, id: str, *, fetched: bool = False) -> None:
        """Records that a request was written once more.

        `fetched`: all answers to its file have been received.
        """
        again = (
            "ON CONFLICT (id) DO UPDATE SET times = times + 1, fetched = fetched + excluded.fetched"
        )
        self._db.execute(f"INSERT INTO written VALUES (?, 1, ?) {again}", (id, int(fetched)))

    def close(self) -> None:
        """Deletes the temporary database."""
        self._db.close()

    def _read(self, number: int, path: Path) -> None:
        start = 0
        with Path(path).open("rb") as file:
            for line in file:
                offset, start = start, start + len(line)
                with suppress(InputError):
                    id, status, _, done = extract_answer(line)
                    kind = "not done" if not done else "good" if status == 200 else "failed"
                    content = hashlib.blake2b(line, digest_size=16).digest()
                    self._db.execute(
                        "INSERT OR IGNORE INTO answers (id, line, file, start, kind) VALUES (?, "
                        "?, ?, ?, ?)",
                        (id, content, number, offset, kind),
                    )


def request_id(body: bytes, base_url: str) -> str:
    """Returns the `custom_id` of a request: a hash of its body and its endpoint."""
    digest = hashlib.blake2b(f"{base_url}\0".encode(), digest_size=_ID_BYTES)
    digest.update(body)
    return digest.hexdigest()
