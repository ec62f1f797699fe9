"""Score files, and the turns of a conversation with their pages."""

import gzip
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


def test_turn_without_scores_stays_as_it_is() -> None:
    assert with_scores(turn("t"), {"other_u": {"3": 1.0}}) == turn("t")


def test_broken_score_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"scores": [1]}')
    with pytest.raises(InputError, match=r"s\.json.*scores"):
        read_scores(tmp_path / "s.json")


def test_damaged_gzip_of_scores_is_named(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b'{"scores": {"t_u": {"1": 0.25}}}'))
    packed[10] = 0xFF  # no block of deflate begins so
    (tmp_path / "s.json.gz").write_bytes(packed)
    with pytest.raises(InputError, match=r"s\.json\.gz"):
        read_scores(tmp_path / "s.json.gz")


def test_turn_without_uids_is_refused() -> None:
    with pytest.raises(InputError, match="uids"):
        with_scores(replace(turn("t"), metadata={}), {})


def test_earlier_turns_get_their_pages_again() -> None:
    first = turn("t1")
    second = turn("t2", earlier=(without_pages(first),))
    third = turn("t3", earlier=(without_pages(first), without_pages(second)))
    joined = list(rejoined([first, second, third]))
    assert joined[2].task.earlier == (first, replace(second, task=replace(second.task, earlier=())))


def test_other_conversation_has_no_pages_of_it() -> None:
    stranger = turn("t2", "d", earlier=(without_pages(turn("t1")),))
    assert list(rejoined([turn("t1"), stranger])) == [turn("t1"), stranger]
