"""WebArena's success rate, and the worked example of the paper's metrics."""

from __future__ import annotations

from prill.datasets.webarena_tasks import Checks, TaskConfig, task_parts
from prill.evaluators.agreement.corrections import success_rates
from prill.types import LabelRecord


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
