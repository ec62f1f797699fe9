"""One sentence on each judge, made of the figures that stand further down the page."""

from __future__ import annotations

from collections.abc import Mapping

from prill.evaluators.meta.agreement import Agreement, Figure
from prill.report.entries import Outcome


def headline(name: str, comparison: Agreement | None, counts: Mapping[Outcome, int]) -> str:
    """How far the judge can be trusted, by its agreement with the labels; without that, what it said how often."""
    if comparison is None or not comparison.judged:
        return f"{name} {_counted(counts)}."
    who = "people" if comparison.source == "human" else f"the {comparison.source} labels"
    runs = "1 trajectory" if comparison.judged == 1 else f"{comparison.judged:,} trajectories"
    confusion = comparison.confusion
    parts = [
        f"{name} agrees with {who} at kappa {_figure(comparison, 'kappa')} on {runs}, {_against_constant(comparison)}",
        f"it misses {_of_ten(confusion.fn, confusion.fn + confusion.tp, 'success', 'successes')} and "
        f"takes {_of_ten(confusion.fp, confusion.fp + confusion.tn, 'failure', 'failures')} for success",
    ]
    if unscored := sum(comparison.unscored.values()):
        parts.append(f"{unscored:,} {'is' if unscored == 1 else 'are'} unscored")
    return "; ".join(parts) + "."


def _counted(counts: Mapping[Outcome, int]) -> str:
    said = counts.get("success", 0), counts.get("failure", 0), counts.get("unscored", 0)
    if not any(said):
        return "has no verdict on these trajectories"
    return (
        f"says success {said[0]:,} times and failure {said[1]:,} times; {said[2]:,} {'is' if said[2] == 1 else 'are'} unscored"
    )


def _figure(comparison: Agreement, name: str) -> str:
    figure = _named(comparison, name)
    if figure is None or figure.undefined:
        return "undefined"
    if figure.low is None or figure.high is None:
        return f"{figure.value:z.2f}"
    return f"{figure.value:z.2f} [{figure.low:z.2f}, {figure.high:z.2f}]"


def _against_constant(comparison: Agreement) -> str:
    """Whether its accuracy lies above or below that of the better constant answer, by the interval of the accuracy."""
    constant = (
        f"the best constant (always {'success' if comparison.majority_answer else 'failure'}, {comparison.majority:.0%} right)"
    )
    figure = _named(comparison, "accuracy")
    if figure is None or figure.low is None or figure.high is None:
        return f"with nothing to tell it from {constant}"
    if figure.low > comparison.majority:
        return f"better than {constant}"
    if figure.high < comparison.majority:
        return f"worse than {constant}"
    return f"not distinguishable from {constant}"


def _named(comparison: Agreement, name: str) -> Figure | None:
    return next((figure for figure in comparison.figures if figure.name == name), None)


def _of_ten(part: int, whole: int, one: str, many: str) -> str:
    """A share as people say it: 3 of 10; with less than ten, the counts themselves."""
    if not whole:
        return f"none of no {many}"
    if part in (0, whole):
        return f"{'none' if not part else 'all'} of {whole:,} {one if whole == 1 else many}"
    if whole <= 10:
        return f"{part} of {whole} {many}"
    tenths = round(10 * part / whole)
    words = "fewer than 1" if tenths == 0 else "more than 9" if tenths == 10 else str(tenths)
    return f"{words} of 10 {many} ({part:,} of {whole:,})"
