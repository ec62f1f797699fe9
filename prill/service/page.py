"""The status page: load, recent results, score distribution. It contains no script."""

from __future__ import annotations

import time
from dataclasses import dataclass

from prill.refine.rewards.watch.page import PAGE_CSS, watch_section
from prill.service.metrics import SCORE_BOUNDS, Metrics, counts
from prill.ui.templates import percent, render_page


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar for a tenth of the scores, with a height of at most 80."""

    height: float
    words: str


def status_page(
    metrics: Metrics, judge: str, *, ending: bool = False, refresh: int | None = None
) -> str:
    """Returns the self-contained page as HTML, which reloads every `refresh` seconds.

    Ids and names come from clients and are escaped.
    """
    outcomes, spent, trouble = counts(metrics.verdicts), metrics.spent, metrics.health.trouble
    success, unscored = outcomes.get("success", 0), outcomes.get("unscored", 0)
    made = sum(outcomes.values())
    notices = (
        [
            (
                "The service is shutting down: requests in progress are answered, new ones are "
                "rejected."
            )
        ]
        if ending
        else []
    )
    return render_page(
        "service/page.html",
        styles=("service/page.css", PAGE_CSS),
        generator="prill serve",
        title="prill reward service",
        judge=judge,
        refresh=refresh,
        notices=[*notices, *([f"{trouble}."] if trouble else [])],
        now=[(f"{value():g}", description.lower()) for description, value in metrics.gauges],
        totals=(
            (f"{metrics.health.rate():.1f}", "judged per second, over the last minute"),
            (f"{made:,.0f}", "judged"),
            (percent(success, made - unscored), "successes, of those with a verdict"),
            (percent(unscored, made), "without a verdict"),
            (f"{counts(metrics.broken)['']:,.0f}", "broke"),
            ("unknown" if spent.usd is None else f"${spent.usd:,.2f}", "spent on models"),
        ),
        scores=_bars(counts(metrics.scores, "_bucket")),
        reasons=sorted(counts(metrics.unscored).items(), key=lambda item: -item[1]),
        section=None if metrics.watch is None else watch_section(metrics.watch.report()),
        latest=list(reversed(metrics.latest)),
        clock=lambda at: time.strftime("%H:%M:%S", time.localtime(at)),
    )


def _bars(up_to: dict[str, float]) -> list[Bar]:
    """Returns the bars of cumulative counts; none if nothing was counted."""
    so_far = [up_to[str(bound)] for bound in SCORE_BOUNDS]
    tenths = [count - before for count, before in zip(so_far, [0.0, *so_far], strict=False)]
    most = max(tenths)
    return [
        Bar(80 * count / most, f"{bound - 0.1:.1f} to {bound:.1f}: {count:,.0f}")
        for bound, count in zip(SCORE_BOUNDS, tenths, strict=True)
        if most
    ]
