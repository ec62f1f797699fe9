"""Score files, and the turns of a conversation with their pages."""

from dataclasses import replace
from pathlib import Path

import pytest

from prill.errors import InputError
from prill.papers.mind2web.pages.state import (
    PageState,
    read_scores,
    read_state,
    rejoined,
    with_scores,
    without_pages,
)
from prill.types import Action, Observation, Step, Task, Trajectory


def turn(id: str, conversation: str = "c", earlier: tuple[Trajectory, ...] = ()) -> Trajectory:
    state = PageState(f"<page of='{id}'/>", ("1", "2", "3", "4"))
    step = Step(Observation(text=state.text()), Action("click", "[a]  b -> CLICK", "2"))
    metadata = {"conversation": conversation, "uids": ["u"]}
    return Trajectory(
        id=id, task=Task(id=id, goal=id, earlier=earlier), steps=(step,), metadata=metadata
    )


def test_scores_order_the_candidates() -> None:
    ranked = with_scores(turn("t"), {"t_u": {"3": 0.5, "2": 0.5, "4": 2.0, "9": 7.0}})
    assert read_state(ranked.steps[0].observation.text or "").candidates == ("4", "2", "3", "1")


def test_broken_score_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"scores": [1]}')
    with pytest.raises(InputError, match=r"s\.json.*scores"):
        read_scores(tmp_path / "s.json")


def test_earlier_turns_get_their_pages_again() -> None:
    first = turn("t1")
    second = turn("t2", earlier=(without_pages(first),))
    third = turn("t3", earlier=(without_pages(first), without_pages(second)))
    joined = list(rejoined([first, second, third]))
    assert joined[2].task.earlier == (first, replace(second, task=replace(second.task, earlier=())))
