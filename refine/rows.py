"""Training rows for TRL from filtered steps: demonstrations, KTO examples and DPO pairs.

A row's prompt is the request that the policy would have sent at that step, and its completion the
reply for the recorded action. A policy trained on the rows therefore sees the same prompts when it
acts. With images, the content of every message is a list of parts.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prill.errors import InputError, NoEvidenceError, UnscoredError
from prill.evaluators.labels import get_template
from prill.io.images import file_hash, open_checked
from prill.models.request import worded
from prill.protocols import Image, Message
from prill.refine.demonstration import PlainTeacher, Teacher
from prill.refine.selection import Filtered, KeptStep, draw

Row = dict[str, Any]
# Called for each step that gives no row, with a short reason for counting and the full message.
Note = Callable[[KeptStep, str, str], object]
NO_WORDS, BAD_IMAGE, NOTHING_SHOWN = (
    "no words for it in the policy's language",
    "missing or broken image",
    "nothing to show",
)
NOT_A_CHAT, EMPTY = "question and answer do not alternate", "empty answer"
_CODE_BYTES = 4


def sft_rows(
    filtered: Filtered,
    demonstrator: Teacher | None = None,
    *,
    place: Callable[[str], str] = os.path.abspath,
    note: Note = lambda step, why, message: None,
) -> Iterator[Row]:
    """Builds a row from each kept step.

    Args:
        filtered: The filtered steps.
        demonstrator: The policy to train, which builds the prompts. None: prill's own prompt
            (`PlainTeacher`).
        place: Maps the path of an image to the path that a row names.
        note: Called with each step that gives no row, a short reason and a full message. The
            remaining steps continue.

    Yields:
        Rows with `prompt` and `completion` as chat messages, `images` if there are any, and the
        source: `task`, `trajectory` and `step` (from 0). Training holds out whole tasks.
    """
    for lesson in _lessons(filtered.steps, _teacher(filtered, demonstrator), place, note):
        yield {"prompt": lesson.prompt, "completion": [lesson.answer], **lesson.rest}


def kto_rows(
    filtered: Filtered,
    demonstrator: Teacher | None = None,
    *,
    place: Callable[[str], str] = os.path.abspath,
    note: Note = lambda step, why, message: None,
) -> Iterator[Row]:
    """Builds KTO rows from kept and rejected steps.

    The parameters are those of `sft_rows`.

    Yields:
        Rows like those of `sft_rows`, with `label`: True for a kept step, False for a rejected one.
    """
    teacher = _teacher(filtered, demonstrator)
    for label, steps in ((True, filtered.steps), (False, filtered.rejected)):
        for lesson in _lessons(steps, teacher, place, note):
            yield {
                "prompt": lesson.prompt,
                "completion": [lesson.answer],
                "label": label,
                **lesson.rest,
            }


def dpo_rows(
    filtered: Filtered,
    demonstrator: Teacher | None = None,
    *,
    place: Callable[[str], str] = os.path.abspath,
    note: Note = lambda step, why, message: None,
    seed: int = 0,
) -> Iterator[Row]:
    """Pairs kept steps with rejected steps of the same task at the same state.

    Each step is in at most one pair. A reply that was both kept and rejected at a state is in no
    pair.

    The parameters are those of `sft_rows`, and `seed` for the pairing.

    Yields:
        Rows with `prompt` (the messages of the kept step), `chosen` and `rejected`.
    """
    teacher = _teacher(filtered, demonstrator)
    good, bad = _by_state(filtered.steps, note), _by_state(filtered.rejected, note)
    for state, steps in good.items():
        if state not in bad:
            continue
        chosen, rejected = (
            [*_lessons(_drawn(some, seed), teacher, place, note)] for some in (steps, bad[state])
        )
        shared = {lesson.reply_text for lesson in chosen} & {
            lesson.reply_text for lesson in rejected
        }
        pairs = zip(
            *(
                [lesson for lesson in some if lesson.reply_text not in shared]
                for some in (chosen, rejected)
            ),
            strict=False,
        )
        for kept, other in pairs:
            yield {
                "prompt": kept.prompt,
                "chosen": [kept.answer],
                "rejected": [other.answer],
                **kept.rest,
                "rejected_trajectory": other.step.trajectory.id,
                "rejected_step": other.step.index,
            }


@dataclass(frozen=True, slots=True)
class _Lesson:
    """A step as prompt and completion."""

    step: KeptStep
    prompt: list[Row]
    answer: Row
    reply_text: str
    images: list[str]

    @property
    def rest(self) -> Row:
        images = {"images": self.images} if self.images else {}
        run = self.step.trajectory
        return {**images, "task": get_template(run), "trajectory": run.id, "step": self.step.index}


def _teacher(filtered: Filtered, demonstrator: Teacher | None) -> Teacher:
    """Returns the policy, or else a `PlainTeacher`. It shows images only if every state has one, so
    that all rows of a file have the same form.
    """
    if demonstrator is not None:
        return demonstrator
    steps = (*filtered.steps, *filtered.rejected)
    return PlainTeacher(
        images=all(step.trajectory.steps[step.index].observation.screenshot for step in steps)
    )


def _lessons(
    steps: Iterable[KeptStep], teacher: Teacher, place: Callable[[str], str], note: Note
) -> Iterator[_Lesson]:
    good: set[str] = set()  # images known to be readable
    for step in steps:
        try:
            messages, reply_text = teacher.demonstrate(step.trajectory, step.index)
            for path in image_paths(messages):
                if path not in good:
                    open_checked(path)
                    good.add(path)
        except UnscoredError as error:
            why = {"input": BAD_IMAGE, "no_evidence": NOTHING_SHOWN}.get(error.code, NO_WORDS)
            note(step, why, f"{step.trajectory.id}, step {step.index}: {error}")
            continue
        if not reply_text.strip():
            note(step, EMPTY, f"{step.trajectory.id}, step {step.index}: the answer is empty")
            continue
        if not _alternates(messages):
            note(step, NOT_A_CHAT, f"{step.trajectory.id}, step {step.index}: {NOT_A_CHAT}")
            continue
        yield _lesson(step, messages, reply_text, place)


def _lesson(
    step: KeptStep, messages: Sequence[Message], reply_text: str, place: Callable[[str], str]
) -> _Lesson:
    images = [place(path) for path in image_paths(messages)]
    # Each prompt has a random code around quotations. Here the code is derived from the quoted
    # text, so that equal inputs give equal rows.
    texts = [part for message in messages for part in message.parts if isinstance(part, str)]
    code = hashlib.blake2b(
        "\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=_CODE_BYTES
    ).hexdigest()
    *prompt, answer = (
        chat_turn(message, in_parts=bool(images))
        for message in (*worded(messages, "", code), Message("assistant", (reply_text,)))
    )
    return _Lesson(step, prompt, answer, reply_text, images)


def chat_turn(message: Message, *, in_parts: bool) -> Row:
    """Converts a message to a row's chat message; with images, its content is a list of parts."""
    if not in_parts:
        return {
            "role": message.role,
            "content": "\n\n".join(part for part in message.parts if isinstance(part, str)),
        }
    content = [
        {"type": "image"} if isinstance(part, Image) else {"type": "text", "text": part}
        for part in message.parts
    ]
    return {"role": message.role, "content": content}


def image_paths(messages: Sequence[Message]) -> list[str]:
    """Returns the image paths of messages, in order."""
    return [part.path for message in messages for part in message.parts if isinstance(part, Image)]


def _alternates(messages: Sequence[Message]) -> bool:
    """Whether user and assistant alternate after an optional system message and the user is last,
    as trainers require.
    """
    roles = [message.role for message in messages]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    return len(turns) % 2 == 1 and all(
        role == ("user", "assistant")[i % 2] for i, role in enumerate(turns)
    )


def _by_state(steps: Iterable[KeptStep], note: Note) -> dict[Hashable, list[KeptStep]]:
    """Groups steps by task, goal and observations, without states that have no recorded content."""
    found: dict[Hashable, list[KeptStep]] = defaultdict(list)
    for step in steps:
        state, task = step.trajectory.steps[step.index].observation, step.trajectory.task
        try:
            if not any((state.text, state.caption, state.screenshot)):
                raise NoEvidenceError("no state was recorded")
            picture = None if state.screenshot is None else file_hash(state.screenshot)
        except (InputError, NoEvidenceError) as error:
            why = BAD_IMAGE if isinstance(error, InputError) else NOTHING_SHOWN
            note(step, why, f"{step.trajectory.id}, step {step.index}: {error}")
            continue
        found[
            get_template(step.trajectory), task.goal, state.text, state.url, state.caption, picture
        ].append(step)
    return found


def _drawn(steps: Sequence[KeptStep], seed: int) -> list[KeptStep]:
    return sorted(steps, key=lambda step: draw(seed, step.trajectory.id, step.index))
