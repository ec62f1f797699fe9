"""What the agent saw, as frames: equal ones taken together, the telling ones chosen, the last one always among them.

State 0 is the start, and state i is what action i left: a frame is cited by these numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prill.errors import NoEvidence
from prill.evaluators.evidence import action_history, claims, without_claims
from prill.models.calls import together
from prill.models.images import file_hash
from prill.models.prompts import quoted, shorten
from prill.protocols import Captioner, Image
from prill.types import Observation, Trajectory

_TEXT_CAPTIONERS = ("given", "text")  # those that look at no image
_CAPTION_CHARS = 4000  # for plans, where captions are not made: a dense 1280x720 page read by OCR


@dataclass(frozen=True, slots=True)
class Frame:
    """A picture (by its path) or a text that was on the screen, and the numbers of the states in which it was, rising."""

    states: tuple[int, ...]
    image: str | None = None
    text: str = ""


async def distinct_frames(trajectory: Trajectory, captioner: Captioner | None) -> list[Frame]:
    """The screenshots, or what a captioner makes of the states, each once, ordered by when they were last seen.

    Pictures are equal when their bytes are. States without a screenshot (or without what the captioner reads) have no frame.
    Raises NoEvidence when none has one, InputError for an image that cannot be read.
    """
    if captioner is not None:
        return _text_frames(await captions(trajectory.observations, captioner))
    frames = await asyncio.to_thread(_screen_frames, trajectory)
    if not frames:
        raise NoEvidence("no state of this trajectory has a screenshot; name a captioner for text (--captioner given or text)")
    return frames


def planned_frames(trajectory: Trajectory, captioner: Captioner | None) -> list[Frame]:
    """The same without making a caption: where captions are unknown, every state counts as a frame of common length."""
    if captioner is None:
        return _screen_frames(trajectory)
    return _text_frames(known_captions(trajectory.observations, captioner))


async def captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """The captions of the states; None for one that lacks what the captioner reads. Raises NoEvidence when all do."""

    async def one(state: Observation) -> str | NoEvidence:
        try:
            return await captioner(state)
        except NoEvidence as missing:
            return missing

    made = await together([one(state) for state in states])
    texts = [text if isinstance(text, str) else None for text in made]
    if not any(text is not None for text in texts):
        raise next((error for error in made if isinstance(error, NoEvidence)), NoEvidence("the trajectory has no states"))
    return texts


def known_captions(states: Sequence[Observation], captioner: Captioner) -> list[str | None]:
    """For plans: the captions that are there already, and a text of common length for each that would have to be made."""
    known = {"given": [s.caption for s in states], "text": [s.text for s in states]}.get(captioner.name)
    return known or [f"{i} ".ljust(_CAPTION_CHARS, "x") for i, _ in enumerate(states)]


def images_read(states: Iterable[Observation], captioner: Captioner | None) -> list[str]:
    """The image files that are looked at, by the model or by the captioner, each once."""
    if captioner is not None and captioner.name in _TEXT_CAPTIONERS:
        return []
    return list(dict.fromkeys(state.screenshot for state in states if state.screenshot))


def chosen(scores: Sequence[int | None], count: int, least: int = 1) -> list[int]:
    """The places of the frames to show, rising: always the last; of the others the best `count` with a score of `least` or
    more, and the latest `count` without a score (None: rating them failed). Of equal scores the later goes first."""
    last = len(scores) - 1
    rated = sorted(((s, i) for i, s in enumerate(scores[:-1]) if s is not None and s >= least), reverse=True)
    unrated = [i for i, s in enumerate(scores[:-1]) if s is None]
    return sorted({*(i for _, i in rated[:count]), *unrated[len(unrated) - min(count, len(unrated)) :], last})


def title(frame: Frame, trajectory: Trajectory) -> str:
    """Which states a frame shows, in words."""
    *same, last = frame.states
    when = "the start" if last == 0 else "after the last action" if last == len(trajectory.steps) else f"after action {last}"
    words = f"State {last} ({when})"
    return f"{words}; it looked the same in state {', '.join(map(str, same))}" if same else words


def frame_block(
    frames: Sequence[Frame], descriptions: Sequence[str], trajectory: Trajectory, room: int
) -> tuple[str, list[Image]]:
    """The frames as a text that shares `room` characters, and the images that belong below it, in the same order."""
    share = room // max(1, len(frames))
    pieces, images = [], []
    for frame, description in zip(frames, descriptions, strict=True):
        heading = title(frame, trajectory)
        if frame.image is not None:
            images.append(Image(frame.image))
            pieces.append(f"Image {len(images)}: {heading}")
        else:
            pieces.append(f"{heading}\n{quoted('state', shorten(frame.text, share))}")
        if description:
            pieces.append(quoted("description", shorten(description, share)))
    return "\n\n".join(pieces), images


def _screen_frames(trajectory: Trajectory) -> list[Frame]:
    paths = {state.screenshot for state in trajectory.observations if state.screenshot}
    hashes = {path: file_hash(path) for path in sorted(paths)}
    shown = ((i, s.screenshot) for i, s in enumerate(trajectory.observations) if s.screenshot)
    return _merged((i, hashes[path], Frame((), image=path)) for i, path in shown)


def _text_frames(texts: Sequence[str | None]) -> list[Frame]:
    return _merged((i, text, Frame((), text=text)) for i, text in enumerate(texts) if text)


def _merged(seen: Iterable[tuple[int, str, Frame]]) -> list[Frame]:
    frames: dict[str, Frame] = {}
    for i, key, frame in seen:
        before = frames.pop(key, frame)  # put back at the end: the last state is always the last frame
        frames[key] = Frame((*before.states, i), frame.image, frame.text)
    return list(frames.values())


def verdict_blocks(
    trajectory: Trajectory, frames: Sequence[Frame], descriptions: Sequence[str], room: int, *, answer: bool
) -> tuple[dict[str, str], Sequence[Image]]:
    """What a verdict is asked for with: the request, the actions, the agent's claims and the frames, as quotations; the images.

    Without `answer`, the agent's messages among the actions lose their words too.
    """
    block, images = frame_block(frames, descriptions, trajectory, room)
    history = trajectory if answer else without_claims(trajectory)
    values = {
        "goal": quoted("request", trajectory.task.goal),
        "actions": quoted("actions", action_history(history, room)),
        "claims": claims(trajectory, room // 4, answer=answer, thoughts=False),
        "frames": block,
    }
    return values, images


def remarks(unread: int, frames: int, rooms: Sequence[int]) -> str:
    """What a reader of the verdict should know of the frames: how many could not be rated, and whether not all could be shown.

    `rooms`: those in which the request was put together; with a second one the first did not fit the endpoint.
    """
    notes = [f"{unread} of {frames} frames could not be rated"] if unread else []
    if len(rooms) > 1:
        notes.append("the request did not fit, so fewer frames were shown; a smaller --top-k may fit")
    return f" [{'; '.join(notes)}]" if notes else ""
