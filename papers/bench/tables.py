"""Writes benchmark results as Markdown, JSON and a chart. Published results are marked as such
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from prill.episodes.episodes import settings_text
from prill.io.outputs import write_output
from prill.io.tables import markdown_cell
from prill.models.ledger import usage_text
from prill.papers.bench.figures import LENGTHS, Bench, BenchRow, BenchShare, Section
from prill.papers.bench.mind2web import (
    METRICS,
    Counting,
    Figures,
    RecordedBench,
    Split,
    StepFigure,
    TheirRow,
)
from prill.papers.bench.papers import Column, Theirs
from prill.papers.replies import ReplyCounts, read_toml
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart, row_chart

TABLES, FIGURES, PICTURE = "results.md", "results.json", "results.svg"
# Columns that only some benchmarks have. The rate of full rewards has its own column because the
# success rate hides it on pages that give partial rewards.
_SHARES: Mapping[str, Callable[[BenchRow], float | None]] = {
    "reward 1": lambda row: row.full,
    "progress": lambda row: row.progress,
}


def write_bench(folder: Path, bench: Bench | RecordedBench) -> None:
    """Writes `results.md`, `results.json` and `results.svg`.

    Args:
        folder: The folder to write to.
        bench: The figures.

    Raises:
        UsageError: The files cannot be written.
    """
    write_output(
        folder / FIGURES, msgspec.json.format(msgspec.json.encode(bench), indent=1).rstrip() + b"\n"
    )
    write_output(folder / TABLES, bench_text(bench).encode())
    write_output(folder / PICTURE, bench_picture(bench).encode())


def bench_text(bench: Bench | RecordedBench) -> str:
    """Formats the figures as Markdown: a summary of the run, reading notes, and the tables."""
    if isinstance(bench, RecordedBench):
        return _recorded_text(bench)
    texts = wording()
    parts = [
        f"# {markdown_cell(bench.agent)} on {bench.benchmark}",
        played_text(bench),
        *_settings(bench),
        *_unreadable(bench),
    ]
    parts.append(texts["success"][bench.benchmark])
    parts.append(texts["how"].format(clusters=texts["clusters"][bench.benchmark]))
    parts += [texts["trials"]] if bench.trials[-1] > 1 else []
    parts += [texts["theirs"]] if any(section.columns for section in bench.sections) else []
    for section in bench.sections:
        parts += [f"## {_heading(section)}", _categories(bench, section), *_about(section)]
    conditions, listed = _condition_columns(bench), set[str]()
    for section in bench.sections:
        columns = section.columns if any(row.theirs for row in section.tasks) else ()
        names = {row.name for row in section.tasks}
        if not columns and names <= listed:
            continue
        listed |= names
        parts += [
            f"## Tasks, list of {section.title}" if section.columns else "## Tasks",
            table_text(
                _head(bench, columns, "task", "category"),
                (_cells(row, conditions, of_task=True) for row in section.tasks),
            ),
        ]
    parts += [*_tests(bench), *_planning(bench), *_success_tokens(bench)]
    if not bench.sections:
        parts.append("None of the tasks that were played is on these lists.")
    return "\n\n".join(parts) + "\n"


def _tests(bench: Bench) -> Iterator[str]:
    if bench.tests:
        head = ["tasks", "trials", "pairs", "gained", "McNemar, p", "t", "p", "**theirs**: p"]
        yield "## Do more trials solve more?"
        yield wording()["tests"]
        rows = []
        for test in bench.tests:
            ps = (test.mcnemar, test.t, test.p, test.theirs)
            trials = f"{test.first} and {test.last}"
            start = (markdown_cell(test.name), trials, test.pairs, test.gained)
            rows.append([*start, *(_number(one, ".2g") for one in ps)])
        yield table_text(head, rows)


def _planning(bench: Bench) -> Iterator[str]:
    if bench.planning:
        rows = (
            (markdown_cell(row.task), row.trials, row.solved, row.actions, row.calls)
            + (row.theirs or (None, None))
            for row in bench.planning
        )
        head = ["task", "within trials", "solved", "actions", "planning calls"]
        yield "## Planning calls"
        yield wording()["planning"]
        yield table_text([*head, *(f"**theirs**: {name}" for name in head[3:])], rows)


def _success_tokens(bench: Bench) -> Iterator[str]:
    """Yields the token table next to a paper's. Yields nothing if no paper has one."""
    theirs = [
        [theirs_name(_named(section, column), ""), "", f"{column.tokens:.0f}"]
        for section in bench.sections
        for column in section.columns
        if column.tokens is not None
    ]
    if theirs:
        found, (low, high) = bench.success_tokens, LENGTHS
        yield "## Tokens of successes"
        yield (
            f"The mean tokens of the requests of an attempt that succeeded with {low} to {high} "
            "actions."
        )
        ours = [markdown_cell(bench.agent), found.attempts, _number(found.tokens, ".0f")]
        yield table_text(["agent", "attempts", "tokens"], [ours, *theirs])


def played_text(bench: Bench) -> str:
    """Returns a paragraph with the tasks played, their cost, and the runs without an outcome."""
    row, usage = bench.overall, bench.usage
    trials = f", up to {bench.trials[-1]} trials each" if bench.trials[-1] > 1 else ""
    text = f"{_count(row.tasks, 'task')}, {_count(row.runs, 'episode')} (task and seed){trials}: "
    text += f"{_count(row.attempts, 'attempt')}, {usage_text(usage)}."
    if bench.missing:
        reasons = ", ".join(f"{n} {reason}" for reason, n in bench.missing.items())
        text += (
            f" Without an outcome: {sum(bench.missing.values())} ({reasons}); these count "
            "neither as success nor as failure."
        )
    return text


def summary_text(bench: Bench | RecordedBench) -> str:
    """Returns a summary of the run, the tables by category only, and the tests."""
    if isinstance(bench, RecordedBench):
        return _recorded_summary(bench)
    tables = [
        f"{_heading(section)}:\n\n{_categories(bench, section)}" for section in bench.sections
    ]
    tables += [*_tests(bench), *_planning(bench), *_success_tokens(bench)]
    return "\n\n".join([played_text(bench), *_settings(bench), *_unreadable(bench), *tables])


def bench_picture(bench: Bench | RecordedBench) -> str:
    """Draws success by category with 95 % intervals, and the published figures, as SVG."""
    if isinstance(bench, RecordedBench):
        return _recorded_picture(bench)
    rows = [(section, row) for section in bench.sections for row in section.categories]
    several = len(bench.sections) > 1
    names = [f"{section.title}: {row.name}" if several else row.name for section, row in rows]
    ours = [
        PlotPoint(
            i,
            share.success,
            share.low or 0.0,
            1.0 if share.high is None else share.high,
            f"{_count(row.tasks, 'task')}, {_count(share.decided, 'episode')}",
        )
        for i, (_, row) in enumerate(rows)
        if (share := row.success[-1]).success is not None
    ]
    after = "" if bench.trials[-1] == 1 else f", T={bench.trials[-1]}"
    lines = [PlotLine(f"{bench.agent}{after}", ours)]
    for section in bench.sections:
        for at, column in enumerate(section.columns):
            points = [
                PlotPoint(i, figure.success, figure.success, figure.success, _theirs_over(figure))
                for i, (of_row, row) in enumerate(rows)
                if of_row is section
                and at < len(row.theirs)
                and (figure := row.theirs[at]) is not None
            ]
            lines.append(PlotLine(f"theirs: {_named(section, column)}, {column.model}", points))
    return row_chart(f"Success on {bench.benchmark}, by category", names, lines)


def _settings(bench: Bench | RecordedBench) -> Iterator[str]:
    """Yields the settings that the agent's paper names, and the options of the agent."""
    settings = (
        (name, bench.settings.get(key))
        for name, key in (("Settings", "in_force"), ("Options of the agent", "options"))
    )
    if text := "; ".join(f"{name}: {settings_text(values)}" for name, values in settings if values):
        yield f"{markdown_cell(text)}."


def _unreadable(bench: Bench | RecordedBench) -> Iterator[str]:
    """Yields the number of unreadable replies and the first of them, if the agent counts them."""
    rows = [bench.overall] if isinstance(bench, Bench) else [split.all for split in bench.splits]
    replies = sum((row.replies for row in rows), start=ReplyCounts())
    if not replies.calls:
        return
    text = f"Unreadable replies: {count_cell(replies)}; none is taken for an action."
    if replies.repaired:
        text += f" Asked once more with the error, the model corrected {replies.repaired} of them."
    if replies.first:
        text += f" The first: {'; '.join(map(markdown_cell, replies.first))}."
    yield text


def count_cell(replies: ReplyCounts) -> str:
    """Formats counts as `3 of 120 (2.5%)`. Returns a dash if no reply was read."""
    return (
        f"{replies.unreadable} of {replies.calls} ({replies.unreadable / replies.calls:.1%})"
        if replies.calls
        else "-"
    )


def _heading(section: Section) -> str:
    return f"Categories of {section.title}" if section.columns else "Categories"


def _categories(bench: Bench, section: Section) -> str:
    """Returns the table of one task list: its categories, then all of them together."""
    head = _head(bench, (), "category", "tasks", "episodes")
    conditions = _condition_columns(bench)
    for column in section.columns:
        run = ", ".join(part for part in (column.model, column.over) if part)
        head.append(theirs_name(_named(section, column), run))
    rows = (_cells(row, conditions, of_task=False) for row in section.categories)
    return table_text(head, rows)


def _about(section: Section) -> Iterator[str]:
    if section.columns:
        lines = [f"theirs: {section.paper}. From {section.source}.", *section.notes]
        yield "\n".join(f"* {line}" for line in lines)


def _head(bench: Bench, columns: Sequence[Column], *first: str) -> list[str]:
    success = (
        ["success"] if bench.trials == (1,) else [f"success, T={trials}" for trials in bench.trials]
    )
    spent = ["without outcome", "unreadable", "actions", "calls", "tokens", "USD"]
    theirs = (theirs_name(column.name, "") for column in columns)
    return [*first, *success, *_condition_columns(bench), *spent, *theirs]


def _condition_columns(bench: Bench) -> list[str]:
    """Returns the columns `reward 1` and `progress` whose values are known for all rows."""
    rows = [
        row
        for section in bench.sections
        for row in (*section.categories, *section.tasks)
        if row.success[-1].decided
    ]
    return [
        name
        for name, share in _SHARES.items()
        if rows and all(share(row) is not None for row in rows)
    ]


def _cells(row: BenchRow, conditions: Sequence[str], *, of_task: bool) -> Iterator[object]:
    yield markdown_cell(row.name)
    yield from [markdown_cell(row.category) or None] if of_task else [row.tasks, row.runs]
    for share in row.success:
        of = f", of {share.decided}" if of_task and share.decided else ""
        yield f"{share_cell(share)}{of}"
    yield from (_number(_SHARES[name](row), ".1%") for name in conditions)
    yield from (row.success[-1].missing, count_cell(row.replies))
    yield from (_number(row.actions, ".2f"), _number(row.calls, ".2f"))
    yield from (_number(row.tokens, ".0f"), _number(row.usd, ".5f"))
    yield from (_theirs_cell(figure, 1 if of_task else row.tasks) for figure in row.theirs)


def _number(number: float | None, form: str) -> str | None:
    return None if number is None else format(number, form)


def share_cell(share: BenchShare | StepFigure) -> str:
    """Formats a rate as `80.0% (70.1% to 88.2%)`. Returns a dash if no run has an outcome."""
    mean = share.success if isinstance(share, BenchShare) else share.share
    return "-" if mean is None else f"{mean:.1%} ({share.low:.1%} to {share.high:.1%})"


def _theirs_cell(figure: Theirs | None, tasks: int) -> str | None:
    if figure is None:
        return None
    actions = "" if figure.actions is None else f", {figure.actions:.2f} actions"
    over = "" if figure.tasks in (None, tasks) else f" ({_count(figure.tasks, 'task')})"
    return f"{figure.success:.1%}{actions}{over}"


def _theirs_over(figure: Theirs) -> str:
    return "as printed" if figure.tasks is None else f"theirs, {_count(figure.tasks, 'task')}"


def _named(section: Section, column: Column) -> str:
    return column.name if section.title in column.name else f"{section.title}, {column.name}"


def _count(number: int | None, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _recorded_text(bench: RecordedBench) -> str:
    """Returns notes and tables by split, turn and website."""
    texts = wording()
    parts = [
        f"# {markdown_cell(bench.agent)} on recorded steps",
        _recorded_summary(bench),
        texts["counted"][bench.counting],
    ]
    parts += (
        [texts["matched"][bench.marking.step_match]] if bench.marking.scheme == "synapse" else []
    )
    parts += [
        texts["marked"][bench.marking.scheme],
        texts["how_marked"].format(top=bench.marking.top),
    ]
    parts += [texts["their_rows"]] if any(split.theirs for split in bench.splits) else []
    for split in bench.splits:
        recall = ", ".join(f"{share:.1%} at {k}" for k, share in split.ranking.recall.items())
        parts += [
            f"## {markdown_cell(split.name)}: micro, turns and websites",
            f"Candidates: recall {recall}.",
        ]
        parts += _data(split)
        ours = ["ours", count_cell(split.all.replies), *_figure_cells(split.all, "micro")]
        parts.append(table_text(["over all steps", "unreadable", *METRICS["micro"]], [ours]))
        rows = split.by_turn if bench.counting == "mt-mind2web" else ()
        for word, some in (("turn of the conversation", rows), ("website", split.by_site)):
            if some:
                head = [word, "turns", "steps", "unreadable", *METRICS[bench.counting]]
                parts.append(table_text(head, (_recorded_row(row, bench) for row in some)))
    parts += ["\n".join(f"* {line}" for line in bench.sources)] if bench.sources else []
    return "\n\n".join(parts) + "\n"


def _data(split: Split) -> Iterator[str]:
    """Yields the statistics of the recording next to a paper's, and the cost of a step."""
    if split.data is not None:
        *found, theirs = split.data.values()
        rows = [["played here", *(f"{n:.{0 if i < 2 else 2}f}" for i, n in enumerate(found))]]
        if theirs:
            rows.append(["**theirs**", *(f"{n:g}" for n in theirs)])
        head = ["data", "conversations", "turns", "turns each", "actions a turn", "elements a page"]
        yield table_text([*head, "instruction, characters", "page, characters"], rows)
        if theirs:
            yield wording()["lengths"]
    seconds = [(row, row.seconds) for row in split.theirs if row.seconds is not None]
    if seconds:
        rows = [[theirs_name(row.name, row.model), f"{took:.2f}"] for row, took in seconds]
        yield table_text(["agent", "seconds a step (over all splits; not measured here)"], rows)


def _recorded_summary(bench: RecordedBench) -> str:
    """Returns a summary of the run and the table of each split only."""
    turns = sum(split.all.turns for split in bench.splits)
    text = f"{turns} turns, {sum(split.all.steps for split in bench.splits)} steps."
    text += f" {usage_text(bench.usage)}." if bench.usage.calls else ""
    if bench.missing:
        text += f" Broke off, and count neither as right nor as wrong: {bench.missing} turns."
    if bench.not_begun:
        text += f" Could not begin, and are in no figure: {bench.not_begun} turns."
    tables = (
        f"{markdown_cell(split.name)}:\n\n{_split_table(split, bench)}" for split in bench.splits
    )
    return "\n\n".join([text, *_settings(bench), *_unreadable(bench), *tables])


def _recorded_picture(bench: RecordedBench) -> str:
    """Draws the fraction of right steps by turn of the conversation, one line per split."""
    lines = []
    for split in bench.splits:
        rows = ((row, row.figures["mind2web"]["Step SR"]) for row in split.by_turn)
        points = [
            PlotPoint(int(row.name), one.share, one.low, one.high, f"{row.turns} turns")
            for row, one in rows
            if one.share is not None and one.low is not None and one.high is not None
        ]
        lines.append(PlotLine(split.name, points))
    title, axis = f"{bench.agent}: steps right, by turn", "turn of the conversation"
    return line_chart(title, axis, lines, whole=True)


def _split_table(split: Split, bench: RecordedBench) -> str:
    """Returns a table with this run, the best candidate alone, and the published results."""
    metrics, best = METRICS[bench.counting], split.ranking.first
    best_element = share_cell(best.figures[bench.counting]["Ele. Acc"])
    counts = [split.all.turns, split.all.missing, count_cell(split.all.replies)]
    nothing = [None] * (len(metrics) - 1)
    rows: list[list[object]] = [
        [markdown_cell(bench.agent), *counts, *_figure_cells(split.all, bench.counting)],
        ["the best candidate", best.turns, 0, None, best_element, *nothing],
    ]
    for row in split.theirs:
        name = theirs_name(row.name, row.model)
        rows.append([name, "", "", "", *printed_cells(row, metrics)])
    return table_text(["agent", "turns", "broke off", "unreadable", *metrics], rows)


def _recorded_row(row: Figures, bench: RecordedBench) -> Iterator[object]:
    yield from (markdown_cell(row.name), row.turns, row.steps, count_cell(row.replies))
    yield from _figure_cells(row, bench.counting)


def _figure_cells(row: Figures, counting: Counting) -> Iterator[str]:
    yield from (share_cell(figure) for figure in row.figures[counting].values())


def theirs_name(name: str, where: str) -> str:
    """Returns the heading of a row or column with published figures."""
    return f"**theirs**: {markdown_cell(name)}" + (f" ({markdown_cell(where)})" if where else "")


def printed_cells(row: TheirRow, metrics: Iterable[str]) -> Iterator[str | None]:
    """Yields the cells of a publication's figures; None where it has none."""
    yield from (_number(row.figures.get(metric), ".1%") for metric in metrics)


def table_text(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Formats a Markdown table. None is a dash."""
    lines = [head, ["---"] * len(head), *rows]
    texts = (["-" if cell is None else str(cell) for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def wording() -> dict[str, Any]:
    """Returns the explanatory texts around the tables."""
    return read_toml("prill.papers.bench", "wording.toml")
