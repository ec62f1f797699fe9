"""One summary sentence per judge, from the report's figures."""

from __future__ import annotations

from collections.abc import Mapping

from prill.evaluators.agreement.agreement import Agreement
from prill.evaluators.agreement.figure import Figure
from prill.evaluators.agreement.trivial import Baselines, compared_with_best
from prill.evaluators.fitted.overlap import Overlap
from prill.ui.report.entries import Outcome


def headline(
    name: str, comparison: Agreement | None, counts: Mapping[Outcome, int], baselines: Baselines
) -> str:
    """Returns a sentence on the judge's agreement with the labels; without labels, on its
    verdicts.
    """
    if comparison is None or not comparison.judged:
        return f"{name} {_counted(counts)}."
    who = "people" if comparison.source == "human" else f"the {comparison.source} labels"
    runs = "1 trajectory" if comparison.judged == 1 else f"{comparison.judged:,} trajectories"
    confusion = comparison.confusion
    fitted = comparison.fitted
    worth = _worth(fitted) if fitted is not None and fitted.flatters else _against_best(baselines)
    parts = [
        f"{name} agrees with {who} at kappa {_figure(comparison, 'kappa')} on {runs}, {worth}",
        f"it misses {_of(confusion.fn, confusion.fn + confusion.tp, 'success', 'successes')} and "
        f"judges {_of(confusion.fp, confusion.fp + confusion.tn, 'failure', 'failures')} as success",  # noqa: E501
    ]
    if unscored := sum(comparison.unscored.values()):
        parts.append(
            f"{unscored:,} more {'is' if unscored == 1 else 'are'} unscored, and not among these"
        )
    return "; ".join(parts) + "."


def _worth(fitted: Overlap) -> str:
    """Returns why the agreement does not carry over to other runs."""
    if fitted.run:
        return (
            f"{fitted.run:,} of which it was fitted on, so the figure does not hold for other runs"
        )
    return "and whether it was fitted on them is unknown"


def _counted(counts: Mapping[Outcome, int]) -> str:
    outcomes = counts.get("success", 0), counts.get("failure", 0), counts.get("unscored", 0)
    if not any(outcomes):
        return "has no verdict on these trajectories"
    return (
        f"says success {outcomes[0]:,} times and failure {outcomes[1]:,} times; {outcomes[2]:,} "
        f"{'is' if outcomes[2] == 1 else 'are'} unscored"
    )


def _figure(comparison: Agreement, name: str) -> str:
    figure = _named(comparison, name)
    if figure is None or figure.undefined:
        return "undefined"
    ends = " [{:z.2f}, {:z.2f}]".format(*figure.ends) if figure.ends else ""
    return f"{figure.value:z.2f}{ends}"


def _against_best(baselines: Baselines) -> str:
    """Returns whether the accuracy is above or below the best rule's, by its interval."""
    how, best = compared_with_best(baselines)
    assert best.accuracy is not None, "that of the constant answer is always known"
    rule = f"the best rule without a judge ({best.name}, {best.accuracy:.0%} right)"
    return f"{how} {rule}: accuracy {best.difference}"


def _named(comparison: Agreement, name: str) -> Figure | None:
    return next((figure for figure in comparison.figures if figure.name == name), None)


def _of(part: int, whole: int, one: str, many: str) -> str:
    """Returns a fraction as counts; above ten also as a percentage."""
    if not whole:
        return f"none of no {many}"
    if part in (0, whole):
        return f"{'none' if not part else 'all'} of {whole:,} {one if whole == 1 else many}"
    share = part / whole
    percent = (
        "under 1 %"
        if share < 0.01
        else "over 99 %"
        if share > 0.99
        else f"{share:.0%}".replace("%", " %")
    )
    return f"{part:,} of {whole:,} {many}" + (f" ({percent})" if whole > 10 else "")
