"""Rewards of judges: what verdicts are worth, penalties, policies for what is unscored, loops and
pickles.
"""

import asyncio
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import CallTimeoutError, EndpointError, UsageError
from prill.evaluators import JUDGES, judge_options
from prill.io.store import BadLine
from prill.refine.rewards import Reward, RewardSpec, make_reward, run_blocking
from prill.refine.rewards.reward import SPEC
from prill.testing import MockServer
from prill.types import (
    Criterion,
    EvaluatorInfo,
    Findings,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)

INFO = EvaluatorInfo("given", "1")


class Given:
    """Gives the verdict that the goal names."""

    info = INFO

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        await asyncio.sleep(0)
        id, goal = trajectory.id, trajectory.task.goal
        if goal == "gone":
            raise EndpointError("no call can succeed")
        if goal == "timeout":
            return Verdict(id=id, unscored="timeout", reason="too slow", evaluator=INFO)
        met = Criterion(text="tea", met="met")
        effects = ("a changed address", "a newsletter")
        findings = (
            Findings(criteria=(met,), process=1.0, side_effects=effects)
            if goal == "effects"
            else None
        )
        rewards = (0.5, -0.5, 1.0) if goal == "steps" else None
        score = None if goal == "scoreless" else 0.75
        return Verdict(
            id=id,
            success=goal != "failure",
            score=score,
            rewards=rewards,
            findings=findings,
            evaluator=INFO,
        )


def attempt(goal: str, steps: int = 3, **metadata: Any) -> Trajectory:
    step = Step(Observation(text="a page"), prill.Action("click"))
    return Trajectory(
        id=f"t-{goal}", task=Task(goal=goal), steps=(step,) * steps, metadata=metadata
    )


def reward(**spec: Any) -> Reward:
    return Reward(Given(), RewardSpec(**spec))


def half(trajectory: Trajectory, verdict: Verdict) -> float | None:
    return None if trajectory.task.goal == "skip" else 0.5


def bad(trajectory: Trajectory, verdict: Verdict) -> float:
    return math.nan


@pytest.mark.parametrize(
    ("spec", "goal", "worth"),
    [
        ({}, "success", 1.0),
        ({}, "failure", 0.0),
        ({"kind": "score"}, "success", 0.75),
        ({"kind": "steps", "discount": 0.5}, "steps", 0.5 - 0.25 + 0.25),
        ({"length_penalty": 0.1}, "success", 0.7),
        ({"length_penalty": 0.1}, "failure", -0.3),
        ({"side_effect_penalty": 0.25}, "effects", 0.5),
        ({"kind": half}, "success", 0.5),
        ({"kind": f"{__file__}:half"}, "success", 0.5),
        ({}, "timeout", None),
        ({"kind": half}, "skip", None),
        ({"on_unscored": "value", "value": -1.0}, "timeout", -1.0),
    ],
)
async def test_each_kind_is_worth_what_it_says(
    spec: dict[str, Any], goal: str, worth: float | None
) -> None:
    assert await reward(**spec)(attempt(goal)) == pytest.approx(worth)


async def test_cost_is_the_agents_not_the_judges() -> None:
    priced = reward(cost_penalty=0.5)
    assert await priced(attempt("success", cost_usd=0.4)) == pytest.approx(0.8)
    for unknown in ({}, {"cost_usd": "a lot"}, {"cost_usd": math.inf}, {"cost_usd": True}):
        result = await priced.result(attempt("success", **unknown))
        assert result.reward is None
        assert "cost_usd" in result.problem


async def test_numbers_have_the_same_keys_always() -> None:
    results = await reward(length_penalty=0.1).results(
        [attempt(goal) for goal in ("success", "failure", "timeout")]
    )
    assert len({tuple(result.numbers) for result in results}) == 1
    assert [result.numbers["unscored"] for result in results] == [0.0, 0.0, 1.0]
    assert all(math.isfinite(number) for result in results for number in result.numbers.values())
    assert results[0].parts["length_penalty"] == pytest.approx(-0.3)


async def test_raise_names_the_reason_and_the_id() -> None:
    with pytest.raises(CallTimeoutError, match="t-timeout.*too slow"):
        await reward(on_unscored="raise").results([attempt("success"), attempt("timeout")])


@pytest.mark.parametrize("policy", [{}, {"on_unscored": "value", "value": 0.0}])
async def test_what_ends_a_run_is_no_reward(policy: dict[str, Any]) -> None:
    with pytest.raises(EndpointError):
        await reward(**policy).results([attempt("timeout"), attempt("gone"), attempt("success")])


async def test_broken_lines_are_unscored_as_input() -> None:
    result = await reward().result(BadLine("t-1", "row 1", "no JSON", b""))
    assert (result.reward, result.verdict.unscored) == (None, "input")
    assert "row 1" in result.problem


@pytest.mark.parametrize(
    ("spec", "goal", "says"),
    [
        ({"kind": bad}, "success", "finite number"),
        ({"kind": "score"}, "scoreless", "gives no score"),
        ({"kind": "steps"}, "success", "rewards for steps"),
        ({"side_effect_penalty": 1.0}, "success", "rubric"),
        ({"length_penalty": 1e308}, "success", "too large"),
    ],
)
async def test_no_nan_or_guess_leaves_a_reward(spec: dict[str, Any], goal: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        await reward(**spec)(attempt(goal, steps=9))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "sucess"}, "did you mean 'success'"),
        ({"kind": "nowhere:f"}, "module .nowhere. was not found"),
        ({"on_unscored": "value"}, "value: required with"),
        ({"value": 0.0}, "value: required with"),
        ({"discount": 1.5}, "discount"),
        ({"length_penalty": math.inf}, "finite"),
        ({"lenght_penalty": 1.0}, "no such option"),
        ({"on_unscored": "zero"}, "on_unscored"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_reward("always-success", **options)


def test_no_judge_has_an_option_of_a_reward() -> None:
    assert not {name for name in JUDGES.entries for option in judge_options(name) if option in SPEC}


def test_toml_json_and_keywords_are_the_same(tmp_path: Path) -> None:
    table = tmp_path / "reward.toml"
    table.write_text(
        'evaluator = "modular"\ncaptioner = "text"\nmodel = "m"\nkind = "score"\non-unscored = '
        '"raise"\n'
    )
    keywords = prill.reward(
        "modular", captioner="text", model="m", kind="score", on_unscored="raise"
    )
    record = tmp_path / "reward.json"
    record.write_text(
        '{"evaluator": "modular", "captioner": "text", "model": "m", "kind": "score", '
        '"on_unscored": "raise"}'
    )
    for made in (prill.reward(table), prill.reward(record)):
        assert (made.spec, made.judge.info) == (keywords.spec, keywords.judge.info)
    assert prill.reward(table, kind="success").spec.kind == "success"
    for wrong, says in (
        ("kind = 3", "kind is 3"),
        ("discount = 2", "discount"),
        ("frames = 'x'", "frames"),
    ):
        table.write_text(f"evaluator = 'modular'\nmodel = 'm'\ncaptioner = 'text'\n{wrong}\n")
        with pytest.raises(UsageError, match=rf"reward\.toml: .*{says}"):
            prill.reward(table)


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer() as server:
        yield server


@pytest.fixture
def judged(server: MockServer) -> Reward:
    return prill.reward(
        "modular", captioner="text", model="mock", base_url=server.base_url, concurrency=2
    )


BATCH = [
    Trajectory(id=str(i), task=Task(goal=f"buy tea {i}"), final=Observation(text=f"truth={truth}"))
    for i, truth in enumerate(("success", "failure", "success"))
]


def test_a_new_loop_for_every_call_works(judged: Reward) -> None:
    for _ in range(3):
        assert [result.reward for result in asyncio.run(judged.results(BATCH))] == [1.0, 0.0, 1.0]


def test_pickles_before_and_after_a_call(judged: Reward) -> None:
    before = pickle.loads(pickle.dumps(judged))
    assert [result.reward for result in run_blocking(judged.results(BATCH))] == [1.0, 0.0, 1.0]
    for copy in (
        before,
        pickle.loads(pickle.dumps(judged)),
        pickle.loads(pickle.dumps(reward(kind=f"{__file__}:half"))),
    ):
        assert run_blocking(copy(BATCH[0])) in (1.0, 0.5)


async def test_blocking_calls_work_in_a_loop(judged: Reward) -> None:
    assert run_blocking(judged(BATCH[0])) == 1.0
    names = {thread.name for thread in threading.enumerate()}
    assert run_blocking(judged(BATCH[1])) == 0.0
    assert {thread.name for thread in threading.enumerate()} <= names

    async def inner() -> float | None:
        return run_blocking(judged(BATCH[0]))

    with pytest.raises(UsageError, match="await"):
        run_blocking(inner())


def test_a_process_that_used_threads_ends_quietly() -> None:
    # Python 3.12 starts no thread at exit.
    code = (
        "import asyncio; from prill.refine.rewards import run_blocking;"
        "print(run_blocking(asyncio.to_thread(sum, [1, 2])))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


class Hanging(Given):
    async def __call__(self, trajectory: Trajectory) -> Verdict:
        if trajectory.task.goal == "hang":
            await asyncio.Event().wait()
        return await super().__call__(trajectory)


def test_judge_that_hangs_is_unscored() -> None:
    bounded = Reward(Hanging(), RewardSpec(judge_timeout=0.05))
    hung, well = bounded.batch([attempt("hang"), attempt("success")])
    assert (hung.reward, hung.verdict.unscored) == (None, "timeout")
    assert "did not finish within 0.05 s" in hung.problem
    assert well.reward == 1.0


def test_rewards_of_turns_go_beside_the_scalar() -> None:
    steps, whole, none = reward().batch([attempt("steps"), attempt("success"), attempt("timeout")])
    assert steps.turn_rewards == (0.5, -0.5, 1.0)
    assert whole.turn_rewards is none.turn_rewards is None


class Chances(Given):
    """The probability of success is the number of steps, in tenths."""

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        told = await super().__call__(trajectory)
        if told.unscored or told.score is None:
            return told
        return replace(told, score=len(trajectory.steps) / 10)


def test_attempts_of_a_goal_are_ranked() -> None:
    attempts = [
        *(attempt("tea", steps) for steps in (1, 4, 4, 9)),
        attempt("cups", 5),
        attempt("timeout", 2),
        BadLine("x", "x", "broken", b""),
    ]
    ranked = asyncio.run(Reward(Chances()).ranked(attempts))
    assert [result.reward for result in ranked] == [0.0, 0.5, 0.5, 1.0, None, None, None]
    assert ranked[4].problem.startswith("no_evidence: no other attempt")
    shorter = Reward(Chances(), RewardSpec(length_penalty=0.1))
    assert [result.reward for result in asyncio.run(shorter.ranked(attempts[:2]))] == [-0.1, 0.6]
    with pytest.raises(UsageError, match="gives no score"):
        asyncio.run(Reward(Chances()).ranked([attempt("scoreless")] * 2))
