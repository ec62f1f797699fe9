"""What is handed over from Python: each wrong record, judge or list is one error that says where,
and what to write.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.cli import main
from prill.errors import EndpointError, InputError, NoEvidenceError, UsageError
from prill.evaluators import Constant
from prill.evaluators.scoring.scorer import score_files
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    StepLabel,
    Task,
    Trajectory,
    Verdict,
)

odd: Any = object()
FINE = Trajectory(id="fine", task=Task(goal="g"))


def run(**fields: Any) -> Trajectory:
    return Trajectory(**{"id": "a", "task": Task(goal="g"), **fields})


def task(**fields: Any) -> Trajectory:
    return run(task=Task(**{"goal": "g", **fields}))


def step(observation: Any = None, action: Any = None, thought: Any = None) -> Trajectory:
    return run(steps=(Step(observation or Observation(), action or Action("click"), thought),))


WRONG = [
    (run(id=1), "trajectory 1: id: Expected `str`, got `int`"),
    (run(id=""), "trajectory '': id: expected non-empty text"),
    (run(task="buy"), "trajectory 'a': task: Expected `object`, got `str`"),
    (task(goal=None), "trajectory 'a': task.goal: Expected `str`, got `null`"),
    (
        task(platform="Web"),
        "trajectory 'a': task.platform: Invalid enum value 'Web'; expected one of web, android, "
        "ios, desktop, other (did you mean 'web'?)",
    ),
    (
        task(earlier=(run(answer=3),)),
        "trajectory 'a': task.earlier[0].answer: Expected `str | null`, got `int`",
    ),
    (run(answer=b"yes"), "trajectory 'a': answer: Expected `str | null`, got `bytes`"),
    (run(steps=None), "trajectory 'a': steps: Expected `array`, got `null`"),
    (
        run(steps=({"observation": {}, "action": {"kind": "click"}},)),
        "trajectory 'a': steps[0]: expected a prill.Step; got a dict of 2",
    ),
    (run(metadata=[("seed", 1)]), "trajectory 'a': metadata: Expected `object`, got `array`"),
    (step(action=Action(odd)), "trajectory 'a': steps[0].action.kind: Expected `str`, got `array`"),
    (
        step(action=Action("click", point=(0.5,))),  # type: ignore[arg-type]
        "trajectory 'a': steps[0].action.point: Expected `array` of length 2, got 1",
    ),
    (step(thought=10**400), "trajectory 'a': steps[0].thought: Expected `str | null`, got `int`"),
]
WRONG_LABELS = [
    (LabelRecord(id=odd, success=True), "label a object: id: Expected `str`, got `array`"),
    (LabelRecord(id="a", success=1), "label 'a': success: Expected `bool | null`, got `int`"),  # type: ignore[arg-type]
    (
        LabelRecord(id="a", success=None, undecided="Unsure"),  # type: ignore[arg-type]
        "label 'a': undecided: Invalid enum value 'Unsure'; expected one of not_executable, "
        "unsure (did you mean 'unsure'?)",
    ),
    (
        LabelRecord(id="a", success=True, steps=(StepLabel(True, "reached"),)),
        "label 'a': steps[0].index: Expected `int`, got `bool`",
    ),
]


@pytest.mark.parametrize(
    ("record", "said"), WRONG, ids=[said.partition(": ")[2][:30] for _, said in WRONG]
)
def test_a_wrong_record_is_named_wherever_it_goes(
    record: Trajectory, said: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    @prill.as_judge("mine", version="1")
    def mine(trajectory: Trajectory) -> bool:
        asked.append(trajectory.id)
        return True

    with pytest.raises(InputError, match=f"^{re.escape(said.partition(' (did')[0])}"):
        prill.write_trajectories(tmp_path / "t.jsonl", [FINE, record])
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=f"^{re.escape(said)}"):
        prill.score([FINE, record], mine)
    assert asked == []  # of a list, nothing is judged before all is checked
    with pytest.raises(InputError, match=f"^{re.escape(said)}"):
        prill.score(iter([record]), mine)


@pytest.mark.parametrize(("record", "said"), WRONG_LABELS)
def test_a_wrong_label_is_named(record: LabelRecord, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        prill.write_labels(tmp_path / "l.jsonl", [LabelRecord(id="b", success=True), record])
    assert not list(tmp_path.iterdir())


def test_an_unknown_action_kind_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    steps = (Step(Observation(text="a page"), Action("tpye")),) * 2
    prill.score([run(steps=steps), run(steps=steps, id="b")], prill.judge("always-fail"))
    assert [record.getMessage() for record in caplog.records] == [
        "unknown action kind 'tpye' (did you mean 'type'?); judges see it as it is"
    ]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    lists = run(
        steps=[Step(Observation(text="t"), Action("click", point=(0, 1)))],
        metadata={"x": [1, {"y": None}]},
    )
    assert prill.write_trajectories(tmp_path / "t.jsonl", [FINE, lists]) == 2
    assert [one.id for one in prill.read_trajectories(tmp_path / "t.jsonl")] == ["fine", "a"]


class Raising:
    """A judge that raises what it is told to, on every other trajectory."""

    info = EvaluatorInfo("raising", "1")

    def __init__(self, error: Callable[[], Exception]) -> None:
        self.error = error

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        if int(trajectory.id) % 2:
            raise self.error()
        return Verdict(id=trajectory.id, success=True, evaluator=self.info)


RUNS = [Trajectory(id=str(i), task=Task(goal="g")) for i in range(6)]


def test_what_a_judge_raises_is_unscored_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    verdicts = prill.score(RUNS, Raising(lambda: ZeroDivisionError("sk-secret of a page")))
    assert [verdict.success for verdict in verdicts] == [True, None] * 3
    assert {(v.unscored, v.reason) for v in verdicts if v.unscored} == {
        ("parse", "the judge 'raising' raised ZeroDivisionError")
    }
    assert all(verdict.key for verdict in verdicts)
    [told] = [record for record in caplog.records if record.name == "prill.judges"]
    assert (told.levelno, told.exc_info is not None) == (logging.ERROR, True)
    assert "raised ZeroDivisionError for '1', which is unscored" in told.message
    caplog.clear()
    prill.score(RUNS, Raising(lambda: ZeroDivisionError()))
    assert len(caplog.records) == 1  # another run tells it again


def test_reasons_and_ends_of_runs_stay_what_they_are() -> None:
    verdicts = prill.score(RUNS[:2], Raising(lambda: NoEvidenceError("no page")))
    assert [(v.unscored, v.reason) for v in verdicts] == [(None, ""), ("no_evidence", "no page")]
    for error in (EndpointError("nobody there"), UsageError("no such model")):
        with pytest.raises(type(error), match=str(error)):
            prill.score(RUNS[:2], Raising(lambda error=error: error))  # type: ignore[misc]


async def test_a_file_is_finished_past_a_bug(tmp_path: Path) -> None:
    prill.write_trajectories(tmp_path / "t.jsonl", RUNS)
    tally = await score_files([tmp_path / "t.jsonl"], Raising(RuntimeError), tmp_path / "v.jsonl")
    assert (tally.succeeded, dict(tally.unscored)) == (3, {"parse": 3})
    again = await score_files(
        [tmp_path / "t.jsonl"], Raising(RuntimeError), tmp_path / "v.jsonl", retry_unscored=True
    )
    assert (again.skipped, again.made) == (3, 3)


def plain(trajectory: Trajectory) -> bool:
    return True


async def plain_async(trajectory: Trajectory) -> bool:
    return True


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        (
            plain,
            r"the judge is the plain function plain; decorate it with @prill\.as_judge\('plain', version='1'\)",  # noqa: E501
        ),
        (
            plain_async,
            r"the judge is the plain function plain_async; decorate it with @prill\.as_judge",
        ),
        # `score` makes it
        ("vlm", r"the judge is 'vlm'; create it first, prill\.judge\('vlm'\)|judge 'vlm' needs it"),
        (Raising, r"the judge is the class Raising; create an object, Raising\(…\)"),
        (None, "a NoneType is not a judge|judge is missing; give one|got a NoneType"),
        (RUNS, "a list is not a judge|got a list"),
    ],
)
def test_what_is_not_a_judge_says_what_to_write(judge: Any, said: str, tmp_path: Path) -> None:
    async def stream() -> list[Verdict]:
        return [verdict async for verdict in prill.score_stream(RUNS, judge)]

    prill.write_trajectories(tmp_path / "t.jsonl", RUNS)
    for call in (
        lambda: prill.score(RUNS, judge),
        lambda: asyncio.run(stream()),
        lambda: asyncio.run(score_files([tmp_path / "t.jsonl"], judge, tmp_path / "v.jsonl")),
    ):
        with pytest.raises(UsageError, match=said):
            call()


def test_a_plain_function_by_name_says_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "async def f(trajectory): return True\ndef g(trajectory): return True\n"
    )
    prill.write_trajectories(tmp_path / "t.jsonl", RUNS)
    for name in "fg":
        own = f"{tmp_path / 'own.py'}:{name}"
        with pytest.raises(
            UsageError, match=rf"decorate it with @prill\.as_judge\('{name}', version='1'\)"
        ):
            prill.judge(own)
        with pytest.raises(UsageError, match=r"decorate it with @prill\.as_judge"):
            prill.judge("vote", judges=[own])
        assert (
            main(
                [
                    "score",
                    str(tmp_path / "t.jsonl"),
                    "-o",
                    str(tmp_path / "v.jsonl"),
                    "--judge",
                    own,
                ]
            )
            == 2
        )
        assert "decorate it with @prill.as_judge" in capsys.readouterr().err
    for make in (prill.judge, prill.reward):
        with pytest.raises(UsageError, match=r"decorate it with @prill\.as_judge\('plain'"):
            make(plain)  # type: ignore[arg-type]


def test_a_stream_is_read_only_as_far_as_needed() -> None:
    read: list[int] = []

    def endless() -> Iterator[Trajectory]:
        while True:
            read.append(1)
            yield Trajectory(id=str(len(read)), task=Task(goal="g"))

    async def first() -> Verdict:
        verdicts = prill.score_stream(endless(), Constant(True), concurrency=2)
        async for verdict in verdicts:
            await verdicts.aclose()
            return verdict
        raise AssertionError

    assert asyncio.run(first()).success
    assert len(read) < 100
