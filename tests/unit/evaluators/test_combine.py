"""Votes, ensembles and cascades: what stands when judges disagree or abstain, and what a cascade
saves.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import prill
from prill import score
from prill.captioner.recorded import GivenCaption
from prill.errors import EndpointError, UsageError
from prill.evaluators.combine import Cascade, Ensemble, Rule, Vote, cascade_inside, savings
from prill.models.client import OpenAIModel
from prill.protocols import Evaluator
from prill.testing import MockServer
from prill.types import EvaluatorInfo, Observation, Task, Trajectory, Usage, Verdict

TRAJECTORY = Trajectory(id="a", task=Task(goal="g", platform="web"))


class Says:
    """A judge that gives a score (success from 0.5 on), or None to abstain, or what a table has for
    the trajectory.
    """

    def __init__(self, score: float | dict[str, float] | None, name: str = "says") -> None:
        self.score = score
        self.info = EvaluatorInfo(name, "1", params={"score": score})
        self.asked: list[str] = []

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        self.asked.append(trajectory.id)
        score = self.score[trajectory.id] if isinstance(self.score, dict) else self.score
        usage = Usage(1, 10, 5, 0, 0.5)
        if score is None:
            return Verdict(
                id=trajectory.id,
                unscored="transport",
                reason="down",
                usage=usage,
                evaluator=self.info,
            )
        return Verdict(
            id=trajectory.id,
            success=score >= 0.5,
            score=score,
            reason="seen",
            usage=usage,
            evaluator=self.info,
        )


# Rule, scores (None abstains), verdict (None: unscored).
VOTES: list[tuple[Rule, list[float | None], bool | None]] = [
    ("majority", [0.9, 0.8, 0.1], True),
    ("majority", [0.9, 0.2, 0.1], False),
    ("majority", [0.9, 0.1], False),
    ("majority", [0.9, 0.9, None], True),
    ("majority", [0.9, 0.1, None], None),
    ("majority", [0.1, 0.1, None], False),
    ("unanimous", [0.9, 0.9, 0.9], True),
    ("unanimous", [0.9, 0.9, 0.4], False),
    ("unanimous", [0.9, None], None),
    ("unanimous", [0.1, None], False),
    ("any", [0.1, 0.9], True),
    ("any", [0.1, 0.1], False),
    ("any", [0.9, None], True),
    ("any", [0.1, None], None),
    ("majority", [None, None], None),
    ("consensus", [0.9, 0.8, 0.7], True),
    ("consensus", [0.1, 0.2], False),
    ("consensus", [0.9, None], None),
    ("consensus", [0.1, None], None),
]


@pytest.mark.parametrize(("rule", "scores", "success"), VOTES)
async def test_vote_stands_despite_abstentions(
    rule: Rule, scores: list[float | None], success: bool | None
) -> None:
    verdict = await Vote([Says(score) for score in scores], rule)(TRAJECTORY)
    assert verdict.success is success
    assert verdict.unscored == (None if success is not None else "transport")
    assert verdict.opinions is not None
    assert [opinion.score for opinion in verdict.opinions] == scores
    assert verdict.usage.calls == len(scores)
    if success is not None:
        known = [score for score in scores if score is not None]
        assert verdict.score == pytest.approx(sum(known) / len(known))


@pytest.mark.parametrize(
    ("scores", "weights", "success", "mean"),
    [
        ([0.9, 0.2], None, True, 0.55),
        ([0.9, 0.2], [1, 3], False, 0.375),
        ([0.5, 0.5], None, True, 0.5),
        ([0.9, None], [3, 1], True, 0.9),
        ([0.6, None], [3, 1], None, None),
        ([0.1, None], [3, 1], False, 0.1),
    ],
)
async def test_ensemble_is_the_weighted_mean(
    scores: list[float | None],
    weights: list[float] | None,
    success: bool | None,
    mean: float | None,
) -> None:
    verdict = await Ensemble([Says(score) for score in scores], weights)(TRAJECTORY)
    assert (verdict.success, verdict.score) == (
        success,
        pytest.approx(mean) if mean is not None else None,
    )


async def test_run_error_ends_all_judges() -> None:
    class Slow(Says):
        ended = False

        async def __call__(self, trajectory: Trajectory) -> Verdict:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True
            raise AssertionError

    class Broken(Says):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            await asyncio.sleep(0)
            raise EndpointError("no such model")

    for kind in (Vote, Ensemble):
        slow = Slow(1.0)
        with pytest.raises(EndpointError):
            await kind([Broken(1.0), slow])(TRAJECTORY)
        assert slow.ended


def test_senseless_combinations_refused() -> None:
    for build in (
        lambda: Vote([]),
        lambda: Vote([Says(1.0)], "most"),  # type: ignore[arg-type]
        lambda: Ensemble([Says(1.0)], [1.0, 2.0]),
        lambda: Ensemble([Says(1.0)], [0.0]),
        lambda: Ensemble([Says(1.0)], [float("nan")]),
        lambda: Ensemble([Says(1.0)], threshold=1.5),
        lambda: Cascade(Says(1.0), Says(1.0), band=(0.9, 0.1)),
        lambda: Cascade(Says(1.0), Says(1.0), band=(0.1, 0.9)),
    ):
        with pytest.raises(UsageError):
            build()


@pytest.mark.parametrize(
    ("first", "asked"),
    [(0.05, False), (0.1, True), (0.5, True), (0.9, True), (0.95, False), (None, True)],
)
async def test_cascade_asks_second_inside_band(first: float | None, asked: bool) -> None:
    second = Says(0.7)
    verdict = await Cascade(Says(first), second, first_may_accept=True)(TRAJECTORY)
    assert bool(second.asked) is asked
    assert verdict.score == (0.7 if asked else first)
    assert verdict.usage.calls == 1 + asked


@pytest.mark.parametrize(
    ("first", "asked"), [(0.05, False), (0.5, False), (1.0, False), (None, True)]
)
async def test_fallback_judges_only_what_is_unscored(first: float | None, asked: bool) -> None:
    second = Says(0.7)
    verdict = await Cascade(Says(first), second, on="unscored")(TRAJECTORY)
    assert bool(second.asked) is asked
    assert verdict.score == (0.7 if asked else first)
    for options in ({"band": (0.1, 1.0)}, {"first_may_accept": True}):
        with pytest.raises(UsageError, match="has no band"):
            Cascade(Says(first), second, on="unscored", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", [0.91, 1.0])
async def test_success_has_a_second_judge(score: float) -> None:
    for cascade in (
        Cascade(Says(score), Says(0.2)),
        Cascade(Says(score), Says(0.2), band=(0.1, 1.0)),
    ):
        assert (await cascade(TRAJECTORY)).success is False


async def test_cascade_saves_the_calls_it_claims() -> None:
    """Half of the trajectories are clear to the first judge; the second one is a real client of the
    mock server.
    """

    def attempt(i: int) -> Trajectory:
        truth = "success" if i % 3 == 0 else "failure"
        state = Observation(caption=f"page {i} truth={truth}")
        return Trajectory(id=f"t{i}", task=Task(goal=f"goal {i}", platform="web"), final=state)

    attempts = [attempt(i) for i in range(40)]
    first = Says({f"t{i}": 0.02 if i % 2 else 0.6 for i in range(40)}, "cheap")
    with MockServer() as server:
        alone = score(
            attempts,
            prill.judge(
                "modular",
                model=OpenAIModel("m", base_url=server.base_url),
                captioner=GivenCaption(),
            ),
        )
        before = server.stats().requests
        cascade = score(
            attempts,
            Cascade(
                first,
                prill.judge(
                    "modular",
                    model=OpenAIModel("m", base_url=server.base_url),
                    captioner=GivenCaption(),
                ),
            ),
        )
        calls = server.stats().requests - before
    told = savings(cascade)
    assert (told.judged, told.escalated) == (40, 20)
    assert calls == 20 == 40 - (told.calls or 0)
    inside = [(ours.success, ours.reason) for i, ours in enumerate(cascade) if i % 2 == 0]
    assert inside == [
        (theirs.success, theirs.reason) for i, theirs in enumerate(alone) if i % 2 == 0
    ]
    assert all(
        verdict.success is False and len(verdict.opinions or ()) == 1 for verdict in cascade[1::2]
    )


class _Around:
    """Goes around a judge, as wrappers do."""

    def __init__(self, judge: Evaluator) -> None:
        self.parts, self.info, self.screenshots = (judge,), judge.info, judge.screenshots

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return await self.parts[0](trajectory)


def test_wrapped_cascade_is_one_a_vote_not() -> None:
    cascade = Cascade(Says(0.1), Says(0.9))
    assert cascade_inside(cascade) is cascade_inside(_Around(_Around(cascade))) is cascade
    assert cascade_inside(Vote([cascade])) is None
    assert cascade_inside(Says(0.1)) is None


def test_savings_need_a_cascade(tmp_path: Path) -> None:
    unseen = Verdict(
        id="b",
        unscored="no_evidence",
        reason="no screenshot to read",
        evaluator=EvaluatorInfo("cascade", "1"),
    )
    assert savings([unseen]).judged == 0, (
        "what failed before any judge saw it was neither asked nor saved"
    )
    with pytest.raises(UsageError, match="not a verdict of a cascade"):
        savings([Verdict(id="a", success=True, score=1.0, evaluator=EvaluatorInfo("vlm", "1"))])
