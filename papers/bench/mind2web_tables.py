"""The figures on recorded steps as Markdown, JSON and a picture; figures of others are marked as theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from prill.io.outputs import write_output
from prill.models.ledger import usage_text
from prill.papers.bench.mind2web import METRICS, Counting, Figures, RecordedBench, Split, StepFigure
from prill.papers.bench.tables import FIGURES, PICTURE, TABLES, cell_text, table_text
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart

_COUNTED = {
    "mt-mind2web": (
        "Ele. Acc and Op. F1 are means over turns of the mean over a turn's steps; SSR is the mean over conversations of the "
        "share of steps that are right, and TSR that of the share of turns whose steps are all right (MT-Mind2Web)."
    ),
    "mind2web": (
        "All figures are means over tasks: of the mean over a task's steps, and SR of whether all its steps are right "
        "(Mind2Web)."
    ),
}
_MARKED = {
    "generation": "Any positive is the right element; words of the operation that are a single punctuation mark do not count.",
    "multi-choice": "Any positive is the right element; words of the operation that are a single punctuation mark count.",
    "synapse": "Only the first positive is the right element, and actions are read from their text.",
}
_HOW = (
    "A step without a positive among the best {top} candidates is wrong, whatever was done. Every step is asked for as if "
    "those before it had been right. Intervals are 95 %: conversations are redrawn (bootstrap; with fewer than 20 Student's "
    "t on log odds, leaving out one at a time; where all are alike, Wilson's with a trial a conversation)."
)
_THEIRS = "Rows with **theirs** are figures of the publication named below, copied from it and not measured here."


def write_recorded_bench(folder: Path, bench: RecordedBench) -> None:
    """Writes `results.md`, `results.json` and `results.svg`.

    Args:
        folder: The folder to write to.
        bench: The figures.

    Raises:
        UsageError: The files cannot be written.
    """
    write_output(folder / FIGURES, msgspec.json.format(msgspec.json.encode(bench), indent=1).rstrip() + b"\n")
    write_output(folder / TABLES, recorded_bench_text(bench).encode())
    write_output(folder / PICTURE, recorded_bench_picture(bench).encode())


def recorded_bench_text(bench: RecordedBench) -> str:
    """Formats the figures as Markdown: how to read them, and tables by split, turn and website.

    Args:
        bench: The figures.

    Returns:
        The Markdown text.
    """
    parts = [f"# {cell_text(bench.agent)} on recorded steps", recorded_summary(bench), _COUNTED[bench.counting]]
    parts += [_MARKED[bench.marking.scheme], _HOW.format(top=bench.marking.top)]
    parts += [_THEIRS] if any(split.theirs for split in bench.splits) else []
    for split in bench.splits:
        recall = ", ".join(f"{share:.1%} at {k}" for k, share in split.ranking.recall.items())
        parts += [f"## {cell_text(split.name)}: micro, turns and websites", f"Candidates: recall {recall}."]
        parts.append(table_text(["over all steps", *METRICS["micro"]], [["ours", *_cells(split.all, "micro")]]))
        rows = split.by_turn if bench.counting == "mt-mind2web" else ()
        for word, some in (("turn of the conversation", rows), ("website", split.by_site)):
            if some:
                head = [word, "turns", "steps", *METRICS[bench.counting]]
                parts.append(table_text(head, [_row(row, bench) for row in some]))
    parts += ["\n".join(f"* {line}" for line in bench.sources)] if bench.sources else []
    return "\n\n".join(parts) + "\n"


def recorded_summary(bench: RecordedBench) -> str:
    """What was played, and the table of each split alone."""
    turns = sum(split.all.turns for split in bench.splits)
    words = f"{turns} turns, {sum(split.all.steps for split in bench.splits)} steps."
    words += f" {usage_text(bench.usage)}." if bench.usage.calls else ""
    if bench.missing:
        words += f" Broke off, and count neither as right nor as wrong: {bench.missing} turns."
    if bench.not_begun:
        words += f" Could not begin, and are in no figure: {bench.not_begun} turns."
    return "\n\n".join([words, *(f"{cell_text(split.name)}:\n\n{_table(split, bench)}" for split in bench.splits)])


def recorded_bench_picture(bench: RecordedBench) -> str:
    """The picture: the share of steps that are right, by the turn of the conversation, a line for each split."""
    lines = [
        PlotLine(split.name, [point for row in split.by_turn if (point := _point(row)) is not None]) for split in bench.splits
    ]
    return line_chart(f"{bench.agent}: steps right, by turn", "turn of the conversation", lines, whole=True)


def _point(row: Figures) -> PlotPoint | None:
    figure = row.figures["mind2web"]["Step SR"]
    if figure.share is None or figure.low is None or figure.high is None:
        return None
    return PlotPoint(int(row.name), figure.share, figure.low, figure.high, f"{row.turns} turns")


def _table(split: Split, bench: RecordedBench) -> str:
    """Ours, the candidates alone, and theirs."""
    metrics = METRICS[bench.counting]
    rows = [
        [cell_text(bench.agent), str(split.all.turns), str(split.all.missing), *_cells(split.all, bench.counting)],
        ["the best candidate", str(split.ranking.first.turns), "0", _cell(_first(split, bench)), *["-"] * (len(metrics) - 1)],
    ]
    for row in split.theirs:
        name = f"**theirs**: {cell_text(row.name)} ({cell_text(row.model)})"
        rows.append([name, "", "", *(_share(row.figures, metric) for metric in metrics)])
    return table_text(["agent", "turns", "broke off", *metrics], rows)


def _first(split: Split, bench: RecordedBench) -> StepFigure:
    return split.ranking.first.figures[bench.counting]["Ele. Acc"]


def _row(row: Figures, bench: RecordedBench) -> Sequence[str]:
    return [cell_text(row.name), str(row.turns), str(row.steps), *_cells(row, bench.counting)]


def _cells(row: Figures, counting: Counting) -> Iterator[str]:
    yield from (_cell(figure) for figure in row.figures[counting].values())


def _cell(figure: StepFigure) -> str:
    return "-" if figure.share is None else f"{figure.share:.1%} ({figure.low:.1%} to {figure.high:.1%})"


def _share(figures: Mapping[str, float], metric: str) -> str:
    return f"{figures[metric]:.1%}" if metric in figures else "-"
