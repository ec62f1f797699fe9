"""The runs, verdicts and labels that the page shows, read while their files grow."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from prill.errors import InputError, PrillError
from prill.evaluators.labels import gold_labels
from prill.io.cache import scratch_database
from prill.io.joining import record_digest
from prill.io.lines import Line, decode_as, get_name
from prill.io.store import BadLine, UniqueIds, decode_trajectory, encode, read_labels
from prill.models.transcripts import read_transcript, transcript_folder
from prill.types import LabelRecord, Trajectory, Verdict
from prill.ui.report.calls import Exchanges, exchanges
from prill.ui.report.causes import Cause, find_cause
from prill.ui.report.entries import (
    Detail,
    Judge,
    ReportRow,
    Retry,
    detail,
    file_names,
    get_series,
    judge_names,
    judged_row,
    row,
    truth_outcome,
)
from prill.ui.report.pictures import ReportPicture, look_at
from prill.ui.report.summary import ReportContents, Summary, summary
from prill.ui.view.following import FollowedFile
from prill.ui.view.index import SearchIndex
from prill.ui.view.label_log import SOURCE, LabelLog

_MAX_BROKEN = 100  # messages about lines that cannot be read
_MAX_TEXT = 200_000  # characters of a goal, a thought or an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProgress:
    """The progress of a judge on the runs.

    Attributes:
        name: The judge's name.
        judged: The number of runs with a verdict, unscored ones included.
        unscored: The number of unscored runs, by reason.
    """

    name: str
    judged: int
    unscored: Mapping[str, int]


class Library:
    """Rows of runs with verdicts and labels, by number; texts and images are read on request.

    It is thread-safe: one thread may `refresh` it while others read.

    Args:
        runs: Trajectory files.
        verdicts: Verdict files, which may not exist yet.
        labels: Label files.
        source: The source of labels to use; see `prill.io.truth.gold_labels`.
        truth: The rule for several labels.
        by: Keys of runs to filter by.
        retries: The outcomes of retry attempts, by id.
        transcripts: Whether to show model transcripts.
        annotator: The annotator at the page, whose labels of these files do not count:
            `begin_labels` takes the person's own. With one, and without a `source`, people's
            labels count.
        limit: The number of readable runs after which reading stops; None: all are read.

    Raises:
        UsageError: A file cannot be read, the labels have several sources, or this Python has no
            full-text search.
    """

    def __init__(
        self,
        runs: Sequence[str | os.PathLike[str]],
        verdicts: Sequence[str | os.PathLike[str]] = (),
        labels: Sequence[str | os.PathLike[str]] = (),
        *,
        source: str | None = None,
        truth: str = "majority",
        by: Sequence[str] = (),
        retries: Mapping[str, Retry] | None = None,
        transcripts: bool = True,
        annotator: str | None = None,
        limit: int | None = None,
    ) -> None:
        self._names = file_names([str(path) for path in runs])
        more = [*(["attempt"] if retries else ()), *(["file"] if self._names else ())]
        self.parts = list(dict.fromkeys(("site", "agent", "platform", "truncated", *more, *by)))
        self.retries = retries or {}
        self.generation = 0
        self.files = [str(path) for path in runs]
        self._verdict_paths = [str(path) for path in verdicts]
        self._label_paths = [str(path) for path in labels]
        self._source, self._truth, self._transcripts = source, truth, transcripts
        self._limit = limit
        self._is_still = False
        self._lock = threading.RLock()
        self.annotator = annotator
        self.own: dict[str, LabelRecord] = {}  # the newest labels of that person
        self._label_files: list[tuple[int, int]] = []
        self._read_labels: list[LabelRecord] = []
        self._begin()
        self._take_labels()

    def _begin(self) -> None:
        self.rows: list[ReportRow] = []
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self.problems: list[str] = []
        self.judges: list[Judge] = []
        self.label_source = ""
        self._journal: list[int] = []  # rows in the order of changes
        self._where: list[tuple[int, int, int] | None] = []  # file, start and size
        self._origins: list[int] = []  # the number of each row when it was read
        self._unread: deque[int] = deque()  # rows whose texts are not in the index yet
        self._readable = 0
        self._series: dict[tuple[object, ...], int] = {}
        self._columns: dict[tuple[str, bytes], Judge] = {}  # by file and evaluator
        self._gold: dict[str, bool | None] = {}
        self._labels: dict[str, list[LabelRecord]] = {}
        self._causes: dict[str, Cause | None] = {}  # of the runs whose texts were read
        self._records: dict[str, str] = {}  # the digests of the readable runs
        self._run_files = [FollowedFile(path) for path in self.files]
        self._verdict_files = [FollowedFile(path) for path in self._verdict_paths]
        self._unique = UniqueIds()
        self._kept = scratch_database()
        self._kept.execute("CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB)")
        self._index = SearchIndex()
        self.generation += 1

    def close(self) -> None:
        """Deletes the temporary files."""
        with self._lock:
            self._unique.close()
            self._kept.close()
            self._index.close()

    # ---- reading

    def refresh(self) -> Iterator[int]:
        """Reads new lines of the files, and then the texts of their runs, a little at a time.

        Yields:
            After each record, the number of records; no lock is held then.
        """
        if not self._is_still:
            yield from self.read_rows()
        with self._lock:
            if self._stamps() != self._label_files:
                try:
                    self._take_labels()
                except PrillError as error:  # another process may be writing it
                    self._problem(str(error))
        yield from self._read_texts()

    def _read_texts(self) -> Iterator[int]:
        """Adds the texts of new runs to the index; their lines are read again for it."""
        count = 0
        while self._unread:
            number = self._unread.popleft()
            one = self.rows[number]
            with contextlib.suppress(InputError):  # its page says so
                item = self[number]
                self._index.add_run(self._origins[number], item)
                self._causes[one.id] = find_cause(item)
                if "failure" in (one.truth, *one.outcomes):  # the summary changes
                    with self._lock:
                        self._journal.append(number)
            count += 1
            yield count

    def read_rows(self) -> Iterator[int]:
        """Reads new lines as far as the list shows them, and yields as `refresh` does."""
        count = 0
        files = [*self._run_files, *self._verdict_files]
        if any(file.was_replaced() for file in files):
            with self._lock:
                self.close()
                self._begin()
                self._take_labels()
        for number, file in enumerate(self._run_files):
            for _ in () if self._is_full else self._follow(file, partial(self._take_run, number)):
                count += 1
                yield count
                if self._is_full:
                    break
        for file in self._verdict_files:
            for _ in self._follow(file, partial(self._take_verdict, file)):
                count += 1
                yield count

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self._readable >= self._limit

    def keep(self, numbers: Sequence[int]) -> None:
        """Keeps these rows, in this order; afterwards, only label files are followed."""
        with self._lock:
            self._is_still = True
            self.rows = [self.rows[number] for number in numbers]
            self._where = [self._where[number] for number in numbers]
            self._origins = [self._origins[number] for number in numbers]
            unread = set(self._unread)
            self._unread = deque(place for place, number in enumerate(numbers) if number in unread)
            self.ids = [one.id for one in self.rows]
            self.places = {id: place for place, id in enumerate(self.ids)}
            self._journal = list(range(len(self.rows)))
            self.generation += 1

    def _follow(self, file: FollowedFile, take: Callable[[Line], bool]) -> Iterator[None]:
        if not Path(file.path).exists() and file.path != "-":
            if file.read:  # otherwise, it is a verdict file that a run is about to create
                name = get_name(file.path)
                self._problem(f"{name}: was removed or renamed; start the command again")
            return
        file.waits = False
        try:
            for line in file.new_lines():
                with self._lock:
                    if not take(line):
                        file.forget(line)
                        return
                yield
        except PrillError as error:
            self._problem(str(error))

    def _take_run(self, number: int, line: Line) -> bool:
        file = self._run_files[number]
        place = f"{get_name(file.path)}:{line.number}"
        item: Trajectory | BadLine
        try:
            item = decode_trajectory(line.data, file.root)
        except InputError as error:
            if not line.complete:
                return False
            item = BadLine(place, place, str(error), b"")
        item = self._unique.checked(place, item)
        at = len(self.rows)
        self.places[item.id] = at
        if isinstance(item, BadLine):
            self._problem(item.message)
        else:
            self._unread.append(at)
            self._records[item.id] = record_digest(item)
        name = self._names.get(file.path)
        is_labelled, gold = item.id in self._gold, self._gold.get(item.id)
        made = row(item, self.judges, is_labelled, gold, self.parts, name)
        if (series := get_series(item, name)) is not None:
            task = self._series.setdefault(series[0], len(self._series))
            made = replace(made, series=task, attempt=series[1])
        self.rows.append(made)
        self.ids.append(item.id)
        self._origins.append(at)
        self._readable += isinstance(item, Trajectory)
        if line.start is None or isinstance(item, BadLine):
            self._where.append(None)
            if not isinstance(item, BadLine):
                self._kept.execute("INSERT INTO bodies VALUES (?, ?)", (at, encode(item)))
        else:
            self._where.append((number, line.start, line.size))
        for judge, column in enumerate(self._columns.values()):
            if (verdict := column.verdicts.get(item.id)) is not None:
                self._index.add_reason(at, judge, verdict.reason)
        self._journal.append(at)
        return True

    def _take_verdict(self, file: FollowedFile, line: Line) -> bool:
        try:
            verdict = decode_as(line.data, Verdict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not line.complete:
                return False
            self._problem(f"{get_name(file.path)}:{line.number}: no verdict: {error}")
            return True
        key = (file.path, encode(verdict.evaluator))
        column = self._columns.get(key)
        if column is None:
            folder = transcript_folder(file.path) if self._transcripts else None
            column = self._columns[key] = Judge("", verdict.evaluator, {}, folder)
            self._name_judges()
        column.add(verdict)
        if (at := self.places.get(verdict.id)) is not None:
            self.rows[at] = judged_row(self.rows[at], self.judges)
            self._index.add_reason(at, list(self._columns).index(key), verdict.reason)
            self._journal.append(at)
        return True

    def _name_judges(self) -> None:
        """Renames the judges; a new judge changes all rows, so the page reloads."""
        names = judge_names([(path, one.info) for (path, _), one in self._columns.items()])
        columns = zip(names, self._columns.values(), strict=True)
        self.judges = [replace(column, name=name) for name, column in columns]
        self.rows = [judged_row(one, self.judges) for one in self.rows]
        self.generation += 1

    def begin_labels(self, log: LabelLog) -> None:
        """Takes labels of the annotator's log, too, in which this process writes."""
        self.own = dict(log.mine)
        paths = [*self._label_paths, str(log.path)]
        self._label_paths = list(dict.fromkeys(paths))
        self._take_labels()

    def _filled(self) -> list[Path]:
        """Returns the label files that are not empty."""
        paths = map(Path, self._label_paths)
        return [path for path in paths if path.exists() and path.stat().st_size]

    def _stamps(self) -> list[tuple[int, int]]:
        statuses = [path.stat() for path in self._filled()]
        return [(status.st_mtime_ns, status.st_size) for status in statuses]

    def _take_labels(self) -> None:
        self._label_files = self._stamps()
        self._read_labels = [label for path in self._filled() for label in read_labels(path)]
        self.relabel()

    def relabel(self) -> None:
        """Recomputes labels after `own` has changed. Raises UsageError for several sources."""
        with self._lock:
            theirs = [
                label
                for label in self._read_labels
                if self.annotator is None or label.annotator != self.annotator
            ]
            labels = [*theirs, *self.own.values()]
            if self.annotator is not None and self._source is None:
                labels = [label for label in labels if label.source == SOURCE]
            self.label_source, self._gold = gold_labels(labels, self._source, self._truth)
            by_id: dict[str, list[LabelRecord]] = defaultdict(list)
            for label in labels:
                if label.source == self.label_source:
                    by_id[label.id].append(label)
            changed = {
                id
                for id in self._labels.keys() | by_id.keys()
                if self._labels.get(id) != by_id.get(id)
            }
            self._labels = dict(by_id)
            for id in changed:
                if (at := self.places.get(id)) is not None:
                    outcome = truth_outcome(self._gold[id]) if id in self._gold else ""
                    self.rows[at] = replace(self.rows[at], truth=outcome)
                    self._journal.append(at)

    def _problem(self, message: str) -> None:
        if len(self.problems) < _MAX_BROKEN and message not in self.problems:
            self.problems.append(message)

    # ---- what is asked

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Trajectory:
        """Returns the run of a row. Raises InputError if its line can no longer be read."""
        with self._lock:
            if self.rows[number].broken is not None:
                raise InputError(self.rows[number].broken or "")
            where, id = self._where[number], self.ids[number]
            if where is None:
                body = self._kept.execute(
                    "SELECT body FROM bodies WHERE number = ?", (self._origins[number],)
                ).fetchone()
                return msgspec.json.decode(body[0], type=Trajectory)
            file = self._run_files[where[0]]
        try:
            with Path(file.path).open("rb") as opened:
                opened.seek(where[1])
                found = decode_trajectory(opened.read(where[2]).strip(), file.root)
        except OSError as error:
            raise InputError(f"{get_name(file.path)}: {error.strerror}") from None
        if found.id != id:
            raise InputError(
                f"{get_name(file.path)}: has changed since it was read; start the command again"
            )
        return found

    def changes(self, since: int, most: int) -> tuple[int, list[tuple[int, ReportRow]]]:
        """Returns the rows that changed.

        Args:
            since: The number of changes already known.
            most: The maximum number of changes to return.

        Returns:
            The number of changes known now, and the rows with their numbers.
        """
        with self._lock:
            end = min(len(self._journal), since + most)
            numbers = sorted(set(self._journal[since:end]))
            return end, [(number, self.rows[number]) for number in numbers]

    @property
    def changed(self) -> int:
        """Returns the number of changes so far."""
        return len(self._journal)

    def progress(self) -> list[JudgeProgress]:
        """Returns the progress of each judge."""
        with self._lock:
            return [_progress(judge, self.places) for judge in self.judges]

    def read_share(self) -> float:
        """Returns the fraction of the files that was read, from 0 to 1; texts of runs are half."""
        left = self._verdict_files if self._is_full else (*self._run_files, *self._verdict_files)
        files = [file for file in left if Path(file.path).exists()]
        size = sum(file.size for file in files)
        share = min(1.0, sum(file.read for file in files) / size) if size else 1.0
        return share * (1 - 0.5 * len(self._unread) / max(1, len(self.rows)))

    def search(self, query: str, *, reasons: bool) -> set[int] | None:
        """Returns the rows that match the query; see `SearchIndex.search`."""
        found = self._index.search(query, reasons=reasons)
        if found is None or not self._is_still:
            return found
        return {number for number, origin in enumerate(self._origins) if origin in found}

    def detail(self, number: int) -> Detail:
        """Returns a run with its verdicts and labels; its images are named
        `pictures/NUMBER/STATE`.
        """
        with self._lock:
            one, judges = self.rows[number], list(self.judges)
            labels = list(self._labels.get(one.id, ()))
        try:
            item: Trajectory | BadLine = self[number]
        except InputError as error:
            item = BadLine(one.id, one.id, str(error), b"")
        places = {
            state.screenshot: f"pictures/{number}/{place}"
            for place, state in enumerate(item.observations if isinstance(item, Trajectory) else ())
            if state.screenshot
        }

        def picture(path: str) -> ReportPicture:
            name = Path(path).name
            size = look_at(path)
            if size is None:
                return ReportPicture(name=name)
            return ReportPicture(name=name, width=size[0], height=size[1], src=places[path])

        shown = detail(item, judges, labels, picture, self.retries.get(one.id), _MAX_TEXT)
        return replace(shown, digest=_digest(item) if isinstance(item, Trajectory) else "")

    def digest(self, number: int) -> str:
        """Returns the digest of a run as it is in its file now. Raises InputError like indexing."""
        return _digest(self[number])

    def calls(self, number: int, judge: int) -> Exchanges | None:
        """Returns the model transcript of a judge on a run; None if none was kept."""
        with self._lock:
            if judge >= len(self.judges):
                return None
            column, id = self.judges[judge], self.rows[number].id
            verdict = column.verdicts.get(id)
        if verdict is None or column.transcripts is None or not column.transcripts.is_dir():
            return None
        transcript = read_transcript(column.transcripts, verdict)
        return exchanges(transcript, verdict) if transcript is not None else None

    def summary(self) -> Summary:
        """Returns the figures of the runs read so far."""
        with self._lock:
            contents = ReportContents(
                rows=list(self.rows),
                judges=[replace(judge, verdicts=dict(judge.verdicts)) for judge in self.judges],
                labels=[label for labels in self._labels.values() for label in labels],
                source=self.label_source,
                truth=self._truth,
                retries=self.retries,
                causes=dict(self._causes),
                records={id: self._records[id] for id in self.ids if id in self._records},
            )
        return summary(contents)


def _digest(trajectory: Trajectory) -> str:
    return hashlib.sha256(encode(trajectory)).hexdigest()[:16]


def _progress(judge: Judge, places: Mapping[str, int]) -> JudgeProgress:
    own = [verdict for id, verdict in judge.verdicts.items() if id in places]
    unscored = Counter(one.unscored for one in own if one.unscored is not None)
    return JudgeProgress(name=judge.name, judged=len(own), unscored=dict(unscored.most_common()))
