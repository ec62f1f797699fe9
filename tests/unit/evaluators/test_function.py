"""`prill.as_judge`: a function is a whole judge, by file, in scoring, in a vote, as a reward."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

import prill
from prill.cli import main
from prill.models.ledger import count_usage
from prill.protocols import Evaluator
from prill.testing import ScriptedModel
from prill.types import EvaluatorInfo, Observation, Task, Trajectory, Usage, Verdict

RUNS = [
    Trajectory(id=str(i), task=Task(goal="g"), answer="yes" if i % 2 else "no") for i in range(4)
]


def counting(reply: str) -> ScriptedModel:
    def answer(messages: object) -> str:
        count_usage(Usage(1, 10, 5))
        return reply

    return ScriptedModel(answer)


def judge(answer: object) -> Evaluator:
    @prill.as_judge("mine", version="3")
    async def mine(trajectory: Trajectory) -> Any:
        return answer

    return mine


@pytest.mark.parametrize(
    ("answer", "success", "score"),
    [
        (True, True, 1.0),
        (False, False, 0.0),
        (0.5, True, 0.5),
        (0.49, False, 0.49),
        (1.0, True, 1.0),
    ],
)
def test_an_answer_is_a_verdict(answer: object, success: bool, score: float) -> None:
    [verdict] = prill.score(RUNS[:1], judge(answer))
    assert (verdict.id, verdict.success, verdict.score) == ("0", success, score)
    assert (verdict.evaluator, verdict.key.startswith("sha256:")) == (
        EvaluatorInfo("mine", "3"),
        True,
    )


def test_none_is_unscored_and_never_a_failure() -> None:
    [verdict] = prill.score(RUNS[:1], judge(None))
    assert (verdict.success, verdict.unscored, verdict.reason) == (
        None,
        "no_evidence",
        "mine returned None: it cannot tell",
    )


def test_a_verdict_is_this_judges_own() -> None:
    inner = prill.judge(
        "modular", captioner="text", model=counting("Thoughts: fine\nStatus: success")
    )
    runs = [Trajectory(id="a", task=Task(goal="g"), final=Observation(text="done"))]

    @prill.as_judge("outer", version="1")
    async def outer(trajectory: Trajectory) -> Verdict:
        return await inner(trajectory)

    [mine], [theirs] = prill.score(runs, outer), prill.score(runs, inner)
    assert (mine.success, mine.reason, mine.usage) == (theirs.success, theirs.reason, theirs.usage)
    assert mine.evaluator == EvaluatorInfo("outer", "1")
    assert mine.usage.calls == 1


@pytest.mark.parametrize(
    "answer",
    [1, "yes", 1.5, -0.1, float("nan"), (True, "why"), numpy.True_, {"success": True}, [1]],
)
def test_anything_else_is_one_clear_error(answer: object) -> None:
    with pytest.raises(
        prill.UsageError,
        match=r"the judge 'mine' returned .* for '0'; return True or False, a score",
    ):
        prill.score(RUNS[:1], judge(answer))


def test_the_key_follows_the_images_it_looks_at(tmp_path: Path) -> None:
    picture = tmp_path / "shot.png"
    run = Trajectory(id="a", task=Task(goal="g"), final=Observation(screenshot=str(picture)))

    def keys(*, screenshots: bool) -> list[str]:
        decorated = prill.as_judge("x", version="1", screenshots=screenshots)(
            lambda trajectory: True
        )
        found = []
        for content in (b"one", b"two"):
            picture.write_bytes(content)
            found += [verdict.key for verdict in prill.score([run], decorated)]
        return found

    assert len(set(keys(screenshots=True))) == 2
    assert len(set(keys(screenshots=False))) == 1


SOURCE = """
import prill

@prill.as_judge("agreeable", version="1", screenshots=False)
def agreeable(trajectory):
    return trajectory.answer == "yes"

@prill.as_judge("soft", version="1")
async def soft(trajectory: prill.Trajectory) -> float:
    return 0.9 if trajectory.answer == "yes" else 0.2
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(SOURCE)
    prill.write_trajectories(tmp_path / "t.jsonl", RUNS)
    return tmp_path / "own.py"


def test_the_command_finds_it_in_a_file(own: Path, tmp_path: Path) -> None:
    output = tmp_path / "v.jsonl"
    assert (
        main(["score", str(tmp_path / "t.jsonl"), "-o", str(output), "--judge", f"{own}:agreeable"])
        == 0
    )
    assert [
        verdict.success for verdict in sorted(prill.read_verdicts(output), key=lambda v: v.id)
    ] == [False, True] * 2


def test_it_can_be_sent_to_workers(own: Path) -> None:
    made = prill.judge(f"{own}:agreeable")
    assert pickle.loads(pickle.dumps(made)) is made


def test_a_decorator_without_name_says_what_to_write() -> None:
    def f(trajectory: Trajectory) -> bool:
        return True

    with pytest.raises(prill.UsageError, match=r"write @prill\.as_judge\('name', version='1'\)"):
        prill.as_judge(f, version="1")  # type: ignore[arg-type]
    with pytest.raises(prill.UsageError, match="non-empty strings"):
        prill.as_judge("x", version="")
    with pytest.raises(prill.UsageError, match="takes one trajectory"):
        prill.as_judge("x", version="1")(lambda: True)  # type: ignore[arg-type]
