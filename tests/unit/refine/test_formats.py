"""Rows in the words of each trainer: what their readers look for is there, once, and read back it
is what was taught.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.protocols import Image, Message
from prill.refine.filter import filter_steps
from prill.refine.formats import FORMATS, KINDS, Kind, make_format
from prill.refine.rows import Row, dpo_rows, kto_rows, sft_rows
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


def test_text_rows_have_no_marks() -> None:
    for name in ("llama-factory", "ms-swift"):
        (row,) = converted(name, "sft")
        assert "images" not in row and "<image>" not in str(row)


def test_llama_factory_reads_its_columns(tmp_path: Path) -> None:
    """As its sharegpt converter does: turns alternate after the system text, and the columns are
    those of dataset_info.json.
    """
    info = json.loads(
        make_format("llama-factory").other_files(KINDS, images=True)["dataset_info.json"]
    )
    for kind in KINDS:
        described, tags = info[f"prill_{kind}"], info[f"prill_{kind}"]["tags"]
        assert (described["file_name"], described["formatting"]) == (f"{kind}.jsonl", "sharegpt")
        for row in converted("llama-factory", kind, picture(tmp_path / "s.png")):
            assert set(described["columns"].values()) <= row.keys()
            turns = row["messages"][1:]
            assert row["messages"][0][tags["role_tag"]] == tags["system_tag"]
            assert all(turn["role"] == ("user", "assistant")[i % 2] for i, turn in enumerate(turns))
            assert len(turns) % 2 == (1 if described.get("ranking") else 0)
    assert info["prill_kto"]["columns"]["kto_tag"] == "label"
    assert [row["label"] for row in converted("llama-factory", "kto")] == [True, False]
    (pair,) = converted("llama-factory", "dpo")
    assert (pair["chosen"]["content"], pair["rejected"]["content"]) == ("click [7]", "click [9]")


def test_swift_learns_the_last_answer_only() -> None:
    (row,) = converted("ms-swift", "sft")
    assert [turn.get("loss") for turn in row["messages"]] == [None, None, False, None, True]
    assert [row["label"] for row in converted("ms-swift", "kto")] == [True, False]
    (pair,) = converted("ms-swift", "dpo")
    assert (pair["messages"][-1]["content"], pair["rejected_response"]) == (
        "click [7]",
        "click [9]",
    )


def test_axolotl_has_images_in_place(tmp_path: Path) -> None:
    (row,) = converted("axolotl", "sft", picture(tmp_path / "s.png"))
    assert "images" not in row
    assert row["messages"][3]["content"] == [
        {"type": "text", "text": "The page says <image>"},
        {"type": "image", "path": "s.png"},
        {"type": "text", "text": "What now?"},
    ]
    assert [turn["training"] for turn in row["messages"]] == [False] * 4 + [True]
    (chat, _) = converted("axolotl", "kto")
    assert (chat["completion"][-1]["content"], chat["label"]) == ("click [7]", True)
    for kind in ("kto", "dpo"):
        with pytest.raises(UsageError, match=f"axolotl does not read {kind} rows with images"):
            converted("axolotl", kind, str(tmp_path / "s.png"))


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


def test_formats_tell_how_they_are_read() -> None:
    for name in FORMATS.entries:
        text = make_format(name).other_files(KINDS, images=True)["README.md"]
        assert all(kind in text for kind in KINDS)


def test_own_format_is_taken_by_name(tmp_path: Path) -> None:
    code = (
        "class Mine:\n    def row(self, kind, row): return {'k': kind}\n    def other_files(self, "
        "kinds, *, images): return {}\n"
    )
    (tmp_path / "own.py").write_text(code)
    assert make_format(f"{tmp_path}/own.py:Mine").row("sft", {}) == {"k": "sft"}
    with pytest.raises(UsageError, match=r"unknown row format 'trll' \(did you mean 'trl'\?\)"):
        make_format("trll")
