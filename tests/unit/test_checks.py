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
from hypothesis import given
from hypothesis import strategies as st

import prill
from prill.checks import check_record
from prill.cli import main
from prill.errors import EndpointError, InputError, NoEvidenceError, UsageError
from prill.evaluators import Constant, Vote
from prill.scoring.scorer import score_files
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
    (run(id=1), "trajectory 1: id: expected text (str); got 1 (did you mean '1'?)"),
    (run(id=""), "trajectory '': id: expected non-empty text; got ''"),
    (run(task="buy"), "trajectory 'a': task: expected a prill.Task; got 'buy'"),
    (run(task=None), "trajectory 'a': task: expected a prill.Task; got None"),
    (task(goal=None), "trajectory 'a': task.goal: expected text (str); got None"),
    (task(id=7), "trajectory 'a': task.id: expected text (str); got 7 (did you mean '7'?)"),
    (
        task(platform="Web"),
        "trajectory 'a': task.platform: expected one of web, android, ios, desktop, other; got "
        "'Web' (did you mean 'web'?)",
    ),
    (
        task(earlier=(run(answer=3),)),
        "trajectory 'a': task.earlier[0].answer: expected text (str); got 3 (did you mean '3'?)",
    ),
    (run(answer={"text": "yes"}), "trajectory 'a': answer: expected text (str); got a dict of 1"),
    (run(answer=b"yes"), "trajectory 'a': answer: expected text (str); got b'yes'"),
    (run(steps=None), "trajectory 'a': steps: expected a tuple; got None"),
    (
        run(steps=({"action": "click"},)),
        "trajectory 'a': steps[0]: expected a prill.Step; got a dict of 1",
    ),
    (run(final="the end"), "trajectory 'a': final: expected a prill.Observation; got 'the end'"),
    (run(metadata=None), "trajectory 'a': metadata: expected a dict; got None"),
    (run(metadata=[("seed", 1)]), "trajectory 'a': metadata: expected a dict; got a list of 1"),
    (step(action="click"), "trajectory 'a': steps[0].action: expected a prill.Action; got 'click'"),
    (
        step(action=Action(odd)),
        "trajectory 'a': steps[0].action.kind: expected text (str); got a object",
    ),
    (
        step(action=Action("click", point=(0.5,))),
        "trajectory 'a': steps[0].action.point: expected 2 numbers; got a tuple of 1",
    ),  # type: ignore[arg-type]
    (
        step(Observation(text=["a"])),
        "trajectory 'a': steps[0].observation.text: expected text (str); got a list of 1",
    ),  # type: ignore[arg-type]
    (
        step(thought=10**400),
        "trajectory 'a': steps[0].thought: expected text (str); got a number of 1329 bits",
    ),
]
WRONG_LABELS = [
    (LabelRecord(id=odd, success=True), "label a object: id: expected text (str); got a object"),
    (LabelRecord(id="a", success=1), "label 'a': success: expected True or False; got 1"),  # type: ignore[arg-type]
    (LabelRecord(id="a", success="yes"), "label 'a': success: expected True or False; got 'yes'"),  # type: ignore[arg-type]
    (
        LabelRecord(id="a", success=None, undecided="Unsure"),  # type: ignore[arg-type]
        "label 'a': undecided: expected one of not_executable, unsure; got 'Unsure' (did you mean "
        "'unsure'?)",
    ),
    (
        LabelRecord(id="a", success=True, steps=(StepLabel(True, "reached"),)),
        "label 'a': steps[0].index: expected a whole number (int); got True",
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


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    lists = run(
        steps=[Step(Observation(text="t"), Action("click", point=(0, 1)))],
        metadata={"x": [1, {"y": None}]},
    )
    assert prill.write_trajectories(tmp_path / "t.jsonl", [FINE, lists]) == 2
    assert [one.id for one in prill.read_trajectories(tmp_path / "t.jsonl")] == ["fine", "a"]


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.lists(st.text())
    | st.just(FINE)
)


@given(
    st.sampled_from(
        [
            "id",
            "agent",
            "answer",
            "error",
            "steps",
            "final",
            "metadata",
            "task",
            "goal",
            "platform",
            "site",
        ]
    ),
    values,
)
def test_a_checked_record_can_be_read_back(name: str, value: Any) -> None:
    """Whatever is put into a field: it is refused by name, or what is written is a record again."""
    record = task(**{name: value}) if name in ("goal", "platform", "site") else run(**{name: value})
    try:
        line = prill.io.store.encode_trajectory(record, Path("/"))
    except InputError as error:
        assert name in str(error)
    else:
        again = prill.io.store.decode_trajectory(line, Path("/"))
        assert getattr(again, name, None) == getattr(record, name, None) or name in (
            "steps",
            "goal",
            "platform",
            "site",
        )


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


def test_a_bug_anywhere_in_a_judge_is_the_same() -> None:
    class Screenshots(Raising):
        def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
            raise KeyError("x")

    [verdict] = prill.score(RUNS[:1], Screenshots(ValueError))
    assert (verdict.unscored, verdict.reason) == ("parse", "the judge 'raising' raised KeyError")
    [verdict] = prill.score(RUNS[1:2], Vote([Raising(OverflowError), Constant(True)]))
    assert verdict.unscored == "parse"


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
        ("vlm", r"the judge is 'vlm'; create it first, prill\.judge\('vlm'\)"),
        (Raising, r"the judge is the class Raising; create an object, Raising\(…\)"),
        (None, "a NoneType is not a judge|judge is missing; give one"),
        (RUNS, "a list is not a judge"),
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


def test_one_record_where_a_list_is_wanted(tmp_path: Path) -> None:
    one: Any = RUNS[0]
    with pytest.raises(UsageError, match=r"got one Trajectory; put it into a list, \[trajectory\]"):
        prill.score(one, Constant(True))
    with pytest.raises(UsageError, match="expected a list of trajectories"):
        prill.write_trajectories(tmp_path / "t.jsonl", one)
    label: Any = LabelRecord(id="a", success=True)
    with pytest.raises(
        UsageError,
        match=r"expected a list of labels, got one LabelRecord; put it into a list, \[label\]",
    ):
        prill.write_labels(tmp_path / "l.jsonl", label)
    with pytest.raises(
        UsageError, match="item 1 of the trajectories is a dict, not a prill.Trajectory"
    ):
        prill.score([RUNS[0], {"id": "b"}], Constant(True))  # type: ignore[list-item]
    with pytest.raises(
        UsageError, match="expected a list of trajectories, got a value of type int"
    ):
        prill.score(3, Constant(True))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a list of trajectories, got a dict"):
        prill.score({"id": "a"}, Constant(True))


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


def test_records_of_files_are_sound(tmp_path: Path) -> None:
    for run in prill.read_trajectories("datasets/samples/miniwob/trajectories.jsonl"):
        check_record(run)
