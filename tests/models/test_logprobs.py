"""P(success) from token log-probabilities, on hand-computed examples."""

from math import log

import pytest

from prill.models.replies import choice_probability
from prill.protocols import Token

CHOICES = ("success", "failure")


def tokens(*rows: tuple[str, dict[str, float]]) -> list[Token]:
    return [
        Token(text, log(top.get(text, 1.0)), tuple((t, log(p)) for t, p in top.items()))
        for text, top in rows
    ]


def test_prefixes_of_a_choice_are_summed() -> None:
    reply = tokens(
        ('{"thoughts": "ok", "status": "', {}),
        (
            "succ",
            {"succ": 0.5, 'success"': 0.1, "fail": 0.2, "The": 0.1, "f": 0.05, "successful": 0.05},
        ),
        ('ess"}', {}),
    )
    # success 0.5 + 0.1, failure 0.2 + 0.05, "The" and "successful" belong to neither
    assert choice_probability(reply, "status", CHOICES, "success") == pytest.approx(0.6 / 0.85)


def test_token_is_compared_after_quote() -> None:
    reply = tokens(
        ('{"status":', {}),
        (' "failure', {' "failure': 0.7, ' "success': 0.3, "failure": 0.9}),
        ('"}', {}),
    )
    assert choice_probability(reply, "status", CHOICES, "success") == pytest.approx(0.3)


def test_last_verdict_is_the_place() -> None:
    reply = tokens(
        ("Status: ", {}),
        ("success", {"success": 0.9, "failure": 0.1}),
        ("\nStatus: ", {}),
        ("failure", {"failure": 0.8, "success": 0.2}),
    )
    assert choice_probability(reply, "status", CHOICES, "success") == pytest.approx(0.2)


def test_quoted_verdict_is_no_place() -> None:
    reply = tokens(
        ('{"status": "', {}),
        ("failure", {"failure": 0.8, "success": 0.2}),
        ('", "thoughts": "it claims Status: ', {}),
        ("success", {"success": 0.99, "failure": 0.01}),
        ('"}', {}),
    )
    assert choice_probability(reply, "status", CHOICES, "success", "failure") == pytest.approx(0.2)


def test_labels_told_by_first_token() -> None:
    labels = ("towards-the-goal", "not-sure", "goal-reached", "away-from-the-goal")
    reply = tokens(
        ('"response": "', {}),
        ("goal", {"goal": 0.5, "go": 0.1, "t": 0.2, "not": 0.1, "a": 0.1}),
        ('-reached"}', {}),
    )
    assert choice_probability(reply, "response", labels, "goal-reached") == pytest.approx(0.6)
    grade = tokens(('"score": ', {}), ("4", {"4": 0.6, "5": 0.3, "44": 0.1}), ("}", {}))
    assert choice_probability(grade, "score", tuple("12345"), "5") == pytest.approx(0.3 / 0.9)


def test_ambiguous_token_counts_for_none() -> None:
    reply = tokens(("Status: ", {}), ("un", {"un": 0.6, "unsure": 0.3, "unable": 0.1}))
    whole = [*reply, Token("sure", 0.0)]
    assert choice_probability(whole, "status", ("unsure", "unable"), "unsure") == pytest.approx(
        0.75
    )


def test_unknown_probability_is_none() -> None:
    assert choice_probability(tokens(("no verdict", {})), "status", CHOICES, "success") is None
    reply = tokens(("Status: ", {}), ("s", {"x": 0.5}))
    assert (
        choice_probability(
            [reply[0], Token("x", 0.0), Token("success", 0.0)], "status", CHOICES, "success"
        )
        is None
    )
