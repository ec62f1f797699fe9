"""Two judges on the same labels: McNemar's test on hand examples, and the paired difference."""

from __future__ import annotations

import pytest

from prill.evaluators.agreement.agreement import Pairing, pair
from prill.evaluators.agreement.comparison import compare, exact_mcnemar, mcnemar
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


def test_many_discordant_pairs_chi_square() -> None:
    # (|25 - 10| - 1)^2 / 35 = 5.6; the upper tail of chi-square with one degree of freedom there is
    # 0.01796.
    assert mcnemar(25, 10) == (
        pytest.approx(0.01796, abs=1e-5),
        "chi-square with continuity correction",
    )
    assert mcnemar(13, 13)[0] == 1.0


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
