"""Signs that a reward goes wrong: the tests as computed by hand, and runs that are to be alarms or
not.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from prill.refine.rewards import WatchRecord, WatchReport, WatchSpec
from prill.refine.rewards.watch.signs import (
    FIGURES,
    ChangedCanary,
    Round,
    Sign,
    WatchTally,
    kolmogorov_smirnov,
    mean_rose,
    share_rose,
)

from .watching import course, said


def report(
    records: Iterable[WatchRecord], scores: list[float] | None = None, **spec: object
) -> WatchReport:
    tally = WatchTally(WatchSpec(window=100, **spec), scores or [])  # type: ignore[arg-type]
    for record in records:
        tally.add(record)
    return tally.report()


def sign(found: WatchReport, name: str) -> Sign:
    return next(one for one in found.signs if one.name == name)


def canary(id: str, label: bool, success: bool | None, round: int) -> WatchRecord:
    score = None if success is None else 0.9 if success else 0.1
    return WatchRecord(kind="canary", at="", id=id, verdict=said(score), label=label, round=round)


def test_distance_is_as_computed_by_hand() -> None:
    # Up to 2, half of the first values and none of the others: 0.5. Then (√2 + 0.12 + 0.11 / √2) ·
    # 0.5 = 0.80600, and 2 (e^(-2 · 0.64963) - e^(-8 · 0.64963) + …) = 2 (0.27274 - 0.00553 +
    # 0.00001).
    assert kolmogorov_smirnov([4, 1, 3, 2], [3, 6, 4, 5]) == (0.5, pytest.approx(0.53442, abs=1e-5))
    assert kolmogorov_smirnov([0.2] * 50, [0.2] * 70) == (0.0, 1.0)
    # Shares of 0.25 and 0.75 in judges that say 0 or 1: their difference.
    assert kolmogorov_smirnov([0, 0, 0, 1], [0, 1, 1, 1])[0] == 0.5


def test_shares_are_tested_as_by_hand() -> None:
    # Pooled 40 of 200, so √(0.2 · 0.8 · 2 / 100) = 0.056569, and 0.2 is 3.5355 of it: above that is
    # 0.00020347.
    assert share_rose((10, 100), (30, 100)) == pytest.approx(0.00020347, rel=1e-4)
    assert share_rose((30, 100), (10, 100)) == pytest.approx(1 - 0.00020347, rel=1e-4)
    assert share_rose((0, 50), (0, 50)) == 1.0


def test_means_are_tested_as_by_hand() -> None:
    # Both variances are 1/3 over 4 values, so √(1/6) = 0.408248, and 0.5 is 1.224745 of it: above
    # that is 0.110336.
    assert mean_rose([0, 0, 1, 1], [0.5, 0.5, 1.5, 1.5]) == pytest.approx(0.110336, rel=1e-4)
    assert mean_rose([1.0] * 30, [0.5] * 30) == 1.0
    assert mean_rose([0.5] * 30, [1.0] * 30) == 0.0


def test_reward_hacking_is_an_alarm() -> None:
    found = report(course(truth=(0.5, 0.15), hacked=0.9))
    hacking = sign(found, "hacking")
    assert hacking.state == "alarm" and 200 < hacking.since <= 800
    assert hacking.figures["judge_mean"] > hacking.figures["judge_mean_first"]
    assert hacking.figures["student_mean"] < hacking.figures["student_mean_first"]
    assert sign(found, "disagreement").state == "alarm"


def test_a_steady_run_is_no_alarm() -> None:
    found = report(course(2000))
    assert {one.name: one.state for one in found.signs} == {
        "canaries": "unknown",
        "unscored": "quiet",
        "drift": "quiet",
        "disagreement": "quiet",
        "hacking": "quiet",
    }
    assert not any("alarm" in point.states.values() for point in found.course)


def test_an_agent_that_learns_is_no_alarm() -> None:
    found = report(course(truth=(0.2, 0.9)))
    assert not found.alarms
    assert sign(found, "drift").state == "notice"  # its scores do move


def test_drift_can_be_an_alarm_by_itself() -> None:
    found = report(course(truth=(0.2, 0.9)), drift_alarm=True)
    assert [one.name for one in found.alarms] == ["drift"]


def test_drift_is_measured_from_given_scores() -> None:
    low = [0.1 + i / 1000 for i in range(100)]
    assert sign(report(course(60)), "drift").state == "unknown"
    assert sign(report(course(60), low), "drift").state == "notice"


def test_missing_verdicts_are_an_alarm() -> None:
    def every(n: int) -> list[WatchRecord]:
        return [
            WatchRecord(kind="verdict", at="", id=str(i), verdict=said(None if i % n == 0 else 0.9))
            for i in range(300)
        ]

    rare, often = report(every(20)), report(every(4))
    assert sign(rare, "unscored").state == "quiet" and sign(rare, "unscored").figures == {
        "unscored_share": 0.05
    }
    assert [one.name for one in often.alarms] == ["unscored"]
    assert (often.verdicts, often.unscored) == (300, 75)
    # what is unscored is no score of 0
    assert sign(often, "drift").figures["score_mean"] == pytest.approx(0.9)


def test_too_few_verdicts_say_nothing() -> None:
    found = report(course(29))
    assert {one.state for one in found.signs} == {"unknown"}
    assert report([]).signs and not report([]).alarms


def test_turned_canaries_are_counted() -> None:
    first = [canary(str(i), i % 2 == 0, i % 2 == 0, 1) for i in range(9)] + [
        canary("9", True, False, 1)
    ]
    later = [canary(str(i), i % 2 == 0, i % 2 == 0 and i != 4, 2) for i in range(9)] + [
        canary("9", True, True, 2)
    ]
    found = report([*first, *later])
    canaries = sign(found, "canaries")
    assert canaries.state == "notice"  # one of ten may turn wrong
    assert canaries.figures == {
        "canary_agreement": 0.9,
        "canaries_turned_wrong": 1,
        "canaries_turned_right": 1,
        "canaries_unscored": 0,
    }
    assert found.turned == (
        ChangedCanary("4", True, True, False),
        ChangedCanary("9", True, False, True),
    )
    assert sign(report([*first, *later], canary_limit=0.05), "canaries").state == "alarm"


def test_unscored_canaries_are_never_wrong() -> None:
    records = [canary(str(i), True, True, 1) for i in range(10)] + [
        canary(str(i), True, None, 2) for i in range(10)
    ]
    found = report(records)
    canaries = sign(found, "canaries")
    assert canaries.state == "quiet" and canaries.figures["canary_agreement"] == 1.0
    assert (
        canaries.figures["canaries_unscored"] == 10
        and "10 of 10 are unscored now" in canaries.words
    )
    assert found.rounds == (Round(0, right=10), Round(0, unscored=10))
    assert sign(report([canary("a", True, None, 1)]), "canaries").state == "unknown"


def test_memory_does_not_grow_with_the_run() -> None:
    found = report(course(5400), scores=[0.5] * 100)
    assert len(found.course) <= 400 and found.course[-1].after > 5300
    apart = {
        later.after - one.after
        for one, later in zip(found.course[:-1], found.course[1:], strict=True)
    }
    assert len(apart) == 1


def test_every_figure_has_its_meaning() -> None:
    records = [*course(300), canary("a", True, True, 1)]
    assert {key for one in report(records).signs for key in one.figures} == set(FIGURES)
