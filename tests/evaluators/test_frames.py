"""Which frames a judge is shown: equal ones once, the telling ones, always the last."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner.recorded import GivenCaption
from prill.errors import InputError, NoEvidenceError
from prill.evaluators.frames import (
    Frame,
    best_frames,
    distinct_frames,
    frame_block,
    images_read,
    planned_frames,
    remarks,
    title,
)
from prill.protocols import Image
from prill.types import Action, Observation, Step, Task, Trajectory


def attempt(*states: Observation, last_recorded: bool = True) -> Trajectory:
    steps = tuple(
        Step(state, Action("click", "click"))
        for state in (states[:-1] if last_recorded else states)
    )
    return Trajectory(
        id="a", task=Task(goal="g"), steps=steps, final=states[-1] if last_recorded else None
    )


def picture(path: Path, shade: int) -> Observation:
    Picture.new("RGB", (20, 10), (shade, 0, 0)).save(path)
    return Observation(screenshot=str(path))


async def test_equal_pictures_are_one_frame(
    tmp_path: Path,
) -> None:
    states = [picture(tmp_path / f"{i}.png", shade) for i, shade in enumerate((1, 2, 1, 3, 1))]
    frames = await distinct_frames(attempt(*states), None)
    assert [frame.states for frame in frames] == [(1,), (3,), (0, 2, 4)]
    assert frames == planned_frames(attempt(*states), None)


async def test_states_without_frame_keep_numbers(tmp_path: Path) -> None:
    cart = replace(picture(tmp_path / "a.png", 1), caption="end")
    states = (Observation(caption="start"), Observation(), cart)
    assert [frame.states for frame in await distinct_frames(attempt(*states), None)] == [(2,)]
    frames = await distinct_frames(attempt(*states), GivenCaption())
    assert [(frame.states, frame.text) for frame in frames] == [((0,), "start"), ((2,), "end")]


async def test_equal_texts_are_one_frame() -> None:
    frames = await distinct_frames(
        attempt(*(Observation(caption=text) for text in "abab")), GivenCaption()
    )
    assert [(frame.states, frame.text) for frame in frames] == [((0, 2), "a"), ((1, 3), "b")]


async def test_no_frame_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoEvidenceError, match="captioner"):
        await distinct_frames(attempt(Observation(caption="x"), Observation()), None)
    with pytest.raises(NoEvidenceError, match="captioner"):
        await distinct_frames(attempt(Observation(text="x"), Observation()), GivenCaption())
    with pytest.raises(InputError, match="missing"):
        await distinct_frames(
            attempt(Observation(screenshot=str(tmp_path / "gone.png")), Observation()), None
        )


@pytest.mark.parametrize(
    ("scores", "count", "least", "kept"),
    [
        ([5, 5, 5, 1], 2, 3, [1, 2, 3]),  # the last though it is rated 1; of equals the later
        ([5, 4, 3, 2, 1], 10, 3, [0, 1, 2, 4]),
        ([1, 1, 1], 2, 3, [2]),
        ([None, 1, 1, 1], 2, 3, [0, 3]),  # what could not be rated is not dropped
        ([4, None, 4, None, 1], 1, 3, [2, 3, 4]),
        ([2], 1, 3, [0]),
        ([5] * 60, 10, 3, list(range(49, 60))),  # the tail stays
    ],
)
def test_best_frames_and_last_in_order(
    scores: list[int | None], count: int, least: int, kept: list[int]
) -> None:
    assert best_frames(scores, count, least) == kept


def test_title_names_states_of_a_frame() -> None:
    run = attempt(*[Observation(caption=str(i)) for i in range(4)])
    assert title(Frame((0,)), run) == "State 0 (the start)"
    assert title(Frame((2,)), run) == "State 2 (after action 2)"
    assert (
        title(Frame((0, 1, 3)), run)
        == "State 3 (after the last action); it looked the same in state 0, 1"
    )


def test_title_without_recorded_last_state() -> None:
    run = attempt(Observation(caption="a"), Observation(caption="b"), last_recorded=False)
    assert title(Frame((1,)), run) == "State 1 (after action 1)"


def test_frame_block_numbers_images() -> None:
    run = attempt(*[Observation(caption=str(i)) for i in range(4)])
    block, images = frame_block(
        [Frame((1,), "b.png"), Frame((3,), "d.png")], ["a list", ""], run, 1000
    )
    assert images == [Image("b.png"), Image("d.png")]
    assert block.index("Image 1: State 1") < block.index("a list") < block.index("Image 2: State 3")


def test_frame_block_shares_the_room() -> None:
    run = attempt(*[Observation(caption=str(i)) for i in range(4)])
    block, images = frame_block(
        [Frame((1,), text="y" * 900), Frame((3,), text="y" * 900)], ["", ""], run, 400
    )
    assert not images
    assert 400 <= block.count("y") < 420


def test_text_captioner_reads_no_image(tmp_path: Path) -> None:
    states = [picture(tmp_path / "a.png", 1)] * 2
    assert images_read(states, None) == [str(tmp_path / "a.png")]
    assert images_read(states, GivenCaption()) == []


def test_remarks_say_what_was_not_seen() -> None:
    assert remarks(0, 9, 0) == ""
    assert remarks(2, 9, 0) == " [2 of 9 frames could not be rated]"
    assert "no room for 3 of the frames" in remarks(0, 9, 3)
