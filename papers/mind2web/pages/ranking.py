"""Ranks a page's candidates with a ranker, and measures how often the right one comes first."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from prill.errors import InputError, UsageError
from prill.io.append_log import AppendLog
from prill.io.lines import is_stream, read_lines
from prill.io.outputs import check_output, expect_file, failures, writing
from prill.io.store import BadLine, read_trajectories, write_trajectories
from prill.papers.mind2web.pages.scores import sample_ids, with_scores
from prill.papers.mind2web.pages.state import read_state
from prill.papers.mind2web.pages.tree import RecordedPage, ranker_query
from prill.types import Trajectory

# The cutoffs of recall (Self-MAP, ACL 2024, its ranker's evaluation).
RECALLS = (3, 5, 10, 20, 50, 100)
# Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section
# 3.2: usual values.
_K1, _B = 1.2, 0.75
_FORMAT = "prill ranking 1"
_WORD = re.compile(r"[a-z0-9]+")


Reader = Callable[[str | os.PathLike[str]], Iterator[Trajectory | BadLine]]


class Ranker(Protocol):
    """Scores how well texts match a query."""

    @property
    def name(self) -> str:
        """The name of the ranker, including its weights. It is recorded with the scores."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns a score for each text, in their order. Higher is better."""
        ...


class Bm25:
    """Okapi BM25 over the words that a candidate shares with the query. It needs no model."""

    name = "bm25"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the scores. The candidates of one page are the collection for document
        frequencies.
        """
        return bm25(query, texts)


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """Returns the BM25 score of each text (Robertson and Zaragoza 2009, equation 3.15), with a
    non-negative inverse document frequency.
    """
    bags = [Counter(_WORD.findall(text.lower())) for text in texts]
    lengths = [bag.total() for bag in bags]
    mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
    scores = [0.0] * len(texts)
    for word in sorted(set(_WORD.findall(query.lower()))):
        having = sum(word in bag for bag in bags)
        rarity = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
        for i, bag in enumerate(bags):
            if count := bag[word]:
                scores[i] += (
                    rarity * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * lengths[i] / mean))
                )
    return scores


class _Embeds(Protocol):
    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> Any: ...


class ByEmbedding:
    """Ranks by the cosine similarity of query and candidate vectors. `embedder` returns rows of
    length 1.
    """

    def __init__(self, embedder: _Embeds) -> None:
        self.embedder = embedder

    @property
    def name(self) -> str:
        """`embedding` and the name of the embedder."""
        return f"embedding {self.embedder.name}"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the scores. An embedder that needs fitting is fitted to this page."""
        if callable(fit := getattr(self.embedder, "fit", None)):
            fit([query, *texts])
        rows = await self.embedder.embed([query, *texts])
        return [float(one) for one in rows[1:] @ rows[0]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The scored candidates of a step, in the order of the state. `right` are the recorded
    targets.
    """

    scores: Mapping[str, float]
    right: frozenset[str]

    @property
    def ranks(self) -> dict[str, int]:
        """Returns the rank of each candidate from 0, the highest score first. Ties keep the state's
        order.
        """
        order = sorted(self.scores, key=lambda id: -self.scores[id])
        return {id: place for place, id in enumerate(order)}

    @property
    def place(self) -> int | None:
        """Returns the best rank of a right candidate. None if no candidate is right."""
        ranks = self.ranks
        return min((ranks[id] for id in self.right if id in ranks), default=None)


async def rank_step(trajectory: Trajectory, index: int, ranker: Ranker) -> Ranked:
    """Ranks the candidates of a recorded step. Equal texts are scored once.

    A candidate that is not on the page gets the lowest score. Raises InputError if the step is not
    a recorded page or a score is not finite.
    """
    texts, query = candidate_texts(trajectory, index)
    different = distinct(texts)
    found = await ranker.score(query, different) if different else ()
    # a non-finite score cannot be ordered or written to a file
    if not all(map(math.isfinite, found)):
        raise InputError(
            f"{trajectory.id}, step {index}: {ranker.name} returned a score that is not a number"
        )
    return ranked(trajectory, index, texts, dict(zip(different, found, strict=True)))


def distinct(texts: Mapping[str, str | None]) -> list[str]:
    """Returns each text once."""
    return list(dict.fromkeys(text for text in texts.values() if text is not None))


def ranked(
    trajectory: Trajectory, index: int, texts: Mapping[str, str | None], found: Mapping[str, float]
) -> Ranked:
    """Combines the candidates of a step with the scores of their texts."""
    lowest = min(found.values(), default=0.0) - 1.0
    scores = {id: lowest if text is None else float(found[text]) for id, text in texts.items()}
    return Ranked(scores, _right(trajectory, index))


def candidate_texts(trajectory: Trajectory, index: int) -> tuple[dict[str, str | None], str]:
    """Returns the ranker's input at a step: each candidate's text (None if it is not on the page),
    and the query.
    """
    try:
        state = read_state(trajectory.steps[index].observation.text or "")
    except ValueError as error:
        raise InputError(f"{trajectory.id}, step {index}: {error}") from None
    page = RecordedPage(state.page)
    texts = {id: page.candidate_text(id) if id in page else None for id in state.candidates}
    return texts, ranker_query(trajectory.task.goal, state.past)


@dataclass(frozen=True, slots=True)
class RankingFigures:
    """Ranking metrics. A step without a right candidate counts as a miss in every metric, and in
    `without`.

    `accuracy`: a right candidate is first. `mrr`: the mean reciprocal rank. `recall`: a right
    candidate is among the first k. `chance`: the expected accuracy of a random order.
    """

    steps: int
    without: int
    accuracy: float
    mrr: float
    recall: dict[int, float]
    chance: float


class RankingTally:
    """Counts ranked steps. `figures` is available at any time."""

    def __init__(self) -> None:
        self._places: Counter[int | None] = Counter()
        self._chance = 0.0

    def add(self, ranked: Ranked) -> None:
        """Counts one step."""
        self._places[ranked.place] += 1
        if ranked.scores:
            self._chance += len(ranked.right & ranked.scores.keys()) / len(ranked.scores)

    def figures(self) -> RankingFigures:
        """Returns the metrics of all steps so far."""
        steps = self._places.total()

        def share(most: int) -> float:
            return sum(
                count for place, count in self._places.items() if place is not None and place < most
            ) / max(steps, 1)

        backwards = sum(
            count / (place + 1) for place, count in self._places.items() if place is not None
        )
        recall = {most: share(most) for most in RECALLS}
        return RankingFigures(
            steps,
            self._places[None],
            share(1),
            backwards / max(steps, 1),
            recall,
            self._chance / max(steps, 1),
        )


@dataclass
class RankTally:
    """The progress of ranking a file. `kept` steps were done by an earlier run; `problems` lists
    turns that could not be read.
    """

    turns: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)
    ranked: RankingTally = field(default_factory=RankingTally)
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    """A ranked step in the progress file."""

    sample: str
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class _About:
    """The first line of the progress file: the ranker and the trajectories of the scores that
    follow.
    """

    format: str
    ranker: str
    trajectories: str


_Log = AppendLog[_Line | _About]


async def rank_file(
    gold: str | os.PathLike[str],
    ranker: Ranker,
    output: str | os.PathLike[str],
    *,
    reordered: str | os.PathLike[str] | None = None,
    read: Reader | None = None,
    resume: bool = True,
    stop: asyncio.Event | None = None,
    progress: Callable[[RankTally], object] = lambda tally: None,
) -> RankTally:
    """Scores every candidate in a file of gold trajectories and writes a score file
    (`prill.papers.mind2web.pages.scores` reads it).

    Finished steps are in `OUTPUT.steps` until the end, and the same call resumes there; `stop` ends
    the run after a step. `read` reads the file if it does not hold trajectories. `reordered` also
    writes the trajectories with their candidates in the new order. Unreadable turns are skipped and
    reported. Raises UsageError if `OUTPUT.steps` belongs to another ranker or other trajectories.
    """
    place, tally = Path(f"{os.fspath(output)}.steps"), RankTally()
    for path in (output, place) if reordered is None else (output, place, reordered):
        expect_file(path, "a ranking")
        with failures(path):
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    if is_stream(gold):
        raise UsageError(
            f"{gold}: expected a file, because trajectories are read more than once",
            parameters=("trajectories",),
        )
    check_output(output, "scores of candidates", [gold])
    if reordered is not None:
        check_output(reordered, "trajectories", [gold, output], parameter="ranked")
    read = read or _read
    with _open_log(place, _About(_FORMAT, ranker.name, _digest(gold)), resume) as log:
        async for line in _ranked_lines(gold, read, ranker, tally, _done(log)):
            log.append(line)
            progress(tally)
            if stop is not None and stop.is_set():
                tally.stopped = True
                return tally
        _write_scores(output, log)
        if reordered is not None:
            write_trajectories(reordered, _reordered(read(gold), log))
    place.unlink()
    return tally


async def _ranked_lines(
    gold: str | os.PathLike[str],
    read: Reader,
    ranker: Ranker,
    tally: RankTally,
    done: Iterator[_Line],
) -> AsyncIterator[_Line]:
    """Yields a line for each step that is not done. `done` are the first steps, in order."""
    before = next(done, None)
    for turn in read(gold):
        tally.turns += 1
        if isinstance(turn, BadLine):
            tally.problems.append(turn.message)
            continue
        try:
            for index, sample in enumerate(sample_ids(turn)):
                if before is not None and before.sample == sample:
                    tally.kept += 1
                    tally.ranked.add(Ranked(before.scores, _right(turn, index)))
                    before = next(done, None)
                    continue
                found = await rank_step(turn, index, ranker)
                tally.ranked.add(found)
                yield _Line(sample, dict(found.scores))
        except InputError as error:
            tally.problems.append(f"{gold}: {error}")


def _open_log(path: Path, about: _About, resume: bool) -> _Log:
    """Opens the progress file. Raises UsageError if it belongs to another ranker or other
    trajectories.
    """

    def check(record: _Line | _About, start: int) -> None:
        if start == 0 and record != about:
            raise UsageError(
                f"{path}: belongs to another ranker or other trajectories; choose another "
                "output, or start again",
                parameters=("output", "resume"),
            )

    if not resume:
        with failures(path):
            path.unlink(missing_ok=True)
    log = _Log(
        path,
        _Line,
        check,
        what="ranked step",
        decode=_decode,
        parameter="resume",
        advice="mend the line, or begin again",
    )
    if not any(log.lines()):
        log.append(about)
    return log


def _decode(line: bytes) -> _Line | _About:
    if line.startswith(b'{"format"'):
        return msgspec.json.decode(line, type=_About)
    return msgspec.json.decode(line, type=_Line)


def _done(log: _Log) -> Iterator[_Line]:
    """Yields the finished steps up to the file's current end. The file grows during iteration."""
    steps = sum(start > 0 for start, _ in log.lines())
    for _, line in islice(log.lines(), 1, steps + 1):
        yield msgspec.json.decode(line, type=_Line)


def _write_scores(output: str | os.PathLike[str], log: _Log) -> None:
    """Writes the score file one step at a time, because it may be larger than memory."""
    with writing(output) as file:
        for name, opening in (("scores", b'{"scores":{'), ("ranks", b'},"ranks":{')):
            file.write(opening)
            for number, line in enumerate(_done(log)):
                found = line.scores if name == "scores" else Ranked(line.scores, frozenset()).ranks
                file.write(
                    b",\n" * (number > 0)
                    + msgspec.json.encode(line.sample)
                    + b":"
                    + msgspec.json.encode(found)
                )
        file.write(b"}}\n")


def _read(gold: str | os.PathLike[str]) -> Iterator[Trajectory | BadLine]:
    return read_trajectories(gold, on_error="yield")


def _reordered(gold: Iterable[Trajectory | BadLine], log: _Log) -> Iterator[Trajectory]:
    """Yields the turns with their candidates by score, the best first."""
    lines = _done(log)
    line = next(lines, None)
    for turn in gold:
        if isinstance(turn, BadLine):
            continue
        found: dict[str, dict[str, float]] = {}
        try:
            samples = sample_ids(turn)
            for sample in samples:
                if line is not None and line.sample == sample:
                    found[sample] = line.scores
                    line = next(lines, None)
            if len(found) == len(set(samples)):
                yield with_scores(turn, found)
        except (InputError, ValueError):
            continue  # already reported when it was to be ranked


def _right(turn: Trajectory, index: int) -> frozenset[str]:
    return frozenset((turn.steps[index].action.target or "").split())


def _digest(path: str | os.PathLike[str]) -> str:
    digest = hashlib.sha256()
    if Path(path).suffix == ".parquet":  # Parquet is binary, without lines
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    for line in read_lines(path):
        digest.update(line.data + b"\n")
    return digest.hexdigest()
