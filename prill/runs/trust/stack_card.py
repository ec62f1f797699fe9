"""The card of a stacked judge, as text."""

from __future__ import annotations

from collections.abc import Iterator

from prill.evaluators.fitted.stack import StackModel
from prill.evaluators.fitted.student import StudentHeldOut
from prill.io.tables import printable

_NAME = 36  # characters


def stack_card(model: StackModel) -> Iterator[str]:
    """Yields the card of a stacked judge: its figures, the value of each part, and the cost of
    calling each.
    """
    card = model.card
    names = ", ".join(printable(worth.name) for worth in card.worth)
    yield f"Stacked judge: {names}; success from a probability of {model.stages[-1].threshold:g}"
    yield f"Fitted on {card.runs} runs of {card.tasks} tasks, {card.successes} successes"
    yield ""
    heading = "held out, folds by task"
    yield f"{heading:<{_NAME}}{'runs':>6}{'AUC':>7}{'kappa':>8}   gain of kappa by it"
    yield _row("all together", card.all_runs, "")
    for worth in card.worth:
        gain = _signed(worth.kappa_gain, worth.kappa_interval)
        yield _row(f"without {worth.name}", worth.without, gain)
    yield f"{'by itself':<{_NAME}}{'runs':>6}{'AUC':>7}{'kappa':>8}   all together above it"
    for worth in card.worth:
        over = _signed(worth.over_alone, worth.over_alone_interval)
        yield _row(worth.name, worth.alone, over)
    good = card.quality
    yield (
        f"As a probability: Brier {good.brier:.3f}, calibration error {good.calibration_error:.3f}"
    )
    yield ""
    unit = "US dollars" if card.unit == "usd" else "tokens"
    legend = "share of runs that each judge is asked about"
    yield f"{'band':>6}{f'{unit} a run':>18}{'kappa':>8}   {'95 % interval':<18}{legend}"
    for point in card.plan:
        kappa = "-" if point.kappa is None else f"{point.kappa:.3f}"
        ends = "" if point.interval is None else "[{:.3f}, {:.3f}]".format(*point.interval)
        shares = ", ".join(f"{printable(n)} {share:.0%}" for n, share in point.asked.items())
        mark = " <-" if point.width == model.width else ""
        yield f"{point.width:>6g}{point.cost:>18.6g}{kappa:>8}   {ends:<18}{shares}{mark}"
    if card.planned and card.planned.kappa is not None:
        yield (
            f"With the band chosen on the other folds, for a kappa of {card.wanted:g}: "
            f"{card.planned.kappa:.3f}"
        )
    elif card.wanted is None:
        yield "It calls all judges; with a wanted kappa it calls only those that are needed."


def _row(name: str, figures: StudentHeldOut, gain: str) -> str:
    cells = "".join(
        f"{'-' if value is None else format(value, '.3f'):>{width}}"
        for value, width in ((figures.auc, 7), (figures.kappa, 8))
    )
    name = printable(name)
    name = name if len(name) < _NAME else f"{name[: _NAME - 2]}…"
    return f"{name:<{_NAME}}{figures.runs:>6}{cells}   {gain}".rstrip()


def _signed(value: float | None, ends: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.3f}" + ("" if ends is None else " [{:+.3f}, {:+.3f}]".format(*ends))
