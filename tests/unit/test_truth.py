"""What counts as the truth where several people labelled, by hand; the order of the lines matters
to the rule `first` alone.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from prill.errors import UsageError
from prill.evaluators.baselines import oracle
from prill.io.truth import collect_votes, decide_truth, gold_labels, why_undecided
from prill.types import LabelRecord


def labels(said: str, id: str = "a") -> list[LabelRecord]:
    """One label a character, by P0, P1, ...: 1 and 0, u (unsure), x (not executable), ? (no
    reason).
    """
    words = {"1": True, "0": False}
    kinds = {"u": "unsure", "x": "not_executable"}
    return [
        LabelRecord(id=id, success=words.get(c), annotator=f"P{i}", undecided=kinds.get(c))  # type: ignore[arg-type]
        for i, c in enumerate(said)
    ]


@pytest.mark.parametrize(
    ("said", "majority", "unanimous", "first"),
    [
        ("1", True, True, True),
        ("10", None, None, True),
        ("01", None, None, False),
        ("011", True, None, False),
        ("u0", False, False, False),
        ("xu", None, None, None),
        ("u110", True, None, True),
        ("000", False, False, False),
    ],
)
def test_rules_decide_as_they_say(
    said: str, majority: bool | None, unanimous: bool | None, first: bool | None
) -> None:
    records = labels(said)
    assert [decide_truth(records, rule) for rule in ("majority", "unanimous", "first")] == [
        majority,
        unanimous,
        first,
    ]


@pytest.mark.parametrize("said", ["10", "011", "u01", "xu?", "1001"])
@pytest.mark.parametrize("rule", ["majority", "unanimous", "P1"])
def test_order_of_lines_never_matters(said: str, rule: str) -> None:
    orders = list(permutations(labels(said)))
    assert len({decide_truth(order, rule) for order in orders}) == 1
    assert len({why_undecided(order, rule) for order in orders}) == 1


def test_annotator_by_name_counts_alone() -> None:
    records = [*labels("100", "a"), *labels("0", "b"), *labels("1u", "c")]
    assert gold_labels(records, truth="P1") == ("human", {"a": False, "b": None, "c": None})
    by_id = {id: [record for record in records if record.id == id] for id in "bc"}
    assert [why_undecided(by_id[id], "P1") for id in "bc"] == ["labelled only by others", "unsure"]


def test_unknown_annotator_names_the_others() -> None:
    with pytest.raises(UsageError, match=r"'Zoe' is neither .* annotators: P0, P1") as raised:
        gold_labels(labels("10"), truth="Zoe")
    assert raised.value.parameters == ("truth",)


def test_undecided_has_a_reason() -> None:
    said = {"10": "tie", "u": "unsure", "ux": "not_executable", "?": "no reason given"}
    assert {word: why_undecided(labels(word)) for word in said} == said
    assert why_undecided(labels("110"), "unanimous") == "not unanimous"


def test_one_annotator_has_one_vote() -> None:
    twice = [LabelRecord(id="a", success=True, annotator="A")] * 2 + [
        LabelRecord(id="a", success=False, annotator="B")
    ]
    assert decide_truth(twice) is None
    both = [LabelRecord(id="a", success=success, annotator="A") for success in (True, False)]
    assert collect_votes(both) == {}
    nameless = [LabelRecord(id="a", success=success) for success in (True, True, False)]
    assert decide_truth(nameless) is True


def test_oracle_takes_the_same_rule() -> None:
    assert [
        oracle(labels("10"), truth=rule).labels["a"] for rule in ("majority", "first", "P1")
    ] == [None, True, False]
