"""The fakes that live in the process behave like what they stand for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prill.testing
from prill.episodes.loop import run_episode
from prill.errors import UsageError
from prill.protocols import Message
from prill.testing import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.policies.replay import ReplayPolicy

ASK = (Message("user", ("did it work?",)),)
TASK = Task(goal="buy a lamp")
CLICK, STOP = Action("click", "click [3]"), Action("stop", "stop [done]", value="done")
RECORD = Trajectory(
    id="t1",
    task=TASK,
    steps=(
        Step(Observation(text="list"), CLICK, "the lamp"),
        Step(Observation(text="cart"), STOP, "finished"),
    ),
    final=Observation(text="bought"),
)


async def test_model_ended_script_is_an_error() -> None:
    model = ScriptedModel(["one"])
    await model.complete(ASK)
    with pytest.raises(UsageError, match="1 lines"):
        await model.complete(ASK)


async def test_replay_gives_the_record_again() -> None:
    environment = ReplayEnvironment(RECORD)
    again = await run_episode(ReplayPolicy(RECORD.steps), environment, TASK, id="t1")
    assert again.steps == RECORD.steps and again.answer == "done"
    assert environment.actions == [CLICK]


async def test_replay_ends_with_its_states() -> None:
    again = await run_episode(ReplayPolicy([CLICK] * 9), ReplayEnvironment(RECORD), TASK, id="t2")
    assert again.metadata["ended_by"] == "environment"
    assert [state.text for state in again.observations] == ["list", "cart", "bought"]


def test_exported_names_exist_unloaded() -> None:
    for name in prill.testing.__all__:
        assert getattr(prill.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="Nothing"):
        getattr(prill.testing, "Nothing")  # noqa: B009  the name is wrong on purpose
    code = (
        "import sys, prill.testing; print([m for m in sys.modules if m == 'aiohttp' or "
        "m.startswith('prill.testing.')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
