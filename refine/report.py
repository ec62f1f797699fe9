"""The page of a filter: how much was kept and lost of each label, task, site and kind of action, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from prill.evaluators.metrics import wilson
from prill.refine.filter import Filtered, StepFact
from prill.ui.report.markup import Markup, el, joined, share, table
from prill.ui.report.page import plain_page

_MOST_TASKS, _MOST_LINES = 40, 200
_LINE, _LEFT, _WIDTH, _NAME = 20, 260, 420, 31


def page(filtered: Filtered, rows: Mapping[str, int], truth: Mapping[str, bool | None] | None = None) -> str:
    """The whole page. `rows` counts what was written; `truth` is what counts by labels, where there are some."""
    facts = filtered.facts
    reasons = Counter(fact.why for fact in filtered.lost)
    body = joined(
        _headlines(filtered, rows, truth),
        _section("Kept and lost by task", _bars(facts)),
        _section("Why steps were lost", _reasons(reasons, len(facts))),
        _section("By what the judge said", _table("label", facts, lambda fact: fact.label)),
        _section("By kind of action", _table("action", facts, lambda fact: fact.action)),
        _section("By site", _table("site", facts, lambda fact: fact.site or "(none)")),
        _section("By task", _table("task", facts, lambda fact: fact.task)),
    )
    return plain_page("What the filter kept", body)


def true_precision(filtered: Filtered, truth: Mapping[str, bool | None]) -> tuple[int, int]:
    """How many of the attempts of which something was kept truly succeeded, and how many of them have a decided label."""
    kept = {step.trajectory.id for step in filtered.steps}
    decided = [success for id in kept if (success := truth.get(id)) is not None]
    return sum(decided), len(decided)


def precision_words(right: int, decided: int) -> str:
    """The share with its interval, which takes attempts as independent."""
    if not decided:
        return "no attempt that was kept has a label"
    low, high = wilson(right / decided, decided)
    return (
        f"{right} of {decided} labelled attempts that were kept truly succeeded: {right / decided:.3f} [{low:.3f}, {high:.3f}]"
    )


def summary_lines(filtered: Filtered, truth: Mapping[str, bool | None] | None = None) -> list[str]:
    """What was kept, in sentences."""
    kept, steps = len({step.trajectory.id for step in filtered.steps}), len(filtered.facts)
    lines = [f"{len(filtered.steps):,} of {steps:,} steps kept, of {kept:,} of {filtered.attempts:,} attempts"]
    if filtered.unscored:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(filtered.unscored.items()))
        lines.append(f"In no row, for want of a verdict: {reasons}")
    if filtered.threshold is not None:
        lines.append(f"Threshold: {filtered.threshold:g}")
    if filtered.expected_precision is not None and filtered.label_noise is not None:
        lines.append(
            f"By the calibration {filtered.expected_precision:.3f} of the attempts kept are true successes: expect a share of "
            f"{filtered.label_noise:.3f} false ones"
        )
    if truth is not None:
        lines.append(f"By the labels, {precision_words(*true_precision(filtered, truth))}")
    return lines


def _headlines(filtered: Filtered, rows: Mapping[str, int], truth: Mapping[str, bool | None] | None) -> Markup:
    words = [
        f"Judge: {filtered.judge.name} {filtered.judge.version}" + (f", {filtered.judge.model}" if filtered.judge.model else "")
    ]
    words += summary_lines(filtered, truth)
    words.append("Rows: " + ", ".join(f"{kind} {count:,}" for kind, count in rows.items()))
    return el("ul", *(el("li", f"{line}.") for line in words), class_="headlines")


def _section(title: str, content: Markup) -> Markup:
    return el("section", el("h2", title), content)


def _reasons(reasons: Counter[str], steps: int) -> Markup:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lines = [
        el("tr", el("th", why, scope="row"), el("td", f"{count:,}"), el("td", share(count, steps))) for why, count in ordered
    ]
    return table(("reason", "steps", "share of all"), lines, "figures")


def _table(name: str, facts: Sequence[StepFact], part: Callable[[StepFact], str]) -> Markup:
    kept = Counter(part(fact) for fact in facts if not fact.why)
    every = Counter(map(part, facts))
    ordered = sorted(every.items(), key=lambda item: (-item[1], item[0]))
    lines = []
    for value, count in ordered[:_MOST_LINES]:
        why = (
            Counter(fact.why for fact in facts if fact.why and part(fact) == value) if len(every) <= _MOST_TASKS else Counter()
        )
        words = ", ".join(f"{reason} {lost:,}" for reason, lost in why.most_common(3))
        cells = (f"{kept[value]:,}", f"{count - kept[value]:,}", share(kept[value], count), words)
        lines.append(el("tr", el("th", value, scope="row"), *(el("td", cell) for cell in cells)))
    more = len(ordered) - _MOST_LINES
    note = el("p", f"… and {more:,} more", class_="note") if more > 0 else Markup("")
    return joined(table((name, "kept", "lost", "share kept", "mostly lost to"), lines, "figures"), note)


def _bars(facts: Sequence[StepFact]) -> Markup:
    """A bar a task, the largest first: its kept steps, then those that the judge's rule or another one dropped."""
    kept = Counter(fact.task for fact in facts if not fact.why)
    every = Counter(fact.task for fact in facts)
    ordered = sorted(every.items(), key=lambda item: (-item[1], item[0]))[:_MOST_TASKS]
    most = max(every.values(), default=1)
    marks = []
    for i, (task, count) in enumerate(ordered):
        y, whole, part = 8 + i * _LINE, _WIDTH * count / most, _WIDTH * kept[task] / most
        words = f"{task}: {kept[task]:,} of {count:,} steps kept"
        name = task if len(task) <= _NAME else f"…{task[1 - _NAME :]}"  # names of one benchmark differ at their ends
        marks += [
            el("text", el("title", task), name, x=_LEFT - 10, y=y + 11, class_="label", text_anchor="end"),
            el("rect", el("title", words), x=_LEFT, y=y, width=part, height=14, class_="bar-success"),
            el("rect", el("title", words), x=_LEFT + part, y=y, width=whole - part, height=14, class_="bar-unscored"),
            el("text", f"{kept[task]:,} / {count:,}", x=_LEFT + whole + 8, y=y + 11, class_="tick"),
        ]
    size = f"0 0 {_LEFT + _WIDTH + 110} {16 + _LINE * len(ordered)}"
    plot = el("svg", *marks, viewBox=size, class_="spending", role="img", aria_label="Steps kept and lost by task")
    more = len(every) - len(ordered)
    rest = f"; {more:,} smaller tasks are in the table below" if more > 0 else ""
    caption = el("figcaption", f"Steps of each task: those kept in colour, and those lost behind them in grey{rest}")
    return el("figure", el("div", plot, class_="scroll", tabindex=0), caption)
