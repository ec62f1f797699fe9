"""Ablation tables of papers. Each row is a benchmark run of the agent with its own options; one
table shows all rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from prill.config.values import get_name
from prill.errors import UsageError
from prill.io.outputs import write_output
from prill.papers.bench.figures import Bench
from prill.papers.bench.mind2web import METRICS, RecordedBench, TheirRow, their_name
from prill.papers.bench.papers import (
    Ablation,
    AblationRow,
    Paper,
    paper_names,
    read_paper,
)
from prill.papers.bench.run import BenchConfig, BenchResult, bench_async
from prill.papers.bench.tables import (
    FIGURES,
    TABLES,
    cell_text,
    count_cell,
    printed_cells,
    share_cell,
    table_text,
    theirs_name,
    wording,
)
from prill.policies.registry import PolicyConfig
from prill.refine.reflexion import ReflexionProgress
from prill.runs.base import synchronous
from prill.runs.rollout.episodes import settings_text


@dataclass(frozen=True)
class AblationResult:
    """The results of each row of an ablation table.

    Args:
        name: The name of the table.
        paper: The paper that prints it.
        rows: The rows, each with its results.
        output: The folder with the table and one folder for each row.
    """

    name: str
    paper: Paper
    rows: tuple[tuple[AblationRow, BenchResult], ...]
    output: str

    @property
    def complete(self) -> bool:
        """Whether every episode of every row has an outcome."""
        return all(result.complete for _, result in self.rows)

    @property
    def broken(self) -> bool:
        """Whether any episode was aborted or could not begin."""
        return any(result.broken for _, result in self.rows)

    @property
    def problem(self) -> str | None:
        """The most recent error that aborted an episode or kept it from starting. None if there was
        none.
        """
        return next((r.problem for _, r in reversed(self.rows) if r.problem is not None), None)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the table and the figures."""
        return tuple(str(Path(self.output) / name) for name in (TABLES, FIGURES))

    def table(self) -> dict[str, Any]:
        """The figures of each row, for JSON."""
        return {row.name: result.table() for row, result in self.rows}

    def __str__(self) -> str:
        return ablation_text(self)


def rows_of_ablation(
    config: BenchConfig,
) -> tuple[Paper, tuple[tuple[AblationRow, BenchConfig], ...]]:
    """Finds the table that a configuration names.

    Args:
        config: The benchmark, the agent, and the name of the table.

    Returns:
        The paper, and each row with the configuration that runs it.

    Raises:
        UsageError: The agent's papers have no table of that name.
    """
    policy = get_name(config.policy)
    papers = [
        paper
        for paper in map(read_paper, paper_names(config.benchmark))
        if policy in paper.agents and paper.ablations
    ]
    for paper in papers:
        if (found := paper.ablations.get(str(config.ablation))) is not None:
            return paper, tuple((row, _configured(config, found, row)) for row in found.rows)
    names = ", ".join(name for paper in papers for name in paper.ablations) or "none"
    raise UsageError(
        f"ablation {config.ablation}: on {config.benchmark} the tables of {policy} are {names}",
        parameters=("ablation",),
    )


def _configured(config: BenchConfig, table: Ablation, row: AblationRow) -> BenchConfig:
    base = PolicyConfig.read(config.policy, "policy")
    if not isinstance(base, PolicyConfig):
        raise UsageError(
            "ablation: it sets options, so give the name of a policy, not an instance",
            parameters=("policy", "ablation"),
        )
    name = row.policy or base.name
    known = {**PolicyConfig.options_for({"name": name}), "model": None}
    given = {key: value for key, value in base.options.items() if name == base.name or key in known}
    place = config.place
    if table.tasks is not None and getattr(place, "tasks", "") is None:
        place = place.copy_with(tasks=table.tasks)
    return config.copy_with(
        ablation=None,
        environment=place,
        policy=PolicyConfig(name, **{**given, **row.options}),
        seeds=config.seeds if config.seeds is not None else table.seeds,
        trials=config.trials or table.trials,
        output=Path(config.output) / re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-"),
    )


async def ablation_async(
    config: BenchConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> AblationResult:
    """Runs the rows of a paper's ablation table one after the other and writes them as one table.
    The same call resumes a stopped run.

    Args:
        config: The benchmark, the agent, and the table.
        progress: Called after every episode.

    Returns:
        The results of each row; printing them shows a table.

    Raises:
        UsageError: As `bench_async` does, and for an unknown table.
    """
    paper, rows = rows_of_ablation(config)
    done = [(row, await bench_async(one, progress=progress)) for row, one in rows]
    result = AblationResult(str(config.ablation), paper, tuple(done), str(config.output))
    data = msgspec.json.format(msgspec.json.encode(result.table()), indent=1)
    write_output(Path(config.output) / FIGURES, data.rstrip() + b"\n")
    write_output(Path(config.output) / TABLES, ablation_text(result).encode())
    return result


ablation = synchronous(ablation_async)
"""Synchronous version of `ablation_async` for scripts and notebooks, with the same parameters."""


def ablation_text(result: AblationResult) -> str:
    """Formats the rows as one Markdown table. Recorded steps get one table for each split."""
    parts = [f"# {cell_text(result.paper.title)}: {cell_text(result.name)}"]
    benches = [(row, done.figures) for row, done in result.rows]
    live = [(row, figures) for row, figures in benches if isinstance(figures, Bench)]
    steps = [(row, figures) for row, figures in benches if isinstance(figures, RecordedBench)]
    if live:
        parts.append(_live_table(live, result.paper))
    for split in dict.fromkeys(split.name for _, figures in steps for split in figures.splits):
        parts += [f"## {cell_text(split)}", _split_table(split, steps, result.paper)]
    if any("**theirs**" in part for part in parts):
        source = f"* theirs: {result.paper.paper}. From {result.paper.source}."
        parts += [wording()["theirs_ablation"], source]
    return "\n\n".join(parts) + "\n"


def _live_table(rows: Sequence[tuple[AblationRow, Bench]], paper: Paper) -> str:
    """Returns a table with a column for each category of the paper, or one column for all tasks."""
    by_name: list[dict[str, Any]] = []
    for _, figures in rows:
        section = next((s for s in figures.sections if s.title == paper.title), None)
        shown = section.categories if section else (figures.overall,)
        by_name.append({category.name: category for category in shown})
    names = list(dict.fromkeys(name for found in by_name for name in found))
    lines: list[list[str]] = []
    theirs: list[list[str]] = []
    for (row, figures), found in zip(rows, by_name, strict=True):
        cells = [share_cell(found[n].success[-1]) if n in found else "-" for n in names]
        missing = str(figures.overall.success[-1].missing)
        end = [str(figures.overall.runs), missing, count_cell(figures.overall.replies)]
        lines.append([cell_text(row.name), _options(row), *cells, *end])
        at = next((i for i, column in enumerate(paper.columns) if column.name == row.theirs), None)
        if at is not None:
            printed = [
                found[n].theirs[at] if n in found and found[n].theirs else None for n in names
            ]
            cells = ["-" if one is None else f"{one.success:.1%}" for one in printed]
            theirs.append([theirs_name(row.name, ""), "", *cells, "", "", ""])
    head = ["row", "options", *names, "episodes", "without outcome", "unreadable"]
    return table_text(head, [*lines, *theirs])


def _split_table(
    split: str, rows: Sequence[tuple[AblationRow, RecordedBench]], paper: Paper
) -> str:
    lines: list[list[str]] = []
    theirs: list[list[str]] = []
    counting = rows[0][1].counting
    for row, figures in rows:
        for one in figures.splits:
            if one.name != split:
                continue
            cells = map(share_cell, one.all.figures[counting].values())
            counts = [str(one.all.turns), str(one.all.missing), count_cell(one.all.replies)]
            lines.append([cell_text(row.name), _options(row), *counts, *cells])
            theirs += list(_their_rows(row, paper, one.theirs, METRICS[counting]))
    head = ["row", "options", "turns", "broke off", "unreadable", *METRICS[counting]]
    return table_text(head, [*lines, *theirs])


def _their_rows(
    row: AblationRow, paper: Paper, printed: Sequence[TheirRow], metrics: Sequence[str]
) -> Iterator[list[str]]:
    for one in printed:
        if row.theirs is not None and one.name == their_name(paper, row.theirs):
            name = theirs_name(row.name, one.model)
            yield [name, "", "", "", "", *printed_cells(one, metrics)]


def _options(row: AblationRow) -> str:
    said = {**({"policy": row.policy} if row.policy else {}), **row.options}
    return cell_text(settings_text(said)) if said else "-"
