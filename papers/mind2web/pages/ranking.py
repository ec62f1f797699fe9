"""Ranks a page's candidates with a ranker, and measures how often the right one comes first
(`prill papers rank`).
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import math
import os
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from prill.config.shared import JSON_FILE, DeviceOption, ResumeOption
from prill.config.values import Config
from prill.errors import InputError, MissingExtraError, UsageError
from prill.io.append_log import AppendLog
from prill.io.lines import is_stream, read_lines
from prill.io.outputs import check_output, expect_file, write_errors, writing
from prill.io.store import BadLine, iter_trajectories, write_trajectories
from prill.models.devices import register_user
from prill.models.local.torchvision import mend_torchvision
from prill.models.local.trained import expect_trained
from prill.models.local.weights import folder_hash, model_failures
from prill.papers.embedders import (
    Embedder,
    EmbedderUrl,
    Fitted,
    import_transformers,
    load_pretrained,
    make_embedder,
)
from prill.papers.mind2web.pages.state import read_state, sample_ids, with_scores
from prill.papers.mind2web.pages.tree import RecordedPage, ranker_query
from prill.running import EXIT_ALL, EXIT_INTERRUPTED, EXIT_SOME, Printed, as_run, first_of
from prill.types import StrPath, Trajectory

# The cutoffs of recall (Self-MAP, ACL 2024, its ranker's evaluation).
RECALLS = (3, 5, 10, 20, 50, 100)
# Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section
# 3.2: usual values.
_K1, _B = 1.2, 0.75
_FORMAT = "prill ranking 1"
_WORD = re.compile(r"[a-z0-9]+")


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
        """Returns the scores (Robertson and Zaragoza 2009, equation 3.15) within one page."""
        bags = [Counter(_WORD.findall(text.lower())) for text in texts]
        lengths = [bag.total() for bag in bags]
        mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
        scores = [0.0] * len(texts)
        for word in sorted(set(_WORD.findall(query.lower()))):
            having = sum(word in bag for bag in bags)
            rarity = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            for i, bag in enumerate(bags):
                if count := bag[word]:
                    weight = count + _K1 * (1 - _B + _B * lengths[i] / mean)
                    scores[i] += rarity * count * (_K1 + 1) / weight
        return scores


@dataclass(frozen=True, slots=True)
class ByEmbedding:
    """Ranks by the cosine similarity of query and candidate vectors."""

    embedder: Embedder

    @property
    def name(self) -> str:
        """`embedding` and the name of the embedder."""
        return f"embedding {self.embedder.name}"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the scores. An embedder that needs fitting is fitted to this page."""
        if isinstance(self.embedder, Fitted):
            self.embedder.fit([query, *texts])
        rows = await self.embedder.embed([query, *texts])
        return [float(one) for one in rows[1:] @ rows[0]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The scored candidates of a step, in the order of the state, and the recorded targets."""

    scores: Mapping[str, float]
    right: frozenset[str]

    @property
    def ranks(self) -> dict[str, int]:
        """Returns the rank of each candidate from 0. Ties keep the state's order."""
        order = sorted(self.scores, key=lambda id: -self.scores[id])
        return {id: rank for rank, id in enumerate(order)}

    @property
    def place(self) -> int | None:
        """Returns the best rank of a right candidate. None if no candidate is right."""
        ranks = self.ranks
        return min((ranks[id] for id in self.right if id in ranks), default=None)


async def rank_step(trajectory: Trajectory, index: int, ranker: Ranker) -> Ranked:
    """Ranks the candidates of a recorded step, those not on the page last. Raises InputError."""
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
    """Returns each candidate's text (None if it is not on the page), and the query."""
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


@dataclass
class RankingTally:
    """Counts ranked steps. `figures` is available at any time."""

    places: Counter[int | None] = field(default_factory=Counter)
    chance: float = 0.0

    def add(self, ranked: Ranked) -> None:
        """Counts one step."""
        self.places[ranked.place] += 1
        if ranked.scores:
            self.chance += len(ranked.right & ranked.scores.keys()) / len(ranked.scores)

    def figures(self) -> RankingFigures:
        """Returns the metrics of all steps so far."""
        found = [(place, count) for place, count in self.places.items() if place is not None]
        over = max(self.places.total(), 1)
        share = {k: sum(n for place, n in found if place < k) / over for k in (1, *RECALLS)}
        return RankingFigures(
            self.places.total(),
            self.places[None],
            share.pop(1),
            sum(count / (place + 1) for place, count in found) / over,
            share,
            self.chance / over,
        )


@dataclass
class RankTally:
    """The progress of ranking a file. `kept` steps were done by an earlier run."""

    turns: int = 0
    kept: int = 0
    problems: list[str] = field(default_factory=list)
    ranked: RankingTally = field(default_factory=RankingTally)
    stopped: bool = False

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: the phase and the count."""
        return "", self.turns


@dataclass(frozen=True, slots=True)
class _Line:
    """A ranked step in the progress file."""

    sample: str
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class _About:
    """The first line of the progress file: what the scores that follow belong to."""

    format: str
    ranker: str
    trajectories: str


_Log = AppendLog[_Line | _About]


async def rank_file(
    gold: StrPath,
    ranker: Ranker,
    output: StrPath,
    *,
    reordered: StrPath | None = None,
    resume: bool = True,
    stop: asyncio.Event | None = None,
    progress: Callable[[RankTally], object] = lambda tally: None,
) -> RankTally:
    """Scores every candidate in a file of gold trajectories and writes a score file.

    Finished steps are in `OUTPUT.steps` until the end, and the same call resumes there. `reordered`
    also writes the trajectories with their candidates in the new order. Raises UsageError.
    """
    progress_file, tally = Path(f"{os.fspath(output)}.steps"), RankTally()
    for path in (output, progress_file, *(() if reordered is None else (reordered,))):
        expect_file(path, "a ranking")
        with write_errors(path):
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    if is_stream(gold):
        raise UsageError(
            f"{gold}: expected a file, because trajectories are read more than once",
            parameters=("trajectories",),
        )
    check_output(output, "scores of candidates", [gold])
    if reordered is not None:
        check_output(reordered, "trajectories", [gold, output], parameter="ranked")
    known: dict[str, dict[str, float]] = {}
    about = _About(_FORMAT, ranker.name, _digest(gold))
    with _open_log(progress_file, about, known, resume) as log:
        async for line in _ranked_lines(gold, ranker, tally, known):
            log.append(line)
            known[line.sample] = line.scores
            progress(tally)
            if stop is not None and stop.is_set():
                tally.stopped = True
                return tally
    _write_scores(output, known)
    if reordered is not None:
        write_trajectories(reordered, _reordered(gold, known))
    progress_file.unlink()
    return tally


async def _ranked_lines(
    gold: StrPath, ranker: Ranker, tally: RankTally, known: Mapping[str, Mapping[str, float]]
) -> AsyncIterator[_Line]:
    """Yields a line for each step that is not known."""
    for turn in iter_trajectories(gold, on_error="yield"):
        tally.turns += 1
        if isinstance(turn, BadLine):
            tally.problems.append(turn.message)
            continue
        try:
            for index, sample in enumerate(sample_ids(turn)):
                if sample in known:
                    tally.kept += 1
                    tally.ranked.add(Ranked(known[sample], _right(turn, index)))
                    continue
                found = await rank_step(turn, index, ranker)
                tally.ranked.add(found)
                yield _Line(sample, dict(found.scores))
        except InputError as error:
            tally.problems.append(f"{gold}: {error}")


def _open_log(path: Path, about: _About, known: dict[str, dict[str, float]], resume: bool) -> _Log:
    """Opens the progress file and reads its steps. Raises UsageError if it is of other input."""

    def read(record: _Line | _About, start: int) -> None:
        if (start == 0) != isinstance(record, _About) or (start == 0 and record != about):
            raise UsageError(
                f"{path}: belongs to another ranker or other trajectories; choose another "
                "output, or start again",
                parameters=("output", "resume"),
            )
        if isinstance(record, _Line):
            known[record.sample] = record.scores

    if not resume:
        with write_errors(path):
            path.unlink(missing_ok=True)
    log = _Log(
        path,
        _Line,
        read,
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


def _write_scores(output: StrPath, known: Mapping[str, Mapping[str, float]]) -> None:
    """Writes the score file, a line for each step."""
    with writing(output) as file:
        for name, opening in (("scores", b'{"scores":{'), ("ranks", b'},"ranks":{')):
            file.write(opening)
            for number, (sample, scores) in enumerate(known.items()):
                found = scores if name == "scores" else Ranked(scores, frozenset()).ranks
                file.write(b",\n" * (number > 0) + msgspec.json.encode(sample) + b":")
                file.write(msgspec.json.encode(found))
        file.write(b"}}\n")


def _reordered(gold: StrPath, known: Mapping[str, Mapping[str, float]]) -> Iterator[Trajectory]:
    """Yields the turns with their candidates by score, the best first."""
    for turn in iter_trajectories(gold, on_error="skip"):
        with suppress(InputError, ValueError):  # already reported when it was to be ranked
            if all(sample in known for sample in sample_ids(turn)):
                yield with_scores(turn, known)


def _right(turn: Trajectory, index: int) -> frozenset[str]:
    return frozenset((turn.steps[index].action.target or "").split())


def _digest(path: StrPath) -> str:
    digest = hashlib.sha256()
    for line in read_lines(path):
        digest.update(line.data + b"\n")
    return digest.hexdigest()


_BATCH = 32  # texts of a forward pass
MAX_TOKENS = 512  # candidate and query together (Self-MAP, ACL 2024)


class CrossEncoder:
    """A ranker loaded from a folder with the first request."""

    def __init__(self, folder: StrPath, *, device: str | None = None) -> None:
        self.folder, self.device = Path(folder), device
        if not (self.folder / "config.json").is_file():
            raise UsageError(f"{folder}: not a ranker folder (it needs a config.json and weights)")
        expect_trained(self.folder)
        self._loaded: tuple[Any, Any] | None = None
        self._one = threading.Lock()
        register_user(self)

    def free(self) -> None:
        """Frees the weights. The next call to `score` loads them again."""
        with self._one:
            self._loaded = None

    @cached_property
    def name(self) -> str:
        """The name of the folder and a hash of its weights."""
        return f"local/{self.folder.resolve().name} {folder_hash(self.folder.resolve())}"

    async def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Returns the model's raw scores. Raises MissingExtraError and EndpointError."""
        return await asyncio.to_thread(self._score, query, list(texts))

    def _score(self, query: str, texts: list[str]) -> list[float]:
        with self._one:
            self._loaded = self._loaded or self._load()
        return scores(*self._loaded, query, texts, _BATCH)

    def _load(self) -> tuple[Any, Any]:
        try:
            torch = importlib.import_module("torch")
            mend_torchvision()
        except ImportError as error:
            raise MissingExtraError(error.name or "torch", "local") from None
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        with model_failures(f"{self.folder}: the ranker cannot be loaded"):
            family = import_transformers().AutoModelForSequenceClassification
            reader, model = load_pretrained(self.folder, family, dtype=torch.float32)
        if model.config.num_labels != 1:
            raise UsageError(
                f"{self.folder}: the model has {model.config.num_labels} outputs, but a ranker "
                "has one; is it a classifier?"
            )
        return model.to(device), reader


def scores(model: Any, reader: Any, query: str, texts: Sequence[str], batch: int) -> list[float]:
    """Returns the score of each text, computed in batches of similar length."""
    torch = importlib.import_module("torch")
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = [0.0] * len(texts)
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        with model_failures(), torch.inference_mode():
            inputs = pairs(
                reader, [texts[i] for i in indices], [query] * len(indices), MAX_TOKENS
            ).to(model.device)
            for index, score in zip(
                indices, model(**inputs).logits[:, 0].float().tolist(), strict=True
            ):
                found[index] = score
    return found


def pairs(reader: Any, texts: Sequence[str], queries: Sequence[str], most: int) -> Any:
    """Tokenizes candidates and queries for the model, the candidate first, in training and
    inference.

    The papers' code reverses this order at evaluation (Self-MAP's repository); the model learns
    either order.
    """
    return reader(
        list(texts),
        list(queries),
        padding=True,
        truncation="longest_first",
        max_length=most,
        return_tensors="pt",
    )


_EMBEDDING = "embedding:"


@dataclass(frozen=True, kw_only=True)
class RankConfig(Config):
    """Configuration of `prill papers rank`: score every candidate of every recorded step."""

    trajectories: Annotated[str | Path, Meta(description="Gold trajectories of recorded pages.")]
    output: Annotated[str | Path, JSON_FILE]
    ranker: Annotated[
        str,
        Meta(
            min_length=1,
            description="Ranker: bm25, embedding:NAME (tfidf, minilm, a model), or the "
            "folder of a trained ranker.",
        ),
    ]
    ranked: Annotated[
        str | Path | None, Meta(description="File for the trajectories with reordered candidates.")
    ] = None
    base_url: EmbedderUrl = None
    device: DeviceOption = None
    resume: ResumeOption = True


@dataclass(frozen=True)
class RankResult(Printed):
    """The ranking metrics of a run, the score file, and the turns that could not be read."""

    figures: RankingFigures
    output: str
    problems: tuple[str, ...] = ()
    stopped: bool = False

    def notes(self) -> Iterator[str]:
        """Yields the file, and the turns that could not be read."""
        if not self.stopped:
            yield f"{self.figures.steps:,} steps -> {self.output}"
        yield from first_of(self.problems)

    @property
    def exit_code(self) -> int:
        """Returns 3 if unreadable turns were skipped, 130 if the run was stopped."""
        return EXIT_INTERRUPTED if self.stopped else EXIT_SOME if self.problems else EXIT_ALL

    def to_dict(self) -> dict[str, Any]:
        """Returns the metrics for JSON."""
        return {**asdict(self.figures), "problems": len(self.problems)}

    def __str__(self) -> str:
        found = self.figures
        without = (
            f" ({found.without:,} without a right candidate, counted as missed)"
            if found.without
            else ""
        )
        lines = {
            "steps": f"{found.steps:,}{without}",
            "accuracy": f"{found.accuracy:.1%} (chance {found.chance:.1%})",
            "MRR": f"{found.mrr:.3f}",
            "recall": "  ".join(f"@{most} {share:.1%}" for most, share in found.recall.items()),
        }
        return "\n".join(f"{name:<9} {text}" for name, text in lines.items())


@as_run(RankConfig)
async def rank(
    config: RankConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[RankTally], object] = lambda tally: None,
) -> RankResult:
    """Ranks the candidates of recorded steps.

    Args:
        config: The steps and the ranker.
        stop: Once set, the run ends after the current step.
        progress: Called after every step.

    Raises:
        UsageError: The ranker or the files cannot be used.
    """
    tally = await rank_file(
        config.trajectories,
        _ranker(config),
        config.output,
        reordered=config.ranked,
        resume=config.resume,
        stop=stop,
        progress=progress,
    )
    return RankResult(
        tally.ranked.figures(), str(config.output), tuple(tally.problems), tally.stopped
    )


def _ranker(config: RankConfig) -> Ranker:
    if config.ranker == Bm25.name:
        return Bm25()
    if config.ranker.startswith(_EMBEDDING):
        return ByEmbedding(
            make_embedder(config.ranker.removeprefix(_EMBEDDING), base_url=config.base_url)
        )
    if not Path(config.ranker).is_dir():
        raise UsageError(
            f"unknown ranker {config.ranker}; expected bm25, embedding:NAME, or the folder "
            "of a ranker",
            parameters=("ranker",),
        )
    return CrossEncoder(config.ranker, device=config.device)
