"""Rows in the words of each trainer: what their readers look for is there, once, and read back it
is what was taught.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.protocols import Image, Message
from prill.refine.formats import FORMATS, KINDS, Kind, make_format
from prill.refine.rows import Row, dpo_rows, kto_rows, sft_rows
from prill.refine.selection import filter_steps
from tests.support.refine.builders import Parrot, attempt, click, picture, verdict

MAKERS = {"sft": sft_rows, "kto": kto_rows, "dpo": dpo_rows}
ANSWERS = {"good": "click [7]", "bad": "click [9]"}


def rows(kind: Kind, image: str | None = None) -> list[Row]:
    """Rows of a good attempt and a bad one, of a policy whose prompt has a worked example."""
    filtered = filter_steps(
        [attempt("good", click(7)), attempt("bad", click(9))],
        [verdict("good"), verdict("bad", False)],
    )
    picture = (Image(image),) if image else ()
    example = (Message("user", (*picture, "An example")), Message("assistant", ("click [1]",)))
    question = (
        Message("system", ("Act.",)),
        *example,
        Message("user", ("The page says <image>", *picture, "What now?")),
    )

    class Teacher(Parrot):
        def demonstrate(self, trajectory: Any, index: int) -> Any:
            return question, ANSWERS[trajectory.id]

    return list(MAKERS[kind](filtered, Teacher(), place=lambda path: Path(path).name))


def converted(name: str, kind: Kind, image: str | None = None) -> list[Row]:
    form = make_format(name)
    return [form.row(kind, row) for row in rows(kind, image)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama-factory", "ms-swift"])
def test_marks_are_as_many_as_images(name: str, kind: Kind, tmp_path: Path) -> None:
    for row in converted(name, kind, picture(tmp_path / "s.png")):
        texts = "".join(turn["content"] for turn in row["messages"])
        assert row["images"] == ["s.png", "s.png"]
        assert texts.count("<image>") == 2, "the page's own mark is spoilt"
        assert "The page says < image >\n\n<image>What now?" in texts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(FORMATS.entries))
def test_formats_lose_no_word(name: str, kind: Kind) -> None:
    plain, other = rows(kind), converted(name, kind)
    assert [(row["trajectory"], row["step"]) for row in other] == [
        (row["trajectory"], row["step"]) for row in plain
    ]

    def words(row: Row) -> set[str]:
        texts = re.findall(r"'(?:content|text|rejected_response)': '([^']*)'", str(row))
        return {text.replace("< image >", "<image>") for text in texts}

    assert [words(row) for row in other] == [words(row) for row in plain]


def test_own_format_is_taken_by_name(tmp_path: Path) -> None:
    code = (
        "class Mine:\n    def row(self, kind, row): return {'k': kind}\n    def other_files(self, "
        "kinds, *, images): return {}\n"
    )
    (tmp_path / "own.py").write_text(code)
    assert make_format(f"{tmp_path}/own.py:Mine").row("sft", {}) == {"k": "sft"}
    with pytest.raises(UsageError, match=r"unknown row format 'trll' \(did you mean 'trl'\?\)"):
        make_format("trll")
