"""Which frames a judge is shown: equal ones once, the telling ones, always the last."""

from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner.recorded import GivenCaption
from prill.errors import InputError, NoEvidenceError
from prill.evaluators.evidence import Frame, best_frames, frame_block
from prill.evaluators.reading import Reading, distinct_frames, finished
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


async def test_equal_pictures_are_one_frame(tmp_path: Path) -> None:
    states = [picture(tmp_path / f"{i}.png", shade) for i, shade in enumerate((1, 2, 1, 3, 1))]
    frames = await distinct_frames(attempt(*states), Reading())
    assert [frame.states for frame in frames] == [(1,), (3,), (0, 2, 4)]
    assert frames == finished(distinct_frames(attempt(*states), Reading(planned=True)))


async def test_equal_texts_are_one_frame() -> None:
    frames = await distinct_frames(
        attempt(*(Observation(caption=text) for text in "abab")), Reading(GivenCaption())
    )
    assert [(frame.states, frame.text) for frame in frames] == [((0, 2), "a"), ((1, 3), "b")]


async def test_no_frame_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoEvidenceError, match="captioner"):
        await distinct_frames(attempt(Observation(caption="x"), Observation()), Reading())
    with pytest.raises(NoEvidenceError, match="captioner"):
        await distinct_frames(
            attempt(Observation(text="x"), Observation()), Reading(GivenCaption())
        )
    with pytest.raises(InputError, match="missing"):
        await distinct_frames(
            attempt(Observation(screenshot=str(tmp_path / "gone.png")), Observation()), Reading()
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


def test_frame_block_shares_the_room() -> None:
    run = attempt(*[Observation(caption=str(i)) for i in range(4)])
    block = frame_block(
        [Frame((1,), text="y" * 900), Frame((3,), text="y" * 900)], ["", ""], run, 400
    )
    assert 400 <= block.count("y") < 420
