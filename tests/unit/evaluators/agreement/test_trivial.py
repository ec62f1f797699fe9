"""What a judge is measured against: the number of steps, Krippendorff's alpha, the price of a
correct verdict.
"""

from __future__ import annotations

import sys

import pytest

from prill.evaluators.agreement.agreement import conclusion, measure_agreement, pair
from prill.evaluators.agreement.comparison import krippendorff_alpha
from prill.evaluators.agreement.trivial import (
    Baselines,
    Telemetry,
    against_best,
    baseline_lines,
    compare_with_baselines,
    shortfall,
)
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

INFO = EvaluatorInfo("j", "1")
NONE = Usage()


def verdicts(votes: str, usage: Usage = NONE) -> dict[str, Verdict]:
    """One run a character: 1 success, 0 failure, - unscored."""
    return {
        str(i): Verdict(id=str(i), evaluator=INFO, unscored="parse", usage=usage)
        if c == "-"
        else Verdict(id=str(i), evaluator=INFO, success=c == "1", usage=usage)
        for i, c in enumerate(votes)
    }


def labels(truths: str) -> list[LabelRecord]:
    return [LabelRecord(id=str(i), success=c == "1") for i, c in enumerate(truths)]


def test_alpha_is_that_of_the_published_example() -> None:
    # Krippendorff, Computing Krippendorff's alpha-reliability (2011), binary data of two observers
    first, second = verdicts("0100000010"), verdicts("1110010000")
    assert krippendorff_alpha([first, second], None).value == pytest.approx(0.095, abs=5e-4)
    # a third judge that scored nothing, and runs of one judge, change nothing
    third = {**verdicts("----------"), **{"x": first["0"]}}
    assert krippendorff_alpha([first, second, third], None).value == pytest.approx(0.095, abs=5e-4)
    assert krippendorff_alpha([first, first], None).value == 1.0
    assert krippendorff_alpha([first], None).undefined


def runs(lengths: list[int], tasks: list[str], kinds: str = "click") -> Telemetry:
    """One run for each length; `prior` reads the kinds of actions as well."""
    telemetry = Telemetry()
    for i, (count, task) in enumerate(zip(lengths, tasks, strict=True)):
        steps = (Step(Observation(), Action("click")),) * (count - 1)
        last = Step(Observation(), Action(kinds if i % 2 else "scroll"))  # type: ignore[arg-type]
        telemetry.add(Trajectory(id=str(i), task=Task(id=task, goal=task), steps=(*steps, last)))
    return telemetry


def beside(votes: str, truths: str, telemetry: Telemetry | None) -> Baselines:
    return compare_with_baselines([pair(verdicts(votes).values(), labels(truths))], telemetry)[0]


@pytest.mark.parametrize("many", [True, False])
def test_step_rule_finds_the_threshold_on_other_tasks(many: bool) -> None:
    lengths = [2, 5] * 20
    truths = "".join(str(int((n == 5) is many)) for n in lengths)
    telemetry = runs(lengths, [f"t{i // 2}" for i in range(40)])
    for votes, words in ((truths, "no better than"), ("1" * 40, "against")):
        rule = beside(votes, truths, telemetry)[1]
        assert rule.accuracy == 1.0
        assert rule.comparison is not None
        assert rule.comparison.difference == (0.0 if votes == truths else -0.5)
        assert words in against_best((rule,)).lower()


def test_step_rule_does_not_learn_the_task_that_it_judges() -> None:
    """The length tells the label within each task only, in another way each time."""
    truths, lengths, tasks = "", [], []
    for task in range(30):
        for i in range(2):
            lengths.append(3 * task + i + 1)
            tasks.append(f"t{task}")
            truths += str(i if task % 2 else 1 - i)
    rule = beside(truths, truths, runs(lengths, tasks))[1]
    assert rule.accuracy < 0.65
    assert rule.comparison is not None and rule.comparison.difference > 0.35


def test_prior_reads_telemetry_without_scikit_learn_and_is_left_out_of_few_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kind of the last action tells the outcome, which the number of steps does not."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    truths, tasks = "01" * 20, [f"t{i // 2}" for i in range(40)]
    always, steps, prior = beside("1" * 40, truths, runs([3] * 40, tasks, "type"))
    assert (always.accuracy, steps.accuracy, prior.accuracy) == (0.5, 0.5, 1.0)
    assert prior.comparison is not None and prior.comparison.difference == -0.5
    assert prior.name in against_best((always, steps, prior))
    few = beside("1" * 12, truths[:12], runs([3] * 12, tasks[:12]))[2]
    assert "at least 10 of each" in few.missing
    assert few.missing in "\n".join(baseline_lines((always, steps, few)))
    assert [one.name for one in beside("01", "01", None)] == ["always failure"]


def test_shortfall_names_the_rule_and_conclusion_says_it() -> None:
    truths, tasks = "0110" * 15, [f"t{i // 2}" for i in range(60)]
    votes = "".join(c if i % 5 else "10"[int(c)] for i, c in enumerate(truths))
    rules = beside(votes, truths, runs([5 if c == "1" else 2 for c in truths], tasks))
    words = shortfall(rules)
    assert words == "worse than number of steps (5 or more)"
    measured = measure_agreement(pair(verdicts(votes).values(), labels(truths)), None)
    assert f"better than chance, but {words}" in conclusion(measured, words)


def test_price_of_a_correct_verdict_has_the_wrong_ones_in_it() -> None:
    used = Usage(calls=1, prompt_tokens=900, completion_tokens=100, usd=0.01)
    measured = measure_agreement(pair(verdicts("110-", used).values(), labels("1011")), None)
    assert measured.cost_per_correct is not None
    usd, tokens = measured.cost_per_correct
    assert (usd, tokens) == (pytest.approx(0.04), 4000)
    assert "Cost of a correct verdict: $0.04, 4000 tokens" in str(measured)
    assert (
        measure_agreement(pair(verdicts("0").values(), labels("1")), None).cost_per_correct is None
    )
