"""Published results of papers, by task or category. They are data files in the folder of each
paper, or files of your own.

Each figure is copied from the publication that `source` names, and holds for that publication's
model, seeds and tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import msgspec

from prill.config.toml import read_table
from prill.errors import UsageError
from prill.types import StrPath

Benchmark = Literal["miniwob", "webarena", "airline", "mind2web"]
ALL = "all"
_PAPERS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One agent of a publication: its model, and in `over` the basis of the figures (`50 seeds a
    task`). Success is within the first `trials` trials. `tokens` is the mean request tokens of a
    successful attempt; `seconds` is the time of a step.
    """

    name: str
    model: str
    over: str = ""
    trials: int = 1
    tokens: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """A row of an ablation table: the options it sets, and in `theirs` the paper's column."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    theirs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """An ablation table. Its tasks, seeds and trials apply where a run does not name its own."""

    rows: tuple[AblationRow, ...]
    tasks: str | None = None
    seeds: str | None = None
    trials: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The published results of one paper: rows with one value for each column, NaN for none.

    Args:
        title: A short name.
        paper: The publication.
        source: The table or section of the publication with the figures.
        benchmark: The benchmark.
        columns: The agents and settings that it compares.
        agents: The policies that follow the paper. They use its seeds and trials by default.
        list_name: The name of its list of tasks.
        seeds: The seeds that it plays.
        trials: The most attempts at one task.
        notes: Remarks.
        categories: The tasks by category.
        tasks: Success by task.
        actions: Numbers of actions by task, 0 or more.
        printed: Success by category, or under `all`, as the paper prints it.
        sizes: How many tasks a category has, where there are no figures by task.
        tests: The p of Student's t, as the paper prints it, by `CATEGORY: T=A, T=B`.
        planning: Actions of attempts that succeeded, and calls that planned them, by `TASK: T=A`.
        data: Of each split: conversations, turns, turns of a conversation, actions of a turn,
            elements of a page, length of an instruction and of a page.
        ablations: Its tables of ablations, by name.
    """

    title: str
    paper: str
    source: str
    benchmark: Benchmark
    columns: tuple[Column, ...]
    agents: tuple[str, ...] = ()
    list_name: str | None = None
    seeds: str | None = None
    trials: int = 1
    notes: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tasks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    actions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    printed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    tests: Mapping[str, float] = field(default_factory=dict)
    planning: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    data: Mapping[str, tuple[float, float, float, float, float, float, float]] = field(
        default_factory=dict
    )
    ablations: Mapping[str, Ablation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Theirs:
    """A published success rate, its number of tasks (None: not stated), and the mean actions."""

    success: float
    tasks: int | None
    actions: float | None = None


def paper_names(benchmark: Benchmark | None = None) -> tuple[str, ...]:
    """Lists the papers whose figures ship with prill, of one benchmark or of all."""
    return tuple(name for name in sorted(_files()) if benchmark in (None, _ready(name).benchmark))


def read_paper(name: StrPath) -> Paper:
    """Reads the figures of a paper.

    Args:
        name: A name of `paper_names`, or a .toml or .json file of the same form.

    Returns:
        The paper's figures; success rates are in [0, 1].

    Raises:
        UsageError: No paper has that name, or the file is not of that form; the message says where.
    """
    if Path(name).suffix in (".toml", ".json"):
        return _read(Path(name))
    if name not in paper_names():
        raise UsageError(
            f"unknown figures {str(name)!r}; expected one of {', '.join(paper_names())}, or "
            "a .toml or .json file"
        )
    return _ready(str(name))


@cache
def _files() -> Mapping[str, Path]:
    """Returns the files of published results by name, one in the folder of each paper."""
    return {path.stem: path for path in _PAPERS.glob("*/published/*.toml")}


@cache
def _ready(name: str) -> Paper:
    return _read(_files()[name])


def _read(path: Path) -> Paper:
    try:
        # NaN: the paper does not give this figure
        paper = msgspec.convert(read_table(path, finite=False), Paper)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None
    if problem := next(_problems(paper), None):
        raise UsageError(f"{path}: {problem}")
    return paper


def list_tasks(paper: Paper) -> tuple[str, ...]:
    """Lists the tasks of a paper, category by category."""
    return tuple(name for names in paper.categories.values() for name in names)


def theirs(paper: Paper, category: str, tasks: Iterable[str]) -> tuple[Theirs | None, ...]:
    """Returns what a paper published for tasks of a category (or `all`), one figure per column.

    Means are over those of the tasks that the paper has.
    """
    if paper.tasks:
        wanted = list(tasks)
        return tuple(_mean(paper, i, wanted) for i in range(len(paper.columns)))
    size = (sum(paper.sizes.values()) or None) if category == ALL else paper.sizes.get(category)
    figures = paper.printed.get(category, (float("nan"),) * len(paper.columns))
    return tuple(None if isnan(share) else Theirs(share, size) for share in figures)


def _mean(paper: Paper, column: int, tasks: Sequence[str]) -> Theirs | None:
    known = [name for name in tasks if name in paper.tasks and not isnan(paper.tasks[name][column])]
    if not known:
        return None
    actions = [paper.actions[name][column] for name in known if name in paper.actions]
    share = fmean(paper.tasks[name][column] for name in known)
    return Theirs(share, len(known), fmean(actions) if len(actions) == len(known) else None)


def _problems(paper: Paper) -> Iterator[str]:
    """Yields what is wrong: rows that do not match the columns, misplaced tasks."""
    if not paper.columns:
        yield "columns: name at least one"
    for kind in ("tasks", "printed", "actions"):
        rows: Mapping[str, tuple[float, ...]] = getattr(paper, kind)
        for name, row in rows.items():
            if len(row) != len(paper.columns):
                yield (
                    f"{kind}.{name}: {len(row)} figures for {len(paper.columns)} columns; "
                    "write nan for a missing figure"
                )
            # CC-Net's figures are means of MiniWoB++'s rewards, whose minimum is -1.
            least = -1 if paper.benchmark == "miniwob" and kind != "actions" else 0
            if any(figure < least or (figure > 1 and kind != "actions") for figure in row):
                yield (
                    f"{kind}.{name}: expected "
                    f"{'0 or more' if kind == 'actions' else 'shares from 0 to 1'}"
                )
    listed = list_tasks(paper)
    if twice := next((name for name in listed if listed.count(name) > 1), None):
        yield f"categories: {twice} is listed twice"
    if homeless := next(
        (name for name in (*paper.tasks, *paper.actions) if name not in listed), None
    ):
        yield f"tasks.{homeless}: belongs to no category"
