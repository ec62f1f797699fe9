"""Causes of failures, by rules and by a judge's findings; clusters of reasons."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from prill.errors import UsageError
from prill.evaluators.failures import FINDINGS, RULES, cluster_failures, find_cause, rule_cause
from prill.types import (
    Action,
    Criterion,
    EvaluatorInfo,
    Findings,
    Observation,
    Step,
    StepVerdict,
    Task,
    Trajectory,
    Verdict,
)

CLICKS = tuple(Action("click", f"click [{i}]", target=f"[{i}] button '{i}'") for i in range(9))


def run(*pages: str, actions: tuple[Action, ...] = CLICKS, **options: Any) -> Trajectory:
    states = [Observation(text=page, url=options.get("url")) for page in pages]
    return Trajectory(
        id="1",
        task=Task(goal="Do it", start_url=options.get("start_url")),
        steps=tuple(Step(s, a) for s, a in zip(states[:-1], actions, strict=False)),
        final=states[-1],
        answer=options.get("answer"),
        metadata=options.get("metadata", {}),
    )


def failure(**parts: Any) -> Verdict:
    return Verdict(id="1", success=False, evaluator=EvaluatorInfo("j", "1"), **parts)


@pytest.mark.parametrize(
    ("item", "code", "step"),
    [
        (run("home", "Google: unusual traffic. I'm not a robot"), "captcha", 1),
        (run("home", "Log in\ntextbox 'Username'\ntextbox 'Password'"), "login_wall", 1),
        (run("home", "Error code 520: web server is returning"), "error_page", 1),
        (run("home", "HTTP 404 Not Found"), "error_page", 1),
        (run("a", "b", "c", "d", actions=(CLICKS[0],) * 3), "loop", 2),
        (run("a", "b", start_url="http://shop.x.org/", url="http://ads.net/"), "wrong_site", 1),
        (run("a", "b", "b", "b", "b"), "no_change", 1),
        (run("a", "b", metadata={"truncated": True}), "limit_reached", 1),
        (run("a", "b", answer="I was unable to find it."), "stopped_early", None),
    ],
)
def test_each_rule_finds_its_cause_and_the_state_that_shows_it(
    item: Trajectory, code: str, step: int | None
) -> None:
    cause = find_cause(item)
    assert cause is not None
    assert (cause.code, cause.step, cause.source) == (code, step, "rule")
    assert cause.words == RULES[code]


@pytest.mark.parametrize(
    ("goal", "code"),
    [
        ("Log in as ada", None),
        ("Enter the username and the password, and press login.", None),
        ("Sign in to the shop and buy tea", None),
        ("Try logging into my account", None),
        ("Use sign-in with the code 123", None),
        ("Buy logs for the stove", "login_wall"),
        ("Change my password to 1234", "login_wall"),
        ("Read the signs on the map", "login_wall"),
    ],
)
def test_a_login_form_is_no_wall_where_the_goal_is_to_log_in(goal: str, code: str | None) -> None:
    item = run("home", "Log in\ntextbox 'Username'\ntextbox 'Password'")
    cause = find_cause(replace(item, task=replace(item.task, goal=goal)))
    assert (cause and cause.code) == code


@pytest.mark.parametrize(
    "item",
    [
        run("a captcha solved", "Order placed"),  # it was passed
        run("home", "Sign in | Cart", answer="The price is $7."),
        run("Room 404 in the north wing", "Room 404 in the south wing"),
        run("a", "b", start_url="http://shop.x.org/", url="http://pay.x.org/"),
        run("home", "There is no error.", answer="It is done."),
    ],
)
def test_what_looks_like_a_cause_is_none(item: Trajectory) -> None:
    assert find_cause(item) is None


@pytest.mark.parametrize(
    ("verdict", "code", "step"),
    [
        (failure(findings=Findings(not_executable="a login wall")), "not_executable", None),
        (
            failure(
                findings=Findings(
                    criteria=(
                        Criterion(text="red", met="met", step=1),
                        Criterion(text="size 7", met="not_met", step=2),
                    )
                )
            ),
            "missed_requirement",
            2,
        ),
        (
            failure(
                findings=Findings(criteria=(Criterion(text="x", met="insufficient_evidence"),))
            ),
            "not_shown",
            None,
        ),
        (failure(findings=Findings(side_effects=("deleted a file",))), "side_effect", None),
        (
            failure(steps=(StepVerdict(0, "towards", 0.5), StepVerdict(1, "away", -0.5))),
            "wrong_action",
            1,
        ),
        (failure(steps=(StepVerdict(0, "not_sure", -0.5),)), "not_reached", None),
        (failure(reason="The shoes are blue."), "other", None),
    ],
)
def test_a_judges_findings_go_before_rules(verdict: Verdict, code: str, step: int | None) -> None:
    cause = find_cause(run("a", "b"), verdict)
    assert cause is not None
    assert (cause.code, cause.step, cause.source) == (code, step, "judge")
    assert cause.words == FINDINGS[code]


def test_a_reason_alone_gives_way_to_a_rule() -> None:
    cause = find_cause(run("home", "Are you human? captcha"), failure(reason="Not bought."))
    assert cause is not None
    assert cause.code == "captcha"


def test_a_success_and_an_unscored_run_have_no_cause() -> None:
    success = replace(failure(), success=True)
    unscored = replace(failure(), success=None, unscored="timeout")
    for verdict in (success, unscored):
        with pytest.raises(UsageError, match="not a failure"):
            find_cause(run("a"), verdict)


def test_clusters_gather_like_reasons_round_one_of_them() -> None:
    reasons = {f"l{i}": f"The login form asked user {i} for a password" for i in range(8)}
    reasons |= {f"c{i}": f"The shopping cart of order {i} stayed empty" for i in range(5)}
    first, second = cluster_failures(reasons, clusters=2)
    assert {id[0] for id in first.ids} == {"l"}
    assert {id[0] for id in second.ids} == {"c"}
    assert first.reason == reasons[first.medoid]
    assert min(first.stability, second.stability) > 0.9
    assert cluster_failures(reasons, clusters=2) == (first, second)


@pytest.mark.parametrize("reasons", [{}, {"1": ""}, {"1": "", "2": "", "3": "同じ"}])
def test_few_and_empty_reasons_are_clustered_too(reasons: dict[str, str]) -> None:
    clusters = cluster_failures(reasons)
    assert sorted(id for cluster in clusters for id in cluster.ids) == sorted(reasons)


def test_equal_reasons_are_one_cluster() -> None:
    same = {f"r{i}": "the judge gives no reason" for i in range(30)}
    (cluster,) = cluster_failures(same)
    assert (len(cluster.ids), cluster.stability > 0.6) == (30, True)
    first, second = cluster_failures({**same, "other": "captcha shown"}, clusters=5)
    assert (len(first.ids), second.ids) == (30, ("other",))


@pytest.mark.parametrize(
    "text",
    [
        "CAPTCHA",
        "Are you human",
        "are you a robot",
        "Not a Robot",
        "Unusual traffic",
        "Verify that you are human",
        "Login",
        "Sign In",
        "404 Error",
        "403 Forbidden",
        "404: not found",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "401 Unauthorized",
        "429 Too Many Requests",
        "Error code: 500",
        "This site can’t be reached",
        "You have been blocked",
        "Unexpected error",
        "Access Denied",
        "Internal Server Error",
        "ERR_NAME_FAILED",
    ],
)
def test_words_that_are_looked_for_first_lose_no_match(text: str) -> None:
    item = run("home", f"{text}, and a field for the password")
    cause = rule_cause(replace(item, task=replace(item.task, goal="Buy tea")))
    assert cause is not None
    assert cause.code in ("captcha", "login_wall", "error_page")


def test_memory_of_many_reasons_is_that_of_their_similarities() -> None:
    """A table of 5,000 words for each of 1,000 reasons would take 40 MB."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=9)) for _ in range(5000)]
    reasons = {str(i): " ".join(draw.sample(words, 60)) for i in range(1000)}
    cluster_failures({"a": "warms up"}, draws=1)
    tracemalloc.start()
    try:
        cluster_failures(reasons, draws=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
