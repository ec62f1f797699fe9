"""Two judges on the same labels: McNemar's test on hand examples, and the paired difference."""

from __future__ import annotations

import pytest

from prill.errors import UsageError
from prill.evaluators.meta.agreement import Pairing, pair
from prill.evaluators.meta.comparison import compare, exact_mcnemar, mcnemar
from prill.types import EvaluatorInfo, LabelRecord, Verdict


def judged(name: str, right: str) -> Pairing:
    """One trajectory a character, whose label is success: 1 judged right, 0 wrong, - unscored."""
    info = EvaluatorInfo(name, "1")
    verdicts = [
        Verdict(id=str(i), evaluator=info, unscored="timeout")
        if c == "-"
        else Verdict(id=str(i), evaluator=info, success=c == "1", score=float(c))
        for i, c in enumerate(right)
    ]
    return pair(verdicts, [LabelRecord(id=str(i), success=True) for i in range(len(right))])


def test_few_discordant_pairs_are_exact() -> None:
    # 1 against 7: twice the chance of at most one head in eight throws, 2 * (1 + 8) / 256.
    assert mcnemar(1, 7) == (pytest.approx(18 / 256), "exact binomial")
    assert mcnemar(7, 1) == mcnemar(1, 7)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (8, 1, 0.0390625), (29, 4, 1.0e-5), (5, 5, 1.0)],
)
def test_exact_mcnemar_of_known_counts(gained: int, lost: int, p: float) -> None:
    assert exact_mcnemar(gained, lost) == exact_mcnemar(lost, gained) == pytest.approx(p, rel=0.1)


def test_balanced_pairs_are_no_evidence() -> None:
    assert (mcnemar(0, 0)[0], mcnemar(4, 4)[0]) == (1.0, 1.0)


def test_many_discordant_pairs_chi_square() -> None:
    # (|25 - 10| - 1)^2 / 35 = 5.6; the upper tail of chi-square with one degree of freedom there is
    # 0.01796.
    assert mcnemar(25, 10) == (
        pytest.approx(0.01796, abs=1e-5),
        "chi-square with continuity correction",
    )
    assert mcnemar(13, 13)[0] == 1.0


def test_two_tests_meet_where_they_change() -> None:
    # 24 pairs exactly, against (|7 - 17| - 1)^2 / 24 = 3.375 by chi-square: 0.0662.
    assert mcnemar(7, 17) == (pytest.approx(0.0662, rel=0.05), "exact binomial")
    assert mcnemar(7, 18)[1] == "chi-square with continuity correction"


def test_only_what_both_judged_is_compared() -> None:
    comparison = compare(judged("a", "1110-1"), judged("b", "10-011"))
    assert (comparison.both, comparison.only_first, comparison.only_second) == (4, 1, 1)
    assert (
        comparison.both_right,
        comparison.first_right,
        comparison.second_right,
        comparison.both_wrong,
    ) == (2, 1, 0, 1)
    assert (comparison.difference, comparison.other.name) == (0.25, "b")


def test_interval_widens_with_clusters() -> None:
    first, second = judged("a", "1" * 80 + "0" * 20), judged("b", "1" * 60 + "0" * 40)
    alone = compare(first, second)
    together = compare(first, second, {str(i): str(i // 4) for i in range(100)})
    assert alone.interval is not None
    assert together.interval is not None
    assert alone.interval[0] < alone.difference == 0.2 < alone.interval[1]
    # Five of 25 tasks differ throughout: the spread of a share over 25 is sqrt(4) times that over
    # 100.
    assert (together.interval[1] - together.interval[0]) / (
        alone.interval[1] - alone.interval[0]
    ) == pytest.approx(2, abs=0.4)


def test_equal_judges_differ_by_nothing() -> None:
    comparison = compare(judged("a", "1101"), judged("b", "1101"))
    assert (comparison.difference, comparison.interval, comparison.p) == (0.0, None, 1.0)


def test_disjoint_judges_are_refused() -> None:
    with pytest.raises(UsageError, match="judged by both"):
        compare(judged("a", "1-"), judged("b", "-1"))
