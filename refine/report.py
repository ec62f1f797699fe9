"""The report of a filter: kept and dropped steps by label, task, site and action, with reasons.

The HTML template is `report.html`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prill.evaluators.metrics import wilson
from prill.refine.filter import Filtered, StepFact
from prill.ui.svg import el
from prill.ui.templates import render_page

_MAX_TASKS, _MAX_ROWS = 40, 200
_LINE, _LEFT, _WIDTH, _NAME = 20, 260, 420, 31


@dataclass(frozen=True, slots=True)
class PartRow:
    """The steps of a label, task, site or kind; `reasons` is empty if there are too many rows."""

    value: str
    kept: int
    steps: int
    reasons: str


@dataclass(frozen=True, slots=True)
class Part:
    """All steps, counted by one property; `unshown` counts the values without a row."""

    title: str
    name: str
    rows: Sequence[PartRow]
    unshown: int


def page(
    filtered: Filtered, rows: Mapping[str, int], truth: Mapping[str, bool | None] | None = None
) -> str:
    """Renders the report. `rows` counts the written rows; `truth` is the labelled success by
    trajectory id, if there are labels.
    """
    facts, judge = filtered.facts, filtered.judge
    headlines = [f"Judge: {judge.title}"]
    headlines += summary_lines(filtered, truth)
    headlines.append("Rows: " + ", ".join(f"{kind} {count:,}" for kind, count in rows.items()))
    bars, unshown = _bars(facts)
    return render_page(
        "refine/report.html",
        styles=("ui/report/page.css",),
        generator="prill report",
        title="What the filter kept",
        headlines=[f"{line}." for line in headlines],
        bars=bars,
        unshown=unshown,
        reasons=_by_count(Counter(fact.why for fact in filtered.lost)),
        steps=len(facts),
        parts=(
            _part("By what the judge said", "label", facts, lambda fact: fact.label),
            _part("By kind of action", "action", facts, lambda fact: fact.action),
            _part("By site", "site", facts, lambda fact: fact.site or "(none)"),
            _part("By task", "task", facts, lambda fact: fact.task),
        ),
    )


def true_precision(filtered: Filtered, truth: Mapping[str, bool | None]) -> tuple[int, int]:
    """Returns how many attempts with a kept step truly succeeded, and how many are decided."""
    kept = {step.trajectory.id for step in filtered.steps}
    decided = [success for id in kept if (success := truth.get(id)) is not None]
    return sum(decided), len(decided)


def format_precision(right: int, decided: int) -> str:
    """Formats the share with its interval, which treats attempts as independent."""
    if not decided:
        return "no kept attempt has a label"
    low, high = wilson(right / decided, decided)
    return (
        f"{right} of {decided} labelled attempts that were kept truly succeeded: "
        f"{right / decided:.3f} [{low:.3f}, {high:.3f}]"
    )


def summary_lines(filtered: Filtered, truth: Mapping[str, bool | None] | None = None) -> list[str]:
    """Formats a summary of the kept steps as text."""
    kept, steps = len({step.trajectory.id for step in filtered.steps}), len(filtered.facts)
    lines = [
        (
            f"{len(filtered.steps):,} of {steps:,} steps kept, of {kept:,} of "
            f"{filtered.attempts:,} attempts"
        )
    ]
    if filtered.unscored:
        reasons = ", ".join(
            f"{reason} {count:,}" for reason, count in sorted(filtered.unscored.items())
        )
        lines.append(f"Without a row, because there was no verdict: {reasons}")
    if filtered.threshold is not None:
        lines.append(f"Threshold: {filtered.threshold:g}")
    if filtered.expected_precision is not None and filtered.label_noise is not None:
        lines.append(
            f"By the calibration, {filtered.expected_precision:.3f} of the kept attempts "
            f"are true successes; expect a share of {filtered.label_noise:.3f} false ones"
        )
    if truth is not None:
        lines.append(f"By the labels, {format_precision(*true_precision(filtered, truth))}")
    return lines


def _by_count(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _part(
    title: str, name: str, facts: Sequence[StepFact], value_of: Callable[[StepFact], str]
) -> Part:
    kept = Counter(value_of(fact) for fact in facts if not fact.why)
    every = Counter(map(value_of, facts))
    lost: dict[str, Counter[str]] = {value: Counter() for value in every}
    for fact in facts:
        if fact.why and len(every) <= _MAX_TASKS:
            lost[value_of(fact)][fact.why] += 1
    rows = [
        PartRow(
            value,
            kept[value],
            steps,
            ", ".join(f"{why} {count:,}" for why, count in lost[value].most_common(3)),
        )
        for value, steps in _by_count(every)[:_MAX_ROWS]
    ]
    return Part(title, name, rows, len(every) - len(rows))


def _bars(facts: Sequence[StepFact]) -> tuple[Markup, int]:
    """Draws a bar for each of the largest tasks: kept steps, then steps dropped by the judge's rule
    or another one. Also returns the number of tasks without a bar.
    """
    kept = Counter(fact.task for fact in facts if not fact.why)
    every = Counter(fact.task for fact in facts)
    shown = _by_count(every)[:_MAX_TASKS]
    most = max(every.values(), default=1)
    marks = []
    for i, (task, count) in enumerate(shown):
        y, total, part = 8 + i * _LINE, _WIDTH * count / most, _WIDTH * kept[task] / most
        title = f"{task}: {kept[task]:,} of {count:,} steps kept"
        # names of one benchmark differ at their ends
        name = task if len(task) <= _NAME else f"…{task[1 - _NAME :]}"
        marks += [
            el(
                "text",
                el("title", task),
                name,
                x=_LEFT - 10,
                y=y + 11,
                class_="label",
                text_anchor="end",
            ),
            el(
                "rect",
                el("title", title),
                x=_LEFT,
                y=y,
                width=part,
                height=14,
                class_="bar-success",
            ),
            el(
                "rect",
                el("title", title),
                x=_LEFT + part,
                y=y,
                width=total - part,
                height=14,
                class_="bar-unscored",
            ),
            el("text", f"{kept[task]:,} / {count:,}", x=_LEFT + total + 8, y=y + 11, class_="tick"),
        ]
    size = f"0 0 {_LEFT + _WIDTH + 110} {16 + _LINE * len(shown)}"
    label = "Steps kept and lost by task"
    return el("svg", *marks, viewBox=size, class_="spending", role="img", aria_label=label), len(
        every
    ) - len(shown)
