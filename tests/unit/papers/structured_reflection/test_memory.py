"""The memory by step: what is forced, ruled out and forgotten follows from the lessons alone."""

from __future__ import annotations

from prill.papers.structured_reflection.memory import AttemptMemory, Note, build_memory, write_note


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
    memory = build_memory([note(1, "click id=7", "press Enter")])
    assert (memory.forced, memory.notes[1].replacement, memory.prefix) == (
        frozenset({1}),
        "click id=7",
        ("click id=50",),
    )
    assert not {0, 2} & memory.notes.keys() and not memory.disabled


def test_an_earlier_lesson_ends_later_ones() -> None:
    memory = build_memory([note(1, "click id=7"), note(3, "click id=8"), note(0, "click id=9")])
    assert (set(memory.notes), set(memory.disabled), memory.forced, memory.prefix) == (
        {0},
        {0},
        frozenset({0}),
        (),
    )


def test_second_lesson_rules_out_the_first() -> None:
    lessons = [note(0, "click id=2", "click id=1"), note(0, "click id=3", "click id=4")]
    assert build_memory(lessons).hidden(0) == {"1", "2", "4"}


def test_notes_that_contradict_change_nothing() -> None:
    assert build_memory([note(2, "click id=7", before=1)]) == AttemptMemory(
        raw=("at 2: click id=7",)
    )
