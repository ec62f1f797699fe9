"""The runs, verdicts and labels that the page shows, read while their files grow."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from prill.errors import InputError, PrillError
from prill.evaluators.failures import Cause, rule_cause
from prill.evaluators.labels import gold_labels
from prill.io.cache import scratch_database
from prill.io.lines import Line, get_name
from prill.io.store import BadLine, UniqueIds, decode_trajectory, encode, read_labels
from prill.transcripts import read_transcript, transcript_folder
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict
from prill.ui.report.calls import Exchanges, exchanges
from prill.ui.report.entries import (
    MAX_TEXT,
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
from prill.ui.report.failures import FailedRun, failed_row
from prill.ui.report.pictures import ReportPicture, look_at
from prill.ui.report.summary import ReportContents, Summary, summary
from prill.ui.view.following import FollowedFile
from prill.ui.view.index import SearchIndex
from prill.ui.view.label_log import SOURCE, LabelLog

_MAX_BROKEN = 100  # messages about lines that cannot be read
_RATE_SECONDS = 120.0  # over which the rate of verdicts is computed
_RATE_POINTS = 240
_UNNAMED = "(unnamed)"
_MAX_TEXT = 200_000  # characters of a goal, a thought or an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeProgress:
    """The progress of a judge on the runs.

    Attributes:
        name: The judge's name.
        judged: The number of runs with a verdict, unscored ones included.
        unscored: The number of unscored runs, by reason.
        per_minute: The recent number of verdicts per minute; None if none arrived while the page
            was open.
        minutes_left: The minutes left at that rate; None if unknown.
    """

    name: str
    judged: int
    unscored: Mapping[str, int]
    per_minute: float | None
    minutes_left: float | None


class _Column:
    """One judge of one verdict file."""

    def __init__(self, path: str, info: EvaluatorInfo) -> None:
        self.path = path
        self.info = info
        self.verdicts: dict[str, Verdict] = {}
        self.packed: dict[str, bytes] = {}
        self.arrivals: deque[tuple[float, int]] = deque(maxlen=_RATE_POINTS)


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
        limit: int | None = None,
    ) -> None:
        self._names = file_names([str(path) for path in runs])
        more = [*(["attempt"] if retries else ()), *(["file"] if self._names else ())]
        self.parts = list(dict.fromkeys(("site", "agent", "platform", "truncated", *more, *by)))
        self.retries = retries or {}
        self.generation = 0
        self._paths = [str(path) for path in runs], [str(path) for path in verdicts]
        self._label_paths = [str(path) for path in labels]
        self._source, self._truth, self._transcripts = source, truth, transcripts
        self._limit = limit
        self._is_still = False
        self._lock = threading.RLock()
        self.annotator: str | None = None  # the annotator at the page
        self.own: dict[str, LabelRecord] = {}  # the newest labels of that person
        # the newest labels of other people, by annotator and id
        self.others: dict[str, dict[str, LabelRecord]] = {}
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
        self._columns: dict[tuple[str, bytes], _Column] = {}
        self._gold: dict[str, bool | None] = {}
        self._labels: dict[str, list[LabelRecord]] = {}
        self._failed: dict[str, FailedRun] = {}  # those whose cause was looked for
        self._rules: dict[str, Cause | None] = {}  # what the rules say of a run
        self._looked = 0  # changes whose causes were looked for
        runs, verdicts = self._paths
        self._run_files = [FollowedFile(path) for path in runs]
        self._verdict_files = [FollowedFile(path) for path in verdicts]
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
        yield from self._find_causes()

    def _read_texts(self) -> Iterator[int]:
        """Adds the texts of new runs to the index; their lines are read again for it."""
        count = 0
        while self._unread:
            number = self._unread.popleft()
            one = self.rows[number]
            with contextlib.suppress(InputError):  # its page says so
                item = self[number]
                self._index.add_run(self._origins[number], item)
                if "failure" in (*one.outcomes, one.truth):
                    self._rules[one.id] = _short_rule(item)
            count += 1
            yield count

    def _find_causes(self) -> Iterator[int]:
        """Looks for the causes of runs that changed; the rules read a run's line again."""
        count = 0
        while self._looked < len(self._journal):
            with self._lock:
                number = self._journal[self._looked]
                self._looked += 1
                one = self.rows[number]
                gold = self._gold.get(one.id)
                failed = None
                if one.broken is None:
                    failed = failed_row(
                        one.id, one.goal, one.steps, self.judges, gold, self.label_source
                    )
            if failed is not None and failed.needs_rules:
                if one.id not in self._rules:
                    count += 1
                    yield count
                    with contextlib.suppress(InputError):  # its page says so
                        self._rules[one.id] = _short_rule(self[number])
                failed = failed.with_rules(self._rules.get(one.id))
            with self._lock:
                if failed is None:
                    self._failed.pop(one.id, None)
                else:
                    self._failed[one.id] = failed
                words = "" if failed is None else failed.cause_words
                if self.rows[number].cause != words:
                    self.rows[number] = replace(self.rows[number], cause=words)
                    self._journal.append(number)

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

    def left_out(self) -> list[str]:
        """Returns a message for each line that could not be read."""
        torn = [get_name(file.path) for file in self._run_files if file.waits]
        broken = [one.broken for one in self.rows if one.broken is not None]
        return [*broken, *(f"{name}: ends in an incomplete line" for name in torn)]

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
            self._looked = 0
            self.generation += 1

    def _follow(self, file: FollowedFile, take: Callable[[Line], bool]) -> Iterator[None]:
        if not Path(file.path).exists() and file.path != "-":
            return  # a verdict file that a run is about to create
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
            verdict = msgspec.json.decode(line.data, type=Verdict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not line.complete:
                return False
            self._problem(f"{get_name(file.path)}:{line.number}: no verdict: {error}")
            return True
        key = (file.path, encode(verdict.evaluator))
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _Column(file.path, verdict.evaluator)
            self._name_judges()
        Judge("", column.info, column.verdicts, packed=column.packed).add(verdict)
        column.arrivals.append((time.monotonic(), len(column.verdicts)))
        if (at := self.places.get(verdict.id)) is not None:
            self.rows[at] = judged_row(self.rows[at], self.judges)
            self._index.add_reason(at, list(self._columns).index(key), verdict.reason)
            self._journal.append(at)
        return True

    def _name_judges(self) -> None:
        """Renames the judges; a new judge changes all rows, so the page reloads."""
        columns = list(self._columns.values())
        names = judge_names([(column.path, column.info) for column in columns])
        self.judges = [
            Judge(
                name,
                column.info,
                column.verdicts,
                transcript_folder(column.path) if self._transcripts else None,
                column.packed,
            )
            for name, column in zip(names, columns, strict=True)
        ]
        self.rows = [judged_row(one, self.judges) for one in self.rows]
        self._looked = 0  # failures name their judges
        self.generation += 1

    def begin_labels(self, log: LabelLog, others: Iterable[str | os.PathLike[str]] = ()) -> None:
        """Takes labels of a log, too, in which this process writes the annotator's, and of `others`
        in more files.
        """
        self.annotator, self.own = log.annotator, dict(log.mine)
        paths = [*self._label_paths, *map(str, others), str(log.path)]
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
            self.others = defaultdict(dict)
            for label in theirs:
                if label.source == SOURCE:
                    self.others[label.annotator or _UNNAMED][label.id] = label
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
            return [
                self._progress(judge, column)
                for judge, column in zip(self.judges, self._columns.values(), strict=True)
            ]

    def _progress(self, judge: Judge, column: _Column) -> JudgeProgress:
        own = [verdict for id, verdict in column.verdicts.items() if id in self.places]
        unscored = Counter(one.unscored for one in own if one.unscored is not None)
        now = time.monotonic()
        recent = [point for point in column.arrivals if now - point[0] <= _RATE_SECONDS]
        rate = None
        if len(recent) > 1 and recent[-1][0] - recent[0][0] > 1:
            rate = 60 * (recent[-1][1] - recent[0][1]) / (now - recent[0][0])
        left = len(self.rows) - len(own)
        return JudgeProgress(
            name=judge.name,
            judged=len(own),
            unscored=dict(unscored.most_common()),
            per_minute=rate,
            minutes_left=left / rate if rate and left > 0 else None,
        )

    def read_share(self) -> float:
        """Returns the fraction of the files that was read, from 0 to 1; texts of runs are half."""
        files = [
            file for file in (*self._run_files, *self._verdict_files) if Path(file.path).exists()
        ]
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

        return detail(item, judges, labels, picture, self.retries.get(one.id), _MAX_TEXT)

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
                failures=[self._failed[one.id] for one in self.rows if one.id in self._failed],
                first_failures=self._looked < len(self._journal),
            )
        return summary(contents)


def _short_rule(item: Trajectory) -> Cause | None:
    """Returns what the rules say of a run, without a long answer that it quotes."""
    cause = rule_cause(item)
    return cause and replace(cause, detail=cause.detail[:MAX_TEXT])
