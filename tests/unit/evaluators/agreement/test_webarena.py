"""WebArena's success rate, and the worked example of the paper's metrics."""

from __future__ import annotations

import pytest

from prill.datasets.webarena_tasks import Checks, TaskConfig, task_parts
from prill.evaluators.agreement.agreement import agreement
from prill.evaluators.agreement.corrections import correct, load_corrections, success_rates
from prill.types import EvaluatorInfo, LabelRecord, Verdict


def config(number: int, sites: str, types: str) -> TaskConfig:
    return TaskConfig(
        task_id=number,
        sites=tuple(sites.split()),
        intent="Find tea",
        intent_template="Find {{it}}",
        intent_template_id=1,
        instantiation_dict={"it": "tea"},
        start_url="__SHOPPING__",
        require_login=False,
        storage_state=None,
        geolocation=None,
        require_reset=False,
        eval=Checks(eval_types=tuple(types.split())),  # type: ignore[arg-type]
    )


CONFIGS = [
    config(1, "shopping", "string_match"),
    config(2, "shopping", "program_html url_match"),
    config(24, "shopping", "string_match"),
    config(99, "map wikipedia", "url_match program_html"),
]


def test_rates_with_and_without_corrections() -> None:
    labels = [
        LabelRecord(id=i, success=i in ("24", "1"), source="oracle")
        for i in ("1", "2", "24", "99", "500")
    ]
    rates = {(r.part, r.value): r for r in success_rates(labels, parts_of=task_parts(CONFIGS))}
    counted = {key: (r.n, r.successes, r.corrected_successes) for key, r in rates.items()}
    assert counted == {
        ("all", "all"): (5, 2, 1),
        ("site", "shopping"): (3, 2, 1),
        ("site", "multi"): (1, 0, 0),
        ("evaluation", "string_match"): (2, 2, 1),
        ("evaluation", "program_html+url_match"): (2, 0, 0),
    }
    whole = rates["all", "all"]
    assert (whole.rate, whole.corrected_rate) == (0.4, 0.2)
    assert whole.interval[0] < 0.4 < whole.interval[1]


def test_gold_correction_flips_task_24() -> None:
    judge = EvaluatorInfo("always-fail", "1")
    verdicts = [Verdict(id=str(i), success=False, score=0.0, evaluator=judge) for i in range(30)]
    labels = [LabelRecord(id=str(i), success=i == 24, source="oracle") for i in range(30)]
    before = agreement(verdicts, labels)
    after = agreement(verdicts, correct(labels, load_corrections("webarena")).labels)
    assert (before.confusion.fn, before.confusion.tn) == (1, 29)
    assert (after.confusion.fn, after.confusion.tn) == (0, 30)
    figures = {figure.name: figure for figure in before.figures}
    assert (figures["precision"].value, figures["precision"].undefined) == (0.0, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("accuracy", 0.8744), ("precision", 0.4615), ("recall", 0.6522), ("F1", 0.5405)],
)
def test_confusion_of_the_paper(name: str, value: float) -> None:
    judge = EvaluatorInfo("vlm", "1")
    outcomes = (
        [(True, True)] * 60 + [(True, False)] * 70 + [(False, False)] * 650 + [(False, True)] * 32
    )
    verdicts = [
        Verdict(id=str(i), success=judged_success, evaluator=judge)
        for i, (judged_success, _) in enumerate(outcomes)
    ]
    labels = [LabelRecord(id=str(i), success=truth) for i, (_, truth) in enumerate(outcomes)]
    figures = {figure.name: figure.value for figure in agreement(verdicts, labels).figures}
    assert figures[name] == pytest.approx(value, abs=5e-5)
