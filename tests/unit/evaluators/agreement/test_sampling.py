"""Which runs are drawn for labels: chances that are kept, and rates that they leave unbiased."""

from __future__ import annotations

import random
from collections import Counter
from statistics import fmean

import pytest

from prill.evaluators.agreement.rate import RateEstimate, estimate_rate
from prill.evaluators.agreement.sampling import draw_informative

RUNS = 240
TASKS = {f"r{i}": f"k{i % 60 if i < 200 else 0}" for i in range(RUNS)}
_RANDOM = random.Random(1)
CHANCES = {id: _RANDOM.random() for id in TASKS}  # of success
SCORES = {id: min(1.0, max(0.0, p + _RANDOM.gauss(0, 0.1))) for id, p in CHANCES.items()}
TRUTHS = {id: _RANDOM.random() < p for id, p in CHANCES.items()}
RATE = fmean(TRUTHS.values())
DRAWS = 300


@pytest.fixture(scope="module")
def draws() -> list[dict[str, float]]:
    return [draw_informative(TASKS, SCORES, 60, seed) for seed in range(DRAWS)]


def estimate(drawn: dict[str, float], *, weighted: bool = True) -> RateEstimate:
    return estimate_rate(
        [SCORES[id] >= 0.5 for id in TASKS],
        [TRUTHS[id] if id in drawn else None for id in TASKS],
        list(TASKS.values()),
        chances=[drawn.get(id) for id in TASKS] if weighted else None,
    )


def test_draw_has_its_size_and_is_the_same_again(draws: list[dict[str, float]]) -> None:
    assert {len(drawn) for drawn in draws} == {60}
    assert list(draw_informative(TASKS, SCORES, 60, 7)) == list(draws[7])
    assert set(draws[7]) != set(draws[8])
    assert draw_informative(TASKS, SCORES, RUNS + 5) == pytest.approx(dict.fromkeys(TASKS, 1.0))


def test_runs_come_as_often_as_their_chance_says(draws: list[dict[str, float]]) -> None:
    came = Counter(id for drawn in draws for id in drawn)
    said = {id: chance for drawn in draws for id, chance in drawn.items()}
    for id, chance in said.items():
        error = (chance * (1 - chance) / DRAWS) ** 0.5
        assert abs(came[id] / DRAWS - chance) < 5 * error, id


def test_unsure_runs_and_rare_tasks_come_more_often() -> None:
    tasks = {"sure": "a", "unsure": "b", "unknown": "c", "often 1": "d", "often 2": "d"}
    scores = {"sure": 1.0, "unsure": 0.5, "often 1": 0.5, "often 2": 0.5}
    found: Counter[str] = Counter()
    for seed in range(400):
        found.update(draw_informative(tasks, scores, 2, seed))
    assert found["sure"] < found["often 1"] < found["unsure"]
    assert abs(found["unknown"] - found["unsure"]) < 80


def test_weighted_rates_are_unbiased_and_unweighted_ones_are_not(
    draws: list[dict[str, float]],
) -> None:
    few = draws[:150]
    weighted = [estimate(drawn) for drawn in few]
    for figure in ("ppi", "labels_alone"):
        values = [getattr(one, figure).value for one in weighted]
        spread = fmean((v - fmean(values)) ** 2 for v in values) ** 0.5
        assert abs(fmean(values) - RATE) < 4 * spread / len(values) ** 0.5 + 0.005, figure
    held = [one.ppi.low <= RATE <= one.ppi.high for one in weighted if one.ppi.low is not None]  # type: ignore[operator]
    assert fmean(held) > 0.9
