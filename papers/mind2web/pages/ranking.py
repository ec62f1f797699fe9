"""Which of a page's candidates is meant: each is scored by a ranker, and counted is how often the
right one comes first.
"""

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
from prill.io.outputs import check_output, expect_place, failures, writing
from prill.io.store import BadLine, read_trajectories, write_trajectories
from prill.papers.mind2web.pages.scores import sample_ids, with_scores
from prill.papers.mind2web.pages.state import read_state
from prill.papers.mind2web.pages.tree import RecordedPage, ranker_query
from prill.types import Trajectory

# Where recall is told (Self-MAP, ACL 2024, its ranker's evaluation).
RECALLS = (3, 5, 10, 20, 50, 100)
# Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section
# 3.2: usual values.
_K1, _B = 1.2, 0.75
_FORMAT = "prill ranking 1"
_WORD = re.compile(r"[a-z0-9]+")


Reader = Callable[[str | os.PathLike[str]], Iterator[Trajectory | BadLine]]


class Ranker(Protocol):
    """Says how well texts fit a query."""

    @property
    def name(self) -> str:
        """Which ranker, and which weights: goes on record with its scores."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """A number for each text, in their order; the higher, the better."""
        ...


class Bm25:
    """By the words that a candidate shares with the query, rare ones of the page first (Okapi
    BM25). It needs no model.
    """

    name = "bm25"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """The candidates of one page are the collection that tells which words are rare."""
        return bm25(query, texts)


def bm25(query: str, texts: Sequence[str]) -> list[float]:
    """The score of each text (Robertson and Zaragoza 2009, equation 3.15), with a rarity that is
    never negative.
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
    """By the cosine between the vectors of query and candidate. `embedder` gives rows of length
    1.
    """

    def __init__(self, embedder: _Embeds) -> None:
        self.embedder = embedder

    @property
    def name(self) -> str:
        """`embedding` and the embedder's own."""
        return f"embedding {self.embedder.name}"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One that learns which words tell texts apart learns it from this page."""
        if callable(fit := getattr(self.embedder, "fit", None)):
            fit([query, *texts])
        rows = await self.embedder.embed([query, *texts])
        return [float(one) for one in rows[1:] @ rows[0]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The candidates of a step with their scores, in the order that the state gave; `right` are
    those that were acted on.
    """

    scores: Mapping[str, float]
    right: frozenset[str]

    @property
    def ranks(self) -> dict[str, int]:
        """Places from 0, the highest score first; of equal scores, the one that the state named
        first.
        """
        order = sorted(self.scores, key=lambda id: -self.scores[id])
        return {id: place for place, id in enumerate(order)}

    @property
    def place(self) -> int | None:
        """The best place of a right candidate; None where none is among them."""
        ranks = self.ranks
        return min((ranks[id] for id in self.right if id in ranks), default=None)


async def rank_step(trajectory: Trajectory, index: int, ranker: Ranker) -> Ranked:
    """The candidates of a recorded step by a ranker; equal texts are scored once.

    A candidate that the page does not have scores lowest. Raises InputError for what is no recorded
    page, and for a score that is no number.
    """
    texts, query = candidate_texts(trajectory, index)
    different = distinct(texts)
    found = await ranker.score(query, different) if different else ()
    # it would be no place in an order, and no score in a file
    if not all(map(math.isfinite, found)):
        raise InputError(
            f"{trajectory.id}, step {index}: {ranker.name} gave a score that is no number"
        )
    return ranked(trajectory, index, texts, dict(zip(different, found, strict=True)))


def distinct(texts: Mapping[str, str | None]) -> list[str]:
    """Each text once."""
    return list(dict.fromkeys(text for text in texts.values() if text is not None))


def ranked(
    trajectory: Trajectory, index: int, texts: Mapping[str, str | None], found: Mapping[str, float]
) -> Ranked:
    """The candidates of a step, by the scores that were found for their texts."""
    lowest = min(found.values(), default=0.0) - 1.0
    scores = {id: lowest if text is None else float(found[text]) for id, text in texts.items()}
    return Ranked(scores, _right(trajectory, index))


def candidate_texts(trajectory: Trajectory, index: int) -> tuple[dict[str, str | None], str]:
    """What a ranker reads at a step: each candidate's text, None for one that the page does not
    have, and the query.
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
    """How well steps were ranked. A step without a right candidate counts as missed everywhere, and
    in `without`.

    `accuracy`: a right candidate is first. `mrr`: the mean of one over its place. `recall`: it is
    among the first so many. `chance`: the accuracy that is expected of ranks drawn by lot.
    """

    steps: int
    without: int
    accuracy: float
    mrr: float
    recall: dict[int, float]
    chance: float


class RankingTally:
    """Counts steps as they are ranked; `figures` may be asked at any time."""

    def __init__(self) -> None:
        self._places: Counter[int | None] = Counter()
        self._chance = 0.0

    def add(self, ranked: Ranked) -> None:
        """Counts one step."""
        self._places[ranked.place] += 1
        if ranked.scores:
            self._chance += len(ranked.right & ranked.scores.keys()) / len(ranked.scores)

    def figures(self) -> RankingFigures:
        """All steps so far."""
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
    """How far the ranking of a file is. `kept` steps were done before; `problems` tells of turns
    that could not be read.
    """

    turns: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)
    ranked: RankingTally = field(default_factory=RankingTally)
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    """A step that was ranked, in the file of what is done."""

    sample: str
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class _About:
    """The first line of that file: whose scores follow, and of which trajectories."""

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
    """Scores every candidate of a file of gold trajectories, into a score file
    (`prill.papers.mind2web.pages.scores` reads it).

    What is done stands in `OUTPUT.steps` until the end, and the same call goes on from there;
    `stop` ends it after a step. `read` reads the file, where it is not of trajectories.
    `reordered`: also the trajectories with their candidates in the new order. Turns that cannot be
    read are left out and told. Raises UsageError where `OUTPUT.steps` is of another ranker or other
    trajectories.
    """
    place, tally = Path(f"{os.fspath(output)}.steps"), RankTally()
    for path in (output, place) if reordered is None else (output, place, reordered):
        expect_place(path, "a ranking")
        with failures(path):
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    if is_stream(gold):
        raise UsageError(
            f"{gold}: trajectories are read more than once; name a file",
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
    """A line for each step that is not done; `done` are the first ones, in their order."""
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
    """Opens the file of what is done. Raises UsageError where it is of another ranker or of other
    trajectories.
    """

    def check(record: _Line | _About, start: int) -> None:
        if start == 0 and record != about:
            raise UsageError(
                f"{path}: is of another ranker or of other trajectories; choose another output, or "
                "begin again",
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
    """The steps that are done, as far as the file goes when this begins: it grows meanwhile."""
    steps = sum(start > 0 for start, _ in log.lines())
    for _, line in islice(log.lines(), 1, steps + 1):
        yield msgspec.json.decode(line, type=_Line)


def _write_scores(output: str | os.PathLike[str], log: _Log) -> None:
    """The score file, a step at a time: it may be larger than memory."""
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
    """The turns with their candidates by the scores, the best first."""
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
            continue  # told when it was to be ranked


def _right(turn: Trajectory, index: int) -> frozenset[str]:
    return frozenset((turn.steps[index].action.target or "").split())


def _digest(path: str | os.PathLike[str]) -> str:
    digest = hashlib.sha256()
    if Path(path).suffix == ".parquet":  # its bytes are no lines
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    for line in read_lines(path):
        digest.update(line.data + b"\n")
    return digest.hexdigest()
