"""The status page: how busy the service is, what it said lately, and how its scores are spread. It runs no script."""

from __future__ import annotations

import time
from html import escape
from importlib.resources import files

from prill.refine.rewards.watch.page import PAGE_CSS, watch_section
from prill.service.board import SCORE_BINS, Board

_SIGNS = {"success": "✓", "failure": "✗", "unscored": "?"}


def status_page(board: Board, judge: str, *, ending: bool = False) -> str:
    """The page as HTML, with everything inside. Ids and names come from clients, and are shown as text."""
    gauges = board.gauges()
    now = [f"<div><strong>{value:g}</strong><span>{escape(words.lower())}</span></div>" for value, words in gauges.values()]
    made = sum(board.outcomes.values())
    facts = [
        (f"{board.rate():.1f}", "judged a second, in the last minute"),
        (f"{made:,}", "judged"),
        (_percent(board.success_share), "success, of those with a verdict"),
        (_percent(board.outcomes["unscored"] / made if made else None), "without a verdict"),
        (f"{board.broken:,}", "broke"),
        ("unknown" if board.spent.usd is None else f"${board.spent.usd:,.2f}", "spent by models"),
    ]
    totals = [f"<div><strong>{escape(value)}</strong><span>{escape(words)}</span></div>" for value, words in facts]
    notices = ["The service is ending: requests inside are answered, new ones are not."] if ending else []
    notices += [f"{board.trouble}."] if board.trouble else []
    told = "".join(f'<p class="notice">{escape(words)}</p>' for words in notices)
    reasons = "".join(f"<tr><td>{escape(reason)}</td><td>{count:,}</td></tr>" for reason, count in board.unscored.most_common())
    latest = "".join(
        f'<tr><td><span class="badge {one.outcome}">{_SIGNS[one.outcome]} {one.outcome}</span></td>'
        f"<td><code>{escape(one.id)}</code></td><td>{_number(one.score)}</td><td>{_number(one.reward)}</td>"
        f"<td>{one.seconds:.2f} s</td><td>{time.strftime('%H:%M:%S', time.localtime(one.at))}</td></tr>"
        for one in reversed(board.latest)
    )
    style = "".join(
        _text(package, name) for package, name in (("prill.ui", "look.css"), (__package__ or "", "page.css"), PAGE_CSS)
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5"><title>prill reward service</title><style>{style}</style></head>
<body><header class="bar"><h1>Reward service</h1><span class="count">{escape(judge)}</span></header>
<main>{told}
<section><h2>Now</h2><div class="facts">{"".join(now)}</div></section>
<section><h2>Since the start</h2><div class="facts">{"".join(totals)}</div></section>
<section><h2>Scores</h2>{_histogram(board.scores)}</section>
{f"<section><h2>Without a verdict</h2><table><tbody>{reasons}</tbody></table></section>" if reasons else ""}
{_watch(board)}
<section><h2>Latest verdicts</h2>{_table(latest)}</section>
</main></body></html>"""


def _watch(board: Board) -> str:
    """How the scores drift, and the other signs, where somebody looks on."""
    if board.watch is None:
        return ""
    return f"<section><h2>Reward watch</h2>{watch_section(board.watch.report())}</section>"


def _table(rows: str) -> str:
    if not rows:
        return '<p class="empty">Nothing was judged yet.</p>'
    heads = "".join(f"<th>{word}</th>" for word in ("verdict", "id", "score", "reward", "took", "at"))
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _histogram(counts: list[int]) -> str:
    """Bars from 0 to 1."""
    most = max(counts)
    if not most:
        return '<p class="empty">No scores yet.</p>'
    bars = []
    for place, count in enumerate(counts):
        height = 80 * count / most
        words = f"{place / SCORE_BINS:.1f} to {(place + 1) / SCORE_BINS:.1f}: {count:,}"
        bars.append(
            f'<rect x="{place * 40 + 2}" y="{90 - height:.1f}" width="36" height="{height:.1f}"><title>{words}</title></rect>'
        )
    ends = '<text x="2" y="106">0</text><text x="398" y="106" text-anchor="end">1</text>'
    return (
        f'<svg class="scores" viewBox="0 0 400 110" role="img" aria-label="How scores are spread">{"".join(bars)}{ends}</svg>'
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _text(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
