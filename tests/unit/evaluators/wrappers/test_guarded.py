"""A trained judge knows the runs that it learnt from, and judges none that are unlike them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import prill
from prill.errors import UsageError
from prill.evaluators.fitted.features import read
from prill.evaluators.fitted.guard import fit_guard
from prill.evaluators.fitted.overlap import FittedRuns, compute_digests
from prill.evaluators.labels import make_task
from prill.evaluators.wrappers.guarded import GuardFile
from prill.types import Action, Observation, Step, Task, Trajectory


def run(i: int, text: str = "Thank you, the order is placed and confirmed") -> Trajectory:
    step = Step(Observation(text="shop"), Action("click", "click [buy]"))
    task = Task(id=f"t{i}", goal="Buy", platform="web")
    return Trajectory(id=f"r{i}", task=task, steps=(step,), final=Observation(text=text))


@pytest.fixture
def guard(tmp_path: Path) -> str:
    runs = [run(i) for i in range(6)]
    known = GuardFile(
        guard=fit_guard([read(r, "student", False) for r in runs], [make_task(r) for r in runs]),
        fitted_to=FittedRuns.of(map(compute_digests, runs)),
    )
    (tmp_path / "guard.json").write_bytes(msgspec.json.encode(known))
    return str(tmp_path / "guard.json")


async def test_it_judges_runs_like_those_and_says_how_they_stand(guard: str) -> None:
    judge = prill.judge("always-success", guard=guard)
    same, other = await judge(run(1)), await judge(run(9))
    assert (same.success, same.fitted_on) == (True, "run")
    assert (other.success, other.fitted_on) == (True, "other")
    assert judge.info.params["guard"].startswith("sha256:")


@pytest.mark.parametrize(
    "text", ["lorem ipsum dolor sit amet " * 90, "zzz yyy xxx www vvv uuu ttt"]
)
async def test_it_judges_none_that_are_unlike_those(guard: str, text: str) -> None:
    verdict = await prill.judge("always-success", guard=guard)(run(9, text))
    assert (verdict.unscored, verdict.success) == ("no_evidence", None)
    assert verdict.reason.startswith("the run is unlike the judge's training runs: ")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text("{}")
    with pytest.raises(UsageError, match=r"g\.json: not a guard \(.*prill train judge"):
        prill.judge("always-success", guard=str(tmp_path / "g.json"))
