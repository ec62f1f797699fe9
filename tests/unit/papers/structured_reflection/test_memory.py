"""The memory by step: what is forced, ruled out and forgotten follows from the lessons alone."""

from __future__ import annotations

import pytest

from prill.papers.structured_reflection.actions import clicked
from prill.papers.structured_reflection.memory import (
    AttemptMemory,
    Note,
    Rules,
    build_memory,
    write_note,
)

RULES = Rules(target=clicked)


def note(step: int, replacement: str, taken: str = "click id=1", before: int | None = None) -> str:
    done = tuple(f"click id={50 + i}" for i in range(step if before is None else before))
    return write_note(
        Note(
            state="FAILED",
            step=step,
            answer=f"at {step}: {replacement}",
            replacement=replacement,
            taken=taken,
            before=done,
        )
    )


def test_a_lesson_forces_its_step_only() -> None:
    memory = build_memory([note(1, "click id=7", "press Enter")], RULES)
    assert (memory.forced, memory.notes[1].replacement, memory.prefix) == (
        frozenset({1}),
        "click id=7",
        ("click id=50",),
    )
    assert not {0, 2} & memory.notes.keys() and not memory.disabled


def test_an_earlier_lesson_ends_later_ones() -> None:
    memory = build_memory(
        [note(1, "click id=7"), note(3, "click id=8"), note(0, "click id=9")], RULES
    )
    assert (set(memory.notes), set(memory.disabled), memory.forced, memory.prefix) == (
        {0},
        {0},
        frozenset({0}),
        (),
    )


@pytest.mark.parametrize(
    ("disabling", "ruled_out"),
    [("paper", {"2"}), ("reference", {"1", "4"}), ("both", {"1", "2", "4"})],
)
def test_second_lesson_rules_out_the_first(disabling: str, ruled_out: set[str]) -> None:
    rules = Rules(target=clicked, disabling=disabling)  # type: ignore[arg-type]
    lessons = [note(0, "click id=2", "click id=1"), note(0, "click id=3", "click id=4")]
    assert build_memory(lessons, rules).hidden(0) == ruled_out


def test_what_is_ruled_out_is_not_forced() -> None:
    memory = build_memory([note(0, "click id=2"), note(0, "click id=1", "click id=2")], RULES)
    assert 0 in memory.notes and not memory.forced and "1" in memory.hidden(0)


def test_keys_cannot_be_ruled_out() -> None:
    memory = build_memory(
        [note(0, "press Enter", "press Tab"), note(0, "press Tab", "press Enter")], RULES
    )
    assert (memory.disabled, memory.forced) == ({}, frozenset({0}))


@pytest.mark.parametrize(
    "text",
    [
        "Be more careful next time.",
        "[]",
        '{"step": 1}',
        "",
        '{"format": "another", "state": "FAILED"}',
        "\ud800",
    ],
)
def test_what_is_no_note_is_counted(text: str) -> None:
    assert build_memory([text], RULES) == AttemptMemory(unread=1)


def test_notes_that_contradict_change_nothing() -> None:
    assert build_memory([note(2, "click id=7", before=1)], RULES) == AttemptMemory(
        raw=("at 2: click id=7",)
    )
