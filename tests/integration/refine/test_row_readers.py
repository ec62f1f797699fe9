"""Rows as their trainers' own loaders read them, each the real package in an own environment
(`make test-frameworks`).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from prill.protocols import Image, Message
from prill.refine.filter import ExportSpec, export_rows
from prill.refine.formats import KINDS
from prill.refine.selection import filter_steps
from tests.support.paths import SUPPORT
from tests.support.refine.builders import Parrot, attempt, click, picture, verdict

ENVIRONMENTS = os.environ.get("PRILL_FRAMEWORKS", "")
TRAINERS = ("llama-factory", "ms-swift", "axolotl")
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "DO_NOT_TRACK": "1",
}
ANSWERS = {"good": "click [7]\nwhere “Cart” is <image>", "bad": "click [9]"}
# What a page has, which is a mark to some trainers.
PAGE = "The page says <image> and ä"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ENVIRONMENTS, reason="no environments with trainers: make test-frameworks"
    ),
]
Read = Callable[[str], dict[str, Any]]


def written(folder: Path, name: str) -> None:
    """Rows of a good attempt and a bad one as `prill filter` writes them: two images in each, and
    none.
    """
    filtered = filter_steps(
        [attempt("good", click(7)), attempt("bad", click(9))],
        [verdict("good"), verdict("bad", False)],
    )
    folder.mkdir()
    red, blue = (Image(picture(folder / f"{color}.png", color)) for color in ("red", "blue"))

    class Teacher(Parrot):
        def __init__(self, *images: Image) -> None:
            self.first, self.second = ((images[0],), (images[1],)) if images else ((), ())

        def demonstrate(self, trajectory: Any, index: int) -> Any:
            question = (
                Message("system", ("Act.",)),
                Message("user", (*self.first, "An example")),
                Message("assistant", ("click [1]",)),
                Message("user", (PAGE, *self.second, "What now?")),
            )
            return question, ANSWERS[trajectory.id]

    spec = ExportSpec(rows=KINDS, format=name, copy_images=True)
    export_rows(folder / "text", filtered, Teacher(), spec)
    if name == "axolotl":  # its readers of pairs and of labelled rows know text alone
        spec = ExportSpec(rows=("sft",), format=name, copy_images=True)
    export_rows(folder / "images", filtered, Teacher(red, blue), spec)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """What a trainer reads; each is started once."""

    def start(name: str) -> dict[str, Any]:
        home = Path(ENVIRONMENTS, name)
        if not (home / ".installed").exists():
            pytest.skip(f"{name} is not installed; see {home}/install.log")
        folder = tmp_path_factory.mktemp("rows") / name
        written(folder, name)
        command = [str(home / "bin/python"), str(SUPPORT / "refine/readers.py"), name, str(folder)]
        caches = {"HF_HOME": str(folder / "cache")}
        done = subprocess.run(
            command,
            env={**os.environ, **QUIET, **caches},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]

    return cache(start)


def turns(name: str, answer: str, mark: str = "") -> list[list[str]]:
    """The conversation that was taught, pictures by that mark."""
    page = PAGE if name == "axolotl" else spoilt(PAGE)  # whose pictures have no mark in the text
    gap = "" if name == "axolotl" and mark else "\n\n"  # parts of a message are parts there
    return [
        ["system", "Act."],
        ["user", f"{mark}An example"],
        ["assistant", "click [1]"],
        ["user", f"{page}{gap}{mark}What now?"],
        ["assistant", answer],
    ]


def spoilt(text: str) -> str:
    return text.replace("<image>", "< image >")


def answers(name: str) -> tuple[str, str]:
    good, bad = ANSWERS["good"], ANSWERS["bad"]
    return (good if name == "axolotl" else spoilt(good)), bad


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_read_text_as_taught(name: str, read: Read) -> None:
    good, bad = answers(name)
    seen = read(name)["text"]
    assert [row["turns"] for row in seen["sft"]] == [turns(name, good)]
    assert [row["turns"] for row in seen["kto"]] == [turns(name, good), turns(name, bad)]
    assert [row["turns"] for row in seen["dpo"]] == [turns(name, good)]
    assert all(row["images"] == [] for rows in seen.values() for row in rows)


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_learn_the_last_answer(name: str, read: Read) -> None:
    good, bad = answers(name)
    for part, seen in read(name).items():
        if (name, part) != ("axolotl", "images"):
            assert [row["learned"] for row in seen["sft"]] == [good]
        if "kto" in seen:
            assert [(row["learned"], row["label"]) for row in seen["kto"]] == [
                (good, True),
                (bad, False),
            ]
            assert [(row["learned"], row["rejected"]) for row in seen["dpo"]] == [(good, bad)]


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_see_each_image_in_place(name: str, read: Read) -> None:
    good, bad = answers(name)
    seen = read(name)["images"]
    assert all(
        row["images"] == [[255, 0, 0], [0, 0, 255]] for rows in seen.values() for row in rows
    )
    wanted = {"sft": [good], "kto": [good, bad], "dpo": [good]}
    for kind, rows in seen.items():
        assert [row["turns"] for row in rows] == [
            turns(name, answer, "[picture]") for answer in wanted[kind]
        ]
    assert list(seen) == (["sft"] if name == "axolotl" else ["sft", "kto", "dpo"])


def test_axolotl_learns_examples_with_images(read: Read) -> None:
    """What its page of the rows warns of: the mark of what is learned is read in rows of text
    alone.
    """
    (row,) = read("axolotl")["images"]["sft"]
    assert row["learned"] == f"click [1]<|im_end|>{ANSWERS['good']}"
