"""Stacked judges: what they say, when they are silent, whom they ask, and what they are worth."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

if importlib.util.find_spec("sklearn") is None:
    pytest.skip("scikit-learn is not installed: pip install '.[student]'", allow_module_level=True)

import prill
from prill import Action, Observation, Step, Task, Trajectory, Usage, UsageError, Verdict
from prill.evaluators.fitted.fit import examples, fit_with_scores
from prill.evaluators.fitted.stack import (
    MIN_LACKING,
    RecordedVerdicts,
    Stacked,
    StackModel,
    Stage,
    read_stack,
)
from prill.evaluators.fitted.stack_fit import StackFit, choose_width, fit_stack
from prill.evaluators.metrics import auc
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord

GOOD, POOR = EvaluatorInfo("good", "1"), EvaluatorInfo("poor", "1")
RUNS = 160


def run(i: int, won: bool) -> Trajectory:
    """A run whose pages tell the outcome three times in four."""
    told = won if i % 4 else not won
    steps = tuple(
        Step(observation=Observation(text="a shop"), action=Action(kind="click", target=str(k)))
        for k in range(3 if told else 9)
    )
    return Trajectory(
        id=str(i),
        task=Task(id=f"k{i // 2}", goal="Order tea", platform="web"),
        steps=steps,
        final=Observation(text="the order was placed" if told else "the cart is empty"),
    )


TRUTHS = {str(i): i % 2 == 0 for i in range(RUNS)}
TRAJECTORIES = [run(i, TRUTHS[str(i)]) for i in range(RUNS)]


def verdicts(info: EvaluatorInfo, right: float, missing: int, tokens: int) -> dict[str, Verdict]:
    """A judge that is right so often; every so many runs it is unscored, or has no verdict."""
    generator, made = random.Random(info.name), {}
    for i, (id, won) in enumerate(TRUTHS.items()):
        says = won if generator.random() < right else not won
        verdict = Verdict(id=id, success=says, evaluator=info, usage=Usage(1, tokens, 0, 0, None))
        if i % missing == 0:
            verdict = Verdict(id=id, unscored="timeout", evaluator=info, usage=verdict.usage)
        if i % missing != 1:
            made[id] = verdict
    return made


RECORDED = [(GOOD, verdicts(GOOD, 0.9, 10, 900)), (POOR, verdicts(POOR, 0.5, 9, 100))]


def stack(truths: dict[str, bool], kappa: float | None = None) -> StackFit:
    rows, _ = examples(TRAJECTORIES, truths, "prior", False)
    return fit_stack(fit_with_scores(rows, "prior", False), rows, RECORDED, kappa=kappa)


@pytest.fixture(scope="module")
def fitted() -> StackFit:
    return stack(TRUTHS)


def judge(model: StackModel, recorded: Sequence[object] = RECORDED) -> Stacked:
    return Stacked(model, [RecordedVerdicts(*one) for one in recorded], label="test")  # type: ignore[misc]


def test_worth_tells_a_good_judge_from_a_poor_one(fitted: StackFit) -> None:
    card = fitted.model.card
    by_name = {worth.name: worth for worth in card.worth}
    good, poor = by_name["good"], by_name["poor"]
    assert good.kappa_interval is not None and good.kappa_interval[0] > 0
    assert poor.kappa_gain is not None and abs(poor.kappa_gain) < 0.05
    assert poor.over_alone_interval is not None and poor.over_alone_interval[0] > 0
    assert card.all_runs.runs + card.all_runs.abstained == RUNS, "nothing leaves the denominator"


def test_confident_scores_keep_their_order() -> None:
    """A judge whose scores are all above .98 tells the outcome by how far above."""
    sure, generator = EvaluatorInfo("sure", "1"), random.Random(5)
    made = {}
    for id, won in TRUTHS.items():
        odds = (10.0 if won else 6.0) + generator.gauss(0.0, 1.5)
        score = 1 / (1 + math.exp(-odds))
        made[id] = Verdict(id=id, success=True, score=score, evaluator=sure)
    rows, _ = examples(TRAJECTORIES, TRUTHS, "prior", False)
    fitted = fit_stack(fit_with_scores(rows, "prior", False), rows, [(sure, made)])
    both = zip(rows, fitted.out_of_fold, strict=True)
    found = [(p, TRUTHS[row.id]) for row, (p, _) in both if p is not None]
    area = auc([p for p, _ in found], [truth for _, truth in found])
    assert area is not None and area > 0.93


def test_figures_are_of_judges_that_did_not_see_the_task() -> None:
    """Labels that are noise stay noise: weights fitted on the judged runs would find something."""
    generator = random.Random(3)
    noise = {id: generator.random() < 0.5 for id in TRUTHS}
    card = stack(noise).model.card
    assert card.all_runs.kappa is not None and abs(card.all_runs.kappa) < 0.2


def test_cheapest_is_asked_first_and_costs_are_recorded_ones(fitted: StackFit) -> None:
    model = fitted.model
    assert [source.judge.name for source in model.sources] == ["poor", "good"]
    assert (model.card.unit, model.sources[1].cost.tokens) == ("tokens", 900)
    asked_all = model.card.plan[-1]
    assert asked_all.cost == pytest.approx(1000)
    assert set(asked_all.asked.values()) == {1.0}
    costs = [point.cost for point in model.card.plan]
    assert costs == sorted(costs), "a wider band asks more"


def test_missing_score_is_neither_zero_nor_failure() -> None:
    stage = Stage(bias=0.0, weights=(1.0, 1.0), missing=(0.0, 0.4), lacking=(20, 20), threshold=0.5)
    silent = stage.probability((0.5, None), narrow=False)
    failed = stage.probability((0.5, 0.0), narrow=False)
    assert silent == pytest.approx(0.598688) and failed is not None and failed < 0.03


@pytest.mark.parametrize(
    ("scores", "lacking", "narrow"),
    [
        ((None, None), (20, 20), False),
        ((0.9, None), (20, MIN_LACKING - 1), False),
        ((None, 1.0), (20, 20), True),
    ],
    ids=["nobody speaks", "never silent before", "an agent silenced the student"],
)
def test_too_little_is_no_verdict(
    scores: tuple[float | None, ...], lacking: tuple[int, int], narrow: bool
) -> None:
    stage = Stage(bias=0.0, weights=(1.0, 1.0), missing=(0.0, 0.0), lacking=lacking, threshold=0.5)
    assert stage.probability(scores, narrow=narrow) is None


def test_sure_judge_asks_no_more(fitted: StackFit) -> None:
    narrow_band = judge(replace(fitted.model, width=0.0))
    verdict = asyncio.run(narrow_band(TRAJECTORIES[2]))
    assert verdict.opinions is not None and len(verdict.opinions) == 1
    assert "not called: poor, good" in verdict.reason
    everyone = asyncio.run(judge(fitted.model)(TRAJECTORIES[2]))
    assert everyone.opinions is not None and len(everyone.opinions) == 3


def test_plan_reaches_the_wanted_kappa_at_less_cost(fitted: StackFit) -> None:
    plan = fitted.model.card.plan
    most = plan[-1].kappa
    assert most is not None
    planned = stack(TRUTHS, most - 0.15).model
    chosen = next(point for point in plan if point.width == planned.width)
    assert chosen.kappa is not None and chosen.kappa >= most - 0.15
    assert chosen.cost < plan[-1].cost
    assert planned.card.planned is not None and planned.card.planned.kappa is not None
    with pytest.raises(UsageError, match=r"kappa 0\.999 cannot be reached: held out, .* reach 0\."):
        choose_width(plan, 0.999)


# On files


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("t", "l", "good", "poor")}
    prill.write_trajectories(paths["t"], TRAJECTORIES)
    paths["l"].write_bytes(
        b"".join(encode(LabelRecord(id=i, success=s)) for i, s in TRUTHS.items())
    )
    for info, made in RECORDED:
        paths[info.name].write_bytes(b"".join(map(encode, made.values())))
    return paths


def config(files: dict[str, Path], *judges: Path) -> prill.FitConfig:
    return prill.FitConfig(
        trajectories=[files["t"]],
        labels=files["l"],
        with_verdicts=judges,
        output=files["t"].parent / "stack.json",
        kind="prior",
    )


def test_recorded_verdicts_stand_for_judges(files: dict[str, Path]) -> None:
    made = prill.fit(config(files, files["good"], files["poor"]))
    assert made.stack is not None and "all together" in str(made)
    told = {f"{one.cost.tokens:.0f} {one.cost.calls:.3g}" for one in made.stack.sources}
    assert told and told <= {" ".join(line.split()[-2:]) for line in str(made).splitlines()}
    assert "stacked, all (5 folds by task)" in [row["runs"] for row in made.table().to_rows()]
    stacked = prill.judge("stacked", model=made.output, verdicts=f"{files['good']},{files['poor']}")
    scored = prill.score(TRAJECTORIES, stacked)
    right = sum(v.success is TRUTHS[v.id] for v in scored)
    assert right >= 0.8 * RUNS
    with pytest.raises(UsageError, match="the judge good cannot be created from its name"):
        prill.judge("stacked", model=made.output, verdicts=str(files["poor"]))
    with pytest.raises(UsageError, match="not a fitted judge"):
        prill.judge("prior", model=made.output)


def test_judges_are_made_as_their_verdicts_describe_them(files: dict[str, Path]) -> None:
    asked = files["t"].parent / "self-report.jsonl"
    asked.write_bytes(b"".join(map(encode, prill.score(TRAJECTORIES, prill.judge("self-report")))))
    made = prill.fit(config(files, asked))
    stacked = prill.judge("stacked", model=made.output)
    assert [part.info.name for part in stacked.parts] == ["prior", "self-report"]  # type: ignore[attr-defined]
    model, label = read_stack(made.output)
    assert (stacked.info.model, model.sources[0].judge.name) == (label, "self-report")
