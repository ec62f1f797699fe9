"""Judges without a model."""

import pytest

from prill.errors import UsageError
from prill.evaluators.baselines import Constant, NoiseSpec, NoisyLabels, SelfReport, oracle
from prill.evaluators.wrappers.rewritten import EvidenceOnly
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory


def run(*actions: Action, answer: str | None = None, id: str = "a") -> Trajectory:
    steps = tuple(Step(Observation(), action, "It worked") for action in actions)
    return Trajectory(id=id, task=Task(goal="g"), steps=steps, answer=answer)


@pytest.mark.parametrize("success", [True, False])
async def test_constant_says_the_same_always(success: bool) -> None:
    verdict = await Constant(success)(run())
    assert (verdict.success, verdict.score, verdict.usage.calls) == (success, float(success), 0)


# What the agent did last, its answer, and whether that is a claim of success.
CLAIMS = [
    (Action("answer", "stop [42]"), "42", True),
    (Action("stop", "stop"), None, True),
    (Action("click", "click"), None, False),
    (Action("stop", "stop []"), "", False),
    (Action("stop", "stop [N/A]"), "N/A", False),
    (Action("stop", "stop"), "Early stop: same action 3 times", False),
    (Action("answer", "x"), "Error: the page did not load", False),
    (Action("answer", "x"), "Naomi's error log", True),
    (Action("stop", "report_infeasible('no such product')"), "no such product", False),
]


@pytest.mark.parametrize(("last", "answer", "success"), CLAIMS)
async def test_self_report_takes_agents_word(
    last: Action, answer: str | None, success: bool
) -> None:
    assert (await SelfReport()(run(last, answer=answer))).success is success


async def test_evidence_only_hides_agents_word() -> None:
    judge = EvidenceOnly(SelfReport())
    claimed, plain = (
        run(Action("answer", "stop [Done]"), answer="Done"),
        run(Action("answer", "answer")),
    )
    assert (await judge(claimed)).success == (await judge(plain)).success
    assert (await judge(claimed)).evaluator.params == {"evidence_only": True}


async def test_oracle_abstains_without_label() -> None:
    labels = [
        LabelRecord(id="a", success=True, source="human"),
        LabelRecord(id="b", success=None, source="human"),
        LabelRecord(id="a", success=False, source="oracle"),
    ]
    with pytest.raises(UsageError, match="several sources"):
        oracle(labels)
    judge = oracle(labels, "human")
    other = oracle([LabelRecord(id="a", success=False, source="human")])
    assert judge.info != other.info, (
        "other labels, other verdicts: a run that is taken up makes them again"
    )
    assert (await judge(run(id="a"))).success is True
    assert [(await judge(run(id=id))).unscored for id in ("b", "c")] == ["no_evidence"] * 2


async def test_noisy_labels_err_at_their_rates() -> None:
    labels = [LabelRecord(id=f"task-{i}", success=i % 2 == 0, source="oracle") for i in range(2000)]
    judge = NoisyLabels(oracle(labels), NoiseSpec(false_positives=0.15, false_negatives=0.2))
    verdicts = [(await judge(run(id=label.id))).success for label in labels]
    of_failures, of_successes = verdicts[1::2], verdicts[::2]
    assert sum(map(bool, of_failures)) / 1000 == pytest.approx(0.15, abs=0.03)
    assert 1 - sum(map(bool, of_successes)) / 1000 == pytest.approx(0.2, abs=0.03)
    assert verdicts == [(await judge(run(id=label.id))).success for label in labels]


async def test_noisy_labels_are_unscored_at_a_rate() -> None:
    labels = [LabelRecord(id=f"task-{i}", success=i % 2 == 0, source="oracle") for i in range(2000)]
    judge = NoisyLabels(oracle(labels), NoiseSpec(unscored=0.3, false_negatives=0.2))
    verdicts = [await judge(run(id=label.id)) for label in labels]
    assert sum(verdict.success is None for verdict in verdicts) / 2000 == pytest.approx(
        0.3, abs=0.03
    )
    known = [verdict.success for verdict in verdicts[::2] if verdict.success is not None]
    assert known.count(False) / len(known) == pytest.approx(0.2, abs=0.04), (
        "the errors do not hang on what is unscored"
    )
