"""The batch folder: the judge, the request files by stage, and the answers received so far.

Request files are in the format of OpenAI's batch API, which `vllm run-batch` accepts too. The
`custom_id` of a request is its hash, so an answer applies to every equal request. `batch.json`
records the state of each file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from prill.errors import InputError, UsageError
from prill.io.lines import UNREADABLE, read_json
from prill.io.outputs import Writer, lock_or_raise, make_folder, write_output, writing
from prill.io.verdict_log import list_differences
from prill.models.transport import Endpoint
from prill.types import EvaluatorInfo

MANIFEST = "batch.json"
_ANSWERS = "answers"
_FORMAT = "prill batch 1"
# Limits of one file, from OpenAI's documentation of the batch API.
MAX_REQUESTS, MAX_BYTES = 50_000, 200_000_000
URL = "/v1/chat/completions"
# Error codes of requests that were never executed and must be written again.
_NOT_DONE = ("batch_expired", "batch_cancelled")
_ID_BYTES = 16
# none: the requests are not submitted; someone runs them and gives the answers.
Api = Literal["openai", "anthropic", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile:
    """A request file, all for one model.

    `upload` and `batch` are its ids at a batch API. `fetched` is true once its answers are in the
    folder. `api` is the batch API that it is submitted to. Anthropic's API has no file uploads, so
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

    `limit` is the maximum number of trajectories. `judge` is the judge's description, empty for a
    judge made in Python. `secret` determines the quotation codes, so that equal requests are
    written identically; it is never sent.
    """

    format: str = _FORMAT
    evaluator: EvaluatorInfo
    trajectories: tuple[str, ...] = ()
    limit: int | None = None
    secret: str
    judge: dict[str, Any] = field(default_factory=dict)
    files: tuple[RequestFile, ...] = ()


@dataclass(frozen=True)
class BatchState:
    """The state of a batch at its API.

    `done` is the progress as text. Once the batch has ended, the ids of the result files are known.
    """

    status: str
    done: str
    files: tuple[str, ...]
    problem: str = ""


class NotOursError(UsageError):
    """Raised for a file without an answer to this batch."""


def read_manifest(folder: str | os.PathLike[str]) -> Manifest | None:
    """Returns the content of a folder's `batch.json`, or None if the folder is new.

    Raises UsageError if the description is invalid or the folder holds anything else.
    """
    path = Path(folder)
    # unlike Path.exists, returns False for a name that is too long
    if os.path.exists(path / MANIFEST):
        file = path / MANIFEST
        manifest = read_json(file, Manifest, "not a valid batch description", "start a new batch")
        if manifest.format == _FORMAT:
            return manifest
        raise UsageError(
            f"{file}: its format is {manifest.format!r}, but this version of prill reads "
            f"{_FORMAT!r}"
        )
    if os.path.exists(path) and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(
            f"{path}: contains files that do not belong to a batch; choose a new folder",
            parameters=("folder",),
        )
    return None


@contextmanager
def opened_batch(
    path: str | os.PathLike[str],
    evaluator: EvaluatorInfo,
    *,
    trajectories: Iterable[str | os.PathLike[str]] = (),
    limit: int | None = None,
    judge: Mapping[str, Any] | None = None,
) -> Iterator[BatchFolder]:
    """Opens a batch folder for writing by one process at a time; creates it if it does not exist.

    Args:
        path: The folder.
        evaluator: The judge that the requests are for.
        trajectories: Trajectory files to add to those that were given before.
        limit: The maximum number of trajectories, counted from the first. None: as before, or all.
        judge: The judge's description, stored so that the judge can be recreated.

    Yields:
        The folder.

    Raises:
        UsageError: Another process works on the folder, it holds something else, or it belongs to
            another judge.
    """
    make_folder(Path(path) / MANIFEST)
    with ExitStack() as stack:
        flags = os.O_RDONLY | os.O_DIRECTORY
        lock = lock_or_raise(path, f"{path}: another process is using this batch", flags)
        stack.callback(os.close, lock)
        manifest = read_manifest(path)
        if manifest is None:
            manifest = Manifest(evaluator=evaluator, secret=secrets.token_hex(16))
        if changes := list_differences(manifest.evaluator, evaluator):
            raise UsageError(
                f"{path}: the requests were written for another judge ({changes}); "
                "start a new batch"
            )
        paths = dict.fromkeys([*manifest.trajectories, *map(os.path.abspath, trajectories)])
        folder = BatchFolder(Path(path), manifest)
        folder.change(
            trajectories=tuple(paths),
            limit=limit or manifest.limit,
            judge=dict(judge or manifest.judge),
        )
        yield folder


class BatchFolder:
    """An open batch folder and the content of its `batch.json`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest

    def change(self, **values: Any) -> None:
        """Changes fields of `batch.json`."""
        self.manifest = replace(self.manifest, **values)
        text = msgspec.json.format(msgspec.json.encode(self.manifest), indent=1)
        write_output(self.path / MANIFEST, text + b"\n")

    def update(self, *files: RequestFile) -> None:
        """Updates the records of request files, new or known by name."""
        known = {file.name: file for file in (*self.manifest.files, *files)}
        self.change(files=tuple(known.values()))

    def take(
        self, path: str | os.PathLike[str], hide: Callable[[str], str] = lambda text: text
    ) -> list[str]:
        """Copies the answers to this batch from a file into the folder.

        Args:
            path: The file of answers.
            hide: Masks secrets in a line.

        Returns:
            A sentence for each line that cannot be read, and one for lines of other batches.

        Raises:
            NotOursError: The file contains no answer to this batch.
        """
        ours, problems, known, others = {id for id, _ in self.written()}, [], 0, 0
        try:
            with Path(path).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
                file.seek(0)
                with writing(self.path / _ANSWERS / f"{digest}.jsonl") as copy:
                    for number, line in enumerate(file, 1):
                        try:
                            id = extract_answer(line)[0] if line.strip() else None
                        except InputError as error:
                            problems.append(f"{path}:{number}: not a batch answer ({error})")
                            continue
                        if id in ours:
                            known += 1
                            copy.write(hide(line.decode("latin-1")).encode("latin-1"))
                        else:
                            others += id is not None
                    if not known and (others or problems):
                        raise NotOursError(
                            f"{path}: contains no answers of this batch; choose another file"
                        )
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        if others:
            problems.append(f"{path}: {others} lines do not answer a request of this batch")
        return problems

    def answer_files(self) -> list[Path]:
        """Returns the answer files, oldest first."""
        files = (self.path / _ANSWERS).glob("*.jsonl")
        return sorted(files, key=lambda file: file.stat().st_mtime_ns)

    def written(self) -> Iterator[tuple[str, RequestFile]]:
        """Yields each written request's id and file.

        An id occurs once for each time that the request was written.
        """
        for entry in self.manifest.files:
            path = self.path / entry.name
            try:
                with path.open("rb") as file:
                    for line in file:
                        yield _decode_line(line).custom_id, entry
            except (OSError, *UNREADABLE) as error:
                raise UsageError(
                    f"{path}: the requests cannot be read ({error}); start a new batch"
                ) from None


@dataclass
class _Part:
    """A request file that is not finished, for one endpoint, key and model."""

    name: str
    key: tuple[str, str, str]
    file: Writer
    requests: int = 0
    size: int = 0


@contextmanager
def next_stage(folder: BatchFolder) -> Iterator[Callable[[str, bytes, Endpoint], None]]:
    """Yields a function that writes a request, as the judge would send it to an endpoint.

    Requests are split by model and by the size limits of batch APIs. The files appear when the
    block ends; after an exception there are none.
    """
    stage = max((file.stage for file in folder.manifest.files), default=0) + 1
    newest: dict[tuple[str, str, str], _Part] = {}
    parts: list[_Part] = []

    def add(id: str, body: bytes, endpoint: Endpoint) -> None:
        model = str(msgspec.json.decode(body, type=_Model).model)
        request = {"custom_id": id, "method": "POST", "url": URL, "body": msgspec.Raw(body)}
        line = msgspec.json.encode(request) + b"\n"
        key = (endpoint.base_url, endpoint.api_key_env, model)
        part = newest.get(key)
        if part is None or part.requests >= MAX_REQUESTS or part.size + len(line) > MAX_BYTES:
            name = f"requests-{stage:02}-{len(parts) + 1:03}.jsonl"
            file = stack.enter_context(writing(folder.path / name))
            part = newest[key] = _Part(name, key, file)
            parts.append(part)
        part.file.write(line)
        part.requests += 1
        part.size += len(line)

    with ExitStack() as stack:
        yield add
    if parts:
        folder.update(
            *(
                RequestFile(
                    name=part.name,
                    stage=stage,
                    model=part.key[2],
                    base_url=part.key[0],
                    api_key_env=part.key[1],
                    requests=part.requests,
                )
                for part in parts
            )
        )


@dataclass(frozen=True)
class _Model:
    model: str


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
    response, error = line.response or _Response(500), line.error or None
    status, body = response.status_code, bytes(response.body)
    if body == b"null":
        body = msgspec.json.encode({"error": error or "the batch returned no answer"})
        error = error or True
    if error and status == 200:
        status = 500
    code = error.get("code") if isinstance(error, dict) else None
    return line.custom_id, status, body, code not in _NOT_DONE


class Answers:
    """An index of written requests and received answers.

    Once a batch is completely fetched, its requests without a readable answer count as not
    executed. With `retry_failed`, failed requests count as not executed too.
    """

    def __init__(self, folder: BatchFolder, *, retry_failed: bool = False) -> None:
        self._again = {"not done", "failed"} if retry_failed else {"not done"}
        self._written = Counter(id for id, _ in folder.written())
        self._fetched = Counter(id for id, entry in folder.written() if entry.fetched)
        # by id and content of the line: its file, where it starts, and what it says
        self._found: dict[str, dict[bytes, tuple[Path, int, str]]] = {}
        for path in folder.answer_files():
            start = 0
            with path.open("rb") as file:
                for line in file:
                    self._note(line, path, start)
                    start += len(line)

    def _note(self, line: bytes, path: Path, start: int) -> None:
        try:
            id, status, _, done = extract_answer(line)
        except InputError:
            return
        kind = "not done" if not done else "good" if status == 200 else "failed"
        content = hashlib.blake2b(line, digest_size=16).digest()
        self._found.setdefault(id, {}).setdefault(content, (path, start, kind))

    def knows(self, id: str) -> bool:
        """Returns whether there is an answer to a request."""
        return id in self._found

    def get(self, id: str) -> tuple[int, bytes] | None:
        """Returns status and body of the first good answer, else of the last failed one, or
        None.
        """
        found = [one for one in self._found.get(id, {}).values() if one[2] not in self._again]
        if not found:
            return None
        path, start, _ = next((one for one in found if one[2] == "good"), found[-1])
        with path.open("rb") as file:
            file.seek(start)
            _, status, body, _ = extract_answer(file.readline())
        return status, body

    def claim(self, id: str) -> bool:
        """Returns whether a request without an answer must be written now: it is new, or whenever
        it was written, it was not executed.
        """
        if max(len(self._found.get(id, ())), self._fetched[id]) < self._written[id]:
            return False
        self._written[id] += 1
        return True


def request_id(body: bytes, base_url: str) -> str:
    """Returns the `custom_id` of a request: a hash of its body and its endpoint."""
    digest = hashlib.blake2b(f"{base_url}\0".encode(), digest_size=_ID_BYTES)
    digest.update(body)
    return digest.hexdigest()
