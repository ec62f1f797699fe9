"""The lessons of earlier attempts, by step: the action to take, and the elements that were clicked
in vain.

A lesson is a `Note`, written as one line of JSON.
`build_memory` computes the memory from the lessons alone, so storing the lessons (`prill
reflexion`) stores the memory.

Ids may differ between attempts. Each line such as `click id=7` is therefore stored with the key of
its element, which identifies the element on another attempt's screen (`Screen.key`). Disabled
elements are keys. A note without a key uses the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import msgspec

from prill.papers.structured_reflection.actions import clicked

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One lesson: the step of an attempt to change.

    Args:
        format: The version of the format.
        state: The state in which the attempt ended.
        step: The step to change, from 0. None: the model named none.
        answer: The model's reply.
        replacement: The action to take.
        taken: The action that was taken.
        before: The actions before that step, for the replay.
        replacement_key: The element of `replacement`, empty where there is none.
        taken_key: The element of `taken`, empty where there is none.
        before_keys: The elements of `before`.
    """

    format: Literal["structured reflection 1"] = "structured reflection 1"
    state: str
    step: int | None
    answer: str
    replacement: str = ""
    taken: str = ""
    before: tuple[str, ...] = ()
    replacement_key: str = ""
    taken_key: str = ""
    before_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptMemory:
    """The content of the lessons for each step. Steps count from 0.

    Args:
        notes: The lesson for a step.
        forced: The steps whose action is forced.
        disabled: The elements that were clicked in vain at a step.
        raw: All lessons as the model wrote them, oldest first.
        unread: How many lessons are not notes.
        prefix: The actions before the step of the newest note.
        prefix_keys: The elements of these actions.
    """

    notes: Mapping[int, Note] = field(default_factory=dict)
    forced: frozenset[int] = frozenset()
    disabled: Mapping[int, frozenset[str]] = field(default_factory=dict)
    raw: tuple[str, ...] = ()
    unread: int = 0
    prefix: tuple[str, ...] = ()
    prefix_keys: tuple[str, ...] = ()

    def hidden(self, step: int) -> frozenset[str]:
        """Returns the keys of the elements that were clicked in vain at a step."""
        return self.disabled.get(step, frozenset())


def build_memory(lessons: Iterable[str], *, forcing: bool = True) -> AttemptMemory:
    """Builds the memory from lessons.

    Args:
        lessons: The lessons, oldest first. One that is not a note changes nothing and is counted.
        forcing: The replacement of a note is forced at its step, and it ends the notes of later
            steps.
    """
    memory = AttemptMemory()
    for text in lessons:
        note = read_note(text)
        memory = (
            replace(memory, unread=memory.unread + 1)
            if note is None
            else after(memory, note, forcing=forcing)
        )
    return memory


def after(memory: AttemptMemory, note: Note, *, forcing: bool) -> AttemptMemory:
    """Returns the memory with one more note (the update rule of arXiv 2310.08740, section 4).

    A second lesson for a step rules out the click that the first suggested (the paper), and the
    click of the attempt (the paper's code). Only clicks can be ruled out.
    """
    step, raw = note.step, (*memory.raw, note.answer)
    if step is None or step != len(note.before) or not note.replacement:
        return replace(memory, raw=raw)
    ruled_out = {*memory.hidden(step)}
    new = _clicked(note.replacement, note.replacement_key)
    taken = _clicked(note.taken, note.taken_key)
    if (tried := memory.notes.get(step)) is not None:
        ruled_out.add(_clicked(tried.replacement, tried.replacement_key) or "")
    if new is not None and taken is not None and new != taken:
        ruled_out.add(taken)
    ruled_out.discard("")

    def still_applies(step_of_it: int) -> bool:
        # Lessons about later steps assume actions that are no longer taken.
        return step_of_it < step or (not forcing and step_of_it > step)

    def left(by_step: Mapping[int, _T]) -> dict[int, _T]:
        return {one: value for one, value in by_step.items() if still_applies(one)}

    forced = {one for one in memory.forced if still_applies(one)}
    if forcing and new not in ruled_out:
        forced.add(step)
    disabled = {step: frozenset(ruled_out)} if ruled_out else {}
    return AttemptMemory(
        notes={**left(memory.notes), step: note},
        forced=frozenset(forced),
        disabled={**left(memory.disabled), **disabled},
        raw=raw,
        unread=memory.unread,
        prefix=note.before,
        prefix_keys=note.before_keys if len(note.before_keys) == step else ("",) * step,
    )


def _clicked(line: str, key: str) -> str | None:
    """Returns the key, else the id, of the element that a line clicks. None for other lines."""
    number = clicked(line)
    return None if number is None else key or number


def write_note(note: Note) -> str:
    """Formats a note as one line of JSON."""
    return msgspec.json.encode(note).decode()


def read_note(text: str) -> Note | None:
    """Parses the note in a lesson. None for any other lesson."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=Note)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
