"""How the states of a run are read: as screenshots, or as text by a captioner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from prill.errors import NoEvidenceError
from prill.evaluators.evidence import (
    Frame,
    State,
    address,
    endings,
    select_frames,
    state_text,
    states,
)
from prill.io.images import file_hash
from prill.models.calls import gather_calls
from prill.protocols import Captioner, RecordedCaptioner
from prill.types import Observation, Trajectory

_T = TypeVar("_T")
_CAPTION_CHARS = 4000  # estimated length in plans: OCR text of a dense 1280x720 page


@dataclass(frozen=True)
class Reading:
    """How the states are read: by a captioner, or as expected by a plan, without making captions.

    Args:
        captioner: The captioner. None: the judge sees screenshots.
        planned: Whether texts are only expected: those that are recorded, and others of a typical
            length.
    """

    captioner: Captioner | None = None
    planned: bool = False

    async def texts(self, states: Sequence[Observation]) -> list[str | None]:
        """Returns the texts of the states; None for a state without the captioner's input.

        Raises NoEvidenceError if no state has a text.
        """
        assert self.captioner is not None
        if not self.planned:
            return await captions(states, self.captioner)
        texts = planned_captions(states, self.captioner)
        if not any(texts):
            raise NoEvidenceError("there is no state to read")
        return texts

    async def apart(self, work: Callable[[], _T]) -> _T:
        """Does work that reads files: in a thread, unless it is for a plan."""
        return work() if self.planned else await asyncio.to_thread(work)


def finished(work: Awaitable[_T]) -> _T:
    """Returns the result of a coroutine that never waits, such as one of a planned `Reading`."""
    step = work.__await__()
    try:
        next(step)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("planned work waited")


async def captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """Returns the captions of the states; None for a state without the captioner's input.

    Raises NoEvidenceError if no state has that input.
    """

    async def one(state: Observation) -> str | NoEvidenceError:
        try:
            return await captioner(state)
        except NoEvidenceError as error:
            return error

    results = await gather_calls([one(state) for state in states])
    texts = [text if isinstance(text, str) and text.strip() else None for text in results]
    if not any(texts):
        raise next(
            (error for error in results if isinstance(error, NoEvidenceError)),
            NoEvidenceError("there is no state to read"),
        )
    return texts


def planned_captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """Returns recorded captions for a plan, with a text of typical length for each missing one."""
    if isinstance(captioner, RecordedCaptioner):
        return [captioner.recorded(state) for state in states]
    return [f"{i} ".ljust(_CAPTION_CHARS, "x") for i, _ in enumerate(states)]


def images_read(states: Iterable[Observation], captioner: Captioner | None) -> list[str]:
    """Returns the distinct image files that the model or the captioner reads."""
    paths = list(dict.fromkeys(state.screenshot for state in states if state.screenshot))
    return [] if paths and isinstance(captioner, RecordedCaptioner) else paths


async def key_frames(run: Trajectory, count: int | None, reading: Reading) -> list[Frame]:
    """Returns the screenshots that tell most, or the last `count` different ones, oldest first.

    Raises NoEvidenceError if no state that can show the outcome has one.
    """

    def select() -> list[State]:
        return select_frames(run, count)

    several = sum(bool(state.screenshot) for state in run.observations) > 1  # files are compared
    found = await reading.apart(select) if several else select()
    if not found:
        raise NoEvidenceError(
            "the last state has no screenshot, so the outcome is not visible; the "
            "modular judge reads captions or page text"
        )
    numbers = {when: i for i, (when, _) in enumerate(states(run))}
    return [
        Frame((numbers[when],), image=state.screenshot, address=address(state))
        for when, state in found
    ]


def other_endings(run: Trajectory, count: int) -> list[int]:
    """Returns the numbers of the states before the last `count` that can show the outcome, the
    latest first.
    """
    return sorted((i for i in endings(run) if i < len(run.observations) - count), reverse=True)


async def last_texts(run: Trajectory, count: int, reading: Reading) -> list[Frame]:
    """Returns the texts of the last `count` states.

    If none of them can show the outcome, another state that can is read. Raises NoEvidenceError if
    there is none.
    """
    every = run.observations
    error = NoEvidenceError("the last state cannot be read, so the outcome is not visible")
    texts: dict[int, str | None] = {}
    telling, last = endings(run), range(len(every))[-count:]
    others = sorted((i for i in telling if i < last.start), reverse=True)
    for indices in (last, *([i] for i in others)):
        try:
            found = await reading.texts([every[i] for i in indices])
            texts |= zip(indices, found, strict=True)
        except NoEvidenceError as failure:
            error = failure
        if any(texts.get(i) for i in telling):
            return [Frame((i,), text=text) for i, text in sorted(texts.items()) if text][-count:]
    raise error


async def all_texts(run: Trajectory, reading: Reading, *, ending: bool = True) -> list[str | None]:
    """Returns the text of every state; without `ending`, not that of the state after the last
    action. Raises NoEvidenceError if there is none.
    """
    every = run.observations if ending else run.observations[: len(run.steps)]
    return await reading.texts(every)


async def distinct_frames(run: Trajectory, reading: Reading) -> list[Frame]:
    """Returns the distinct screenshots, or texts of the states, in the order of their last
    occurrence.

    Pictures are equal if their bytes are. States without a screenshot (or without the captioner's
    input) have no frame. Raises NoEvidenceError if no state that can show the outcome has a frame,
    and InputError for an image that cannot be read.
    """
    if reading.captioner is not None:
        frames = _text_frames(run, await all_texts(run, reading))
    else:
        frames = await reading.apart(lambda: _screen_frames(run))
    if not frames:
        raise NoEvidenceError(
            "no state of this trajectory has a screenshot; set a captioner (given, text) "
            "to judge by text"
        )
    if all(endings(run).isdisjoint(frame.states) for frame in frames):
        raise NoEvidenceError(
            "the last state "
            f"{'has no screenshot' if reading.captioner is None else 'cannot be read'}, so the "
            "outcome is not visible"
        )
    return frames


def _screen_frames(run: Trajectory) -> list[Frame]:
    paths = {state.screenshot for state in run.observations if state.screenshot}
    hashes = {path: file_hash(path) for path in sorted(paths)}
    screenshots = (
        (i, s.screenshot, address(s)) for i, s in enumerate(run.observations) if s.screenshot
    )
    return _merge_equal(
        (i, hashes[path], Frame((), image=path, address=where)) for i, path, where in screenshots
    )


def _text_frames(run: Trajectory, texts: Sequence[str | None]) -> list[Frame]:
    pairs = zip(run.observations, texts, strict=True)
    return _merge_equal(
        (i, page, Frame((), text=page, address=address(state)))
        for i, (state, text) in enumerate(pairs)
        if text and (page := state_text(text, state))
    )


def _merge_equal(numbered: Iterable[tuple[int, str, Frame]]) -> list[Frame]:
    frames: dict[str, Frame] = {}
    for i, key, frame in numbered:
        # move it to the end: the last state is always the last frame
        before = frames.pop(key, frame)
        frames[key] = replace(frame, states=(*before.states, i))
    return list(frames.values())
