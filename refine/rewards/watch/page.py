"""The page of a reward monitor: its signals and their plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from prill.refine.rewards.watch.signs import SeriesPoint, SignName, State, WatchReport
from prill.ui.svg import el
from prill.ui.templates import render_page

PAGE_CSS = "refine/rewards/watch/page.css"
_TITLES: dict[SignName, str] = {
    "canaries": "Canaries",
    "unscored": "Unscored",
    "drift": "Drift",
    "disagreement": "Disagreement",
    "hacking": "Reward hacking",
}
_WIDTH, _HEIGHT, _LEFT, _TOP = 380, 150, 40, 34


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a plot: shares by number of verdicts; `level` is the initial share."""

    name: str
    points: Sequence[tuple[int, float]]
    level: float | None = None


@dataclass(frozen=True, slots=True)
class SignRow:
    """The state of one signal, in words."""

    title: str
    state: State
    words: str


@dataclass(frozen=True, slots=True)
class WatchSection:
    """The content of one monitor's section; the HTML template is `section.html`."""

    report: WatchReport
    signs: Sequence[SignRow]
    plots: Sequence[Markup]


def watch_page(reports: Sequence[tuple[str, WatchReport]]) -> str:
    """Renders a page for several logs, each under its name."""
    return render_page(
        "refine/rewards/watch/page.html",
        styles=(PAGE_CSS,),
        generator="prill watch",
        title="prill watch",
        headline=headline(reports),
        sections=[(name, watch_section(report)) for name, report in reports],
        problems=(),
    )


def headline(reports: Sequence[tuple[str, WatchReport]]) -> str:
    """Returns the number of alarms, in words."""
    alarms = sum(len(report.alarms) for _, report in reports)
    return "no alarm" if not alarms else "1 alarm" if alarms == 1 else f"{alarms} alarms"


def watch_section(report: WatchReport) -> WatchSection:
    """Builds the signals and the plots of a monitor."""
    return WatchSection(report, [_sign_row(report, name) for name in _TITLES], _plots(report))


def _sign_row(report: WatchReport, name: SignName) -> SignRow:
    sign = next((one for one in report.signs if one.name == name), None)
    if sign is None:
        return SignRow(_TITLES[name], "unknown", "no observations yet")
    since = f" (since verdict {sign.since:,})" if sign.state in ("alarm", "notice") else ""
    return SignRow(_TITLES[name], sign.state, f"{sign.words}{since}")


def _plots(report: WatchReport) -> list[Markup]:
    def course(key: str) -> list[tuple[int, float]]:
        return [
            (point.after, point.figures[key]) for point in report.course if key in point.figures
        ]

    def first(key: str) -> float | None:
        return next(
            (point.figures[key] for point in reversed(report.course) if key in point.figures), None
        )

    means = [_Line("judge", course("score_mean"), first("score_mean_first"))]
    if seconds := course("student_mean"):
        means = [
            _Line("judge", course("judge_mean"), first("judge_mean_first")),
            _Line("second judge", seconds, first("student_mean_first")),
        ]
    shares = [_Line("unscored", course("unscored_share"))]
    shares += (
        [_Line("judges differ", rates, first("disagreement_first"))]
        if (rates := course("disagreement"))
        else []
    )
    rounds = [one for one in report.rounds if one.right + one.wrong]
    canaries = [
        _Line("judged right", [(one.after, one.right / (one.right + one.wrong)) for one in rounds]),
        _Line(
            "unscored",
            [
                (one.after, one.unscored / (one.right + one.wrong + one.unscored))
                for one in report.rounds
            ],
        ),
    ]
    plots = [
        _plot(report, "Mean score of the latest verdicts", means, "hacking"),
        _plot(
            report,
            "Drift: distance from the first scores",
            [_Line("distance", course("drift_distance"))],
            "drift",
        ),
        _plot(report, "Unscored, and disagreement", shares, "unscored", "disagreement"),
        _plot(report, "Canaries, round by round", canaries, "canaries", marks=True),
    ]
    return [plot for plot in plots if plot is not None]


def _plot(
    report: WatchReport, title: str, lines: Sequence[_Line], *names: SignName, marks: bool = False
) -> Markup | None:
    """Draws shares over verdicts, with a band where a signal was an alarm or a notice."""
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    last = max(report.verdicts, 1)
    parts = [el("text", title, x=_LEFT, y=20, class_="title"), *_bands(report, last, names)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(tick)
        parts.append(el("line", x1=_LEFT, y1=y, x2=_LEFT + _WIDTH, y2=y, class_="grid"))
        parts.append(el("text", f"{tick:g}", x=_LEFT - 6, y=y + 4, text_anchor="end"))
    for share in (0, 0.5, 1):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(
            el(
                "text",
                f"{round(share * last):,}",
                x=_LEFT + share * _WIDTH,
                y=_y(0) + 16,
                text_anchor=anchor,
            )
        )
    parts.append(
        el("text", "verdicts", x=_LEFT + 0.75 * _WIDTH, y=_y(0) + 16, text_anchor="middle")
    )
    for i, (line, kind) in enumerate(zip(lines, ("first", "second"), strict=False)):
        parts += _drawn(line, kind, last, i, marks)
    box = f"0 0 {_LEFT + _WIDTH + 16} {_TOP + _HEIGHT + 50}"
    return el("svg", *parts, viewBox=box, class_="watch-plot", role="img", aria_label=title)


def _drawn(line: _Line, kind: str, last: int, place: int, marks: bool) -> list[Markup]:
    places = [(_x(after, last), _y(share)) for after, share in line.points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    parts = []
    if line.level is not None:
        y = _y(line.level)
        title = el("title", f"{line.name}: {line.level:.3f} at first")
        parts.append(
            el("line", title, x1=_LEFT, y1=y, x2=_LEFT + _WIDTH, y2=y, class_=f"line level {kind}")
        )
    after, share = line.points[-1]
    parts.append(
        el(
            "path",
            el("title", f"{line.name}: {share:.3f} after {after:,} verdicts"),
            d=path,
            class_=f"line {kind}",
        )
    )
    if marks or len(places) == 1:
        parts += [el("circle", cx=x, cy=y, r=3.5, class_=f"mark {kind}") for x, y in places]
    x, y = _LEFT + 190.0 * place, _TOP + _HEIGHT + 38.0
    parts.append(el("line", x1=x, y1=y - 4, x2=x + 26, y2=y - 4, class_=f"line {kind}"))
    parts.append(
        el(
            "text",
            line.name if line.level is None else f"{line.name} (dots: at first)",
            x=x + 32,
            y=y,
        )
    )
    return parts


def _bands(report: WatchReport, last: int, names: Sequence[SignName]) -> list[Markup]:
    def shown(point: SeriesPoint) -> str:
        states = [point.states.get(name) for name in names]
        return "alarm" if "alarm" in states else "notice" if "notice" in states else ""

    spells = [(state, next(points).after) for state, points in groupby(report.course, shown)]
    ends = [*(after for _, after in spells[1:]), report.verdicts]
    return [
        el(
            "rect",
            x=_x(after, last),
            y=_TOP,
            width=_x(end, last) - _x(after, last),
            height=_HEIGHT,
            class_=state,
        )
        for (state, after), end in zip(spells, ends, strict=False)
        if state
    ]


def _x(after: int, last: int) -> float:
    return _LEFT + _WIDTH * after / last


def _y(share: float) -> float:
    return float(_TOP + _HEIGHT * (1 - min(1.0, max(0.0, share))))
