"""The card of a stacked judge, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from prill.evaluators.agreement.figure import FigureCell, interval, text_table
from prill.evaluators.fitted.stack import StackModel
from prill.io.tables import printable

_FIGURES = attrgetter("runs", "auc", "kappa")


def stack_card(model: StackModel) -> Iterator[str]:
    """Yields the card of a stacked judge: its figures, the value of each part, and the cost of
    calling each.
    """
    card = model.card
    names = ", ".join(printable(worth.name) for worth in card.worth)
    yield f"Stacked judge: {names}; success from a probability of {model.stages[-1].threshold:g}"
    yield f"Fitted on {card.runs} runs of {card.tasks} tasks, {card.successes} successes"
    yield ""
    heading = ("held out, folds by task", "runs", "AUC", "kappa", "gain of kappa by it")
    rows = [("all together", *_FIGURES(card.all_runs), "")]
    for one in card.worth:
        gain = _signed(one.kappa_gain, one.kappa_interval)
        rows.append((f"without {one.name}", *_FIGURES(one.without), gain))
    yield from text_table(heading, rows)
    heading = ("by itself", "runs", "AUC", "kappa", "all together above it")
    yield from text_table(
        heading,
        (
            (one.name, *_FIGURES(one.alone), _signed(one.over_alone, one.over_alone_interval))
            for one in card.worth
        ),
    )
    good = card.quality
    yield (
        f"As a probability: Brier {good.brier:.3f}, calibration error {good.calibration_error:.3f}"
    )
    yield ""
    costs = [(source.name, source.cost) for source in model.sources]
    yield from text_table(
        ("cost of a verdict, in the order of calls", "US dollars", "tokens", "calls"),
        (
            (name, "-" if c.usd is None else f"{c.usd:.3g}", f"{c.tokens:.0f}", f"{c.calls:.3g}")
            for name, c in costs
        ),
    )
    yield ""
    unit = "US dollars" if card.unit == "usd" else "tokens"
    legend = "share of runs that each judge is asked about"
    plan: list[Sequence[FigureCell]] = []
    for point in card.plan:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in point.asked.items())
        ends = "" if point.interval is None else interval(point.interval)
        band = f"{point.width:g}", f"{point.cost:.6g}", point.kappa, ends, shares
        plan.append((*band, "<-" if point.width == model.width else ""))
    yield from text_table(("band", f"{unit} a run", "kappa", "95 % interval", legend, ""), plan)
    if card.planned and card.planned.kappa is not None:
        yield (
            f"With the band chosen on the other folds, for a kappa of {card.wanted:g}: "
            f"{card.planned.kappa:.3f}"
        )
    elif card.wanted is None:
        yield "It calls all judges; with a wanted kappa it calls only those that are needed."


def _signed(value: float | None, ends: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.3f}" + ("" if ends is None else " [{:+.3f}, {:+.3f}]".format(*ends))
