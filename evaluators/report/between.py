"""Judges against one another: on how many trajectories two of them differ, and who is then right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from prill.evaluators.comparison import mcnemar
from prill.evaluators.report.entries import Row
from prill.evaluators.report.markup import Markup, el
from prill.evaluators.report.tables import jump, table

_DECIDED = ("success", "failure")


def between(rows: Sequence[Row], names: Sequence[str], labelled: bool) -> Markup:
    """One line for each two judges: those who are unscored or silent on a trajectory differ from nobody there."""
    heads = ["Judges", "Both judged", "Differ"]
    note = "Choose a count to see its trajectories."
    if labelled:
        heads += ["First right", "Second right", "McNemar p"]
        note += " Right and wrong are by the decided labels; a small p says that one of the two is right more often."
    lines = [_line(rows, names, i, k, labelled) for i, k in combinations(range(len(names)), 2)]
    return el("section", el("h2", "Judge against judge"), el("p", note, class_="note"), table(heads, lines, "pairs"))


def _line(rows: Sequence[Row], names: Sequence[str], i: int, k: int, labelled: bool) -> Markup:
    both = [(row.truth, row.said[i], row.said[k]) for row in rows if row.said[i] in _DECIDED and row.said[k] in _DECIDED]
    differing = [(truth, first) for truth, first, second in both if first != second]
    # With two judges "differ" is all there is to choose.
    other, own = (str(k), str(i)) if len(names) > 2 else ("differ", "differ")
    cells = [el("td", f"{len(both):,}"), el("td", jump(len(differing), i, among=other))]
    if labelled:
        first_right = sum(truth == first for truth, first in differing)
        second_right = sum(truth in _DECIDED and truth != first for truth, first in differing)
        p, _ = mcnemar(first_right, second_right)
        cells += [
            el("td", jump(first_right, i, among=other, against="agrees")),
            el("td", jump(second_right, k, among=own, against="agrees")),
            el("td", ("< 0.001" if p < 0.001 else f"{p:.3f}") if first_right + second_right else "–"),
        ]
    return el("tr", el("th", f"{names[i]} – {names[k]}", scope="row"), *cells)
